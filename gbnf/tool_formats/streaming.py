"""The stream of an answer in a tool-call format: text, reasoning and calls, as soon as they are certain.

Invariants, for any division into chunks: the deltas of a kind join to the same texts; the work is linear in
the length of the text; text that may be part of a delimiter is held back, and nothing else, except for
values whose type only their end decides, and a call inside reasoning that has not ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from gbnf.calls.parsing.results import ToolCall, ToolCalls
from gbnf.calls.parsing.streaming import CallStream
from gbnf.tool_formats.call_reading import CallReader, TextCallReader, WrittenCall
from gbnf.tool_formats.cursor import AnswerCursor, Delimiters, Steps, Stripped
from gbnf.tool_formats.delimiters import format_delimiters
from gbnf.tool_formats.deltas import ArgumentsDelta, CallStarted, Delta, ReasoningDelta, TextDelta
from gbnf.tool_formats.format import FormatFields
from gbnf.tool_formats.text_calls import OBJECT
from gbnf.tools import Tool

_NOTHING = Delimiters([])


class TextCallDeltas:
    """Reads a text with calls in any syntax chunk by chunk.

    `in_prose`: what looks like a call between prose is one, rather than an example.
    """

    def __init__(self, tools: Iterable[Tool], *, in_prose: bool = False) -> None:
        self._cursor = AnswerCursor()
        self._deltas: list[Delta] = []  # that `_read` has found since the last chunk
        self._run: Steps[None] | None = None
        tools = tuple(tools)
        self._calls = TextCallReader(self._cursor, tools, self._deltas.append)
        self._in_text = _TextSearch(tools, in_prose) if tools else None

    @property
    def calls(self) -> list[WrittenCall]:
        """The calls that have begun so far."""
        return self._calls.calls

    def feed(self, chunk: str) -> list[Delta]:
        """Take the next characters, and return what they make certain."""
        self._cursor.feed(chunk)
        return self._advance()

    def close(self, *, truncated: bool = False) -> list[Delta]:
        """Return the rest of the answer. `truncated`: a token limit ended it."""
        self._cursor.ended, self._cursor.truncated = True, truncated
        deltas = self._advance()
        if self._in_text is None or self._calls.calls:
            return deltas
        text, calls = self._in_text.close()
        return [
            *_merged([*deltas, TextDelta(text)]),
            *(delta for call in calls for delta in self._calls.add(call)),
        ]

    def _advance(self) -> list[Delta]:
        self._run = self._run or self._read()
        next(self._run, None)
        deltas = _merged(self._deltas)
        self._deltas.clear()
        search = self._in_text
        return deltas if search is None else [searched for delta in deltas for searched in search.feed(delta)]

    def _read(self) -> Steps[None]:
        """Read the whole answer."""
        if not (yield from self._calls.read_in_text()):
            yield from self._cursor.until(_NOTHING, lambda piece: self._deltas.append(TextDelta(piece)))


class CallDeltas(TextCallDeltas):
    """Reads an answer chunk by chunk.

    `reasoning`: the template was asked for reasoning, so that an answer may begin inside it (see
    `Reasoning.prompt`). `text_only`: there are no calls, whatever the text contains.
    """

    def __init__(
        self,
        format: FormatFields,  # noqa: A002  # the word of the formats
        tools: Iterable[Tool],
        *,
        reasoning: bool = False,
        text_only: bool = False,
        in_prose: bool = False,
    ) -> None:
        tools = tuple(tools)
        super().__init__(() if text_only else tools, in_prose=in_prose)
        self._delimiters = format_delimiters(format)
        self._calls: CallReader = CallReader(self._cursor, format, tools, self._deltas.append)
        self._pending: list[str] = []  # text that counts only if other text follows
        self._dropped = ""  # the controls in it, which count only then, and what follows them
        self._has_text = False  # whether there is text, after the reasoning and the last call
        self._had_calls = self._had_reasoning = False
        self._text_only, self._announces_text = text_only, bool(format.text.begin.strip())
        self._begins_inside = reasoning and format.reasoning is not None and format.reasoning.prompt == "open"

    def _read(self) -> Steps[None]:
        return self._reasoned_text() if self._text_only else self._answer()

    def _answer(self) -> Steps[None]:
        if self._begins_inside:
            yield from self._reasoning(opened=True)
        yield from self._begin()
        while (match := (yield from self._cursor.until(self._delimiters.in_text, self._text))) is not None:
            text = match.group()
            if (yield from self._read_calls(self._calls.read())):
                yield from self._begin()
            elif (yield from self._cursor.match(self._delimiters.reasoning_begin)) is not None:
                yield from self._reasoning()
                yield from self._begin()
            elif (control := (yield from self._cursor.match(self._delimiters.soft))) is not None:
                self._dropped += control.group()
            else:
                if self._had_calls and (
                    yield from self._cursor.match(self._delimiters.value_ends, read=False)
                ):
                    self._calls.calls[-1].problem = "a parameter's end comes after the end of the call"
                self._cursor.position += 1
                self._text(text[0])
        if not self._had_calls:
            self._flush()

    def _reasoned_text(self) -> Steps[None]:
        yield from self._cursor.skip_space()
        if self._begins_inside:
            yield from self._reasoning(opened=True)
            yield from self._cursor.skip_space()
        while (yield from self._cursor.match(self._delimiters.reasoning_begin)) is not None:
            yield from self._reasoning()
            yield from self._cursor.skip_space()
        yield from self._cursor.match(self._delimiters.text_begin)
        while (yield from self._cursor.until(self._delimiters.soft, self._text)) is not None:
            control = yield from self._cursor.match(self._delimiters.soft)
            assert control is not None
            self._dropped += control.group()
        self._flush()

    def _begin(self) -> Steps[None]:
        """Read what stands before a text, or calls that nothing announces here."""
        is_text = (yield from self._cursor.match(self._delimiters.text_begin)) is not None
        if is_text and self._announces_text and self._in_text is not None:
            self._in_text.only_json = True  # a call in a template's syntax is an example there
        may_call = self._delimiters.begins_alike and not is_text
        if not (may_call and (yield from self._read_calls(self._calls.read()))):
            yield from self._read_calls(self._calls.read_in_text())

    def _read_calls(self, reads: Steps[bool]) -> Steps[bool]:
        if not (yield from reads):
            return False
        self._pending.clear()
        self._dropped, self._has_text, self._had_calls = "", False, True
        return True

    def _text(self, piece: str) -> None:
        """Take text; whitespace, and controls that may end the text, are held until more follows."""
        follows = not self._has_text and (self._had_calls or self._had_reasoning)
        if piece.isspace():
            if self._dropped:
                self._dropped += piece
            elif not follows:
                self._pending.append(piece)
            return
        self._flush()
        piece = piece.lstrip() if follows and not self._dropped else self._dropped + piece
        self._has_text, self._dropped = True, ""
        text = piece.rstrip()
        self._deltas.append(TextDelta(text))
        self._pending.append(piece[len(text) :])

    def _flush(self) -> None:
        if self._pending:
            self._deltas.append(TextDelta("".join(self._pending)))
            self._pending.clear()

    def _reasoning(self, *, opened: bool = False) -> Steps[None]:
        """Read reasoning up to its end. A call in it counts only if it has no end."""
        self._had_reasoning = True
        if opened:
            yield from self._cursor.skip_space()
            yield from self._cursor.match(self._delimiters.reasoning_begin)
            if (yield from self._cursor.match(self._delimiters.omitted)) is not None:
                return
            if (yield from self._cursor.match(self._delimiters.text_begin, read=False)) is not None:
                return
        call: list[str] = []  # what may be a call
        take = Stripped(lambda piece: self._deltas.append(ReasoningDelta(piece)))
        while (match := (yield from self._cursor.until(self._delimiters.in_reasoning, take))) is not None:
            if (yield from self._cursor.match(self._delimiters.reasoning_end)) is not None:
                return
            if not (yield from self._calls.begin()):
                self._cursor.position += 1
                take(match.group()[0])
                continue
            end = yield from self._cursor.until(self._delimiters.reasoning_end, call.append)
            if end is not None:
                take("".join(call))
                self._cursor.position = end.end()
                return
            self._cursor.feed("".join(call))
            return


class _TextSearch:
    """Searches an answer's text for calls in any other syntax. Text that may be one is held."""

    def __init__(self, tools: tuple[Tool, ...], in_prose: bool) -> None:
        self._stream, self._in_prose = CallStream(tools), in_prose
        self._held = ""
        self._is_over = False  # after a call of the format, or inside text that the stream leaves out
        self.only_json = False  # no other calls

    def feed(self, delta: Delta) -> list[Delta]:
        """Take a delta, and return what is certain."""
        if self._is_over or not isinstance(delta, TextDelta | CallStarted):
            return [delta]
        if isinstance(delta, CallStarted):
            self._is_over = True
            return [TextDelta(self._held), delta] if self._held else [delta]
        self._held += delta.text
        certain = self._stream.feed(delta.text)
        if not self._held.startswith(certain):
            self._is_over, certain = True, self._held
        self._held = self._held[len(certain) :]
        return [TextDelta(certain)] if certain else []

    def close(self) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the rest of the text, and the calls: by default none with text before and after them."""
        is_read = not self.only_json or OBJECT.match(self._held) is not None
        result = self._stream.close() if is_read and not self._is_over else None
        if isinstance(result, ToolCalls) and result.calls and (self._in_prose or not result.inside_prose):
            return result.content[len(self._stream.shown) :].rstrip(), result.calls
        return self._held, ()


def _merged(deltas: list[Delta]) -> list[Delta]:
    """Join adjacent pieces of the same text, and leave out empty ones."""
    merged: list[Delta] = []
    for (kind, index), group in groupby(deltas, key=lambda delta: (type(delta), getattr(delta, "index", 0))):
        if kind is ArgumentsDelta:
            text = "".join(delta.json_text for delta in group if isinstance(delta, ArgumentsDelta))
            merged += [ArgumentsDelta(index, text)] if text else []
        elif kind in (TextDelta, ReasoningDelta):
            text = "".join(delta.text for delta in group if isinstance(delta, TextDelta | ReasoningDelta))
            merged += [kind(text)] if text else []
        else:
            merged += group
    return merged
