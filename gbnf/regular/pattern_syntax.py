"""Regular expressions as values: what a reader gives and an automaton is built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from gbnf.regular.charset import ANY_CHAR, CharSet


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of the set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Concatenation:
    """One expression behind the other; the empty word where there are none."""

    items: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternation:
    """Any of the expressions."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """The expression at least `minimum` times and at most `maximum` times (None: without bound)."""

    item: Node
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """The place before the first character of the text."""


@dataclass(frozen=True, slots=True)
class End:
    """The place behind the last character of the text."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place with a word character on one side only; every other place when `negated`."""

    negated: bool


@dataclass(frozen=True, slots=True)
class Lookaround:
    """A place behind which the expression matches (before which, when `behind`); else when `negated`.

    `position` is where the pattern says so.
    """

    item: Node
    behind: bool
    negated: bool
    position: int = field(compare=False)


Assertion: TypeAlias = Start | End | Boundary | Lookaround
Node: TypeAlias = Chars | Concatenation | Alternation | Repetition | Assertion

EMPTY_PATTERN = Concatenation()
ANY = Chars(ANY_CHAR)
ANY_TEXT = Repetition(ANY, 0, None)


def is_anchored_at_start(node: Node) -> bool:
    """Return whether every match begins at the start of the text, as far as is plain to see."""
    match node:
        case Start():
            return True
        case Alternation(items):
            return all(map(is_anchored_at_start, items))
        case Repetition(item, minimum, _):
            return minimum > 0 and is_anchored_at_start(item)
        case Concatenation(items):
            for item in items:
                if is_anchored_at_start(item):
                    return True
                if not isinstance(item, Lookaround | Boundary):
                    return False
    return False


def is_anchored_at_end(node: Node) -> bool:
    """Return whether every match ends at the end of the text, as far as is plain to see."""
    match node:
        case End():
            return True
        case Alternation(items):
            return all(map(is_anchored_at_end, items))
        case Repetition(item, minimum, _):
            return minimum > 0 and is_anchored_at_end(item)
        case Concatenation(items):
            for item in reversed(items):
                if is_anchored_at_end(item):
                    return True
                if not isinstance(item, Lookaround | Boundary):
                    return False
    return False


def has_word_boundary(node: Node) -> bool:
    """Return whether a word boundary is asked for anywhere inside."""
    match node:
        case Boundary():
            return True
        case Concatenation(items) | Alternation(items):
            return any(map(has_word_boundary, items))
        case Repetition(item, _, _) | Lookaround(item):
            return has_word_boundary(item)
        case Chars() | Start() | End():
            return False


def may_look_ahead(node: Node) -> bool:
    """Return whether there is an assertion inside that may ask what follows: any but the start of the text."""
    match node:
        case Concatenation(items) | Alternation(items):
            return any(map(may_look_ahead, items))
        case Repetition(item, _, _):
            return may_look_ahead(item)
        case End() | Boundary() | Lookaround():
            return True
        case Chars() | Start():
            return False
