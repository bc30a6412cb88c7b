"""The request of ../README.md in Python: `urllib.request`, as anywhere else."""

import json
import urllib.error
import urllib.request

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import (
    Annotations,
    ErrorClass,
    Invocation,
    Output,
    Output_Value,
    Tool,
    ToolError,
)

FETCH = Tool(
    name="fetch",
    title="Fetch",
    description="Sends a request and returns what the server answered.",
    input_schema=json.dumps(
        {
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "Where to send it, with https://."},
                "body": {"type": "string", "description": "What to post. Without it, the URL is got."},
            },
            "required": ["url"],
            "additionalProperties": False,
        }
    ),
    output_schema=None,
    annotations=Annotations.OPEN_WORLD,
    examples=[],
)


class Tools(exports.Tools):
    def list_tools(self) -> list[Tool]:
        return [FETCH]

    def call(self, invocation: Invocation) -> Output:
        arguments = json.loads(invocation.arguments)
        if invocation.tool != FETCH.name:
            raise Err(ToolError(ErrorClass.CORRECTABLE, f"no tool `{invocation.tool}` here", None))
        return Output_Value(json.dumps(fetch(arguments["url"], arguments.get("body"))))


def fetch(url: str, body: str | None) -> dict:
    try:
        request = urllib.request.Request(url)
        if body is not None:
            request.data = body.encode()
            request.add_header("content-type", "text/plain")
        response = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        response = error  # a response too, of a status that is no success
    except ValueError as error:
        raise Err(ToolError(ErrorClass.CORRECTABLE, str(error), None)) from error
    text = response.read().decode("utf-8", "replace")
    return {
        "status": response.status,
        "type": response.headers.get("content-type", ""),
        "text": text[:1000],
    }
