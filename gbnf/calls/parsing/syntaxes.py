"""The table of call syntaxes, in order of priority: opener, reader and writer of each.

Invariant: the reader parses what the writer renders to the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gbnf.calls.parsing.call_objects import read_body
from gbnf.calls.parsing.lenient_json import extent
from gbnf.calls.parsing.line_syntaxes import (
    CALL,
    FENCE,
    PYTHON,
    YAML,
    read_call,
    read_fenced,
    read_python,
    read_yaml,
    write_call,
    write_fenced,
    write_python,
    write_yaml,
)
from gbnf.calls.parsing.readers import ParsedSpan, Reader, ReaderContext, json_of, pattern
from gbnf.calls.parsing.results import CallSyntaxName, ToolCall
from gbnf.calls.parsing.tags import (
    FUNCTION,
    MISTRAL,
    TAG,
    read_function,
    read_mistral,
    read_tagged,
    write_function,
    write_mistral,
    write_tagged,
)
from gbnf.errors import InvalidArgumentError

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


Writer: TypeAlias = Callable[[Sequence[ToolCall]], str]


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """A syntax of calls."""

    name: CallSyntaxName
    opener: re.Pattern[str]
    read: Reader
    write: Writer


CALL_SYNTAXES: tuple[CallSyntax, ...] = (
    CallSyntax("fenced", FENCE, read_fenced, write_fenced),
    CallSyntax("call", CALL, read_call, write_call),
    CallSyntax("tool_calls", OBJECT, read_object, write_tool_calls),
    CallSyntax("bare", OBJECT, read_object, write_bare),
    CallSyntax("openai", OBJECT, read_object, write_openai),
    CallSyntax("tagged", TAG, read_tagged, write_tagged),
    CallSyntax("function", FUNCTION, read_function, write_function),
    CallSyntax("mistral", MISTRAL, read_mistral, write_mistral),
    CallSyntax("yaml", YAML, read_yaml, write_yaml),
    CallSyntax("python", PYTHON, read_python, write_python),
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
