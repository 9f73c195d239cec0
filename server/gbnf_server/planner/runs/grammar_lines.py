"""Grammars that have most lines in common, such as those of the steps of runs: each line is kept once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST_CHARACTERS = 4_000_000
"""Of the distinct lines of the grammars of a page."""


class GrammarLines:
    """Distinct lines in the order in which they were added; a grammar is the numbers of its lines."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._characters = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines."""
        return tuple(self._numbers)

    def add(self, text: str) -> tuple[int, ...] | None:
        """Return the numbers of the lines of a grammar; None if the new ones would be too many."""
        lines = text.rstrip("\n").split("\n")
        new = sum(len(line) for line in set(lines) if line not in self._numbers)
        if self._characters + new > _MOST_CHARACTERS:
            return None
        self._characters += new
        return tuple(self._numbers.setdefault(line, len(self._numbers)) for line in lines)


def join_lines(lines: Sequence[str], numbers: Iterable[int]) -> str:
    """Return the text of a grammar. Raises IndexError for a number without a line."""
    return "\n".join(lines[number] for number in numbers) + "\n"
