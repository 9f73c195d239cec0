"""What can go wrong with regular languages.

GbnfError
├── TooManyStates           the automaton would outgrow its budget
│   └── EffortSpent             the schema around it has used up its work (gbnf.effort)
└── PatternError            a pattern that has no automaton here: pattern, position, problem
    ├── MalformedPatternError    it is no pattern in any reading
    └── UnsupportedPatternError  it is one, and its language is not regular or not worth the means
"""

from __future__ import annotations

from gbnf.errors import GbnfError


class TooManyStates(GbnfError):  # noqa: N818  # it is a count that went wrong, and the name says which
    """The automaton would have more states than its budget allows, or take more steps to build."""

    def __init__(self, limit: int, counted: str = "states") -> None:
        self.limit = limit
        super().__init__(f"the automaton takes more than {limit} {counted}")


class EffortSpent(TooManyStates):
    """The work that a schema may take is used up. Whoever can leave an automaton out can go on without it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        GbnfError.__init__(self, "the schema takes too much work")


class PatternError(GbnfError):
    """A pattern without an automaton. `position` is the index in `pattern` of what is to blame."""

    def __init__(self, pattern: str, position: int, problem: str) -> None:
        self.pattern, self.position, self.problem = pattern, position, problem
        super().__init__(f"pattern {pattern!r}, at index {position}: {problem}")


class MalformedPatternError(PatternError):
    """ECMA-262 does not read the pattern, even at its most lenient."""


class UnsupportedPatternError(PatternError):
    """ECMA-262 reads the pattern, and this room can't hold its language."""
