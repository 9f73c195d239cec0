"""The errors of patterns.

GbnfError
└── PatternError            a pattern that has no automaton here: pattern, position, problem
    ├── MalformedPatternError    it is not a pattern, even leniently read
    └── UnsupportedPatternError  it is one, but its language is not regular, or too expensive
"""

from __future__ import annotations

from gbnf.errors import GbnfError


class PatternError(GbnfError):
    """A pattern without an automaton. `position` is the index of the cause in `pattern`."""

    def __init__(self, pattern: str, position: int, problem: str) -> None:
        self.pattern, self.position, self.problem = pattern, position, problem
        super().__init__(f"pattern {pattern!r}, at index {position}: {problem}")


class MalformedPatternError(PatternError):
    """The pattern is invalid by ECMA-262, even at its most lenient."""


class UnsupportedPatternError(PatternError):
    """The pattern is valid by ECMA-262, but has no automaton here."""
