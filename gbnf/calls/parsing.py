"""From a model's text to a step: the calls of its first shape, their names looked up, or an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from gbnf.calls.json_text import Unreadable, extent, load
from gbnf.calls.names import Names
from gbnf.calls.scan import Scanner, Segment
from gbnf.calls.shapes import SHAPES
from gbnf.calls.values import Final, Refused, Repair, Step, ToolCall, ToolCalls, Written
from gbnf.manifests import Executor

#: Characters of a text that is read for calls; a longer one is an answer.
TEXT_LIMIT = 100_000

_PRIORITY = {shape.name: place for place, shape in enumerate(SHAPES)}


def parse(text: str, executors: Iterable[Executor]) -> Step:
    """What a model's text amounts to, given the tools that it may call. Never raises, whatever the text.

    A text without a sign of a call is a `Final` with the text unchanged, but for thoughts between think
    tags. Else the calls of the first shape that names a tool of the pool; a name that no tool has is refused,
    with the nearest. Every call's arguments are still to be validated (`gbnf.validate_call`), and a call that
    is `cut` is never to be executed.
    """
    names = _names(tuple(executors))
    if len(text) > TEXT_LIMIT:
        note = f"a text of {len(text)} characters is not read for calls; the limit is {TEXT_LIMIT}"
        return Final(text, repairs=(Repair("text", note),))
    try:
        segments = list(Scanner(names).segments(text))
    except RecursionError:
        return Final(text, repairs=(Repair("text", "it nests too deeply to be read for calls"),))
    return step_of(text, segments, names)


def step_of(text: str, segments: Sequence[Segment], names: Names) -> Step:
    """The step that a text's segments amount to."""
    ends = [place for place, each in enumerate(segments) if _ends_thoughts(text, each)]
    begin = ends[-1] + 1 if ends else 0  # before it, all is thoughts that the chat template has opened
    spoken = segments[begin:]
    thoughts = "".join(
        text[each.start : each.end]
        for place, each in enumerate(segments)
        if place < begin or each.kind == "thoughts"
    )
    notes = [Repair("thoughts", f"left out {len(thoughts)} characters of thoughts")] if thoughts else []
    prose = "".join(text[each.start : each.end] for each in spoken if each.kind == "text")
    written = [call for each in spoken for call in each.written]
    known = [call for call in written if names.find(call.name) is not None]
    chosen = min(known or written, key=lambda call: _PRIORITY[call.shape], default=None)
    if chosen is None:
        first = next((each for each in segments if text[each.start : each.end].strip()), None)
        opens = first is not None and (begin or first.kind == "thoughts")
        return Final(prose.lstrip() if opens else prose, thoughts, tuple(notes))
    calls: list[ToolCall] = []
    refused: list[Refused] = []
    for call in written:
        if call.shape != chosen.shape:
            notes.append(
                Repair("ignored", f"left alone a call of {call.name[:80]!r} in the shape {call.shape!r}")
            )
            continue
        found = _call(call, len(calls) + len(refused) + 1, names, notes)
        (calls if isinstance(found, ToolCall) else refused).append(found)  # type: ignore[arg-type]  # each to its own
    if prose.strip():
        notes.append(Repair("prose", f"left out {len(prose.strip())} characters around the call"))
    place = next(place for place, each in enumerate(spoken) if chosen in each.written)
    amid = _says(text, spoken[:place]) and _says(text, spoken[place:])
    return ToolCalls(tuple(calls), chosen.shape, tuple(refused), prose.strip(), thoughts, tuple(notes), amid)


@lru_cache(maxsize=64)
def _names(executors: tuple[Executor, ...]) -> Names:
    return Names(executors)


def _ends_thoughts(text: str, segment: Segment) -> bool:
    return segment.kind == "thoughts" and text.startswith("</", segment.start)


def _says(text: str, segments: Sequence[Segment]) -> bool:
    return any(each.kind == "text" and text[each.start : each.end].strip() for each in segments)


def _call(written: Written, number: int, names: Names, notes: list[Repair]) -> ToolCall | Refused:
    tool = names.find(written.name)
    notes += written.repairs
    if tool is None:
        return Refused(written.name, names.unknown(written.name), names.nearest(written.name))
    if written.error:
        return Refused(written.name, f"the arguments of '{tool.name}' can't be read: {written.error}")
    if tool.name != written.name:
        notes.append(Repair("name", f"took {written.name[:80]!r} for {tool.name!r}"))
    try:
        arguments, cut = _arguments(written, tool, notes)
    except Unreadable as error:
        return Refused(written.name, str(error))
    return ToolCall(written.id or f"call_{number}", tool.name, arguments, written.cut or cut)


def _arguments(written: Written, tool: Executor, notes: list[Repair]) -> tuple[dict[str, Any], bool]:
    """The arguments as an object, and whether their text was cut. Raises Unreadable where they are none."""
    given, cut = written.arguments, False
    if isinstance(given, str) and given.lstrip()[:1] == "{":
        text = given.strip()
        found = extent(text, 0)
        given, repairs = load(text)
        cut = not found.closed
        notes += repairs
        if cut:
            notes.append(Repair("cut", "the text of the arguments ends too early"))
        elif not written.text_arguments:
            notes.append(Repair("arguments", "took an object out of its text"))
    if isinstance(given, dict):
        return given, cut
    if given in (None, [], ""):
        notes.append(Repair("arguments", f"there are none for {tool.name!r}; took {{}}"))
        return {}, cut
    properties = list(tool.model_args().get("properties", {}))
    if len(properties) == 1:
        notes.append(Repair("arguments", f"took what stands there for {properties[0]!r}"))
        return {properties[0]: given}, cut
    raise Unreadable(
        f"the arguments of '{tool.name}' must be an object, such as {{\"{properties[0]}\": …}}"
        if properties
        else f"'{tool.name}' takes no arguments; give {{}}"
    )
