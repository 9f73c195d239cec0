"""End a text at the first of some stop strings, also if it arrives in pieces. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import regex


class StopStrings:
    """Finds the stop string that is complete first in a text that arrives in pieces; of several, the longest.

    `found`: the string, None until it is found. What may be the beginning of one is retained until the next
    piece shows it, so that no part of a stop string is ever passed on.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._any = regex.compile("|".join(map(regex.escape, self._strings)) or "(?!)")
        self._pending = ""
        self.found: str | None = None

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that is certain now. Text after a stop string is dropped."""
        if self.found is not None:
            return ""
        self._pending += piece
        complete = [(end, string) for string in self._strings if (end := self._pending.find(string)) >= 0]
        if complete:
            end, self.found = min(complete, key=lambda match: (match[0] + len(match[1]), match[0]))
        else:
            begun = self._any.search(self._pending, partial=True)  # what may begin a stop string
            end = len(self._pending) if begun is None else begun.start()
        certain, self._pending = self._pending[:end], self._pending[end:]
        return certain

    def end(self) -> str:
        """Return the rest of the text."""
        rest, self._pending = ("" if self.found is not None else self._pending), ""
        return rest
