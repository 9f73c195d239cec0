"""The text that a grammar forces: what must come next after a text.

    from the start          {"name": "
    after {"name": "wr      ite_files", "arguments": {"

A decoder appends forced text without a step of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from gbnf.grammar.ir import CharClass
from gbnf.grammar.match import MatchState


@dataclass(frozen=True, slots=True)
class ForcedContinuation:
    """The continuation of a text.

    The first `forced` characters of `text` must come next; the rest guesses that optional spaces are used as
    before. `choices`: the indices in it where another character is possible, the first of them at the end of
    the forced part and the last at the end, each with the possible characters. If the text `ends`, there is
    neither a choice nor a guess.
    """

    text: str
    forced: int
    choices: tuple[tuple[int, CharClass], ...]
    ends: bool


def forced_continuation(state: MatchState, *, spaced: bool, limit: int = 2048) -> ForcedContinuation:
    """Return the continuation from a state; if `spaced`, optional spaces are guessed to be present.

    It has at most about `limit` characters, since a grammar may force an infinite text.
    """
    text = ""
    choices: list[tuple[int, CharClass]] = []
    while True:
        more = state.forced(limit - len(text))
        following = state.advance(more) if more else state
        if following is None:  # never: forced text fits
            break
        text, state = text + more, following
        if state.must_end and not choices:
            return ForcedContinuation(text, len(text), (), ends=True)
        choices.append((len(text), state.allowed()))
        guess = _at_space(state, spaced=spaced) if len(text) < limit else ""
        following = state.advance(guess) if guess else None
        if following is None:
            break
        text, state = text + guess, following
    return ForcedContinuation(text, choices[0][0] if choices else 0, tuple(choices), ends=False)


def _at_space(state: MatchState, *, spaced: bool) -> str:
    """Return the guess if the only choice is between a space and one other character, else ""."""
    ranges = () if state.can_end else state.allowed().ranges
    if len(ranges) != 2 or (_SPACE, _SPACE) not in ranges:
        return ""
    ((low, high),) = (pair for pair in ranges if pair != (_SPACE, _SPACE))
    if low != high:
        return ""
    return " " if spaced else chr(low)


_SPACE = ord(" ")
