"""Fenced tool blocks: a name, then `key: value` lines. The content of fences, for other syntaxes too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from textwrap import dedent
from typing import Any

from gbnf.calls.parsing.key_values import KeyValueBlock, indent_of, says_structure
from gbnf.calls.parsing.lenient_json import extent, load
from gbnf.calls.parsing.readers import (
    LINE,
    LOOSE_NAME,
    TRUNCATED,
    ParsedSpan,
    ReaderContext,
    json_of,
    pattern,
    properties_of,
)
from gbnf.calls.parsing.results import CallSyntaxName, RawCall, Repair, ToolCall
from gbnf.calls.parsing.tool_names import fold
from gbnf.strict_json import InvalidJsonError

TOOL_FENCES = ("tool_code", "tool_calls", "tool_call", "tools", "tool", "function_call", "function", "call")
"""Info strings of blocks that are calls."""

FENCE = pattern(rf"{LINE}(?P<fence>`{{3,}})[ \t]*(?P<info>{'|'.join(TOOL_FENCES)})[ \t]*\r?$")

_HEAD = re.compile(rf"[ \t`*]*({LOOSE_NAME})[ \t`*:]*\r?")
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_PLAIN_TEXT = re.compile(r"[A-Za-z./~][A-Za-z0-9 ,./@~+*_-]*", re.ASCII)
_BLOCK_TEXT = re.compile(r":[ \t]+[|>][+-]?[ \t]*\r?$")
_BARE_KEY = re.compile(r"^[ \t]*(?:-[ \t]+)*[\w\"'-]+:[ \t]*\r?$")
_NO_TEXT = frozenset({"true", "false", "null", "nan", "infinity", "none"})


def enclosed(text: str, match: re.Match[str], *, keyed: bool = False) -> tuple[str, int, bool]:
    """Return the content of a fenced block, its end, and whether it is closed.

    An indented fence inside a text of `key: |` belongs to that text; with `keyed`, also in a text below a
    bare `key:`.
    """
    begin = at = min(match.end() + 1, len(text))
    closing = re.compile(rf"[ \t]*`{{{len(match['fence'])},}}[ \t]*\r?")
    block: int | None = None  # the indentation of the key whose text continues
    opened: int | None = None  # the same, if the next line decides whether there is a text
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        line = text[at:stop]
        if line.strip():
            indent = indent_of(line)
            if opened is not None and indent > opened and not says_structure(line):
                block = opened
            opened = None
            if block is None or indent <= block:
                if closing.fullmatch(line):
                    return text[begin : max(at - 1, begin)], stop, True
                block = indent if _BLOCK_TEXT.search(line) else None
                opened = indent if keyed and _BARE_KEY.search(line) else None
        at = stop + 1
    return text[begin:], len(text), False


def read_fenced(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan | None:
    """Parse a block's calls in any syntax, or its first line as a name and the others as arguments."""
    body, end, closed = enclosed(text, match, keyed=True)
    inner = context.only_calls(body)
    if inner is not None:
        note = () if closed else (Repair("wrapper", "the code block is not closed"),)
        written = (replace(call, syntax="fenced", repairs=(*call.repairs, *note)) for call in inner)
        return ParsedSpan(end, tuple(written), closed)
    first, _, rest = body.strip("\n").partition("\n")
    head = _HEAD.fullmatch(first)
    if head is None:
        return ParsedSpan(end, closed=closed)
    call = named_lines(rest, head[1], "fenced", context, truncated=not closed)
    return ParsedSpan(end, (call,), closed)


def named_lines(
    lines: str, name: str, syntax: CallSyntaxName, context: ReaderContext, *, truncated: bool = False
) -> RawCall:
    """Parse a call whose arguments are an object, lines of `key: value`, or any other text."""
    note = (TRUNCATED,) if truncated else ()
    text = lines.strip()
    if text[:1] == "{" and extent(text, 0).end == len(text):
        try:
            value, repairs = load(text)
            return RawCall(name, value, syntax, (*repairs, *note), truncated=truncated)
        except InvalidJsonError as error:
            return RawCall(name, None, syntax, truncated=truncated, error=str(error))
    properties = properties_of(name, context)
    block = KeyValueBlock(lines, properties)
    declared = {fold(key) for key in properties}
    if block.repairs and not any(fold(key) in declared for key in block.arguments):
        return RawCall(name, dedent(lines).strip(), syntax, note, truncated=truncated)
    return RawCall(name, block.arguments, syntax, (*block.repairs, *note), truncated=truncated)


def write_fenced(calls: Sequence[ToolCall]) -> str:
    """Render one fenced block for each call."""
    return "\n".join("\n".join(["```tool", call.name, *keyed_lines(call), "```"]) for call in calls)


def keyed_lines(call: ToolCall) -> list[str]:
    """Return the arguments as `key: value` lines: plain texts unchanged, other values as JSON."""
    return [f"{_key(key)}: {_scalar(value)}" for key, value in call.arguments.items()]


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json_of(key)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) and value == value.strip():
        return json_of(value) if value.casefold() in _NO_TEXT else value
    return json_of(value)
