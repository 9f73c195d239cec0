"""The syntaxes of calls that are JSON objects."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gbnf.calls.parsing.call_objects import read_body
from gbnf.calls.parsing.lenient_json import extent
from gbnf.calls.parsing.readers import ParsedSpan, ReaderContext, json_of, pattern
from gbnf.calls.parsing.results import ToolCall

OBJECT = pattern(r"\{(?=\s*(?:[\"'“\w}/#]|\Z))|\[(?=\s*(?:\{|\Z))")

_SAYS_CALL = re.compile(r"\b(?:tool_calls?|function_call|name|tool|function|tool_name|action)\b")
_QUOTES = "\"'“«‘‹`"


def read_object(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse the calls of a JSON value. A value that is not a call is skipped, including its strings."""
    start = match.start()
    found = extent(text, start)
    quoted = start > 0 and text[start - 1] in _QUOTES  # a quotation, not a call
    if quoted or not _SAYS_CALL.search(text, start, found.end):
        return ParsedSpan(found.end, closed=found.closed)
    body = read_body(text, start, context.names)
    return (
        ParsedSpan(found.end, closed=False)
        if body is None
        else ParsedSpan(body.end, body.written, body.closed)
    )


def write_tool_calls(calls: Sequence[ToolCall]) -> str:
    """Render `{"tool_calls": […]}`."""
    listed = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
    return json_of({"tool_calls": listed})


def write_bare(calls: Sequence[ToolCall]) -> str:
    """Render one `{"name": …, "arguments": …}` per line."""
    return "\n".join(json_of({"name": call.name, "arguments": call.arguments}) for call in calls)


def write_openai(calls: Sequence[ToolCall]) -> str:
    """Render the objects of OpenAI's API."""
    listed = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json_of(call.arguments)},
        }
        for call in calls
    ]
    return json_of(listed[0] if len(listed) == 1 else listed)
