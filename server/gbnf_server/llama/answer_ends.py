"""End an answer: within its token limit (`TokenBudget`), and after text that repeats (`RepetitionGuard`).

Both refuse tokens that the grammar allows. After each token that they allow, an *ending* exists: the
shortest text (in bytes) that our automaton finds from there, spelled in the fewest tokens of the vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Literal, TypeAlias

from gbnf.grammar.code_points import matchable
from gbnf.grammar.match import MatchState
from gbnf_server.llama.constraint import Constraint, decode_prefix
from gbnf_server.llama.native import NativeModel, Speller
from gbnf_server.llama.repetition import RepetitionDetector, rotated

_KEPT = 4096  # endings of states: one answer sees few, since those inside a string are one state


class TokenBudget:
    """Decides which tokens fit in what is left of an answer's tokens: those after which an ending does.

    - The tokens left are never fewer than those of a known ending, from the start on, or from the start
      the limit is too short for one and nothing is refused: there is always a token to take, the
      ending's own.
    - Where more tokens are left than the shortest ending has bytes, nothing is computed: each byte is a
      token of nearly every vocabulary. So the distribution is the model's own until the limit is near.

    The shortest text need not be the one with the fewest tokens, so a limit between the two is treated as
    too short. If automaton and engine disagree, nothing is refused from there on.

    `refused`: whether a token that the grammar allows did not fit. The time counts as the constraint's.
    """

    def __init__(self, model: NativeModel, constraint: Constraint, limit: int) -> None:
        """Start before the first of at most `limit` tokens."""
        self.refused = False
        self._model, self._constraint = model, constraint
        self._tokens_left = limit
        self._ending: Sequence[int] | None = None  # tokens that fit and complete the answer, if computed
        # the tokens of the shortest ending; None if there is none, or no tokens spell it
        self._shortest = lru_cache(_KEPT)(partial(_spell_shortest, model.speller))
        state = constraint.state()
        self._is_active = state is not None and self._ends_within(state, b"", limit)

    @property
    def is_active(self) -> bool:
        """Whether the answer is sure to end within the limit."""
        return self._is_active and self._constraint.state() is not None

    def start_step(self, tokens_left: int) -> None:
        """Begin to choose the next token, with this many tokens left, that one included."""
        self._tokens_left = tokens_left

    def fits(self, token: int) -> bool:
        """Return whether the answer can still end after this token, which the constraint allows."""
        if token in self._model.end_tokens:
            return True
        started = time.perf_counter()
        fits = self.would_fit(token)
        self.refused = self.refused or not fits
        self._constraint.seconds += time.perf_counter() - started
        return fits

    def would_fit(self, token: int) -> bool:
        """Return the same for a token that may never be chosen, which changes nothing."""
        state = self._constraint.state()
        if state is None:
            return True
        text, rest = decode_prefix(self._constraint.incomplete_bytes + self._model.piece(token))
        following = state.advance(text)
        if following is None or self._ends_within(following, rest, self._tokens_left - 1):
            return True
        if self._ending is None:  # the one that is known to fit, from the current state
            self._ending = self._shortest(state, self._constraint.incomplete_bytes)
        ending = self._ending or []
        return ending[:1] == [token] and len(ending) <= self._tokens_left

    def accept(self, token: int) -> None:
        """Advance by a token that fits."""
        ending = self._ending
        self._ending = ending[1:] if ending and ending[0] == token else None

    def _ends_within(self, state: MatchState, incomplete: bytes, tokens_left: int) -> bool:
        if tokens_left < 0:
            return False
        length = state.ending_length
        if not incomplete and length <= tokens_left and self._model.speller.spells_every_byte:
            return True
        if length > tokens_left * self._model.speller.longest:
            return False
        ending = self._shortest(state, incomplete)
        return ending is not None and len(ending) <= tokens_left


def _spell_shortest(speller: Speller, state: MatchState, incomplete: bytes) -> Sequence[int] | None:
    character = ""
    if incomplete:
        low, high = _characters(incomplete)
        ranges = ((max(low, first), min(high, last)) for first, last in matchable(state.allowed()))
        character = next((chr(first) for first, last in ranges if first <= last), "")
        following = state.advance(character) if character else None
        if following is None:
            return None
        state = following
    if state.ending_length == math.inf:
        return None
    text = character + state.shortest_ending()
    return speller.spell(text.encode()[len(incomplete) :])


_FIRST = {2: 0x80, 3: 0x800, 4: 0x10000}  # the first code point by the length of its UTF-8


def _characters(incomplete: bytes) -> tuple[int, int]:
    """Return the first and the last code point whose UTF-8 begins with these bytes."""
    length = 2 + (incomplete[0] >= 0xE0) + (incomplete[0] >= 0xF0)
    lead = incomplete[0] & (0x7F >> length)
    value = lead
    for byte in incomplete[1:]:
        value = value << 6 | byte & 0x3F
    missing_bits = 6 * (length - len(incomplete))
    return max(value << missing_bits, _FIRST[length]), (value << missing_bits) | ((1 << missing_bits) - 1)


_CANNOT_FOLLOW = 4  # repetitions; one may also be the beginning of what follows the value


@dataclass(frozen=True, slots=True)
class _RepeatState:
    """A state of the grammar in a text that repeats.

    `repeated`: what comes next if it goes on; if it `counts`, with other numbers. `lengths`: of the shortest
    endings, before the last repetition and after each of its characters, a number that may change being
    one. `closes`: whether the value is being closed.
    """

    state: MatchState
    repeated: str
    lengths: tuple[float, ...]
    counts: bool = False
    closes: bool = False

    @property
    def must_close(self) -> bool:
        """Whether the value has to end: its end is nowhere nearer, and going on brings it no nearer."""
        return self.closes or self.lengths[0] <= self.lengths[-1] == min(self.lengths[1:])

    def step(self, char: str) -> _RepeatStep:
        """Return the place after a character."""
        state = self.state.advance(char)
        if state is None:  # never, unless automaton and engine disagree
            return "ended"
        length = state.ending_length
        if self.must_close:
            if length >= self.lengths[-1]:
                return "refused"
            if state.advance(self.repeated * _CANNOT_FOLLOW) is None:
                return "ended"
            return _RepeatState(state, self.repeated, (length,), closes=True)
        repeated = rotated(self.repeated, char, counts=self.counts)
        if not repeated:
            return "left"
        # a digit more of the last number?
        lengths = self.lengths[:-1] if len(repeated) > len(self.repeated) else self.lengths[1:]
        return _RepeatState(state, repeated, (*lengths, length), self.counts)


_RepeatStep: TypeAlias = _RepeatState | Literal["refused", "ended", "left"]
"""Where a character leads: on, nowhere, behind the value, or to something else than a repetition."""


class RepetitionGuard:
    """Decides which tokens end what repeats in one answer, a value of which may go on after it.

    Without a grammar, the answer ends there. With one, the length of the ending is the same after each
    repetition, and least where the value can end: inside of a string, or after an entry of an array. From
    there on, only characters are allowed that make it shorter, until the repeated text cannot follow any
    more. So:

    - What closes the value is what the grammar wants there: a quote, a bracket, a tag.
    - As long as repetitions make the ending shorter, as up to `minItems` or `minLength`, nothing is
      refused.
    - Some token always fits, the first of the shortest ending; if the vocabulary has none, the sampler
      finds nothing, and the decoder gives up the guard.

    `refused`: whether a token that the grammar allows would have gone on. The time counts as the
    constraint's.
    """

    def __init__(self, model: NativeModel, constraint: Constraint | None) -> None:
        """Start before the first token."""
        self.refused = False
        self._model, self._constraint = model, constraint
        self._start = None if constraint is None else constraint.state()
        self._detector = RepetitionDetector()
        self._place: _RepeatState | None = None  # while the text repeats, or the value is being closed
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
            if isinstance(step, _RepeatState):
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
            if not isinstance(step, _RepeatState):
                return step == "ended" or (step == "left" and not self._must_repeat)
            place = step
        if not rest:
            return True
        if place.must_close:  # the ending's is the only character that is known to be allowed
            return place.state.shortest_ending().encode().startswith(rest)
        return not self._must_repeat or place.repeated.encode().startswith(rest)

    def _find_place(self, start: MatchState, text: str, repeated: str) -> _RepeatState | None:
        """Return the place after the text, None if the automaton does not know it."""
        state = start.advance(text[: -len(repeated)])
        lengths: list[float] = []
        for before, char in pairwise(["", "", *repeated]):
            state = None if state is None else state.advance(char)
            if state is None or state.ending_length == math.inf:
                self._start = None
                return None
            if self._detector.counts and before.isdecimal() and char.isdecimal():
                lengths.pop()
            lengths.append(state.ending_length)
        assert state is not None
        return _RepeatState(state, repeated, tuple(lengths), self._detector.counts)
