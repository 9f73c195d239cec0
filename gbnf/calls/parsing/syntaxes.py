"""The table of call syntaxes, in order of priority: opener, reader and writer of each; the readers of tags.

Invariant: the reader parses what the writer renders to the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gbnf.calls.parsing.call_objects import read_body
from gbnf.calls.parsing.key_values import KeyValueBlock, is_text
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
from gbnf.calls.parsing.readers import (
    NAME,
    TRUNCATED,
    ParsedSpan,
    Reader,
    ReaderContext,
    json_of,
    named_json,
    pattern,
    properties_of,
    write_arguments,
)
from gbnf.calls.parsing.results import CallSyntaxName, RawCall, Repair, ToolCall
from gbnf.errors import InvalidArgumentError

TAG = pattern(r"<\|?(?P<tag>tool_calls?|function_calls?|tool)\|?>\s*")
FUNCTION = pattern(r"<function[=: ]\s*[\"']?(?P<name>[^<>\n\"'{]{1,200}?)[\"']?\s*>\s*")
MISTRAL = pattern(r"\[TOOL_CALLS?\]\s*")

_PARAMETER = re.compile(r"\s*<parameter[=: ]\s*([^<>\n]{1,200}?)\s*>\n?")
_IN_PARAMETER = pattern(
    r"\n?(?P<end></parameter>)|\n?(?P<function></function>)|(?P<next>(?:(?P<line>^|\n)[ \t]*)?"
    r"<(?:function|parameter)[=: ]\s*(?P<name>[^<>\n]{1,200}?)\s*>)"
)
_FUNCTION_END = re.compile(r"\s*</function>")
_MORE = re.compile(r"[\s,;]*(?=\{)")
_NEXT_FUNCTION = re.compile(r"\s*(?=<function)")
_NAMED = re.compile(rf"\s*(?:\[TOOL_CALLS\])?\s*({NAME})\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\])?\s*(?=\{{)")


def read_tagged(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse `<tool_call>{…}</tool_call>`. A missing end tag is a repair: templates often remove it."""
    at, tag = match.end(), match["tag"]
    # without its slash it is an end tag only if no other call follows
    end_tag = re.compile(rf"\s*<(?:\|?/\|?{tag}\|?|\|?{tag}\|?(?!>\s*[\[{{<]))>(?:\s*\Z)?")
    if text[at : at + 1] in ("{", "["):
        inner = _bodies(text, at, context, "tagged")
    elif function := FUNCTION.match(text, at):
        inner = _functions(text, function, context)
    elif closed := end_tag.search(text, at):
        inner = ParsedSpan(closed.start(), context.only_calls(text[at : closed.start()]) or ())
    else:
        inner = None
    if inner is None or not (inner.closed or inner.written):
        return ParsedSpan(len(text), closed=False)
    closed = end_tag.match(text, inner.end)
    if not inner.written:
        # an end tag without its slash may be the start tag of the next call: then it is parsed again
        return ParsedSpan(len(text) if closed is not None and closed.end() == len(text) else inner.end)
    written = tuple(replace(call, syntax="tagged") for call in inner.written)
    if closed is None and inner.closed:
        note = Repair("wrapper", f"the tag {tag} is not closed")
        written = tuple(call.noted(note) for call in written)
    return ParsedSpan(inner.end if closed is None else closed.end(), written, inner.closed)


def _bodies(text: str, at: int, context: ReaderContext, syntax: CallSyntaxName) -> ParsedSpan | None:
    """Parse the calls in the JSON at `at`, and in the objects directly after it.

    After JSON without a call, an object is parsed on its own: a stream has already emitted the tag.
    """
    span = read_body(text, at, context.names, syntax)
    while span is not None and span.written and span.closed and (more := _MORE.match(text, span.end)):
        body = read_body(text, more.end(), context.names, syntax)
        if body is None or not body.written:
            break
        note = Repair("wrapper", "several calls follow one opening tag")
        written = tuple(call.noted(note) for call in body.written)
        span = replace(body, written=span.written + written)
    return span


