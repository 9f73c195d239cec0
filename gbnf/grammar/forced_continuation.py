"""What a grammar forces: the text that must come next, wherever an answer stands in it.

    {"name": "        forced from the start        {"name": "wr     ite_files", "arguments": {"  is forced

A decoder appends forced text without asking the model. The matcher of a grammar is made once and kept, with
all that it has learned, for the next answer that the same grammar holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gbnf.grammar.ir import CharClass
from gbnf.grammar.match import Matcher, MatchState
from gbnf.grammar.trusted_parse import parse_trusted_gbnf


@dataclass(frozen=True, slots=True)
class ForcedContinuation:
    """How a text goes on.

    The first `forced` characters of `text` must come next; the rest is a guess, that optional spaces are
    written as the others were. `choices`: the places in it where something else may come, the first of them
    at the end of what is forced and the last at the end, each with the characters that are possible there.
    Where the text `ends`, there is no choice and no guess.
    """

    text: str
    forced: int
    choices: tuple[tuple[int, CharClass], ...]
    ends: bool


def start(gbnf: str) -> MatchState:
    """The state before the first character of a grammar that an engine has taken.

    Raises GrammarSyntaxError where our own reader refuses it, ValueError where it is left-recursive.
    """
    return _matcher(gbnf).start()


def forced_continuation(state: MatchState, *, spaced: bool, limit: int = 2048) -> ForcedContinuation:
    """How a text goes on from a state; `spaced`: a guess writes optional spaces.

    At most about `limit` characters, since a grammar may force a text without end.
    """
    text = ""
    choices: list[tuple[int, CharClass]] = []
    while True:
        more = state.forced(limit - len(text))
        following = state.advance(more) if more else state
        if following is None:  # never: what is forced fits
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
    """What comes next where the only choice is between a space and one other character."""
    ranges = () if state.can_end else state.allowed().ranges
    if len(ranges) != 2 or (_SPACE, _SPACE) not in ranges:
        return ""
    ((low, high),) = (pair for pair in ranges if pair != (_SPACE, _SPACE))
    if low != high:
        return ""
    return " " if spaced else chr(low)


_SPACE = ord(" ")


@lru_cache(maxsize=32)
def _matcher(gbnf: str) -> Matcher:
    return Matcher(parse_trusted_gbnf(gbnf))
