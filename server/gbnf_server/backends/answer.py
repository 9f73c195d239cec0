"""One answer of a model: the events of its backend in, verified deltas out, whoever asks.

    Asked ─▶ answer() ─▶ AnswerPiece* Answered

Invariants:

- A text is matched against the grammar before anything of it leaves, unless the backend chooses the tokens
  itself by the grammar; a server whose answer leaves the grammar's language is stopped at that character.
- Nothing after a stop string leaves.
- A call that is truncated has no `CallEnded`.
- No call leaves twice: a second one of the same tool is withheld until it ends, and if it is equal to an
  earlier one, the answer is ended there.
- A request is repeated only while nothing of its answer has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from gbnf import Grammar
from gbnf.calls.stop_strings import StopStrings
from gbnf.compiler.schema import compile_schema
from gbnf.dialects import schema_violation
from gbnf.errors import AmbiguousGrammarError, GrammarError
from gbnf.grammar.match import MatchState
from gbnf.protocols.protocol import AnswerFormat
from gbnf.protocols.readers import AnswerNotAllowedError, AnswerReader, PlainText
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tool_formats import ArgumentsDelta, CallEnded, CallStarted, Delta, ReasoningDelta, TextDelta
from gbnf_server.backends.base import Backend, BackendEvent, Completion, Request, Usage
from gbnf_server.backends.value_probabilities import ReportedTokens, value_probabilities
from gbnf_server.llama.token_values import ValueProbability
from gbnf_server.system.errors import BackendError, GrammarRefusedError
from gbnf_server.system.event_loop import shared_loop

_REPLACEMENT = "\ufffd"
"""What servers send for the first half of a character that was truncated."""
_SHOWN = 5  # expected terminals in a message


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and how its answer is read.

    `reader`: makes the reader of an answer. `stop`: strings that end the text, looked for in the text alone;
    those of the request end the whole answer. `call_begin`: what begins a call in a text, "" if nothing does.
    `verifies`: match the text also if the backend enforces the grammar. `retries`: how often the backend is
    asked again, each time with the next seed, if it ignored the grammar, or if `check` finds the answer
    invalid. `streams`: the pieces leave as they come, rather than all at the end. `max_calls`: the answer is
    ended after so many.
    """

    request: Request
    reader: Callable[[], AnswerReader] = PlainText
    stop: tuple[str, ...] = ()
    call_begin: str = ""
    verifies: bool = False
    retries: int = 0
    check: Callable[[Answered], tuple[str, ...]] | None = None
    streams: bool = True
    max_calls: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """A piece of what the model writes, and what it makes certain. `text`: without separated reasoning."""

    text: str
    deltas: tuple[Delta, ...]


@dataclass(slots=True)
class ReadCall:
    """A call of an answer. `pieces`: of its arguments' JSON text; `ended`: whether it is complete."""

    name: str
    pieces: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)

    def parsed(self) -> Any:
        """Return the value of the arguments; None if they are not valid JSON."""
        with suppress(InvalidJsonError, RecursionError):
            return parse_json(self.arguments)
        return None


@dataclass(frozen=True, slots=True)
class Answered:
    """The end of an answer.

    `completion`: its `text` is the whole answer, and `grammar_violation` is set if it violates the grammar.
    `verified`: whether the text was matched against the grammar; `is_complete`: nothing can follow it.
    `reasoning_pieces`: about one per token of reasoning. `retries`: how often the backend was asked again.
    `invalid`: what `Asked.check` has found.
    """

    completion: Completion
    calls: tuple[ReadCall, ...] = ()
    verified: bool = False
    is_complete: bool = False
    reasoning_pieces: int = 0
    retries: int = 0
    invalid: tuple[str, ...] = ()


AnswerEvent: TypeAlias = AnswerPiece | Answered

AnswerSource: TypeAlias = Callable[[Asked], AsyncGenerator[AnswerEvent, None]]
"""Answers what is asked: `partial(answer, backend)`, or that with something around it, such as a recorder."""


