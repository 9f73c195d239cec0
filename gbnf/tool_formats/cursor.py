"""A cursor over a text that comes in chunks.

The methods are generators that yield where they need more characters, so that a parser reads as if it had the
whole text. Invariant: what a method decides depends on the text alone, never on its division into chunks: a
delimiter counts only when no earlier or longer one can still become complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from functools import cached_property
from typing import TypeAlias, TypeVar

import regex

SPACES = 64
"""Whitespace characters that are read as one run inside a delimiter."""
SPACE = rf"\s{{0,{SPACES}}}"

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A computation that pauses until there are more characters."""

Take: TypeAlias = Callable[[str], None]

_RUN = re.compile(r"(\s+)")
_BLANK = re.compile(r"\s*")


def lenient(literal: str, *, json: bool = False) -> str:
    """Return a pattern of a literal where each run of whitespace matches any whitespace, and none.

    `json`: whitespace is also allowed around the punctuation of JSON.
    """
    if json:
        literal = re.sub(r'([{\[,:])(?=["\[{])|(?<=["\]}])([}\],:])|([}\]])(?=\S)', r" \1 \2\3 ", literal)
    parts = _RUN.split(literal)
    return "".join(SPACE if part.isspace() else regex.escape(part) for part in parts if part)


class Delimiters:
    """Alternative delimiters: the leftmost counts, and the longest of those.

    `final`: more of them, which count only if the text has ended.
    """

    def __init__(self, patterns: Iterable[str], final: Iterable[str] = ()) -> None:
        self.patterns = tuple(dict.fromkeys(pattern for pattern in patterns if pattern))
        self.any = regex.compile("|".join(f"(?:{each})" for each in self.patterns) or "(?!)", regex.DOTALL)
        wide = max((pattern.replace(SPACE, " " * SPACES) for pattern in self.patterns), key=len, default="")
        self.final: Delimiters = Delimiters([*self.patterns, *final]) if final else self
        self.reach = len(wide)
        """An upper bound of a match's length."""

    @cached_property
    def each(self) -> tuple[regex.Pattern[str], ...]:
        """The alternatives."""
        return tuple(regex.compile(pattern, regex.DOTALL) for pattern in self.patterns)

    def longest(self, text: str, at: int, *, ended: bool) -> regex.Match[str] | bool | None:
        """Return the longest match at a place, None without one; True if it needs more text."""
        best: regex.Match[str] | None = None
        for pattern in self.each:
            found = pattern.match(text, at, partial=not ended)
            if found is None:
                continue
            if found.partial:
                return True
            best = found if best is None or found.end() > best.end() else best
        return best


class Stripped:
    """Passes text on without the whitespace around it, which is held until more text follows.

    `has_begun`: it has passed something on.
    """

    def __init__(self, take: Take) -> None:
        self._take = take
        self._pending: list[str] = []
        self.has_begun = False

    def __call__(self, piece: str) -> None:
        """Take text."""
        piece = piece if self.has_begun else piece.lstrip()
        text = piece.rstrip()
        if text:
            self._take("".join([*self._pending, text]))
            self._pending.clear()
            self.has_begun = True
        self._pending.append(piece[len(text) :])


class AnswerCursor:
    """The characters that are not yet read: `text` from `at` on.

    `ended`: no more will come. `truncated`: a token limit ended them.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.truncated = False

    def feed(self, chunk: str) -> None:
        """Append characters."""
        self.text = self.text[self.at :] + chunk
        self.at = 0

    def peek(self) -> Steps[str]:
        """Return the next character, "" at the end."""
        while self.at == len(self.text) and not self.ended:
            yield
        return self.text[self.at : self.at + 1]

    def skip_space(self) -> Steps[None]:
        """Read whitespace."""
        while (yield from self.peek()).isspace():
            self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]  # it matches anywhere

    def skip_exactly(self, literal: str) -> Steps[bool]:
        """Read a literal if it comes next, and return whether it does."""
        end = self.at + len(literal)
        while end > len(self.text) and not self.ended and literal.startswith(self.text[self.at :]):
            yield
            end = self.at + len(literal)
        found = bool(literal) and self.text.startswith(literal, self.at)
        self.at += len(literal) if found else 0
        return found

    def match(self, delimiters: Delimiters, *, read: bool = True) -> Steps[regex.Match[str] | None]:
        """Return the delimiter that comes next, None for other text. Reads it if `read`."""
        while (found := delimiters.longest(self.text, self.at, ended=self.ended)) is True:
            yield
        assert not isinstance(found, bool)
        if found is not None and read:
            self.at = found.end()
        return found

    def until(self, delimiters: Delimiters, take: Take) -> Steps[regex.Match[str] | None]:
        """Take text up to a delimiter, and return its match without reading it; None at the end.

        Text that may begin a delimiter is taken only when it does not.
        """
        while True:
            start, found = self._first(delimiters)
            if start > self.at:
                take(self.text[self.at : start])
                self.at = start
            if found is not None or self.ended:
                return found
            yield

    def _first(self, delimiters: Delimiters) -> tuple[int, regex.Match[str] | None]:
        """Return where the first match starts, and the match; None if more text may complete or extend it."""
        delimiters = delimiters.final if self.ended else delimiters
        found = delimiters.any.search(self.text, self.at, partial=not self.ended)
        if found is None:
            return len(self.text), None
        if found.partial:
            return found.start(), None
        for start in range(max(self.at, len(self.text) - delimiters.reach + 1), found.start()):
            if delimiters.longest(self.text, start, ended=self.ended) is True:
                return start, None
        longest = delimiters.longest(self.text, found.start(), ended=self.ended)
        return found.start(), None if longest is True else longest or None
