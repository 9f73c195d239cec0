"""The table of call syntaxes, in order of priority: opener, reader and writer of each; the readers of tags.

Invariant: the reader parses what the writer renders to the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gbnf.calls.parsing.call_objects import read_body
from gbnf.calls.parsing.lenient_json import extent
from gbnf.calls.parsing.line_syntaxes import (
    CALL,
    FENCE,
    PYTHON,
    YAML,
    keyed_lines,
    read_call,
    read_fenced,
    read_python,
    read_yaml,
)
from gbnf.calls.parsing.marked_calls import BEFORE_TAG, FUNCTION, NAMESPACE, read_function, read_named
from gbnf.calls.parsing.readers import (
    NAME,
    ParsedSpan,
    Reader,
    ReaderContext,
    pattern,
    write_arguments,
)
from gbnf.calls.parsing.results import CallSyntaxName, Repair, ToolCall
from gbnf.errors import InvalidArgumentError
from gbnf.strict_json import json_of

_TAG = r"(?:tool(?:[_▁]calls?)?|function[_▁]calls?|TOOLCALL)"
TAG = pattern(
    rf"(?:\bto=[\w.-]+<\|message\|>)?(?:{BEFORE_TAG}<[|｜]?{NAMESPACE}(?:start_)?(?P<tag>{_TAG}|tools(?=_prefix)"
    r"|python(?=_tag|_start))(?:(?:_section)?[_▁:](?:begin|start|prefix|tag|opensource))?[|｜]?>\s*)+"
    r"|(?P<mistral>\[TOOL_CALLS?\]\s*)"
    r"|(?:<\|channel\|>\w+\s+)?\bto=(?=[\w.-]+[^\n{]{0,80}<\|message\|>)"
    rf"|(?P<bare>\A|(?:^|(?<=\}}))>>>)(?={NAME}\n\s*\{{)"
)
"""What stands before calls: tags, control tokens, the recipient of a message."""

_END = (
    rf"(?:```\s*)?{BEFORE_TAG}<(?:[|｜]?/[|｜]?{NAMESPACE}{_TAG}(?::\w+)?[|｜]?|[|｜]?calls?[|｜]|end_{_TAG}"
    rf"|[|｜]?(?:{_TAG}|tools|python)(?:_section)?[_▁:](?:end|suffix)[|｜])>"
)
_TAG_END = re.compile(rf"{_END}|<\|?{_TAG}\|?(?!>\s*(?:[\[{{<]|{NAME}\s*[<({{`]))>")
"""What ends them. A tag without its slash does so only if no other call follows."""
_TAG_ENDS = re.compile(rf"\s*(?:{_TAG_END.pattern})(?:\s*{_END})*(?:\s*\Z)?")
_MORE = re.compile(r"[\s,;]*(?=\{)")


def read_tagged(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan | None:
    """Parse `<tool_call>{…}</tool_call>`. A missing end tag is a repair: templates often remove it."""
    start, tag = match.end(), match["tag"]
    syntax: CallSyntaxName = "mistral" if match["mistral"] else "tagged"
    if OBJECT.match(text, start):
        inner = _bodies(text, start, context, syntax)
    else:
        inner = read_named(text, start, context, syntax)
    if inner is None and tag:
        closed = _TAG_END.search(text, start)
        end = closed.start() if closed else len(text)
        inner = ParsedSpan(end, context.only_calls(text[start:end]) or (), closed is not None)
    if inner is None or not (inner.closed or inner.written):
        return ParsedSpan(len(text), closed=False) if match["bare"] is None else None
    closed = _TAG_ENDS.match(text, inner.end)
    if not inner.written:
        # an end tag without its slash may be the start tag of the next call: then it is parsed again
        return ParsedSpan(len(text) if closed is not None and closed.end() == len(text) else inner.end)
    written = tuple(replace(call, syntax=syntax) for call in inner.written)
    if closed is None and inner.closed and tag:
        note = Repair("wrapper", f"the tag {tag} is not closed")
        written = tuple(call.noted(note) for call in written)
    return ParsedSpan(inner.end if closed is None else closed.end(), written, inner.closed)


def _bodies(text: str, start: int, context: ReaderContext, syntax: CallSyntaxName) -> ParsedSpan | None:
    """Parse the calls in the JSON at `start`, and in the objects directly after it.

    After JSON without a call, an object is parsed on its own: a stream has already emitted the tag.
    """
    span = read_body(text, start, context.names, syntax)
    while span is not None and span.written and span.closed and (separator := _MORE.match(text, span.end)):
        body = read_body(text, separator.end(), context.names, syntax)
        if body is None or not body.written:
            break
        note = Repair("wrapper", "several calls follow one opening tag")
        written = tuple(call.noted(note) for call in body.written)
        span = replace(body, written=span.written + written)
    return span


OBJECT = pattern(r"\{(?=\s*(?:[\"'“\w{}/#:]|\Z))|\[(?=\s*(?:\{|\Z))")

_SAYS_CALL = re.compile(r"\b(?:tool_?[cC]alls?|function_?[cC]all|name|tool|function|tool_name|action)\b")
_QUOTES = "\"'“«‘‹`"


def read_object(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse the calls of a JSON value. A value that is not a call is skipped, including its strings."""
    start = match.start()
    value = extent(text, start)
    quoted = start > 0 and text[start - 1] in _QUOTES  # a quotation, not a call
    if quoted or not _SAYS_CALL.search(text, start, value.end):
        return ParsedSpan(value.end, closed=value.closed)
    return read_body(text, start, context.names) or ParsedSpan(value.end, closed=False)