async def answer(backend: Backend, asked: Asked) -> AsyncGenerator[AnswerEvent, None]:
    """Yield the pieces of an answer, and last its end. Closing ends the generation.

    Raises the errors of the backend. A violated grammar is none: see `Completion.grammar_violation`.
    """
    for attempt in range(asked.retries + 1):
        request = replace(asked.request, seed=asked.request.seed + attempt)
        reading = _Reading(asked, is_enforced=backend.enforces_grammar)
        held: list[AnswerPiece] = []
        has_left = False
        async with aclosing(backend.generate(request)) as events:
            async for event in events:
                piece = reading.feed(event)
                if not asked.streams:
                    held.append(piece)
                elif piece.text or piece.deltas:
                    has_left = has_left or bool(piece.deltas)
                    yield piece
                if reading.is_over:
                    break
        end = reading.answered(reading.completion or await reading.end_here(backend, request), attempt)
        is_last = has_left or attempt == asked.retries
        if not is_last and reading.violation is not None:
            continue
        if request.probabilities and end.completion.logprobs:  # of a server
            probabilities = await asyncio.to_thread(_reported_probabilities, request.grammar, end.completion)
            end = replace(end, completion=replace(end.completion, probabilities=probabilities))
        if reading.violation is None and asked.check is not None:
            end = replace(end, invalid=await asyncio.to_thread(asked.check, end))
        if not is_last and end.invalid:
            continue
        for piece in held if reading.violation is None else ():
            yield piece
        yield end
        return


