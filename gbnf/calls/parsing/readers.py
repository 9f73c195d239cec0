"""What the readers of all syntaxes share: parsed spans, and calls with a name before their arguments.

Of arguments in Python, `name(a=1, b="x")`, only literals are parsed, and nothing is evaluated.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from gbnf.calls.parsing.lenient_json import REPAIR_LIMIT, Loaded, closing, extent, load
from gbnf.calls.parsing.results import CallSyntaxName, RawCall, Repair
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.schema.locations import Location
from gbnf.schema_caches import schema_cache
from gbnf.strict_json import InvalidJsonError, has_type, json_of, parse_json

REASONING_TAGS = ("think", "thinking", "thought", "reasoning")
"""Names of reasoning tags."""

_AFTER_REASONING = "|".join(rf"(?<=</{tag}>)" for tag in REASONING_TAGS)
BEGIN = rf"(?:^|{_AFTER_REASONING})"
"""The start of a line, or the end of reasoning; then with spaces after it."""
LINE = rf"{BEGIN}[ \t]*"
NAME = r"[A-Za-z][\w.:/-]*"
LOOSE_NAME = rf"{NAME}(?:[ \t]+\w+){{0,3}}"
"""A name that may consist of several words: `Find Files`."""
TRUNCATED = Repair("truncated", "the text ends inside the call")


@dataclass(frozen=True, slots=True)
class ParsedSpan:
    """The text from an opener to `end`: calls, or (without calls) text that is not searched for calls.

    `closed` False: more text could change it. If it is not closed and has no calls, its opener may be part of
    prose, and the text after it is searched, unless it is code or reasoning. A scan sets `start`, and the
    kinds "calls" and "open".
    """

    end: int
    written: tuple[RawCall, ...] = ()
    closed: bool = True
    kind: Literal["text", "code", "reasoning", "calls", "open"] = "text"
    start: int = 0


class ReaderContext(Protocol):
    """What readers know of the scan that calls them: the pool's `names`, and what is a text of calls."""

    names: ToolNames

    def only_calls(self, text: str) -> tuple[RawCall, ...] | None:
        """Return the calls of a text that consists of calls only, None for any other."""


Reader: TypeAlias = Callable[[str, re.Match[str], ReaderContext], ParsedSpan | None]
"""Takes the text and the opener's match; returns None if the text there is not in this syntax."""


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Compile an opener: `^` and `$` match at lines."""
    return re.compile(text, re.MULTILINE | flags)


def skip_space(text: str, start: int) -> int:
    """Return where the whitespace at `start` ends."""
    return _SPACE.match(text, start).end()  # type: ignore[union-attr]  # it matches anywhere


_SPACE = re.compile(r"\s*")


def location_of(name: str, context: ReaderContext) -> Location:
    """Return what is allowed in the arguments of the tool that `name` resolves to: anything for another."""
    tool = context.names.find(name)
    return Location.of({} if tool is None else tool.model_args())


_STRING = re.compile(r"""(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\])*(?P=quote)""", re.DOTALL)
_GEMMA_STRING = re.compile(r'(?P<mark><\|"\|>|<escape>)(?P<text>.*?)(?:(?P=mark)|\Z)', re.DOTALL)
_GEMMA_KEY = r"(?<=[{,\s])(?P<key>[^\s\"'“”‘’\\{}\[\],:]++)(?=\s*:)"
_GEMMA = re.compile(
    rf"{_GEMMA_STRING.pattern}|{_STRING.pattern}|{_GEMMA_KEY}|\b(?P<constant>None|True|False)\b", re.DOTALL
)
_GEMMA_NEXT = re.compile(r'(?P<mark><\|"\|>|<escape>)|<\|tool_call>|<start_function_call>')
_GEMMA_HEAD = re.compile(rf"\{{\s*{_GEMMA_KEY}")


def call_span(
    end: int,
    name: str,
    arguments: Any,
    syntax: CallSyntaxName,
    repairs: Sequence[Repair] = (),
    *,
    closed: bool,
    error: str = "",
) -> ParsedSpan:
    """Return the span of a call, which is truncated unless it is `closed`."""
    notes = () if closed else (TRUNCATED,)
    call = RawCall(name, arguments, syntax, (*repairs, *notes), truncated=not closed, error=error)
    return ParsedSpan(end, (call,), closed)


def named_json(text: str, begin: int, name: str, syntax: CallSyntaxName) -> ParsedSpan:
    """Parse a call whose arguments are the JSON object at `begin`, after its name."""
    is_gemma = _GEMMA_HEAD.match(text, begin) is not None
    span = extent(_masked(text) if is_gemma else text, begin)
    (value, repairs), error = Loaded(None), ""
    try:
        plain = _gemma_as_json(text, begin, span.end) if is_gemma else text[begin : span.end]
        value, repairs = load(plain, truncated=not span.closed)
    except InvalidJsonError as problem:
        error = str(problem)
    return call_span(span.end, name, value, syntax, repairs, closed=span.closed, error=error)


def _gemma_as_json(text: str, begin: int, end: int) -> str:
    """Return arguments in Gemma's notation as JSON. Raises InvalidJsonError if a text in them goes on."""
    following = _GEMMA_NEXT.search(text, end)
    if following is not None and following["mark"]:
        raise InvalidJsonError("a text goes on after the end of the call")
    return _GEMMA.sub(_as_json, text[begin:end])


