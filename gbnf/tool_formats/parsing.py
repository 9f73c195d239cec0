"""Parsing of a whole answer in a tool-call format: the stream, fed once."""

from __future__ import annotations

from collections.abc import Iterable

from gbnf.calls.parsing.parser import resolve_call
from gbnf.calls.parsing.results import (
    FinalAnswer,
    InvalidToolCall,
    ParseResult,
    RawCall,
    Repair,
    ToolCall,
    ToolCalls,
)
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.tool_formats.call_reading import WrittenCall
from gbnf.tool_formats.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from gbnf.tool_formats.format import FormatFields
from gbnf.tool_formats.streaming import CallDeltas
from gbnf.tools import Tool


def parse_answer(
    format: FormatFields,  # noqa: A002
    text: str,
    tools: Iterable[Tool],
    *,
    truncated: bool = False,
    reasoning: bool = False,
) -> ParseResult:
    """Parse an answer in a format. Never raises, whatever the text.

    `truncated`: a token limit ended it. `reasoning`: the template was asked for reasoning. Calls of unknown
    tools, and calls that cannot be read, are in `invalid`. The arguments are not validated (see
    `gbnf.validate_call`), and a `truncated` call must not be executed.
    """
    tools = tuple(tools)
    stream = CallDeltas(format, tools, reasoning=reasoning)
    return answer_of([*stream.feed(text), *stream.close(truncated=truncated)], stream.calls, tools)


def answer_of(deltas: Iterable[Delta], written: Iterable[WrittenCall], tools: Iterable[Tool]) -> ParseResult:
    """Return the answer that the deltas of a stream and its calls amount to."""
    texts: list[str] = []
    thoughts: list[str] = []
    arguments: dict[int, list[str]] = {}
    inside_prose = False
    for delta in deltas:
        match delta:
            case TextDelta(text):
                inside_prose = bool(arguments and any(part.strip() for part in texts))
                texts.append(text)
            case ReasoningDelta(text):
                thoughts.append(text)
            case ArgumentsDelta(index, json_text):
                arguments.setdefault(index, []).append(json_text)
    content, reasoning = "".join(texts), "".join(thoughts)
    names = ToolNames(tools)
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    notes: list[Repair] = []
    for index, call in enumerate(written):
        if call.note:
            notes.append(Repair("wrapper", call.note))
        raw = RawCall(
            call.name,
            "".join(arguments.get(index, ())),
            "native",
            truncated=not call.ended,
            id=call.id,
            text_arguments=True,
            error=call.problem,
        )
        found = resolve_call(raw, index + 1, names, notes)
        (calls if isinstance(found, ToolCall) else invalid).append(found)  # type: ignore[arg-type]  # by its type
    if not calls and not invalid:
        return FinalAnswer(content, reasoning)
    return ToolCalls(
        tuple(calls), "native", tuple(invalid), content.strip(), reasoning, tuple(notes), inside_prose
    )
