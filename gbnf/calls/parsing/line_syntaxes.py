"""The syntaxes of calls at the start of a line: `CALL name {…}`, `tool:` with `args:`, `name(a=1)`."""

from __future__ import annotations

import re
from dataclasses import replace
from textwrap import dedent
from typing import Any

from gbnf.calls.parsing.key_values import KeyValueBlock, indent_of, says_structure
from gbnf.calls.parsing.lenient_json import extent, load
from gbnf.calls.parsing.readers import (
    BEGIN,
    LINE,
    LOOSE_NAME,
    NAME,
    TRUNCATED,
    ParsedSpan,
    ReaderContext,
    location_of,
    named_json,
    named_python,
    pattern,
    skip_space,
)
from gbnf.calls.parsing.results import CallSyntaxName, RawCall, Repair, ToolCall
from gbnf.calls.parsing.tool_names import fold
from gbnf.strict_json import InvalidJsonError, json_of

TOOL_FENCES = ("tool_code", "tool_calls", "tool_call", "tools", "tool", "function_call", "function", "call")
"""Info strings of blocks that are calls."""

_WORDS_OF_PROSE = ("tools", "function", "call")

FENCE = pattern(
    rf"{LINE}(?P<fence>`{{3,}})[ \t]*(?P<info>{'|'.join(TOOL_FENCES)})(?:[ \t]+(?P<name>{NAME}))?[ \t]*\r?$"
)

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
    begin = position = min(match.end() + 1, len(text))
    closing = re.compile(rf"[ \t]*`{{{len(match['fence'])},}}[ \t]*\r?")
    block: int | None = None  # the indentation of the key whose text continues
    opened: int | None = None  # the same, if the next line decides whether there is a text
    while position < len(text):
        stop = text.find("\n", position)
        stop = len(text) if stop < 0 else stop
        line = text[position:stop]
        if line.strip():
            indent = indent_of(line)
            if opened is not None and indent > opened and not says_structure(line):
                block = opened
            opened = None
            if block is None or indent <= block:
                if closing.fullmatch(line):
                    return text[begin : max(position - 1, begin)], stop, True
                block = indent if _BLOCK_TEXT.search(line) else None
                opened = indent if keyed and _BARE_KEY.search(line) else None
        position = stop + 1
    return text[begin:], len(text), False


def read_fenced(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan | None:
    """Parse a block's calls in any syntax, or a name and arguments below it.

    The name is behind the info string or on the first line.
    """
    body, end, closed = enclosed(text, match, keyed=True)
    if (
        match["name"] is not None
        and match["info"] in _WORDS_OF_PROSE
        and context.names.find(match["name"]) is None
    ):
        return None  # "call stack", "function main"
    inner = context.only_calls(body)
    if inner is not None:
        note = () if closed else (Repair("wrapper", "the code block is not closed"),)
        written = (replace(call, syntax="fenced").noted(*note) for call in inner)
        return ParsedSpan(end, tuple(written), closed)
    body = body.strip("\n") if match["name"] is None else f"{match['name']}\n{body}"
    first, _, rest = body.partition("\n")
    head = _HEAD.fullmatch(first)
    if head is None:
        return ParsedSpan(end, closed=closed)
    call = named_lines(rest, head[1], "fenced", context, truncated=not closed)
    return ParsedSpan(end, (call,), closed)


def named_lines(
    lines: str, name: str, syntax: CallSyntaxName, context: ReaderContext, *, truncated: bool = False
) -> RawCall:
    """Parse a call whose arguments are an object, lines of `key: value`, or any other text."""
    text = lines.strip()
    if text[:1] == "{" and extent(text, 0).end == len(text):
        try:
            arguments, repairs = load(text)
        except InvalidJsonError as error:
            return RawCall(name, None, syntax, truncated=truncated, error=str(error))
    else:
        location = location_of(name, context)
        block = KeyValueBlock(lines, location)
        arguments, repairs = block.arguments, tuple(block.repairs)
        declared = {fold(key) for key in location.names}
        if repairs and not any(fold(key) in declared for key in arguments):
            arguments, repairs = dedent(lines).strip(), ()
    notes = (TRUNCATED,) if truncated else ()
    return RawCall(name, arguments, syntax, (*repairs, *notes), truncated=truncated)


def keyed_lines(call: ToolCall) -> list[str]:
    """Return the arguments as `key: value` lines: plain texts unchanged, other values as JSON."""
    return [
        f"{key if _PLAIN_KEY.fullmatch(key) else json_of(key)}: {_scalar(value)}"
        for key, value in call.arguments.items()
    ]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) and value == value.strip():
        return json_of(value) if value.casefold() in _NO_TEXT else value
    return json_of(value)


CALL = pattern(
    rf"{LINE}(?P<word>CALL|Call|call|TOOL_CALL)(?:[ \t]++:?|:)[ \t]*+[`*\"]*(?P<name>{LOOSE_NAME})[`*\"]*"
    r"[ \t]*:?[ \t]*(?=[\r\n{(]|$)"
)


