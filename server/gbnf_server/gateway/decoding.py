"""One generation: the pieces of its text in, verified deltas out, and the call at the backend around it.

Invariants: every piece is matched against the grammar before anything of it leaves; a backend whose answer
leaves the grammar's language is stopped at that character; nothing after a stop string leaves.
"""

from __future__ import annotations

import asyncio
import secrets
import string
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from gbnf.calls.stop_strings import StopStrings
from gbnf.errors import AmbiguousGrammarError
from gbnf.grammar.match import MatchState
from gbnf.tool_formats import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    Placeholder,
    ReasoningDelta,
    TextDelta,
)
from gbnf_server.backends.base import Backend, Completion, Request
from gbnf_server.backends.verification import grammar_violation
from gbnf_server.gateway.compiling import Compiled
from gbnf_server.gateway.streams import GrammarIgnored

_LETTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9
"""Ids of nine letters and digits are accepted by every chat template, also by Mistral's."""

_REPLACEMENT = "\ufffd"
"""What servers send for the first half of a character that was truncated."""


class _Stopped(Exception):  # noqa: N818  # a signal to the backend
    """A stop string ended the text."""


@dataclass(slots=True)
class DecodedCall:
    """A call of the answer; `ended` if it is complete."""

    name: str
    pieces: list[str] = field(default_factory=list)
    ended: bool = False


