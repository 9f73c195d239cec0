"""What the readers of all syntaxes share: parsed spans, and calls with a name before their arguments.

Of arguments in Python, `name(a=1, b="x")`, only literals are parsed, and nothing is evaluated.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from gbnf.calls.parsing.lenient_json import closing, extent, load
from gbnf.calls.parsing.results import CallSyntaxName, RawCall, Repair
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.strict_json import InvalidJsonError, parse_json

REASONING_TAGS = ("think", "thinking", "thought", "reasoning")
"""Names of reasoning tags."""

_AFTER_REASONING = "|".join(rf"(?<=</{tag}>)" for tag in REASONING_TAGS)
#: The start of a line, or the end of reasoning; then with spaces after it.
BEGIN = rf"(?:^|{_AFTER_REASONING})"
LINE = rf"{BEGIN}[ \t]*"
NAME = r"[A-Za-z][\w.:/-]*"
#: A name that may consist of several words: `Find Files`.
LOOSE_NAME = rf"{NAME}(?:[ \t]+\w+){{0,3}}"
TRUNCATED = Repair("truncated", "the text ends inside the call")


@dataclass(frozen=True, slots=True)
class ParsedSpan:
    """The text from an opener to `end`: calls, or (without calls) text that is not searched for calls.

    `closed` False: more text could change it. If it is not closed and has no calls, its opener may be part of
    prose, and the text after it is searched, unless it is `code`.
    """

    end: int
    written: tuple[RawCall, ...] = ()
    closed: bool = True
    code: bool = False


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """The pool's names, and a function that returns the calls of a text that consists of calls only."""

    names: ToolNames
    only_calls: Callable[[str], tuple[RawCall, ...] | None]


Reader: TypeAlias = Callable[[str, re.Match[str], ReaderContext], ParsedSpan | None]
"""Takes the text and the opener's match; returns None if the text there is not in this syntax."""


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Compile an opener: `^` and `$` match at lines."""
    return re.compile(text, re.MULTILINE | flags)


def json_of(value: Any) -> str:
    """Return a value as JSON on one line, not escaped to ASCII."""
    return json.dumps(value, ensure_ascii=False)


def properties_of(name: str, context: ReaderContext) -> dict[str, Any]:
    """Return the properties of the tool that `name` resolves to, {} for an unknown name."""
    tool = context.names.find(name)
    properties: dict[str, Any] = {} if tool is None else tool.args.get("properties", {})
    return properties


def named_json(text: str, begin: int, name: str, syntax: CallSyntaxName) -> ParsedSpan:
    """Parse a call whose arguments are the JSON object at `begin`, after its name."""
    found = extent(text, begin)
    truncated = not found.closed
    try:
        value, repairs = load(text[begin : found.end])
    except InvalidJsonError as error:
        return ParsedSpan(
            found.end, (RawCall(name, None, syntax, truncated=truncated, error=str(error)),), not truncated
        )
    repairs = (*repairs, *((TRUNCATED,) if truncated else ()))
    return ParsedSpan(found.end, (RawCall(name, value, syntax, repairs, truncated=truncated),), not truncated)


def named_python(
    text: str, begin: int, name: str, syntax: CallSyntaxName, context: ReaderContext
) -> ParsedSpan | None:
    """Parse a call with Python arguments, from the bracket at `begin`; None if they are not literals."""
    found = extent(text, begin, python=True)
    read = read_arguments(text[begin : found.end] + closing(found.open), list(properties_of(name, context)))
    if read is None:
        return None if found.closed else ParsedSpan(len(text), closed=False)
    truncated = not found.closed
    repairs = (*read.repairs, *((TRUNCATED,) if truncated else ()))
    return ParsedSpan(
        found.end, (RawCall(name, read.values, syntax, repairs, truncated=truncated),), not truncated
    )


_STRING = re.compile(r"""(["'])(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)
_LINE_BREAK = re.compile(r"(?<!\\)\n")
_CONSTANTS = {"true": True, "false": False, "null": None}


class Arguments(NamedTuple):
    """Arguments by name, and the repairs."""

    values: dict[str, Any]
    repairs: tuple[Repair, ...]


def read_arguments(text: str, properties: Sequence[str]) -> Arguments | None:
    """Parse `(a=1, b="x")`, positional arguments by declared order; None if they are not literals."""
    try:
        call = _parsed(f"f{text}")
        if not isinstance(call, ast.Call) or len(call.args) > len(properties):
            return None
        values = {name: _value(node) for name, node in zip(properties, call.args, strict=False)}
        for given in call.keywords:
            found = _value(given.value)
            members = found if given.arg is None else {given.arg: found}
            if not isinstance(members, dict) or members.keys() & values.keys():
                return None
            values |= members
        values = parse_json(json.dumps(values, allow_nan=False))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    repairs: tuple[Repair, ...] = ()
    if call.args:
        names = ", ".join(properties[: len(call.args)])
        repairs = (Repair("arguments", f"used arguments without a name for {names}"),)
    return Arguments(values, repairs)


def read_literal(text: str) -> Any:
    """Return the JSON value of a Python literal. Raises InvalidJsonError."""
    try:
        return parse_json(json.dumps(_value(_parsed(text)), allow_nan=False))
    except InvalidJsonError:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise InvalidJsonError("not a literal") from None


def _parsed(text: str) -> ast.expr:
    """Return the expression in a text, also if its strings have line breaks. Raises SyntaxError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the model's text
        try:
            return ast.parse(text, mode="eval").body
        except SyntaxError:
            escaped = _STRING.sub(lambda string: _LINE_BREAK.sub(r"\\n", string[0]), text)
            return ast.parse(escaped, mode="eval").body


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Render `a=1, b="x"`, and `**{…}` for names that are not identifiers."""
    plain = {name: value for name, value in arguments.items() if name.isidentifier() and name.isascii()}
    plain = {name: value for name, value in plain.items() if not keyword.iskeyword(name)}
    others = {name: value for name, value in arguments.items() if name not in plain}
    written = [f"{name}={value!r}" for name, value in plain.items()]
    return ", ".join([*written, *([f"**{others!r}"] if others else [])])


def _value(node: ast.expr) -> Any:
    """Return the JSON value of a literal. Raises ValueError."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str()):
            return node.value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=members) | ast.Tuple(elts=members):
            return [_value(member) for member in members]
        case ast.Dict(keys=keys, values=values):
            names = [None if key is None else _value(key) for key in keys]
            if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
                raise InvalidJsonError("a key is not a string, or occurs twice")
            return {str(name): _value(value) for name, value in zip(names, values, strict=True)}
        case _:
            raise InvalidJsonError("not a literal")
