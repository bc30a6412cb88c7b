"""Tools of a Toolhold module, from typed functions.

    from toolhold import Annotated, Field, Tools, tool

    @tool()
    def shout(text: Annotated[str, "The text to shout."]) -> str:
        '''Writes a text in capital letters.'''
        return text.upper()

`app.py` imports `Tools`, which is what the component exports. The docstring is the tool's description, and the
annotations become its schemas, once, while the module is built: a type that has no schema ends the build. What a
call brings is converted to the annotated types before the function sees it, and its result to JSON.

Types: str, int, float, bool, None, Any, list, dict with string keys, Literal, Enum, unions, dataclasses, other names of
these (`type`, `NewType`), and models of pydantic where it is installed. This folder is yours to change.
"""

import dataclasses
import enum
import inspect
import json
import sys
import traceback
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import types as wit
from wit_world.imports.types import Annotations, ErrorClass, Invocation, Output, Output_Value, ToolError

__all__ = [
    "Annotated",
    "Annotations",
    "Example",
    "Field",
    "Tools",
    "correctable",
    "fatal",
    "retryable",
    "tool",
]


class Field:
    """What a schema says besides the type: `Annotated[int, Field("How many.", minimum=1, maximum=9)]`.

    A text alone is a description. Other keywords are those of JSON Schema (maxLength, pattern, maxItems).
    """

    def __init__(self, description: str | None = None, **keywords: Any) -> None:
        self.keywords = keywords if description is None else {"description": description, **keywords}


@dataclasses.dataclass
class Example:
    """A worked example: small models imitate it. Arguments and output are plain JSON values."""

    task: str
    arguments: dict[str, Any]
    output: Any
    answer: str


def tool(
    *, title: str | None = None, annotations: Annotations = Annotations(0), examples: list[Example] | None = None
) -> Callable[[Callable], Callable]:
    """Offers a function as a tool of its name."""

    def offer(function: Callable) -> Callable:
        name = function.__name__
        description = " ".join((function.__doc__ or "").split())
        if not description:
            raise TypeError(f"{name} needs a docstring: a model chooses the tool by it")
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name} is `async`, and there is no event loop in a call: write it as a plain function")
        parameters = inspect.signature(function).parameters
        hints = get_type_hints(function, include_extras=True)
        returned = hints.pop("return", Any)
        for parameter in parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"{name}: `{parameter}` cannot be an argument of a tool, which has a name and one value")
            if parameter.name not in hints:
                raise TypeError(f"{name}: the parameter `{parameter.name}` needs a type")
        defaults = {each.name: each.default for each in parameters.values() if each.default is not each.empty}
        described = wit.Tool(
            name=name,
            title=title,
            description=description,
            input_schema=_json(_object(hints, defaults, (), name)),
            output_schema=None if returned is Any else _json(_schema(returned, (), f"the result of {name}", False)),
            annotations=annotations,
            examples=[
                wit.Example(each.task, _json(each.arguments), _json(each.output), each.answer)
                for each in examples or []
            ],
        )
        _offered[name] = _Offered(described, function, hints, set(hints) - set(defaults))
        return function

    return offer


def correctable(message: str) -> Err:
    """A failure that the model can mend by changing the call: `raise correctable(…)`, and say how."""
    return Err(ToolError(ErrorClass.CORRECTABLE, message, None))


def retryable(message: str) -> Err:
    """A failure after which the same call may work later."""
    return Err(ToolError(ErrorClass.RETRYABLE, message, None))


def fatal(message: str) -> Err:
    """A failure that only the operator can mend, by configuring or granting something."""
    return Err(ToolError(ErrorClass.FATAL, message, None))


class Tools(exports.Tools):
    """What the component exports: every function that is a tool."""

    def list_tools(self) -> list[wit.Tool]:
        return [offered.described for offered in _offered.values()]

    def call(self, invocation: Invocation) -> Output:
        offered = _offered.get(invocation.tool)
        if offered is None:
            raise correctable(f"no tool `{invocation.tool}` here; there is: {', '.join(_offered)}")
        try:
            given = json.loads(invocation.arguments)
            arguments = _members(given, offered.hints, offered.required, "the arguments")
        except _Misfit as misfit:
            raise correctable(f"the arguments do not fit {invocation.tool}: {misfit}") from None
        try:
            return Output_Value(_json(offered.function(**arguments)))
        except Err:
            raise
        except Exception as error:
            # The errors of requests over HTTP say themselves what to do and whose move it is.
            if as_told := getattr(error, "tool_error", None):
                raise Err(as_told()) from None
            traceback.print_exc()
            sys.stderr.flush()
            raise fatal(_told(invocation.tool, error)) from None


def _told(name: str, error: Exception) -> str:
    # The last frame of the author's own code says more than one inside of a library.
    home = getattr(sys.modules.get("app"), "__file__", "").rpartition("/")[0] + "/"
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename.startswith(home)] or frames
    where = f" ({own[-1].filename.removeprefix(home)}, line {own[-1].lineno}, in {own[-1].name})" if own else ""
    said = "".join(traceback.format_exception_only(error)).strip()
    return f"{name} raised {said}{where}"


@dataclasses.dataclass
class _Offered:
    described: wit.Tool
    function: Callable
    hints: dict[str, Any]
    required: set[str]


_offered: dict[str, _Offered] = {}

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _without_alias(hint: Any) -> Any:
    """The type behind `type Name = …` and `NewType`."""
    while True:
        if isinstance(hint, typing.TypeAliasType):
            hint = hint.__value__
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return hint


