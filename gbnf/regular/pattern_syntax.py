"""Syntax trees of regular expressions, and the errors of patterns."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import UnionType
from typing import TypeAlias

from gbnf.errors import GbnfError
from gbnf.regular.charset import ANY_CHAR, CharSet


class PatternError(GbnfError):
    """A pattern without an automaton. `position` is the index of the cause in `pattern`."""

    def __init__(self, pattern: str, position: int, problem: str) -> None:
        self.pattern, self.position, self.problem = pattern, position, problem
        super().__init__(f"pattern {pattern!r}, at index {position}: {problem}")


class MalformedPatternError(PatternError):
    """The pattern is invalid by ECMA-262, even at its most lenient."""


class UnsupportedPatternError(PatternError):
    """The pattern is valid by ECMA-262, but has no automaton here."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of the set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Concatenation:
    """The expressions in a row; the empty word if there are none."""

    items: tuple[PatternNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternation:
    """Any of the expressions."""

    items: tuple[PatternNode, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """The expression at least `minimum` times and at most `maximum` times (None: without bound)."""

    item: PatternNode
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """The position before the first character of the text."""


@dataclass(frozen=True, slots=True)
class End:
    """The position after the last character of the text."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A position with a word character on one side only; if `negated`, every other position."""

    negated: bool


@dataclass(frozen=True, slots=True)
class Lookaround:
    """A position after which the expression matches (before which, if `behind`), or not, if `negated`.

    `position` is its index in the pattern.
    """

    item: PatternNode
    behind: bool
    negated: bool
    position: int = field(compare=False)


Assertion: TypeAlias = Start | End | Boundary | Lookaround
PatternNode: TypeAlias = Chars | Concatenation | Alternation | Repetition | Assertion

EMPTY_PATTERN = Concatenation()
ANY = Chars(ANY_CHAR)
ANY_TEXT = Repetition(ANY, 0, None)


def is_anchored(node: PatternNode, edge: type[Start | End]) -> bool:
    """Return whether every match begins at the start, or ends at the end, as far as the structure shows."""
    match node:
        case Start() | End():
            return isinstance(node, edge)
        case Alternation(items):
            return all(is_anchored(item, edge) for item in items)
        case Repetition(item, minimum, _):
            return minimum > 0 and is_anchored(item, edge)
        case Concatenation(items):
            for item in items if edge is Start else reversed(items):
                if is_anchored(item, edge):
                    return True
                if not isinstance(item, Lookaround | Boundary):
                    return False
    return False


def contains(node: PatternNode, kinds: type | UnionType) -> bool:
    """Return whether an expression is of these kinds, or contains one that is, also in a lookaround."""
    if isinstance(node, kinds):
        return True
    match node:
        case Concatenation(items) | Alternation(items):
            return any(contains(item, kinds) for item in items)
        case Repetition(item, _, _) | Lookaround(item):
            return contains(item, kinds)
    return False


def may_look_ahead(node: PatternNode) -> bool:
    """Return whether it contains an assertion that may depend on the following text."""
    return contains(node, End | Boundary | Lookaround)
