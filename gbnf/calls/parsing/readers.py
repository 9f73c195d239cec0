"""What the readers of all syntaxes share: parsed spans, and calls with a name before their arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from gbnf.calls.parsing.lenient_json import closing, extent, load
from gbnf.calls.parsing.python_arguments import read_arguments
from gbnf.calls.parsing.results import CallSyntaxName, RawCall, Repair
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.strict_json import InvalidJsonError

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