def _schema(hint: Any, inside: tuple, place: str, is_read: bool) -> dict[str, Any]:
    """The schema of a type. `inside` has the classes around it, `place` is told where it has none."""
    hint = _without_alias(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = _schema(arguments[0], inside, place, is_read)
        for note in arguments[1:]:
            if isinstance(note, (str, Field)):
                schema.update(Field(note).keywords if isinstance(note, str) else note.keywords)
        return schema
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is list and len(arguments) == 1:
        return {"type": "array", "items": _schema(arguments[0], inside, place, is_read)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1], inside, place, is_read)}
    if origin is Literal:
        return {"enum": [_value(each) for each in arguments]}
    if origin in (Union, types.UnionType):
        members = [_schema(member, inside, place, is_read) for member in arguments]
        if all(set(member) == {"type"} for member in members):
            return {"type": [member["type"] for member in members]}
        return {"anyOf": members}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint in inside:
            raise TypeError(f"{place}: {hint.__name__} contains itself, which a model cannot be told")
        hints, defaults = _fields(hint, is_read)
        return _object(hints, defaults, (*inside, hint), hint.__name__, is_read)
    if _is_model(hint):
        return _model_schema(hint)
    raise TypeError(
        f"{place}: {hint!r} has no JSON Schema; use str, int, float, bool, None, Any, list[…], dict[str, …], Literal, "
        "an Enum, a union or a dataclass of these"
    )


def _is_model(hint: Any) -> bool:
    """Whether it is a model of pydantic, whose first version is pure Python, so that a component can have it."""
    return isinstance(hint, type) and hasattr(hint, "parse_obj")


def _model_schema(model: Any) -> dict[str, Any]:
    # A copy: pydantic keeps what it gave.
    made = dict(model.model_json_schema() if hasattr(model, "model_json_schema") else model.schema())
    definitions = {**made.pop("definitions", {}), **made.pop("$defs", {})}

    def inlined(node: Any, inside: tuple) -> Any:
        if isinstance(node, list):
            return [inlined(item, inside) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            name = node["$ref"].rsplit("/", 1)[-1]
            if name in inside:
                raise TypeError(f"{model.__name__}: {name} contains itself, which a model cannot be told")
            return inlined(definitions[name], (*inside, name))
        # A title says what the name says; a property of that name is no text.
        return {key: inlined(each, inside) for key, each in node.items() if key != "title" or not isinstance(each, str)}

    return inlined(made, ())


def _object(
    hints: dict[str, Any], defaults: dict[str, Any], inside: tuple, name: str, is_read: bool = True
) -> dict[str, Any]:
    properties = {}
    for key, hint in hints.items():
        properties[key] = _schema(hint, inside, f"`{key}` of {name}", is_read)
        default = defaults.get(key)
        default = default.value if isinstance(default, enum.Enum) else default
        if isinstance(default, (str, int, float, bool)):
            properties[key]["default"] = default
    required = [key for key in hints if key not in defaults]
    closed = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return closed if required else {key: value for key, value in closed.items() if key != "required"}


def _value(member: Any) -> Any:
    return member.value if isinstance(member, enum.Enum) else member


def _fields(kind: type, is_read: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields' types, and the defaults of those that may be left out. A result has all of them, also what a
    dataclass computes itself (`field(init=False)`)."""
    hints = get_type_hints(kind, include_extras=True)
    fields = [field for field in dataclasses.fields(kind) if field.init or not is_read]
    has_default = [
        field
        for field in fields
        if is_read and (field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING)
    ]
    return {field.name: hints[field.name] for field in fields}, {field.name: field.default for field in has_default}


class _Misfit(Exception):
    """A value that is not of its annotated type."""


def _read(hint: Any, value: Any, place: str) -> Any:
    """The value as the annotated type. The host has checked it against the schema."""
    hint = _without_alias(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _read(arguments[0], value, place)
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint in _PLAIN:
        if isinstance(value, hint) and not (hint is not bool and isinstance(value, bool)):
            return value
        raise _Misfit(f"{place} must be of type {_PLAIN[hint]}")
    if origin is list:
        if isinstance(value, list):
            return [_read(arguments[0], item, f"{place}[{index}]") for index, item in enumerate(value)]
        raise _Misfit(f"{place} must be of type array")
    if origin is dict:
        if isinstance(value, dict):
            return {key: _read(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
        raise _Misfit(f"{place} must be of type object")
    if origin is Literal:
        for each in arguments:
            # True equals 1, and is another value.
            if _value(each) == value and isinstance(value, bool) == isinstance(_value(each), bool):
                return each
        raise _Misfit(f"{place} must be one of {_json([_value(each) for each in arguments])}")
    if origin in (Union, types.UnionType):
        for member in arguments:
            try:
                return _read(member, value, place)
            except _Misfit:
                pass
        raise _Misfit(f"{place} has none of its types")
    if issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            raise _Misfit(f"{place} must be one of {_json([member.value for member in hint])}") from None
    if _is_model(hint):
        try:
            return (hint.model_validate if hasattr(hint, "model_validate") else hint.parse_obj)(value)
        except ValueError as error:
            raise _Misfit(f"{place} does not fit: {error}") from None
    hints, defaults = _fields(hint)
    return hint(**_members(value, hints, set(hints) - set(defaults), place))


def _members(value: Any, hints: dict[str, Any], required: set[str], place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Misfit(f"{place} must be of type object")
    for key in required - set(value):
        raise _Misfit(f"`{key}` is missing in {place}")
    for key in set(value) - set(hints):
        raise _Misfit(f"`{key}` is unknown in {place}")
    return {key: _read(hints[key], item, f"`{key}`") for key, item in value.items()}


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if _is_model(type(value)):
        return value.model_dump(mode="json") if hasattr(value, "model_dump") else json.loads(value.json())
    raise TypeError(f"a result of type {type(value).__name__} is not JSON")
