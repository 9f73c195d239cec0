"""The fenced tool block: a name, then `key: value` lines. What fences enclose, for other shapes too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gbnf.calls.json_text import Unreadable, extent, load
from gbnf.calls.keyed import Block
from gbnf.calls.reading import CUT, LINE, LOOSE_NAME, Look, Reading, json_of, pattern, properties_of
from gbnf.calls.values import Repair, ToolCall, Written

TOOL_FENCES = ("tool_code", "tool_calls", "tool_call", "tools", "tool", "function_call", "function", "call")
"""Info strings that say that the block is a call."""

FENCE = pattern(rf"{LINE}(?P<fence>`{{3,}})[ \t]*(?P<info>{'|'.join(TOOL_FENCES)})[ \t]*\r?$")

_HEAD = re.compile(rf"[ \t`*]*({LOOSE_NAME})[ \t`*:]*\r?")
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_PLAIN_TEXT = re.compile(r"[A-Za-z./~][A-Za-z0-9 ,./@~+*_-]*", re.ASCII)
_NO_TEXT = frozenset({"true", "false", "null", "nan", "infinity", "none"})


def enclosed(text: str, match: re.Match[str]) -> tuple[str, int, bool]:
    """What a fence encloses, where its block ends, and whether it is closed."""
    begin = min(match.end() + 1, len(text))
    found = pattern(rf"^[ \t]*`{{{len(match['fence'])},}}[ \t]*\r?$").search(text, begin)
    if found is None:
        return text[begin:], len(text), False
    return text[begin : max(found.start() - 1, begin)], found.end(), True


def read_fenced(text: str, match: re.Match[str], look: Look) -> Reading | None:
    """The block's calls in whatever shape, or its first line as a name and the others as arguments."""
    body, end, closed = enclosed(text, match)
    inner = look.only_calls(body)
    if inner is not None:
        note = () if closed else (Repair("wrapper", "the code block doesn't end"),)
        written = (replace(call, shape="fenced", repairs=(*call.repairs, *note)) for call in inner)
        return Reading(end, tuple(written), closed)
    first, _, rest = body.strip("\n").partition("\n")
    head = _HEAD.fullmatch(first)
    if head is None:
        return Reading(end, closed=closed)
    return Reading(end, (_keyed_call(head[1], rest, look, cut=not closed),), closed)


def _keyed_call(name: str, lines: str, look: Look, *, cut: bool) -> Written:
    note = (CUT,) if cut else ()
    text = lines.strip()
    if text[:1] == "{" and extent(text, 0).end == len(text):
        try:
            value, repairs = load(text)
            return Written(name, value, "fenced", (*repairs, *note), cut=cut)
        except Unreadable as error:
            return Written(name, None, "fenced", cut=cut, error=str(error))
    block = Block(lines, properties_of(name, look))
    return Written(name, block.arguments, "fenced", (*block.repairs, *note), cut=cut)


def write_fenced(calls: Sequence[ToolCall]) -> str:
    return "\n".join("\n".join(["```tool", call.name, *keyed_lines(call), "```"]) for call in calls)


def keyed_lines(call: ToolCall) -> list[str]:
    """The arguments as `key: value` lines: plain texts as they are, all else as JSON."""
    return [f"{_key(key)}: {_scalar(value)}" for key, value in call.arguments.items()]


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json_of(key)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) and value == value.strip():
        return json_of(value) if value.casefold() in _NO_TEXT else value
    return json_of(value)
