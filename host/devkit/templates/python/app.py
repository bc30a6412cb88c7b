"""A Toolhold module: one tool. Replace it with yours; README.md says how to build and try it.

The module is imported once, during the build, and is in memory when a call begins: imports and
tables at the top level cost a call nothing. Every call is a fresh instance.
"""

import json
import re
from collections import Counter

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

# Descriptions are for the model: it chooses and fills the tool by them.
WORD_FREQUENCY = Tool(
    name="word_frequency",
    title="Word frequency",
    description="Counts how often each word occurs in a text and returns the most frequent ones.",
    input_schema=json.dumps(
        {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The text to count in."},
                "top": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 1000,
                    "description": "How many words to return (10 if not given).",
                },
            },
            "required": ["text"],
            "additionalProperties": False,
        }
    ),
    output_schema=json.dumps(
        {
            "type": "object",
            "properties": {
                "words": {
                    "type": "array",
                    "description": "The most frequent words, most frequent first.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "word": {"type": "string"},
                            "count": {"type": "integer"},
                        },
                        "required": ["word", "count"],
                    },
                },
                "distinct": {
                    "type": "integer",
                    "description": "How many different words there are.",
                },
            },
            "required": ["words", "distinct"],
        }
    ),
    annotations=Annotations.READ_ONLY | Annotations.IDEMPOTENT,
    examples=[
        Example(
            task="Which word is most frequent in: to be or not to be, to",
            arguments=json.dumps({"text": "to be or not to be, to", "top": 1}),
            output=json.dumps({"words": [{"word": "to", "count": 3}], "distinct": 4}),
            answer='The most frequent word is "to": it occurs 3 times.',
        )
    ],
)


class Tools(exports.Tools):
    """What the component exports."""

    def list_tools(self) -> list[Tool]:
        return [WORD_FREQUENCY]

    def call(self, invocation: Invocation) -> Output:
        # The host has checked the arguments against the schema.
        arguments = json.loads(invocation.arguments)
        if invocation.tool == WORD_FREQUENCY.name:
            result = word_frequency(arguments["text"], arguments.get("top", 10))
            return Output_Value(json.dumps(result))
        raise correctable(f"no tool `{invocation.tool}` here; there is: {WORD_FREQUENCY.name}")


def word_frequency(text: str, top: int) -> dict:
    if not 1 <= top <= 1000:
        raise correctable("`top` must be between 1 and 1000")
    counts = Counter(re.findall(r"[^\W_]+(?:'[^\W_]+)*", text.lower()))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [{"word": word, "count": count} for word, count in ranked[:top]]
    return {"words": words, "distinct": len(counts)}


def correctable(message: str) -> Err:
    """A failure that the model can mend by changing the call: say how."""
    return Err(ToolError(ErrorClass.CORRECTABLE, message, None))
