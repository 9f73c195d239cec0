"""What can go wrong with regular languages.

GbnfError
└── PatternError            a pattern that has no automaton here: pattern, position, problem
    ├── MalformedPatternError    it is no pattern in any reading
    └── UnsupportedPatternError  it is one, and its language is not regular or not worth the means
"""

from __future__ import annotations

from gbnf.errors import GbnfError


class PatternError(GbnfError):
    """A pattern without an automaton. `position` is the index in `pattern` of what is to blame."""

    def __init__(self, pattern: str, position: int, problem: str) -> None:
        self.pattern, self.position, self.problem = pattern, position, problem
        super().__init__(f"pattern {pattern!r}, at index {position}: {problem}")


class MalformedPatternError(PatternError):
    """ECMA-262 does not read the pattern, even at its most lenient."""


class UnsupportedPatternError(PatternError):
    """ECMA-262 reads the pattern, and this room can't hold its language."""
