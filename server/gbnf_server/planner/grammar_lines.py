"""Grammars that have most lines in common, such as those of the steps of runs: each line is stored once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, groupby

MOST_CHARACTERS = 4_000_000
"""Of the distinct lines of a page."""


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
        if self._characters + new > MOST_CHARACTERS:
            return None
        self._characters += new
        return tuple(self._numbers.setdefault(line, len(self._numbers)) for line in lines)


def join_lines(lines: Sequence[str], numbers: Iterable[int]) -> str:
    """Return the text of a grammar. Raises IndexError for a number without a line."""
    return "\n".join(lines[number] for number in numbers) + "\n"


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as the script reads them: "0-3 7"."""
    steps = count()
    runs = [list(run) for _, run in groupby(numbers, lambda number: number - next(steps))]
    return " ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
