"""The text that a grammar forces: what must come next after a text.

    from the start          {"name": "
    after {"name": "wr      ite_files", "arguments": {"

A decoder drafts forced text, and appends what ends an answer without a step of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gbnf.grammar.ir import CharClass
from gbnf.grammar.match import MatchState

Guess = Callable[[str], str]
"""Returns the text that probably follows a continuation, "" if unknown. It is used as far as it fits."""


@dataclass(frozen=True, slots=True)
class ForcedContinuation:
    """The continuation of a text.

    The first `forced` characters of `text` must come next; the rest is guessed: optional spaces as before, or
    what a `Guess` returned. `choices`: the indices in it where another character is possible, the first of
    them at the end of the forced part and the last at the end, each with the possible characters. If the text
    `ends`, there is neither a choice nor a guess.
    """

    text: str
    forced: int
    choices: tuple[tuple[int, CharClass], ...]
    ends: bool

    @property
    def optional_space(self) -> int | None:
        """The index of the first choice if it is between a space and one other character, else None."""
        if not self.choices:
            return None
        index, possible = self.choices[0]
        return index if _other_than_space(possible) else None


def forced_continuation(
    state: MatchState, *, spaced: bool, guess: Guess | None = None, limit: int = 2048
) -> ForcedContinuation:
    """Return the continuation from a state; if `spaced`, optional spaces are guessed to be present.

    `guess` is asked at other choices, with the text so far. The continuation has at most about `limit`
    characters, since a grammar may force an infinite text.
    """
    text, guessed = "", ""
    choices: list[tuple[int, CharClass]] = []
    while True:
        forced = state.forced(limit - len(text))
        following = state.advance(forced) if forced else state
        if following is None:  # never: forced text fits
            break
        text, state = text + forced, following
        guessed = guessed[len(forced) :] if guessed.startswith(forced) else ""
        if state.must_end and not choices:
            return ForcedContinuation(text, len(text), (), ends=True)
        choices.append((len(text), state.allowed()))
        if len(text) >= limit:
            break
        following = state.advance(guessed[0]) if guessed else None
        if following is None:
            other = "" if state.can_end else _other_than_space(state.allowed())
            guessed = (" " if other and spaced else other) or (guess(text) if guess is not None else "")
            following = state.advance(guessed[0]) if guessed else None
        if following is None:
            break
        text, guessed, state = text + guessed[0], guessed[1:], following
    return ForcedContinuation(text, choices[0][0] if choices else 0, tuple(choices), ends=False)


def _other_than_space(possible: CharClass) -> str:
    """Return the other one of two characters if the first is a space, else ""."""
    if len(possible.ranges) != 2 or (_SPACE, _SPACE) not in possible.ranges:
        return ""
    ((low, high),) = (pair for pair in possible.ranges if pair != (_SPACE, _SPACE))
    return chr(low) if low == high else ""


_SPACE = ord(" ")
