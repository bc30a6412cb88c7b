"""A Toolhold module: one tool. Replace it with yours; README.md says how to build and try it.

The module is imported once, during the build, and is in memory when a call begins: imports and
tables at the top level cost a call nothing. Every call is a fresh instance.
"""

import re
from collections import Counter
from dataclasses import dataclass

# `Tools` is what the component exports: every function below that is a tool.
from toolhold import Annotated, Annotations, Example, Field, Tools, tool


@dataclass
class Frequency:
    word: str
    count: int


@dataclass
class Frequencies:
    """The result: becomes the output schema."""

    words: Annotated[list[Frequency], "The most frequent words, most frequent first."]
    distinct: Annotated[int, "How many different words there are."]


# Descriptions are for the model: it chooses the tool by the docstring and fills the parameters by their texts.
@tool(
    title="Word frequency",
    annotations=Annotations.READ_ONLY | Annotations.IDEMPOTENT,
    examples=[
        Example(
            task="Which word is most frequent in: to be or not to be, to",
            arguments={"text": "to be or not to be, to", "top": 1},
            output={"words": [{"word": "to", "count": 3}], "distinct": 4},
            answer='The most frequent word is "to": it occurs 3 times.',
        )
    ],
)
def word_frequency(
    text: Annotated[str, "The text to count in."],
    top: Annotated[int, Field("How many words to return.", minimum=1, maximum=1000)] = 10,
) -> Frequencies:
    """Counts how often each word occurs in a text and returns the most frequent ones."""
    counts = Counter(re.findall(r"[^\W_]+(?:'[^\W_]+)*", text.lower()))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Frequencies([Frequency(word, count) for word, count in ranked[:top]], len(counts))
