"""The stream of an answer in a tool-call format: text, reasoning and calls, as soon as they are certain.

Invariants, for any division into chunks: the deltas of a kind join to the same texts; the work is linear in
the length of the text; text that may be part of a delimiter is held back, and nothing else, except for
values whose type only their end decides, and a call inside reasoning that has not ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import regex

from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tool_formats.cursor import Cursor, Delimiters, Steps
from gbnf.tool_formats.delimiters import format_delimiters
from gbnf.tool_formats.deltas import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from gbnf.tool_formats.format import FormatFields
from gbnf.tools import Tool

_CLOSERS = {"}": "{", "]": "["}
_OUTSIDE = Delimiters(['"', r"\{", r"\}", r"\[", r"\]"])
_INSIDE = Delimiters(['"', r"\\."])
_SCALAR_END = Delimiters([r"[\s,}\]<]"])


@dataclass(slots=True)
class WrittenCall:
    """A call as it was read. `problem`: why it cannot be executed; `note`: what was overlooked."""

    id: str
    name: str
    ended: bool = False
    problem: str = ""
    note: str = ""


class CallDeltas:
    """Reads an answer chunk by chunk.

    `reasoning`: the template was asked for reasoning, so that an answer may begin inside it (see
    `Reasoning.prompt`). `calls` are those read so far.
    """

    def __init__(self, format: FormatFields, tools: Iterable[Tool], *, reasoning: bool = False) -> None:  # noqa: A002
        self.calls: list[WrittenCall] = []
        self._format = format
        self._names = ToolNames(tools)
        self._delimiters = format_delimiters(format)
        self._cursor = Cursor()
        self._deltas: list[Delta] = []
        self._held: list[str] = []  # text that counts only if other text follows
        self._dropped = ""  # the controls in it, which count only then, and what follows them
        self._said = False  # whether there is text, after the reasoning and the last call
        self._had_calls = self._had_reasoning = self._truncated = False
        begins_inside = reasoning and format.reasoning is not None and format.reasoning.prompt == "open"
        self._run = self._answer(begins_inside=begins_inside)
        next(self._run)

    def feed(self, chunk: str) -> list[Delta]:
        """Take the next characters, and return what they make certain."""
        self._cursor.feed(chunk)
        return self._advance()

    def close(self, *, truncated: bool = False) -> list[Delta]:
        """Return the rest of the answer. `truncated`: a token limit ended it."""
        self._cursor.ended, self._truncated = True, truncated
        return self._advance()

    def _advance(self) -> list[Delta]:
        next(self._run, None)
        deltas, self._deltas = self._deltas, []
        return _merged(deltas)

    def _emit(self, delta: Delta) -> None:
        self._deltas.append(delta)

    # Text and reasoning

    def _answer(self, *, begins_inside: bool) -> Steps[None]:
        yield
        if begins_inside:
            yield from self._reasoning(opened=True)
        yield from self._begin_text()
        while (found := (yield from self._cursor.until(self._delimiters.in_text, self._text))) is not None:
            text = found.group()
            if (yield from self._calls()):
                self._held.clear()
                self._dropped, self._said, self._had_calls = "", False, True
                yield from self._begin_text()
                continue
            if (yield from self._cursor.match(self._delimiters.reasoning_begin)) is not None:
                yield from self._reasoning()
                yield from self._begin_text()
            elif (control := (yield from self._cursor.match(self._delimiters.soft))) is not None:
                self._dropped += control.group()
            else:
                self._cursor.at += 1
                self._text(text[0])
        if not self._had_calls:
            self._flush()

    def _begin_text(self) -> Steps[None]:
        yield from self._cursor.match(self._delimiters.text_begin)

    def _text(self, piece: str) -> None:
        """Take text; whitespace, and controls that may end the text, are held until more follows."""
        said = piece.rstrip()
        if not said:
            if self._dropped:
                self._dropped += piece
            elif self._said or not (self._had_calls or self._had_reasoning):
                self._held.append(piece)
            return
        if not self._said and (self._had_calls or self._had_reasoning) and not self._dropped:
            piece = piece.lstrip()
        self._flush()
        self._said = True
        if self._dropped:
            said, self._dropped = self._dropped + said, ""
            piece = said + piece[len(piece.rstrip()) :]
        self._emit(TextDelta(piece.rstrip()))
        if space := piece[len(piece.rstrip()) :]:
            self._held.append(space)

    def _flush(self) -> None:
        if self._held:
            self._emit(TextDelta("".join(self._held)))
            self._held.clear()

    def _reasoning(self, *, opened: bool = False) -> Steps[None]:
        """Read reasoning up to its end. A call in it counts only if it has no end."""
        self._had_reasoning = True
        if opened:
            yield from self._cursor.skip_space()
            yield from self._cursor.match(self._delimiters.reasoning_begin)
        held: list[str] = []  # whitespace that counts only inside the reasoning
        call: list[str] = []  # what may be a call

        def take(piece: str) -> None:
            said = piece.rstrip()
            if said:
                self._emit(ReasoningDelta("".join([*held, said])))
                held.clear()
            if len(said) < len(piece):
                held.append(piece[len(said) :])

        yield from self._cursor.skip_space()
        while (found := (yield from self._cursor.until(self._delimiters.in_reasoning, take))) is not None:
            if (yield from self._cursor.match(self._delimiters.reasoning_end)) is not None:
                return
            if (yield from self._cursor.match(self._delimiters.calls, read=False)) is None:
                self._cursor.at += 1
                take(found.group()[0])
                continue
            end = yield from self._cursor.until(self._delimiters.reasoning_end, call.append)
            if end is not None:
                take("".join(call))
                self._cursor.at = end.end()
                return
            self._cursor.feed("".join(call))
            return

    # Calls

    def _calls(self) -> Steps[bool]:
        """Read the calls that begin here, and return whether there are any."""
        head = yield from self._cursor.match(self._delimiters.calls)
        if head is None:
            return False
        while head is not None:
            yield from self._call(head)
            yield from self._cursor.skip_space()
            head = yield from self._cursor.match(self._delimiters.next_calls)
        yield from self._cursor.match(self._delimiters.end)
        return True

    def _call(self, head: regex.Match[str]) -> Steps[None]:
        call = self._start(head)
        index = len(self.calls) - 1
        late = self._delimiters.late_id
        pieces: list[str] = []

        def take(piece: str) -> None:
            if late:
                pieces.append(piece)
            else:
                self._emit(ArgumentsDelta(index, piece))

        if not late:
            self._emit(CallStarted(index, call.id, call.name))
        complete = yield from self._arguments(call, take)
        if complete:
            yield from self._tail(call)
        if late:
            self._emit(CallStarted(index, call.id, call.name))
            if pieces:
                self._emit(ArgumentsDelta(index, "".join(pieces)))
        if call.ended:
            self._emit(CallEnded(index))

    def _start(self, head: regex.Match[str]) -> WrittenCall:
        groups = head.groupdict()
        tool = self._names.find(groups["name"])
        name = groups["name"] if tool is None else tool.name
        call = WrittenCall(groups.get("id") or f"call_{len(self.calls) + 1}", name)
        self.calls.append(call)
        return call

    def _arguments(self, call: WrittenCall, take: Any) -> Steps[bool]:
        """Read the arguments, and return whether they are complete."""
        yield from self._cursor.skip_space()
        sign = yield from self._cursor.peek()
        if sign == "{":
            return (yield from self._json(take))
        if sign == '"':
            return (yield from self._quoted(call, take))
        text: list[str] = []
        yield from self._cursor.until(_SCALAR_END, text.append)
        if "".join(text) in ("", "null"):
            take("{}")
            return True
        call.problem = f"expected an object, not {''.join(text)[:40]!r}"
        return True

    def _json(self, take: Any) -> Steps[bool]:
        """Read the JSON value that starts with the bracket here, and return whether it is complete."""
        stack: list[str] = []
        while (found := (yield from self._cursor.until(_OUTSIDE, take))) is not None:
            sign = found.group()
            self._cursor.at = found.end()
            take(sign)
            if sign == '"':
                if not (yield from self._string(take)):
                    return False
            elif sign in "{[":
                stack.append(sign)
            elif _CLOSERS[sign] in stack:
                while stack.pop() != _CLOSERS[sign]:
                    pass
            if not stack:
                return True
        return False

    def _string(self, take: Any) -> Steps[bool]:
        """Read a JSON string after its first quote."""
        while (found := (yield from self._cursor.until(_INSIDE, take))) is not None:
            self._cursor.at = found.end()
            take(found.group())
            if found.group() == '"':
                return True
        return False

    def _quoted(self, call: WrittenCall, take: Any) -> Steps[bool]:
        """Read the arguments as a JSON string that contains their text."""
        self._cursor.at += 1
        text: list[str] = ['"']
        complete = yield from self._string(text.append)
        try:
            take(parse_json("".join(text)) or "{}")
        except InvalidJsonError as error:
            call.problem = str(error)
        return complete

    def _tail(self, call: WrittenCall) -> Steps[None]:
        """Read what follows the arguments."""
        yield from self._cursor.skip_space()
        found = yield from self._cursor.match(self._delimiters.tail)
        if found is not None:
            call.ended = True
            call.id = found.groupdict().get("id") or call.id
            return
        if not (yield from self._cursor.peek()):
            call.ended = not self._truncated
            call.note = "the text ends before the call's end"
            return
        call.ended = True
        call.note = "the call's end is missing"


def _merged(deltas: list[Delta]) -> list[Delta]:
    """Join adjacent pieces of the same text."""
    merged: list[Delta] = []
    for (kind, index), group in groupby(deltas, key=lambda each: (type(each), getattr(each, "index", 0))):
        if kind is ArgumentsDelta:
            merged.append(ArgumentsDelta(index, "".join(each.json_text for each in group)))
        elif kind is TextDelta or kind is ReasoningDelta:
            merged.append(kind("".join(each.text for each in group)))
        else:
            merged += group
    return merged


__all__ = ["CallDeltas"]
