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
    keyed_lines,
    read_call,
    read_fenced,
    read_python,
    read_yaml,
)
from gbnf.calls.parsing.python_arguments import write_arguments
from gbnf.calls.parsing.readers import ParsedSpan, Reader, ReaderContext, json_of, pattern
from gbnf.calls.parsing.results import CallSyntaxName, ToolCall
from gbnf.calls.parsing.tags import FUNCTION, MISTRAL, TAG, read_function, read_mistral, read_tagged
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
    return read_body(text, start, context.names) or ParsedSpan(found.end, closed=False)


def _write_fenced(call: ToolCall) -> str:
    return "\n".join(["```tool", call.name, *keyed_lines(call), "```"])


def _write_call(call: ToolCall) -> str:
    return f"CALL {call.name} {json_of(call.arguments)}"


def _write_bare(call: ToolCall) -> str:
    return json_of({"name": call.name, "arguments": call.arguments})


def _write_tagged(call: ToolCall) -> str:
    return f"<tool_call>\n{_write_bare(call)}\n</tool_call>"


def _write_function(call: ToolCall) -> str:
    return f"<function={call.name}>{json_of(call.arguments)}</function>"


def _write_yaml(call: ToolCall) -> str:
    lines = ["args:", *(f"  {line}" for line in keyed_lines(call))] if call.arguments else ["args: {}"]
    return "\n".join([f"tool: {call.name}", *lines])


def _write_python(call: ToolCall) -> str:
    return f"{call.name}({write_arguments(call.arguments)})"


def _write_tool_calls(calls: Sequence[ToolCall]) -> str:
    listed = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
    return json_of({"tool_calls": listed})


def _write_mistral(calls: Sequence[ToolCall]) -> str:
    listed = [{"name": call.name, "arguments": call.arguments, "id": call.id} for call in calls]
    return f"[TOOL_CALLS]{json_of(listed)}"


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
    CallSyntax("fenced", FENCE, read_fenced, _each(_write_fenced)),
    CallSyntax("call", CALL, read_call, _each(_write_call)),
    CallSyntax("tool_calls", OBJECT, read_object, _write_tool_calls),
    CallSyntax("bare", OBJECT, read_object, _each(_write_bare)),
    CallSyntax("openai", OBJECT, read_object, _write_openai),
    CallSyntax("tagged", TAG, read_tagged, _each(_write_tagged)),
    CallSyntax("function", FUNCTION, read_function, _each(_write_function)),
    CallSyntax("mistral", MISTRAL, read_mistral, _write_mistral),
    CallSyntax("yaml", YAML, read_yaml, _each(_write_yaml)),
    CallSyntax("python", PYTHON, read_python, _each(_write_python)),
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