def _write_bare(call: ToolCall) -> str:
    return json_of({"name": call.name, "arguments": call.arguments})


def _write_yaml(call: ToolCall) -> str:
    lines = ["args:", *(f"  {line}" for line in keyed_lines(call))] if call.arguments else ["args: {}"]
    return "\n".join([f"tool: {call.name}", *lines])


def _listed(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    return [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]


def _write_openai(calls: Sequence[ToolCall]) -> str:
    listed = []
    for call in calls:
        function = {"name": call.name, "arguments": json_of(call.arguments)}
        listed.append({"id": call.id, "type": "function", "function": function})
    return json_of(listed[0] if len(listed) == 1 else listed)


Writer: TypeAlias = Callable[[Sequence[ToolCall]], str]


def _each(write: Callable[[ToolCall], str]) -> Writer:
    """Return what writes calls one after the other."""
    return lambda calls: "\n".join(map(write, calls))


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """A syntax of calls."""

    name: CallSyntaxName
    opener: re.Pattern[str]
    read: Reader
    write: Writer


CALL_SYNTAXES: tuple[CallSyntax, ...] = (
    CallSyntax(
        "fenced",
        FENCE,
        read_fenced,
        _each(lambda call: "\n".join(["```tool", call.name, *keyed_lines(call), "```"])),
    ),
    CallSyntax("call", CALL, read_call, _each(lambda call: f"CALL {call.name} {json_of(call.arguments)}")),
    CallSyntax("tool_calls", OBJECT, read_object, lambda calls: json_of({"tool_calls": _listed(calls)})),
    CallSyntax("bare", OBJECT, read_object, _each(_write_bare)),
    CallSyntax("openai", OBJECT, read_object, _write_openai),
    CallSyntax(
        "tagged", TAG, read_tagged, _each(lambda call: f"<tool_call>\n{_write_bare(call)}\n</tool_call>")
    ),
    CallSyntax(
        "function",
        FUNCTION,
        read_function,
        _each(lambda call: f"<function={call.name}>{json_of(call.arguments)}</function>"),
    ),
    CallSyntax("mistral", TAG, read_tagged, lambda calls: f"[TOOL_CALLS]{json_of(_listed(calls))}"),
    CallSyntax("yaml", YAML, read_yaml, _each(_write_yaml)),
    CallSyntax(
        "python", PYTHON, read_python, _each(lambda call: f"{call.name}({write_arguments(call.arguments)})")
    ),
)
"""Every syntax. If a text has calls in several syntaxes, only those of the first count."""


def render_tool_calls(calls: ToolCall | Sequence[ToolCall], syntax: CallSyntaxName = "bare") -> str:
    """Render calls as text in a syntax; `parse_tool_calls` parses them to the same calls.

    Only "tool_calls", "openai" and "mistral" have ids; in the others, parsed ids are call_1, call_2, ….
    Raises InvalidArgumentError for an unknown syntax.
    """
    for candidate in CALL_SYNTAXES:
        if candidate.name == syntax:
            return candidate.write([calls] if isinstance(calls, ToolCall) else calls)
    names = ", ".join(candidate.name for candidate in CALL_SYNTAXES)
    raise InvalidArgumentError(f"unknown call syntax {syntax!r}. Use one of {names}.")
