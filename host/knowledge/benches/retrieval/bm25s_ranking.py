# Ranks whole documents with bm25s as its own README does: English stop words, Snowball's stemmer, defaults otherwise.
import json
import sys

import bm25s
import Stemmer

given = json.load(sys.stdin)
stemmer = Stemmer.Stemmer("english")


def tokens(texts):
    return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)


retriever = bm25s.BM25()
retriever.index(tokens([document["text"] for document in given["documents"]]), show_progress=False)
found, _ = retriever.retrieve(tokens(given["questions"]), k=min(10, len(given["documents"])), show_progress=False)
ids = [document["id"] for document in given["documents"]]
json.dump([[ids[at] for at in row] for row in found.tolist()], sys.stdout)
