"""Calls between tags: `<tool_call>`, `<function=name>` and `[TOOL_CALLS]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gbnf.calls.keyed import Block, is_text
from gbnf.calls.objects import read_body
from gbnf.calls.reading import CUT, NAME, Look, Reading, json_of, named_json, pattern, properties_of
from gbnf.calls.values import Repair, ToolCall, Written

TAG = pattern(r"<\|?(?P<tag>tool_calls?|function_calls?|tool)\|?>\s*")
FUNCTION = pattern(r"<function[=: ]\s*[\"']?(?P<name>[^<>\n\"'{]{1,200}?)[\"']?\s*>\s*")
MISTRAL = pattern(r"\[TOOL_CALLS?\]\s*")

_PARAMETER = re.compile(r"\s*<parameter[=: ]\s*([^<>\n]{1,200}?)\s*>\n?(.*?)\n?</parameter>", re.DOTALL)
_FUNCTION_END = re.compile(r"\s*</function>")
_NAMED = re.compile(rf"\s*(?:\[TOOL_CALLS\])?\s*({NAME})\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\])?\s*(?=\{{)")


def read_tagged(text: str, match: re.Match[str], look: Look) -> Reading:
    """`<tool_call>{…}</tool_call>`; a missing end tag is a repair, since templates often swallow it."""
    at, tag = match.end(), match["tag"]
    end_tag = re.compile(rf"\s*<[/|]*{tag}\|?>")
    if text[at : at + 1] in ("{", "["):
        body = read_body(text, at, look.names, "tagged")
        inner = None if body is None else Reading(body.end, body.written, body.closed)
    elif function := FUNCTION.match(text, at):
        inner = read_function(text, function, look)
    elif closed := end_tag.search(text, at):
        inner = Reading(closed.start(), look.only_calls(text[at : closed.start()]) or ())
    else:
        inner = None
    if inner is None or not (inner.closed or inner.written):
        return Reading(len(text), closed=False)
    written = tuple(replace(call, shape="tagged") for call in inner.written)
    closed = end_tag.match(text, inner.end)
    if closed is None and inner.closed:
        note = Repair("wrapper", f"the tag {tag} isn't closed")
        written = tuple(replace(call, repairs=(*call.repairs, note)) for call in written)
    return Reading(inner.end if closed is None else closed.end(), written, inner.closed)


def write_tagged(calls: Sequence[ToolCall]) -> str:
    listed = (json_of({"name": call.name, "arguments": call.arguments}) for call in calls)
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in listed)


def read_function(text: str, match: re.Match[str], look: Look) -> Reading:
    """`<function=name>{…}`, or with a `<parameter=key>` for each argument."""
    at, name = match.end(), match["name"]
    reading = (
        named_json(text, at, name, "function")
        if text[at : at + 1] == "{"
        else _parameters(text, at, name, look)
    )
    closed = _FUNCTION_END.match(text, reading.end)
    return reading if closed is None else replace(reading, end=closed.end())


def _parameters(text: str, at: int, name: str, look: Look) -> Reading:
    properties = properties_of(name, look)
    reader = Block("", properties)
    arguments: dict[str, Any] = {}
    while parameter := _PARAMETER.match(text, at):
        schema = properties.get(parameter[1])
        arguments[parameter[1]] = parameter[2] if is_text(schema) else reader.scalar(parameter[2], schema)
        at = parameter.end()
    closed = _FUNCTION_END.match(text, at) is not None
    if not arguments and not closed:
        return Reading(len(text), closed=False)
    repairs = (*reader.repairs, *(() if closed else (CUT,)))
    written = Written(name, arguments, "function", repairs, cut=not closed)
    return Reading(at if closed else len(text), (written,), closed)


def write_function(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"<function={call.name}>{json_of(call.arguments)}</function>" for call in calls)


def read_mistral(text: str, match: re.Match[str], look: Look) -> Reading:
    """`[TOOL_CALLS][{…}]`, or `[TOOL_CALLS]name[ARGS]{…}` as newer models write it."""
    at = match.end()
    if text[at : at + 1] in ("{", "["):
        body = read_body(text, at, look.names, "mistral")
        return Reading(body.end, body.written, body.closed) if body else Reading(len(text), closed=False)
    written: list[Written] = []
    closed = True
    while closed and (named := _NAMED.match(text, at)):
        reading = named_json(text, named.end(), named[1], "mistral")
        at, closed = reading.end, reading.closed
        written += reading.written
    return Reading(at, tuple(written), closed) if written else Reading(len(text), closed=False)


def write_mistral(calls: Sequence[ToolCall]) -> str:
    listed = [{"name": call.name, "arguments": call.arguments, "id": call.id} for call in calls]
    return f"[TOOL_CALLS]{json_of(listed)}"
