"""The code interpreter: runs Python that a model wrote, inside the sandbox.

Everything imported here is imported once, when the component is built, and is in memory when a call
begins; Python's library is not carried along, so what is not in `LIBRARY` cannot be imported later.
Each call is a fresh instance: nothing that code defines is there in the next call. `scratch` moves
files in and out of the granted directory, if there is one.
"""

import ast
import contextlib
import importlib
import io
import json
import linecache
import math
import os
import sys
import traceback

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

import scratch

# What code may import: useful without files, network or threads.
LIBRARY = """
    abc array ast base64 bisect calendar cmath collections collections.abc colorsys contextlib copy
    csv dataclasses datetime decimal difflib enum fnmatch fractions functools graphlib hashlib heapq
    glob hmac html html.parser inspect io ipaddress itertools json keyword locale math numbers
    operator os os.path pathlib pprint queue random re secrets shlex shutil sqlite3 statistics string struct sys tempfile
    textwrap time timeit traceback types typing unicodedata urllib.parse uuid xml.etree.ElementTree zlib
""".split()
# What the library itself imports only when a function first needs it: long integers as text,
# `strptime`, codecs.
LAZY = """
    _pylong _strptime encodings.ascii encodings.base64_codec encodings.cp1252 encodings.hex_codec
    encodings.idna encodings.latin_1 encodings.punycode encodings.raw_unicode_escape
    encodings.rot_13 encodings.unicode_escape encodings.utf_16 encodings.utf_16_le
    encodings.utf_16_be encodings.utf_32 encodings.utf_7 encodings.utf_8_sig
""".split()
for _name in LIBRARY + LAZY:
    importlib.import_module(_name)

# What is printed goes into the model's context: more than this helps nobody.
MAX_STDOUT_CHARACTERS = 16_000
# A result beyond this is data to be reduced in the code, not to be read.
MAX_RESULT_CHARACTERS = 64_000
# Deeper nesting is a mistake or a cycle; what lies below is shown as its repr.
MAX_DEPTH = 50
# Python refuses to write integers beyond 4300 digits, which factorials reach; the cost of more is
# the call's own fuel.
sys.set_int_max_str_digits(MAX_RESULT_CHARACTERS)
# The name that tracebacks show for the code.
FILENAME = "<code>"

INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "code": {
            "type": "string",
            "description": "Python 3 source. The value of the last expression is the result, or "
            "else the variable `result`. Print what else you want to see.",
        },
        "input": {"description": "Any JSON; the code sees it as the variable `input`."},
        "files": {
            "type": "array",
            "description": 'Files that the code can open: `open("data.csv")`. Needs the scratch grant.',
            "maxItems": 64,
            "items": scratch.FILE_SCHEMA,
        },
    },
    "required": ["code"],
    "additionalProperties": False,
}

OUTPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "stdout": {"type": "string", "description": "What the code printed."},
        "result": {"description": "The result as JSON, with reprs for what JSON cannot hold."},
        "files": {
            "type": "array",
            "description": "The files that the code wrote or changed.",
            "items": scratch.WRITTEN_SCHEMA,
        },
    },
    "required": ["stdout", "result"],
    "additionalProperties": False,
}

RUN = Tool(
    name="run",
    title="Run Python",
    description="Runs Python code and returns what it printed and the value of its last expression. "
    "Use it for computations with several steps, for data, dates, statistics, parsing and sorting. "
    "The standard library is there, as far as it needs no network, threads or subprocesses; third "
    "party packages are not. No variable is kept between calls.",
    input_schema=json.dumps(INPUT_SCHEMA),
    output_schema=json.dumps(OUTPUT_SCHEMA),
    annotations=Annotations.READ_ONLY,
    examples=[
        Example(
            task="What is the sum of all primes below 100?",
            arguments=json.dumps(
                {"code": "sum(n for n in range(2, 100) if all(n % d for d in range(2, n)))"}
            ),
            output=json.dumps({"stdout": "", "result": 1060}),
            answer="The sum of all primes below 100 is 1060.",
        ),
        Example(
            task="What is the median of 3, 9, 4 and 11?",
            arguments=json.dumps(
                {"code": "import statistics\nstatistics.median(input)", "input": [3, 9, 4, 11]}
            ),
            output=json.dumps({"stdout": "", "result": 6.5}),
            answer="The median is 6.5.",
        ),
    ],
)


class Tools(exports.Tools):
    """What the world exports."""

    def list_tools(self) -> list[Tool]:
        return [RUN]

    def call(self, invocation: Invocation) -> Output:
        if invocation.tool != RUN.name:
            raise correctable(f"no tool `{invocation.tool}` here; there is: {RUN.name}")
        arguments = json.loads(invocation.arguments)
        code = arguments.get("code")
        if not isinstance(code, str):
            raise correctable("`code` is missing: give the Python source as a string")
        files = arguments.get("files") or []
        place = scratch.granted()
        if files and place is None:
            raise correctable(
                "this module has no scratch directory for `files`: pass the data as `input`, or ask "
                "the operator to grant one (toolhold modules grant python --scratch)"
            )
        try:
            return Output_Value(to_text(with_files(code, arguments.get("input"), files, place)))
        except scratch.BadFile as error:
            raise correctable(str(error))


