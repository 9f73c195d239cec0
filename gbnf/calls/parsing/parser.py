"""The parser: from a model's text to the calls in its first syntax, or to a final answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from gbnf.calls.parsing.lenient_json import extent, load
from gbnf.calls.parsing.results import (
    FinalAnswer,
    InvalidToolCall,
    ParseResult,
    RawCall,
    Repair,
    ToolCall,
    ToolCalls,
)
from gbnf.calls.parsing.scanner import Scanner, Segment
from gbnf.calls.parsing.syntaxes import CALL_SYNTAXES
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.strict_json import InvalidJsonError
from gbnf.tools import Tool

#: Characters of a text that is searched for calls; a longer one is an answer.
TEXT_LIMIT = 100_000

_PRIORITY = {syntax.name: index for index, syntax in enumerate(CALL_SYNTAXES)}


def parse_tool_calls(text: str, tools: Iterable[Tool]) -> ParseResult:
    """Parse the tool calls in a model's text. Never raises, whatever the text.

    A text without a call is a `FinalAnswer`: the text unchanged, except for reasoning in tags. Otherwise the
    result has the calls in the first syntax that names a tool of the pool; calls of unknown tools are in
    `invalid`, with the nearest name. The arguments are not validated (see `gbnf.validate_call`), and a
    `truncated` call must not be executed.
    """
    names = _names(tuple(tools))
    if len(text) > TEXT_LIMIT:
        note = f"a text of {len(text)} characters is not searched for calls; the limit is {TEXT_LIMIT}"
        return FinalAnswer(text, repairs=(Repair("text", note),))
    try:
        segments = list(Scanner(names).segments(text))
    except RecursionError:
        return FinalAnswer(text, repairs=(Repair("text", "it is nested too deeply to be parsed"),))
    return parse_segments(text, segments, names)


def parse_segments(text: str, segments: Sequence[Segment], names: ToolNames) -> ParseResult:
    """Return the result of parsing a text, given its segments."""
    ends = [
        index
        for index, each in enumerate(segments)
        if each.kind == "reasoning" and text.startswith("</", each.start)
    ]
    begin = ends[-1] + 1 if ends else 0  # text before it is reasoning that the chat template has opened
    spoken = segments[begin:]
    reasoning = "".join(
        text[each.start : each.end]
        for index, each in enumerate(segments)
        if index < begin or each.kind == "reasoning"
    )
    notes = [Repair("reasoning", f"ignored {len(reasoning)} characters of reasoning")] if reasoning else []
    prose = "".join(text[each.start : each.end] for each in spoken if each.kind == "text")
    written = [call for each in spoken for call in each.written]
    known = [call for call in written if names.find(call.name) is not None]
    chosen = min(known or written, key=lambda call: _PRIORITY[call.syntax], default=None)
    if chosen is None:
        first = next((each for each in segments if text[each.start : each.end].strip()), None)
        opens = first is not None and (begin or first.kind == "reasoning")
        return FinalAnswer(prose.lstrip() if opens else prose, reasoning, tuple(notes))
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for call in written:
        if call.syntax != chosen.syntax:
            notes.append(
                Repair("ignored", f"ignored a call of {call.name[:80]!r} in the syntax {call.syntax!r}")
            )
            continue
        found = resolve_call(call, len(calls) + len(invalid) + 1, names, notes)
        (calls if isinstance(found, ToolCall) else invalid).append(found)  # type: ignore[arg-type]  # by its type
    if prose.strip():
        notes.append(Repair("prose", f"ignored {len(prose.strip())} characters around the call"))
    index = next(index for index, each in enumerate(spoken) if chosen in each.written)
    inside_prose = _says(text, spoken[:index]) and _says(text, spoken[index:])
    return ToolCalls(
        tuple(calls), chosen.syntax, tuple(invalid), prose.strip(), reasoning, tuple(notes), inside_prose
    )


_names = lru_cache(maxsize=64)(ToolNames)


def _says(text: str, segments: Sequence[Segment]) -> bool:
    return any(each.kind == "text" and text[each.start : each.end].strip() for each in segments)


def resolve_call(
    written: RawCall, number: int, names: ToolNames, notes: list[Repair]
) -> ToolCall | InvalidToolCall:
    """Return a call with its tool's name and its arguments as an object; appends the repairs to `notes`."""
    tool = names.find(written.name)
    notes += written.repairs
    if tool is None:
        return InvalidToolCall(written.name, names.unknown(written.name), names.nearest(written.name))
    if written.error:
        return InvalidToolCall(written.name, f"the arguments of '{tool.name}' can't be read: {written.error}")
    if tool.name != written.name:
        notes.append(Repair("name", f"took {written.name[:80]!r} for {tool.name!r}"))
    try:
        arguments, truncated = _arguments(written, tool, notes)
    except InvalidJsonError as error:
        return InvalidToolCall(written.name, str(error))
    identifier = written.id or f"call_{number}"
    return ToolCall(identifier, tool.name, arguments, written.truncated or truncated, written.extra)


def _arguments(written: RawCall, tool: Tool, notes: list[Repair]) -> tuple[dict[str, Any], bool]:
    """Return the arguments as an object, and whether they are truncated. Raises InvalidJsonError."""
    given, truncated = written.arguments, False
    if isinstance(given, str) and given.lstrip()[:1] == "{":
        text = given.strip()
        found = extent(text, 0)
        given, repairs = load(text)
        truncated = not found.closed
        notes += repairs
        if truncated:
            notes.append(Repair("truncated", "the text of the arguments ends too early"))
        elif not written.text_arguments:
            notes.append(Repair("arguments", "parsed an object from its text"))
    if isinstance(given, dict):
        return given, truncated
    if given in (None, [], ""):
        notes.append(Repair("arguments", f"there are none for {tool.name!r}; took {{}}"))
        return {}, truncated
    properties = list(tool.model_args().get("properties", {}))
    if len(properties) == 1:
        notes.append(Repair("arguments", f"used the value for {properties[0]!r}"))
        return {properties[0]: given}, truncated
    raise InvalidJsonError(
        f"the arguments of '{tool.name}' must be an object, such as {{\"{properties[0]}\": …}}"
        if properties
        else f"'{tool.name}' takes no arguments; give {{}}"
    )