@dataclass(slots=True)
class _Reading:
    """Reads one answer."""

    asked: Asked
    is_enforced: bool  # by the backend
    unmatched: str = ""
    completion: Completion | None = None
    violation: str | None = None
    stop_string: str | None = None
    reasoning_pieces: int = 0
    calls: list[ReadCall] = field(default_factory=list)
    has_enough: bool = False
    repeated: str = ""
    _withheld: list[Delta] | None = None
    _keys: set[str] = field(default_factory=set)  # of the calls that have ended
    _texts: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _held: str = ""  # replacement characters at the end, which a server may write for half a character
    _grammar: Grammar | None = None
    _state: MatchState | None = None
    verifies: bool = field(init=False)
    _reader: AnswerReader = field(init=False)
    _stop: StopStrings = field(init=False)

    def __post_init__(self) -> None:
        self._reader, self._stop = self.asked.reader(), StopStrings(self.asked.stop)
        grammar = self.asked.request.grammar
        self.verifies = self.asked.verifies or not self.is_enforced
        if self.verifies and isinstance(grammar, Grammar):
            try:
                self._grammar, self._state = grammar, grammar.matcher.start()
            except GrammarError as error:
                raise GrammarRefusedError(str(error)) from None

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._texts)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is read."""
        return self.stop_string is not None or self.violation is not None or self.has_enough

    def feed(self, event: BackendEvent) -> AnswerPiece:
        """Add an event of the backend; return what it makes certain."""
        match event:
            case ReasoningDelta(text):
                self._reasoning.append(text)
                self.reasoning_pieces += 1
                return AnswerPiece("", (event,))
            case TextDelta(text):
                self._texts.append(text)
                unread = self._held + text
                complete_characters = unread.rstrip(_REPLACEMENT) if self._grammar is not None else unread
                self._held = unread[len(complete_characters) :]
                return AnswerPiece(text, tuple(self._read(complete_characters)))
            case Completion():
                return self._end(event)

    async def end_here(self, backend: Backend, request: Request) -> Completion:
        """Return the completion of an answer that was ended here, with what is known of its tokens."""
        try:
            prompt_tokens = await backend.count_tokens(request)
        except BackendError:
            prompt_tokens = 0
        usage = Usage(prompt_tokens, len(self._texts) + len(self._reasoning))  # about one token a piece
        return Completion(self.text, "stop", usage, reasoning="".join(self._reasoning))

    def answered(self, completion: Completion, retries: int) -> Answered:
        """Return the end of the answer."""
        return Answered(
            replace(
                completion,
                grammar_violation=self.violation,
                unmatched=self.unmatched,
                stop_string=self.stop_string or completion.stop_string,
                repeated=self.repeated or completion.repeated,
            ),
            tuple(self.calls),
            verified=self._state is not None,
            is_complete=self._state is not None and self._state.must_end,
            reasoning_pieces=self.reasoning_pieces,
            retries=retries,
        )

    def _end(self, completion: Completion) -> AnswerPiece:
        """Read the rest: the completion may have more than the pieces."""
        completion = self._reclaimed(completion)
        deltas: list[Delta] = []
        sent = self.text
        is_continued = completion.text.startswith(sent)  # otherwise the reasoning has left as text
        if is_continued and completion.reasoning and not self.reasoning_pieces:
            deltas.append(ReasoningDelta(completion.reasoning))
        rest = completion.text[len(sent) :] if is_continued else ""
        if rest:
            deltas += self.feed(TextDelta(rest)).deltas
        truncated = completion.finish_reason == "length" or completion.stop_string is not None
        if completion.finish_reason != "length":
            deltas += self._read(self._held)
        self.completion = completion
        self._judge(completion, truncated=truncated)
        if self.violation is None:
            try:
                last = self._reader.close(truncated=truncated)
            except AnswerNotAllowedError as error:
                self.violation = str(error)
            else:
                deltas += self._passed(self._without_begun_call(last) if truncated else last)
                deltas += self._rest_of_text()
        return AnswerPiece(rest, tuple(deltas))

    def _reclaimed(self, completion: Completion) -> Completion:
        """Return the completion with a text that the server returned as reasoning, if that fits the grammar.

        A server whose template opens the reasoning may take the whole answer for it.
        """
        grammar, reasoning = self.asked.request.grammar, completion.reasoning.strip()
        if grammar is None or completion.finish_reason != "stop" or completion.text.strip() or not reasoning:
            return completion
        if isinstance(grammar, Grammar):
            wrong = grammar_violation(grammar, reasoning, truncated=bool(self.asked.request.stop))
        else:
            wrong = schema_violation(grammar, reasoning)
        return completion if wrong else replace(completion, text=reasoning, reasoning="", reclaimed=True)

    def _judge(self, completion: Completion, *, truncated: bool) -> None:
        """Set `violation` if the whole text violates the grammar."""
        grammar = self.asked.request.grammar
        self.violation = self.violation or completion.grammar_violation
        if self.violation is not None or not self.verifies:
            return
        if isinstance(grammar, Grammar):
            # not every server tells whether a stop string ended the text
            may_go_on = truncated or bool(self.asked.request.stop)
            if self._state is not None and not may_go_on and not self._state.can_end:
                self.violation = grammar_violation(grammar, self.text, truncated=False) or "it ends too early"
        elif grammar is not None and completion.finish_reason == "stop":
            self.violation = schema_violation(grammar, completion.text)

    def _without_begun_call(self, last: list[Delta]) -> list[Delta]:
        """Leave out what a truncated answer ends with if it is the beginning of a call, or inside of one."""
        begin = self.asked.call_begin
        ended = {delta.index for delta in last if isinstance(delta, CallEnded)}
        certain: list[Delta] = []
        for delta in last:
            match delta:
                case TextDelta(text):
                    before = StopStrings((begin,)).feed(text) if begin else text
                    if before and not self.calls:
                        certain.append(TextDelta(before))
                case CallStarted(index) | ArgumentsDelta(index) | CallEnded(index):
                    if index in ended:
                        certain.append(delta)
                case ReasoningDelta():
                    certain.append(delta)
        return certain

    def _read(self, text: str) -> list[Delta]:
        if not text or self.violation is not None:
            return []
        if self._state is not None:
            assert self._grammar is not None
            try:
                self._state = self._state.advance(text)
            except AmbiguousGrammarError as error:  # a client's own grammar
                self._grammar = self._state = None
                self.unmatched = "" if self.is_enforced else str(error)
            else:
                if self._state is None:
                    wrong = grammar_violation(self._grammar, self.text, truncated=True)
                    self.violation = wrong or "it ends too early"
                    return []
        deltas = self._reader.feed(text)
        if deltas and all(isinstance(delta, ReasoningDelta) for delta in deltas):
            self.reasoning_pieces += 1
        return self._passed(deltas)

    def _passed(self, deltas: list[Delta]) -> list[Delta]:
        """Return what leaves of some deltas: nothing after a stop string or the last call, no call twice."""
        passed: list[Delta] = []
        for delta in deltas:
            if self.stop_string is not None or self.has_enough:
                break
            match delta:
                case TextDelta(text):
                    if certain := self._stop.feed(text):
                        passed.append(TextDelta(certain))
                    self.stop_string = self._stop.found
                    continue
                case CallStarted(_, _, name):
                    passed += self._rest_of_text()
                    self._withheld = [] if any(call.name == name for call in self.calls) else None
                    self.calls.append(ReadCall(name))
                case ArgumentsDelta(index, piece):
                    self.calls[index].pieces.append(piece)
                case CallEnded(index):
                    self.calls[index].ended = True
                    if (key := _key(self.calls[index])) in self._keys:
                        self.repeated, self.has_enough = self.calls.pop().name, True
                        break
                    self._keys.add(key)
                    passed, self._withheld = [*passed, *(self._withheld or ())], None
                    self.has_enough = len(self.calls) == self.asked.max_calls
                case ReasoningDelta():
                    pass
            (passed if self._withheld is None else self._withheld).append(delta)
        return passed

    def _rest_of_text(self) -> list[Delta]:
        rest = self._stop.end()
        return [TextDelta(rest)] if rest else []


def _key(call: ReadCall) -> str:
    """Return what equal calls have in common."""
    from gbnf.schema.value_sets import equality_key  # noqa: PLC0415  # needed once there is a call

    arguments = call.parsed()
    return f"{call.name} {call.arguments if arguments is None else equality_key(arguments)}"


def _reported_probabilities(
    grammar: AnswerFormat | None, completion: Completion
) -> tuple[ValueProbability, ...]:
    """Return the probabilities of an answer's values by the log-probabilities of its tokens."""
    if grammar is None:
        return ()
    if not isinstance(grammar, Grammar):
        grammar = compile_schema(grammar, whitespace="free")
    text = completion.text
    return value_probabilities(grammar, text, ReportedTokens(text, completion.logprobs))


