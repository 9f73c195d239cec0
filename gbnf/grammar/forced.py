"""What a grammar forces: the text that must come next, wherever an answer stands in it.

    {"name": "        forced from the start        {"name": "wr     ite_files", "arguments": {"  is forced

A decoder appends forced text without asking the model. The matcher of a grammar is made once and kept, with
all that it has learned, for the next answer that the same grammar holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gbnf.grammar.lines import read_gbnf
from gbnf.grammar.match import Matcher, MatchState


@dataclass(frozen=True, slots=True)
class Forced:
    """`text` must come next, then there is a choice; where it `ends`, nothing can follow it."""

    text: str
    ends: bool


FREE = Forced("", ends=False)


def start(gbnf: str) -> MatchState:
    """The state before the first character of a grammar that an engine has taken.

    Raises GrammarSyntaxError where our own reader refuses it, ValueError where it is left-recursive.
    """
    return _matcher(gbnf).start()


def forced(state: MatchState, limit: int = 2048) -> Forced:
    """What must come next: at most about `limit` characters, since a grammar may force a text without end."""
    text = state.forced(limit)
    after = state.advance(text) if text else state
    return Forced(text, ends=after is not None and after.must_end)


def likely(state: MatchState, *, spaced: bool, limit: int = 256) -> str:
    """The text that comes next if optional spaces are written, or (not `spaced`) left out; "" at a choice.

    A guess that a decoder has to check. It ends where anything but a space is to be chosen.
    """
    parts: list[str] = []
    length = 0
    while length < limit:
        text = state.forced(limit) or _at_space(state, spaced=spaced)
        following = state.advance(text) if text else None
        if following is None:
            break
        parts.append(text)
        length += len(text)
        state = following
    return "".join(parts)


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
    return Matcher(read_gbnf(gbnf))