def read_call(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan | None:
    """Parse `CALL name {json}`; the object may be on the next line, or missing after a tool's name."""
    end = match.end()
    begin = skip_space(text, end)
    if text[begin : begin + 1] == "{":
        return named_json(text, begin, match["name"], "call")
    if text[end : end + 1] == "(":
        return named_python(text, end, match["name"], "call", context)
    if match["word"].isupper() and context.names.find(match["name"]) is not None:
        return ParsedSpan(end, (RawCall(match["name"], None, "call"),), closed=begin < len(text))
    return None if begin < len(text) else ParsedSpan(begin, closed=False)


YAML = pattern(
    rf"{BEGIN}(?P<indent>[ \t]*)[\"'*]*(?:tool|tool_name|function|name|action)[\"'*]*[ \t]*:[*]*[ \t]*"
    rf"[\"'`]?(?P<name>{LOOSE_NAME})[\"'`]?[ \t]*\r?\n(?:[ \t]*\r?\n)?"
    r"[ \t]*[\"'*]*(?:arguments|args|parameters|params|input|action[ _]input)[\"'*]*[ \t]*:[*]*[ \t]*"
    r"(?P<inline>[^\r\n]*)",
    re.IGNORECASE,
)

_FENCE = pattern(rf"(?P<fence>`{{3,}})[ \t]*(?P<info>(?!(?:{'|'.join(TOOL_FENCES)})\b)[^\s`]*)[ \t]*\r?$")
_ROLES = "observation|thought|final answer|answer|question|result|response|action|tool"
_OTHER = rf"[ \t]*(?:<|`{{3}}|[\"'*#]*(?:{_ROLES})\b[^\n:]{{0,20}}:)"
_TEXT_BELOW = re.compile(rf"\r?\n(?P<text>(?:(?!{_OTHER})[ \t]*\S[^\n]*(?:\n|\Z))+)", re.IGNORECASE)


def read_yaml(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan | None:
    """Parse `tool: name`, then `args:` with lines below it, or an object or a text after it."""
    inline, name = match["inline"].strip(), match["name"]
    begin = skip_space(text, match.start("inline"))  # the start of the arguments, after `args:` or below it
    if text[begin : begin + 1] == "{":
        return named_json(text, begin, name, "yaml")
    fence = _FENCE.match(text, begin)
    near = text.count("\n", match.start("inline"), begin) < 2
    if fence and (near or fence["info"].lower().startswith("json")):
        body, end, closed = enclosed(text, fence, keyed=True)
        note = Repair("wrapper", "took the arguments from a code block")
        written = named_lines(body, name, "yaml", context, truncated=not closed)
        return ParsedSpan(end, (written.noted(note),), closed)
    if inline:
        return ParsedSpan(match.end(), (RawCall(name, inline, "yaml"),), match.end() < len(text))
    return _yaml_block(text, match, context)


def _yaml_block(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse the indented lines below `args:`, or lines without indentation that start with declared keys.

    Without either, the arguments are the text from the next line to an empty line or the end.
    """
    properties = set(location_of(match["name"], context).names)
    base = len(match["indent"])
    lines: list[str] = []
    end = match.end()
    flat = ended = False
    position = min(end + 1, len(text))
    while position < len(text) and not ended:
        stop = text.find("\n", position)
        line = text[position : len(text) if stop < 0 else stop]
        if line.strip() and indent_of(line) <= base:
            flat = flat or not any(map(str.strip, lines))
            ended = not flat or line.strip().partition(":")[0].strip("\"'` ") not in properties
        if not ended:
            lines.append(line)
            end = position + len(line) if line.strip() else end
            position += len(line) + 1
    if not any(map(str.strip, lines)) and (below := _TEXT_BELOW.match(text, match.end())):
        argument = below["text"].strip()
        return ParsedSpan(below.end(), (RawCall(match["name"], argument, "yaml"),), below.end() < len(text))
    written = named_lines("\n".join(lines), match["name"], "yaml", context)
    if flat and written.arguments:
        written = written.noted(Repair("arguments", "took lines that are not indented"))
    return ParsedSpan(end, (written,), ended)


PYTHON = pattern(
    rf"{LINE}(?P<list>\[[ \t]*)?(?:(?:print\(|return |await |\w+[ \t]*=)[ \t]*)?"
    rf"(?P<name>{NAME}?)(?:\.call)?(?=\()"
)
_AFTER = pattern(r"[ \t]*[;,)]*[ \t]*\]?[ \t]*(?=\r?$)")
_NEXT = re.compile(rf"\s*,\s*({NAME})(?=\()")


def read_python(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan | None:
    """Parse `name(a=1)` on a line of its own, alone or in a list, if the name is a tool's."""
    if context.names.find(match["name"]) is None:
        return None
    span = named_python(text, match.end(), match["name"], "python", context)
    if span is None or not span.closed:
        return span
    written, end = list(span.written), span.end
    while match["list"] and (next_call := _NEXT.match(text, end)):
        following = named_python(text, next_call.end(), next_call[1], "python", context)
        if following is None:
            return None
        written += following.written
        end = following.end
        if not following.closed:
            return ParsedSpan(end, tuple(written), closed=False)
    after = _AFTER.match(text, end)
    if after is None:
        return None
    return ParsedSpan(after.end(), tuple(written), closed=after.end() < len(text))