def with_files(code: str, value: object, files: list[dict], place: str | None) -> dict:
    """Runs `code` in the scratch directory, if there is one; what it wrote there is returned."""
    if place is None:
        return run(code, value)
    scratch.put(place, files)
    before = scratch.snapshot(place)
    os.chdir(place)
    output = run(code, value)
    if written := scratch.written_since(place, before):
        output["files"] = written
    return output


class Transcript(io.StringIO):
    """Standard output and error of the code: the beginning is kept, the rest is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.room = MAX_STDOUT_CHARACTERS
        self.dropped = 0

    def write(self, text: str) -> int:
        kept = text[: self.room]
        self.room -= len(kept)
        self.dropped += len(text) - len(kept)
        super().write(kept)
        return len(text)

    def text(self) -> str:
        note = f"\n[{self.dropped} more characters were cut]" if self.dropped else ""
        return self.getvalue() + note


def run(code: str, value: object) -> dict:
    """Runs `code` and returns stdout and result; raises `Err` with the traceback if it fails."""
    # `__name__` as in a script: models guard their code with it.
    scope = {"__name__": "__main__", "input": value}
    transcript = Transcript()
    # Tracebacks quote the source from here.
    linecache.cache[FILENAME] = (len(code), None, code.splitlines(keepends=True), FILENAME)
    with contextlib.redirect_stdout(transcript), contextlib.redirect_stderr(transcript):
        try:
            result = evaluate(code, scope)
            result = result if result is not None else scope.get("result")
            return {"stdout": transcript.text(), "result": as_json(result)}
        except SystemExit as end:
            if end.code in (None, 0):
                return {"stdout": transcript.text(), "result": as_json(scope.get("result"))}
            raise correctable(f"the code ended itself: SystemExit({end.code!r})", transcript)
        except BaseException as error:
            raise correctable(explain(error), transcript)


def evaluate(code: str, scope: dict) -> object:
    """Executes `code`; the value of its last statement, if that is an expression."""
    tree = ast.parse(code, FILENAME)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, FILENAME, "exec"), scope)
    return eval(compile(last, FILENAME, "eval"), scope) if last else None


def as_json(value: object) -> object:
    """`value` as JSON can hold it; raises `ValueError` if that is too long to return."""
    value = plain(value, MAX_DEPTH)
    length = len(json.dumps(value))
    if length <= MAX_RESULT_CHARACTERS:
        return value
    raise ValueError(
        f"the result has {length} characters, at most {MAX_RESULT_CHARACTERS} are returned: "
        "return a part or a summary of it"
    )


def plain(value: object, depth: int) -> object:
    """Collections become lists and objects; what JSON has no type for becomes its repr."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        # Readers of JSON keep 64 bits, or turn the rest into a rounded float.
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if depth == 0:
        return repr(value)
    if isinstance(value, dict):
        return {str(key): plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        value = ordered(value)
    if isinstance(value, (list, tuple)):
        return [plain(item, depth - 1) for item in value]
    return repr(value)


def ordered(items: set | frozenset) -> list:
    """A set in an order that does not change from call to call."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=repr)


def explain(error: BaseException) -> str:
    """The traceback as far as it is the code's own: without our frames above it."""
    report = traceback.TracebackException.from_exception(error, limit=None)
    trim(report, set())
    text = "".join(report.format()).strip()
    if len(text) > 4_000:
        text = text[:1_500] + "\n[…]\n" + text[-2_000:]
    if isinstance(error, ModuleNotFoundError):
        text += f"\nOnly these modules can be imported: {' '.join(LIBRARY)}"
    return text


def trim(report: traceback.TracebackException, seen: set[int]) -> None:
    """Drops the frames of this file from a report and from what it was caused by."""
    if id(report) in seen:
        return
    seen.add(id(report))
    own = [frame.filename == FILENAME for frame in report.stack]
    first = own.index(True) if True in own else len(own)
    report.stack = traceback.StackSummary.from_list(report.stack[first:])
    for cause in (report.__cause__, report.__context__):
        if cause is not None:
            trim(cause, seen)


def correctable(message: str, transcript: Transcript | None = None) -> Err:
    """An error that the model can mend by changing the code; what was printed helps it."""
    printed = transcript.text() if transcript else ""
    data = to_text({"stdout": printed}) if printed else None
    return Err(ToolError(ErrorClass.CORRECTABLE, well_formed(message), data))


def to_text(value: object) -> str:
    return well_formed(json.dumps(value, ensure_ascii=False))


def well_formed(text: str) -> str:
    """Half of a surrogate pair is legal in Python and in nothing that reads our answer."""
    return text.encode("utf-8", "replace").decode("utf-8")