class Decoding:
    """Reads one answer. `feed` may run in another thread than `close`, but not at the same time."""

    def __init__(self, compiled: Compiled, stop: tuple[str, ...]) -> None:
        self._compiled = compiled
        self._stream = compiled.stream()
        self._state: MatchState | None = compiled.grammar.matcher.start() if compiled.grammar else None
        self._stop = StopStrings(stop)
        self._pieces: list[str] = []
        self._held = ""  # replacement characters at the end, which a server may write for half a character
        self.reasoning_pieces = 0
        self.calls: list[DecodedCall] = []
        self.stop_string: str | None = None

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._pieces)

    @property
    def piece_count(self) -> int:
        """How many pieces there were: about one per token."""
        return len(self._pieces)

    @property
    def verified(self) -> bool:
        """Whether the answer so far has been matched against the grammar."""
        return self._state is not None

    @property
    def must_end(self) -> bool:
        """Whether the answer is complete, and nothing can follow it."""
        return self._state is not None and self._state.must_end

    def feed(self, piece: str) -> list[Delta]:
        """Add the next characters; those after a stop string are dropped. Raises GrammarIgnored."""
        self._pieces.append(piece)
        piece = self._held + piece
        kept = piece if self._compiled.grammar is None else piece.rstrip(_REPLACEMENT)
        self._held = piece[len(kept) :]
        return self._read(kept)

    def reason(self, piece: str) -> list[Delta]:
        """Add characters of reasoning, which the backend itself separates from the text."""
        self.reasoning_pieces += 1
        return [ReasoningDelta(piece)]

    def close(self, completion: Completion) -> list[Delta]:
        """End the answer. Raises GrammarIgnored."""
        is_late = completion.reasoning and not self.reasoning_pieces
        if is_late and completion.text.startswith(self.text):  # otherwise it has left as text
            return [ReasoningDelta(completion.reasoning), *self._close(completion)]
        return self._close(completion)

    def _close(self, completion: Completion) -> list[Delta]:
        rest = completion.text[len(self.text) :] if completion.text.startswith(self.text) else ""
        deltas = self.feed(rest) if rest else []
        truncated = completion.finish == "length" or completion.stop_string is not None
        if completion.finish != "length":
            deltas += self._read(self._held)
        if completion.grammar_violation is not None:
            raise GrammarIgnored(completion.grammar_violation)
        if self._state is not None and not truncated and not self._state.can_end:
            raise self._ignored(truncated=False)
        left = self._stream.close(truncated=truncated)
        if truncated:
            left = self._without_begun_call(left)
        return deltas + self._passed(left) + self._rest_of_text()

    def _without_begun_call(self, left: list[Delta]) -> list[Delta]:
        """Leave out what a truncated answer ends with if it is the beginning of a call, or inside of one."""
        native = self._compiled.native
        ended = {delta.index for delta in left if isinstance(delta, CallEnded)}
        certain: list[Delta] = []
        for delta in left:
            match delta:
                case TextDelta(text):
                    before = text if native is None else StopStrings((native.marker,)).feed(text)
                    if before and not self.calls:
                        certain.append(TextDelta(before))
                case CallStarted(index) | ArgumentsDelta(index) | CallEnded(index):
                    if index in ended:
                        certain.append(delta)
                case ReasoningDelta():
                    certain.append(delta)
        return certain

    def _read(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._state is not None:
            try:
                self._state = self._state.advance(text)
            except AmbiguousGrammarError:
                self._state = None  # a client's own grammar: the answer is not verified
            else:
                if self._state is None:
                    raise self._ignored(truncated=True)
        deltas = self._stream.feed(text)
        if deltas and all(isinstance(delta, ReasoningDelta) for delta in deltas):
            self.reasoning_pieces += 1
        return self._passed(deltas)

    def _ignored(self, *, truncated: bool) -> GrammarIgnored:
        grammar = self._compiled.grammar
        assert grammar is not None
        return GrammarIgnored(
            grammar_violation(grammar, self.text, truncated=truncated) or "it ends too early"
        )

    def _passed(self, deltas: list[Delta]) -> list[Delta]:
        passed: list[Delta] = []
        for delta in deltas:
            if self.stop_string is not None:
                break
            match delta:
                case TextDelta(text):
                    if certain := self._stop.feed(text):
                        passed.append(TextDelta(certain))
                    self.stop_string = self._stop.found
                    continue
                case CallStarted(_, identifier, name):
                    passed += self._rest_of_text()
                    self.calls.append(DecodedCall(name))
                    passed.append(replace(delta, id=self._unique(identifier)))
                    continue
                case ArgumentsDelta(index, piece):
                    self.calls[index].pieces.append(piece)
                case CallEnded(index):
                    self.calls[index].ended = True
                case ReasoningDelta():
                    pass
            passed.append(delta)
        return passed

    def _rest_of_text(self) -> list[Delta]:
        rest = self._stop.end()
        return [TextDelta(rest)] if rest else []

    def _unique(self, identifier: str) -> str:
        """Return the id in the text; if the format has none, one that no other call has."""
        native = self._compiled.native
        if native is not None and any(
            isinstance(part, Placeholder) and part.kind == "id" for part in native.head
        ):
            return identifier
        return "".join(secrets.choice(_LETTERS) for _ in range(_ID_LENGTH))


async def generate(
    backend: Backend, request: Request, decoding: Decoding
) -> AsyncGenerator[list[Delta] | Completion, None]:
    """Yield the deltas of an answer as they are decoded, and last its completion.

    Without a completion, a stop string has ended the generation here. Closing ends the generation. Raises
    GrammarIgnored, and the errors of the backend.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    queue: asyncio.Queue[list[Delta] | None] = asyncio.Queue()

    def put(deltas: list[Delta]) -> None:  # perhaps in another thread
        if deltas and threading.get_ident() == thread:
            queue.put_nowait(deltas)
        elif deltas:
            loop.call_soon_threadsafe(queue.put_nowait, deltas)

    def on_text(piece: str) -> None:
        put(decoding.feed(piece))
        if decoding.stop_string is not None:
            raise _Stopped

    def on_reasoning(piece: str) -> None:
        put(decoding.reason(piece))

    watched = replace(request, on_text=on_text, on_reasoning=on_reasoning)
    task = asyncio.ensure_future(backend.agenerate(watched))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (deltas := await queue.get()) is not None:
            yield deltas
        try:
            completion = task.result()
        except _Stopped:
            return
        yield decoding.close(completion)
        yield completion
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