def _functions(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse the call in `<function=…>`, and those directly after it."""
    span = read_function(text, match, context)
    while span.closed and (more := _NEXT_FUNCTION.match(text, span.end)):
        function = FUNCTION.match(text, more.end())
        following = None if function is None else read_function(text, function, context)
        if following is None or not following.written:
            break
        span = replace(following, written=span.written + following.written)
    return span


def read_function(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse `<function=name>{…}`, or with a `<parameter=key>` for each argument."""
    at, name = match.end(), match["name"]
    span = (
        named_json(text, at, name, "function")
        if text[at : at + 1] == "{"
        else _parameters(text, at, name, context)
    )
    closed = _FUNCTION_END.match(text, span.end)
    return span if closed is None else replace(span, end=closed.end())


def _parameters(text: str, at: int, name: str, context: ReaderContext) -> ParsedSpan:
    properties = properties_of(name, context)
    reader = KeyValueBlock("", properties)
    arguments: dict[str, Any] = {}
    repairs: list[Repair] = []
    error = ""
    while parameter := _PARAMETER.match(text, at):
        key = parameter[1]
        value = _parameter(text, parameter.end(), properties)
        if value is None:
            break
        stop, at, ended = value
        given = text[parameter.end() : stop]
        schema = properties.get(key)
        found = given if is_text(schema) else reader.scalar(given, schema)
        if key in arguments and arguments[key] != found:
            error = f"the parameter {key[:80]!r} occurs twice, with two values"
        arguments[key] = found
        if not ended:
            repairs.append(Repair("wrapper", f"the parameter {key[:80]!r} has no end tag"))
    closed = _FUNCTION_END.match(text, at) is not None
    if not arguments and not closed:
        return ParsedSpan(len(text), closed=False)
    repairs += [*reader.repairs, *(() if closed else (TRUNCATED,))]
    written = RawCall(name, arguments, "function", tuple(repairs), truncated=not closed, error=error)
    return ParsedSpan(at if closed else len(text), (written,), closed)


def _parameter(text: str, at: int, properties: Mapping[str, Any]) -> tuple[int, int, bool] | None:
    """Return the end of the value at `at`, where to continue, and whether it has an end tag.

    Without one it ends at the next parameter or at the function's end; None if the text ends inside it. The
    tag of an undeclared parameter inside a line belongs to the value.
    """
    function_end: int | None = None
    for found in _IN_PARAMETER.finditer(text, at):
        if found["end"]:
            return found.start(), found.end(), True
        if found["function"]:
            function_end = found.start() if function_end is None else function_end
        elif found["line"] is not None or found["name"] in properties:
            stop = found.start() if function_end is None else function_end
            return stop, stop, False
    return None if function_end is None else (function_end, function_end, False)


def read_mistral(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse `[TOOL_CALLS][{…}]`, or `[TOOL_CALLS]name[ARGS]{…}` of newer models."""
    at = match.end()
    if text[at : at + 1] in ("{", "["):
        return _bodies(text, at, context, "mistral") or ParsedSpan(len(text), closed=False)
    written: list[RawCall] = []
    closed = True
    while closed and (named := _NAMED.match(text, at)):
        span = named_json(text, named.end(), named[1], "mistral")
        at, closed = span.end, span.closed
        written += span.written
    return ParsedSpan(at, tuple(written), closed) if written else ParsedSpan(len(text), closed=False)


OBJECT = pattern(r"\{(?=\s*(?:[\"'“\w{}/#]|\Z))|\[(?=\s*(?:\{|\Z))")

_SAYS_CALL = re.compile(r"\b(?:tool_calls?|function_call|name|tool|function|tool_name|action)\b")
_QUOTES = "\"'“«‘‹`"


def read_object(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse the calls of a JSON value. A value that is not a call is skipped, including its strings."""
    start = match.start()
    found = extent(text, start)
    quoted = start > 0 and text[start - 1] in _QUOTES  # a quotation, not a call
    if quoted or not _SAYS_CALL.search(text, start, found.end):
        return ParsedSpan(found.end, closed=found.closed)
    return read_body(text, start, context.names) or ParsedSpan(found.end, closed=False)


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
    CallSyntax("mistral", MISTRAL, read_mistral, lambda calls: f"[TOOL_CALLS]{json_of(_listed(calls))}"),
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
    for known in CALL_SYNTAXES:
        if known.name == syntax:
            return known.write([calls] if isinstance(calls, ToolCall) else calls)
    names = ", ".join(known.name for known in CALL_SYNTAXES)
    raise InvalidArgumentError(f"unknown call syntax {syntax!r}. Use one of {names}.")
