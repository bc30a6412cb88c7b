-- Passages of documents, with SQLite's index of words.

CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document TEXT NOT NULL REFERENCES documents (id),
    -- The collection's id without its hyphens: a word of the index, so that it finds in one collection alone.
    collection TEXT NOT NULL,
    -- From 0 on within the document.
    number BIGINT NOT NULL,
    -- Headings that it stands under, outermost first, each on a line.
    heading TEXT NOT NULL,
    text TEXT NOT NULL,
    -- Where it is in the document's text, in bytes of UTF-8.
    starts BIGINT NOT NULL,
    ends BIGINT NOT NULL,
    -- The words by which it is found, separated by spaces.
    words TEXT NOT NULL,
    -- Numbers of 16 bits (IEEE 754), little-endian; null without vectors.
    vector BLOB
);

CREATE UNIQUE INDEX passages_by_document ON passages (document, number);
CREATE INDEX passages_by_collection ON passages (collection, id);

CREATE VIRTUAL TABLE passage_words USING fts5(
    collection, words, content = 'passages', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 0'
);

-- What is deleted leaves the index at once, and not with some later merge.
INSERT INTO passage_words (passage_words, rank) VALUES ('secure-delete', 1);

CREATE TRIGGER passages_added AFTER INSERT ON passages BEGIN
    INSERT INTO passage_words (rowid, collection, words) VALUES (new.id, new.collection, new.words);
END;

CREATE TRIGGER passages_removed AFTER DELETE ON passages BEGIN
    INSERT INTO passage_words (passage_words, rowid, collection, words)
        VALUES ('delete', old.id, old.collection, old.words);
END;
