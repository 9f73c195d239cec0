"""End a value whose text repeats (see `repetition`), and let the answer go on after it.

Without a grammar, the answer ends there. With one, a *completion* of the text always exists (see
`token_budget`). Its length is the same after each repetition, and least where the value can end: inside of a
string, or after an entry of an array. From there on, only characters are allowed that make it shorter, until
the repeated text cannot follow any more. So:

- What closes the value is what the grammar wants there: a quote, a bracket, a tag.
- As long as repetitions make the completion shorter, as up to `minItems` or `minLength`, nothing is refused.
- Some token always fits, the first of the shortest completion; if the vocabulary has none, the sampler finds
  nothing, and the decoder gives up the guard.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gbnf.grammar.match import MatchState
from gbnf_server.llama.constraint import Constraint
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.repetition import RepetitionDetector
from gbnf_server.llama.token_budget import decode_prefix

_CANNOT_FOLLOW = 4  # repetitions; one may also be the beginning of what follows the value


@dataclass(frozen=True, slots=True)
class _Place:
    """A state of the grammar in a text that repeats.

    `repeated`: what comes next if it goes on. `lengths`: of the shortest completions, before the last
    repetition and after each of its characters. `closes`: whether the value is being closed.
    """

    state: MatchState
    repeated: str
    lengths: tuple[float, ...]
    closes: bool = False

    @property
    def must_close(self) -> bool:
        """Whether the value has to end: its end is nowhere nearer, and going on brings it no nearer."""
        return self.closes or self.lengths[0] <= self.lengths[-1] == min(self.lengths[1:])

    def step(self, char: str) -> _Step:
        """Return the place after a character."""
        state = self.state.advance(char)
        if state is None:  # never, unless automaton and engine disagree
            return "ended"
        length = state.completion_length
        if self.must_close:
            if length >= self.lengths[-1]:
                return "refused"
            if state.advance(self.repeated * _CANNOT_FOLLOW) is None:
                return "ended"
            return _Place(state, self.repeated, (length,), closes=True)
        if char != self.repeated[0]:
            return "left"
        return _Place(state, self.repeated[1:] + char, (*self.lengths[1:], length))


_Step: TypeAlias = _Place | Literal["refused", "ended", "left"]
"""Where a character leads: on, nowhere, behind the value, or to something else than a repetition."""


class RepetitionGuard:
    """Decides which tokens end what repeats in one answer.

    `refused`: whether a token that the grammar allows would have gone on. The time counts as the
    constraint's.
    """

    def __init__(self, model: NativeModel, constraint: Constraint | None) -> None:
        """Start before the first token."""
        self.refused = False
        self._model, self._constraint = model, constraint
        self._start = None if constraint is None else constraint.state()
        self._detector = RepetitionDetector()
        self._place: _Place | None = None  # while the text repeats, or the value is being closed
        self._must_repeat = False  # up to where the value can end

    @property
    def is_active(self) -> bool:
        """Whether tokens may be refused."""
        return self._place is not None

    @property
    def repeated(self) -> str:
        """The text that is repeated, "" if none is."""
        return self._detector.repeated if self._place is None else self._place.repeated

    @property
    def ends_answer(self) -> bool:
        """Whether the text repeats, and the answer ends with it: nothing has to follow."""
        if self._constraint is None:
            return bool(self._detector.repeated)
        return self._place is not None and self._place.must_close and not self._place.lengths[-1]

    def accept(self, piece: str, text: str) -> None:
        """Advance by a piece of the answer, which is `text` now."""
        started = time.perf_counter()
        while self._place is not None and piece:
            step, piece = self._place.step(piece[0]), piece[1:]
            if isinstance(step, _Place):
                self._place = step
            else:  # "refused" for forced text only
                self.give_up()
        if self._place is None:
            self._detector.feed(piece)
            if self._detector.repeated and self._start is not None:
                self._place = self._find_place(self._start, text, self._detector.repeated)
        if self._constraint is not None:
            self._constraint.seconds += time.perf_counter() - started

    def give_up(self) -> None:
        """Refuse nothing before the text has repeated again."""
        self._place, self._detector, self.refused = None, RepetitionDetector(), False

    def start_step(self) -> None:
        """Begin to choose the next token."""
        self._must_repeat = False

    def fits(self, token: int) -> bool:
        """Return whether a token, which the constraint allows, is no part of further repetitions.

        Tokens are asked about in the order of preference: one that goes beyond the end of the value is
        refused, and after it those that begin something else before the end.
        """
        fits = self.would_fit(token)
        self.refused = self.refused or not fits
        self._must_repeat = self._must_repeat or not fits
        return fits

    def would_fit(self, token: int) -> bool:
        """Return the same for a token that may never be chosen."""
        place = self._place
        if place is None or self._constraint is None or token in self._model.end_tokens:
            return True
        text, rest = decode_prefix(self._constraint.incomplete_bytes + self._model.piece(token))
        for char in text:
            step = place.step(char)
            if not isinstance(step, _Place):
                return step == "ended" or (step == "left" and not self._must_repeat)
            place = step
        if not rest:
            return True
        if place.must_close:  # the completion's is the only character that is known to be allowed
            return place.state.shortest_completion().encode().startswith(rest)
        return not self._must_repeat or place.repeated.encode().startswith(rest)

    def _find_place(self, start: MatchState, text: str, repeated: str) -> _Place | None:
        """Return the place after the text, None if the automaton does not know it."""
        state = start.advance(text[: -len(repeated)])
        lengths: list[float] = []
        for char in ["", *repeated]:
            state = None if state is None else state.advance(char)
            if state is None or state.completion_length == math.inf:
                self._start = None
                return None
            lengths.append(state.completion_length)
        assert state is not None
        return _Place(state, repeated, tuple(lengths))
