"""The wordcount of ../README.md in Python."""

import json
import re

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import (
    Annotations,
    ErrorClass,
    Example,
    Invocation,
    Output,
    Output_Value,
    Tool,
    ToolError,
)

COUNT = Tool(
    name="count",
    title="Count words",
    description="Counts the words, lines and characters of a text and finds its longest word. Use "
    "it instead of counting by eye.",
    input_schema=json.dumps(
        {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The text to count in."}},
            "required": ["text"],
            "additionalProperties": False,
        }
    ),
    output_schema=json.dumps(
        {
            "type": "object",
            "properties": {
                "words": {
                    "type": "integer",
                    "description": "Runs of characters that are not white space.",
                },
                "lines": {
                    "type": "integer",
                    "description": "Lines, each ended by a line feed or the end of the text.",
                },
                "characters": {"type": "integer", "description": "Unicode characters."},
                "longest": {
                    "type": "string",
                    "description": "The longest word, the first of them.",
                },
            },
            "required": ["words", "lines", "characters", "longest"],
            "additionalProperties": False,
        }
    ),
    annotations=Annotations.READ_ONLY | Annotations.IDEMPOTENT,
    examples=[
        Example(
            task="How many words are in: the quick brown fox",
            arguments=json.dumps({"text": "the quick brown fox"}),
            output=json.dumps({"words": 4, "lines": 1, "characters": 19, "longest": "quick"}),
            answer="There are 4 words.",
        )
    ],
)

# The Unicode property White_Space. `str.split()` and `\s` also cut at U+001C to U+001F.
WORD = re.compile("[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


class Tools(exports.Tools):
    """What the component exports."""

    def list_tools(self) -> list[Tool]:
        return [COUNT]

    def call(self, invocation: Invocation) -> Output:
        if invocation.tool != COUNT.name:
            message = f"no tool `{invocation.tool}` here; there is: {COUNT.name}"
            raise Err(ToolError(ErrorClass.CORRECTABLE, message, None))
        text = json.loads(invocation.arguments)["text"]
        return Output_Value(json.dumps(count(text)))


def count(text: str) -> dict:
    words = WORD.findall(text)
    return {
        "words": len(words),
        "lines": text.count("\n") + (not text.endswith("\n") and text != ""),
        "characters": len(text),
        # `max` returns the first of the longest.
        "longest": max(words, key=len, default=""),
    }
