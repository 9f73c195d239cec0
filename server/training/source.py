"""The random source of traces, with their language, and the half of the vocabulary that they draw from.

Invariants: values and wordings are split by a hash of their text into those of training and those of the
held-out suite; no draw from one half returns anything of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal, TypeVar
from zlib import crc32

Language = Literal["en", "it"]
_Value = TypeVar("_Value", bound=str)
_Any = TypeVar("_Any")

KEPT_SHARE = 9
"""One text of so many is in the held-out half."""


class Source(Random):
    """A random generator, with a language and a half: `held_out` draws only what never occurs in training."""

    language: Language
    held_out: bool
    recent: list[str]
    """Words drawn so far, of which training says some again."""

    def __init__(self, seed: int | str, language: Language = "en", *, held_out: bool = False) -> None:
        super().__init__(seed)
        self.language = language
        self.held_out = held_out
        self.recent = []

    def either(self, english: _Any, italian: _Any) -> _Any:
        """Return the text in this source's language."""
        return english if self.language == "en" else italian

    def again(self, share: float) -> str | None:
        """Return, in training and with probability `share`, a word that was drawn before."""
        return self.choice(self.recent[-6:]) if self.recent and self.trains(share) else None

    def trains(self, share: float) -> bool:
        """Return whether to do what is done in training alone, with probability `share`."""
        return not self.held_out and self.random() < share

    def draws(self, text: str) -> bool:
        """Whether `text` belongs to this source's half."""
        return kept(text) == self.held_out

    def word(self, words: Sequence[_Value]) -> _Value:
        """Return one of the words of this source's half; any word if the list is too short to have one."""
        for _ in range(60):
            found = self.choice(words)
            if self.draws(found):
                return found
        return found


def kept(text: str) -> bool:
    """Whether a value or a wording is in the held-out half."""
    return crc32(text.lower().encode()) % KEPT_SHARE == 0