def unfinished(pieces: Sequence[AnswerPiece]) -> Completion:
    """Return what has come of an answer that did not end; a piece is about one token."""
    separated = [delta for piece in pieces if not piece.text for delta in piece.deltas]
    reasoning = "".join(delta.text for delta in separated if isinstance(delta, ReasoningDelta))
    text = "".join(piece.text for piece in pieces)
    return Completion(text, "length", Usage(0, len(pieces)), reasoning=reasoning)


async def collect_answer(backend: Backend, asked: Asked) -> Answered:
    """Return the end of an answer of a backend."""
    async with aclosing(answer(backend, asked)) as events:
        return [event async for event in events if isinstance(event, Answered)][-1]


def grammar_violation(grammar: Grammar, text: str, *, truncated: bool) -> str | None:
    """Return how an answer violates the grammar, None if it fits. A truncated one has to be a prefix only."""
    if truncated:
        text = text.rstrip(_REPLACEMENT)
    match = grammar.match(text)
    if match.complete or (truncated and match.accepted):
        return None
    expected = ", ".join(match.expected[:_SHOWN]) + (", …" if len(match.expected) > _SHOWN else "")
    if match.accepted:
        problem = "the text ends" if text else "the text is empty"
    else:
        problem = f"found {text[match.position : match.position + 20]!r}"
    return f"at character {match.position}: {problem}, expected {expected}"


class RequestBackend(Backend):
    """A backend whose answers can also be waited for."""

    def complete(self, request: Request) -> Completion:
        """Return one answer; see `Backend`."""
        return shared_loop().run(collect_answer(self, Asked(request))).completion
