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
        self.any = regex.compile("|".join(f"(?:{text})" for text in self.patterns) or "(?!)", regex.DOTALL)
        wide = max((pattern.replace(SPACE, " " * SPACES) for pattern in self.patterns), key=len, default="")
        self.final: Delimiters = Delimiters([*self.patterns, *final]) if final else self
        self.reach = len(wide)
        """An upper bound of a match's length."""

    @cached_property
    def each(self) -> tuple[regex.Pattern[str], ...]:
        """The alternatives."""
        return tuple(regex.compile(pattern, regex.DOTALL) for pattern in self.patterns)

    def longest(self, text: str, position: int, *, ended: bool) -> regex.Match[str] | bool | None:
        """Return the longest match at a place, None without one; True if it needs more text."""
        best: regex.Match[str] | None = None
        for pattern in self.each:
            match = pattern.match(text, position, partial=not ended)
            if match is None:
                continue
            if match.partial:
                return True
            best = match if best is None or match.end() > best.end() else best
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
    """The characters that are not yet read: `text` from `position` on.

    `ended`: no more will come. `truncated`: a token limit ended them.
    """

    def __init__(self) -> None:
        self.text = ""
        self.position = 0
        self.ended = False
        self.truncated = False

    def feed(self, chunk: str) -> None:
        """Append characters."""
        self.text = self.text[self.position :] + chunk
        self.position = 0

    def peek(self) -> Steps[str]:
        """Return the next character, "" at the end."""
        while self.position == len(self.text) and not self.ended:
            yield
        return self.text[self.position : self.position + 1]

    def skip_space(self) -> Steps[None]:
        """Read whitespace."""
        while (yield from self.peek()).isspace():
            self.position = _BLANK.match(self.text, self.position).end()  # type: ignore[union-attr]  # it matches anywhere

    def skip_exactly(self, literal: str) -> Steps[bool]:
        """Read a literal if it comes next, and return whether it does."""
        end = self.position + len(literal)
        while end > len(self.text) and not self.ended and literal.startswith(self.text[self.position :]):
            yield
            end = self.position + len(literal)
        comes_next = bool(literal) and self.text.startswith(literal, self.position)
        self.position += len(literal) if comes_next else 0
        return comes_next

    def match(self, delimiters: Delimiters, *, read: bool = True) -> Steps[regex.Match[str] | None]:
        """Return the delimiter that comes next, None for other text. Reads it if `read`."""
        while (match_here := delimiters.longest(self.text, self.position, ended=self.ended)) is True:
            yield
        assert not isinstance(match_here, bool)
        if match_here is not None and read:
            self.position = match_here.end()
        return match_here

    def until(self, delimiters: Delimiters, take: Take) -> Steps[regex.Match[str] | None]:
        """Take text up to a delimiter, and return its match without reading it; None at the end.

        Text that may begin a delimiter is taken only when it does not.
        """
        while True:
            start, match = self._first(delimiters)
            if start > self.position:
                take(self.text[self.position : start])
                self.position = start
            if match is not None or self.ended:
                return match
            yield

    def _first(self, delimiters: Delimiters) -> tuple[int, regex.Match[str] | None]:
        """Return where the first match starts, and the match; None if more text may complete or extend it."""
        delimiters = delimiters.final if self.ended else delimiters
        first = delimiters.any.search(self.text, self.position, partial=not self.ended)
        if first is None:
            return len(self.text), None
        if first.partial:
            return first.start(), None
        for start in range(max(self.position, len(self.text) - delimiters.reach + 1), first.start()):
            if delimiters.longest(self.text, start, ended=self.ended) is True:
                return start, None
        longest = delimiters.longest(self.text, first.start(), ended=self.ended)
        return first.start(), None if longest is True else longest or None
