"""The token limit of a constrained answer: tokens are allowed only if the answer can still end within it.

After each token, a *completion* must exist whose tokens fit: the shortest text (in bytes) that our
automaton finds from there, spelled in the fewest tokens of the vocabulary. Invariants:

- The tokens left are never fewer than those of a known completion, from the start on, or from the start the
  limit is too short for one and nothing is refused: there is always a token to take, the completion's own.
- Where more tokens are left than the shortest completion has bytes, nothing is computed: each byte is a token
  of nearly every vocabulary. So the distribution is the model's own until the limit is near.

The shortest text need not be the one with the fewest tokens, so a limit between the two is treated as too
short. If automaton and engine disagree, nothing is refused from there on.
"""

from __future__ import annotations

import codecs
import math
import time
from collections.abc import Sequence

from gbnf.grammar.code_points import matchable
from gbnf.grammar.match import MatchState
from gbnf_server.llama.constraint import Constraint
from gbnf_server.llama.native import NativeModel

_KEPT = 4096  # completions of states: one answer sees few, since those inside a string are one state


class TokenBudget:
    """Decides which tokens fit in what is left of an answer's tokens.

    `refused`: whether a token that the grammar allows did not fit. The time counts as the constraint's.
    """

    def __init__(self, model: NativeModel, constraint: Constraint, limit: int) -> None:
        """Start before the first of at most `limit` tokens."""
        self.refused = False
        self._model, self._constraint = model, constraint
        self._left = limit
        self._completion: Sequence[int] | None = None  # tokens that fit and complete the answer, if computed
        self._completions: dict[tuple[MatchState, bytes], Sequence[int] | None] = {}
        state = constraint.state()
        self._is_active = state is not None and self._ends_within(state, b"", limit)

    @property
    def is_active(self) -> bool:
        """Whether the answer is sure to end within the limit."""
        return self._is_active and self._constraint.state() is not None

    def start_step(self, left: int) -> None:
        """Begin to choose the next token, with this many tokens left, that one included."""
        self._left = left

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
        if following is None or self._ends_within(following, rest, self._left - 1):
            return True
        completion = self._known_completion(state)
        return completion[:1] == [token] and len(completion) <= self._left

    def _known_completion(self, state: MatchState) -> Sequence[int]:
        """Return the completion that is known to fit, from the current state."""
        if self._completion is None:
            self._completion = self._shortest(state, self._constraint.incomplete_bytes)
        return self._completion or []

    def accept(self, token: int) -> None:
        """Advance by a token that fits."""
        known = self._completion
        self._completion = known[1:] if known and known[0] == token else None

    def _ends_within(self, state: MatchState, incomplete: bytes, left: int) -> bool:
        if left < 0:
            return False
        length = state.completion_length
        if not incomplete and length <= left and self._model.speller.spells_every_byte:
            return True
        if length > left * self._model.speller.longest:
            return False
        completion = self._shortest(state, incomplete)
        return completion is not None and len(completion) <= left

    def _shortest(self, state: MatchState, incomplete: bytes) -> Sequence[int] | None:
        """Return the tokens of the shortest completion; None if there is none, or no tokens spell it."""
        key = (state, incomplete)
        if key not in self._completions:
            if len(self._completions) >= _KEPT:
                self._completions.clear()
            self._completions[key] = self._spell_shortest(state, incomplete)
        return self._completions[key]

    def _spell_shortest(self, state: MatchState, incomplete: bytes) -> Sequence[int] | None:
        character = ""
        if incomplete:
            low, high = _characters(incomplete)
            ranges = ((max(low, first), min(high, last)) for first, last in matchable(state.allowed()))
            character = next((chr(first) for first, last in ranges if first <= last), "")
            following = state.advance(character) if character else None
            if following is None:
                return None
            state = following
        if state.completion_length == math.inf:
            return None
        text = character + state.shortest_completion()
        return self._model.speller.spell(text.encode()[len(incomplete) :])


_FIRST = {2: 0x80, 3: 0x800, 4: 0x10000}  # the first code point by the length of its UTF-8


def decode_prefix(raw: bytes) -> tuple[str, bytes]:
    """Return the characters, and the bytes of an incomplete one at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    return decoder.decode(raw), decoder.getstate()[0]


def _characters(incomplete: bytes) -> tuple[int, int]:
    """Return the first and the last code point whose UTF-8 begins with these bytes."""
    length = 2 + (incomplete[0] >= 0xE0) + (incomplete[0] >= 0xF0)
    lead = incomplete[0] & (0x7F >> length)
    value = lead
    for byte in incomplete[1:]:
        value = value << 6 | byte & 0x3F
    left = 6 * (length - len(incomplete))
    return max(value << left, _FIRST[length]), (value << left) | ((1 << left) - 1)
