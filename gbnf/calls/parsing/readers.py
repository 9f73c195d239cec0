"""What the readers of all shapes share: a reading, and a call whose name stands before its arguments."""

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
"""Tags between which models think aloud."""

_AFTER_REASONING = "|".join(rf"(?<=</{tag}>)" for tag in REASONING_TAGS)
#: Where a line begins, which is also where thoughts end; and the spaces there.
BEGIN = rf"(?:^|{_AFTER_REASONING})"
LINE = rf"{BEGIN}[ \t]*"
NAME = r"[A-Za-z][\w.:/-]*"
#: A name as people write it: `Find Files`.
LOOSE_NAME = rf"{NAME}(?:[ \t]+\w+){{0,3}}"
TRUNCATED = Repair("cut", "the text ends inside the call")


@dataclass(frozen=True, slots=True)
class ParsedSpan:
    """What stands from an opener to `end`: calls, or (with none) text in which no call is looked for.

    `closed` False: more text could change it. Where it is not closed and holds no calls, its opener may
    have been nothing but a sign in prose, unless it is `code`: then no call is looked for inside.
    """

    end: int
    written: tuple[RawCall, ...] = ()
    closed: bool = True
    code: bool = False


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What a reader may ask: the pool's names, and the calls of a text that consists of calls alone."""

    names: ToolNames
    only_calls: Callable[[str], tuple[RawCall, ...] | None]


Reader: TypeAlias = Callable[[str, re.Match[str], ReaderContext], ParsedSpan | None]
"""Given the text and its opener's match; None where the text there is not of this shape after all."""


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """An opener: `^` and `$` are a line's."""
    return re.compile(text, re.MULTILINE | flags)


def json_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def properties_of(name: str, context: ReaderContext) -> dict[str, Any]:
    """The properties of the tool that `name` means, {} where it means none."""
    tool = context.names.find(name)
    properties: dict[str, Any] = {} if tool is None else tool.args.get("properties", {})
    return properties


def named_json(text: str, begin: int, name: str, syntax: CallSyntaxName) -> ParsedSpan:
    """A call whose arguments are the JSON object at `begin`, after its name."""
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
    """A call whose arguments are Python's, from the bracket at `begin`; None where they are no literals."""
    found = extent(text, begin, python=True)
    read = read_arguments(text[begin : found.end] + closing(found.open), list(properties_of(name, context)))
    if read is None:
        return None if found.closed else ParsedSpan(len(text), closed=False)
    truncated = not found.closed
    repairs = (*read.repairs, *((TRUNCATED,) if truncated else ()))
    return ParsedSpan(
        found.end, (RawCall(name, read.values, syntax, repairs, truncated=truncated),), not truncated
    )