@schema_cache(maxsize=8)  # for all calls of a text
def _masked(text: str) -> str:
    """Return a text of the same length with Gemma's strings in quotes and without their content."""
    return _GEMMA_STRING.sub(lambda string: f'"{"_" * (len(string[0]) - 2)}"', text)


def _as_json(match: re.Match[str]) -> str:
    """Return a part of Gemma's notation, `{key:<|"|>text<|"|>}`, as JSON."""
    if match["constant"]:
        return json_of(ast.literal_eval(match[0]))
    text = match["key"] if match["text"] is None else match["text"]
    return match[0] if text is None else json_of(text)


def named_python(
    text: str, begin: int, name: str, syntax: CallSyntaxName, context: ReaderContext
) -> ParsedSpan | None:
    """Parse a call with Python arguments, from the bracket at `begin`; None if they are not literals."""
    span = extent(text, begin, python=True)
    names = list(location_of(name, context).names)
    read = read_arguments(text[begin : span.end] + closing(span.open), names)
    if read is None:
        return None if span.closed else ParsedSpan(len(text), closed=False)
    return call_span(span.end, name, read.value, syntax, read.repairs, closed=span.closed)


_LINE_BREAK = re.compile(r"(?<!\\)\n")
_CONSTANTS = {"true": True, "false": False, "null": None}


def read_arguments(text: str, properties: Sequence[str]) -> Loaded | None:
    """Parse `(a=1, b="x")`, positional arguments by declared order; None if they are not literals."""
    try:
        call = _parsed(f"f{text}")
        if not isinstance(call, ast.Call) or len(call.args) > len(properties):
            return None
        values = {name: _value(node) for name, node in zip(properties, call.args, strict=False)}
        for keyword_argument in call.keywords:
            value = _value(keyword_argument.value)
            members = value if keyword_argument.arg is None else {keyword_argument.arg: value}
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
    return Loaded(values, repairs)


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


_EMPTY = (("array", "[]"), ("object", "{}"), ("null", "null"))


def json_of_raw(text: str, types: Collection[str], *, quoted: bool = False) -> str:
    """Return the JSON text of the value that `text` stands for, where a schema allows `types`.

    Where strings are not the only type, a text that is JSON, or else a Python literal, of another type that
    the schema allows is that value. Any other text is a string if strings are allowed. So the text `5` is a
    number where both are allowed, and `1.2.3` a string. The types of a schema are those of its grammar:
    rather too many than too few, and never an error. `quoted`: the format writes strings in quotes here.
    """
    stripped = text.strip()
    allowed = {*types} if quoted else {*types} - {"string"}
    written = _read(parse_json, stripped)
    if written is not None and has_type(written[0], allowed):
        return stripped
    literal = _read(read_literal, stripped) if written is None and len(stripped) <= REPAIR_LIMIT else None
    if literal is not None and has_type(literal[0], allowed):
        return literal[1]
    if "string" in types:
        return json_of(text)
    if not stripped:
        return next((empty for kind, empty in _EMPTY if kind in types), '""')
    if written is not None:
        return stripped
    readable = literal or _read(lambda text: load(text).value, stripped)
    return json_of(text) if readable is None else readable[1]


def _read(read: Callable[[str], Any], text: str) -> tuple[Any, str] | None:
    """Return the value that a reader finds in a text, and its JSON text."""
    try:
        value = read(text)
    except InvalidJsonError:
        return None
    return value, json_of(value)


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
