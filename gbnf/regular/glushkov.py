"""Position automata: from a syntax tree to the positions that may follow each position.

V. Glushkov's construction ("The abstract theory of automata", 1961): each occurrence of a set of characters
in the expression is a position, and an automaton without empty steps goes from position to position. Sets of
positions are integers, one bit each. Assertions are positions too, which read nothing; `_Builder.resolve`
removes them again: the position that a step leaves determines the preceding character. For word boundaries
every set is split into its word characters and the others. Only lookarounds remain, as conditions on the
steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from gbnf.regular.charset import CharSet
from gbnf.regular.pattern_syntax import (
    ANY_TEXT,
    Alternation,
    Assertion,
    Boundary,
    Chars,
    Concatenation,
    End,
    Lookaround,
    PatternNode,
    Repetition,
    Start,
    contains,
)
from gbnf.regular.unicode_properties import WORD
from gbnf.work_limits import TooManyStatesError, spend

START, END = 1, 2  # the bits of the start, before the first position, and of the end, after the last

#: The most steps between positions.
MAX_WORK = 200_000
_POSITION_WORK = 20  # what one more position costs, in steps: every set of positions grows by a bit


class Preceding(Enum):
    """What precedes a position in the text."""

    TEXT_START = 0
    WORD = 1
    OTHER = 2


class Condition(NamedTuple):
    """A lookaround that must be satisfied where a step begins, with what precedes that position."""

    lookaround: Lookaround
    before: Preceding


#: The steps from a position: the positions that may follow under each set of conditions.
Transitions = Mapping[frozenset[Condition], int]
UNCONDITIONAL: frozenset[Condition] = frozenset()


class _PositionSets(NamedTuple):
    """An expression's positions: whether it may be empty, where it may begin, and where it may end."""

    nullable: bool
    first: int
    last: int


_NO_POSITIONS = _PositionSets(nullable=True, first=0, last=0)


class PositionAutomaton:
    """The position automaton of an expression, optionally with any text before and any text after it.

    `steps[i]` leads from the position of bit `i`, bit 0 being START. `sets` says which positions read a set
    of characters. `sink`: positions; where all of them may follow, any text is accepted; 0 for none.
    """

    def __init__(
        self, node: PatternNode, *, begins_anywhere: bool, ends_anywhere: bool, before: Preceding
    ) -> None:
        """Build it. `before` is what precedes the whole. Raises TooManyStatesError."""
        builder = _Builder(boundaries=contains(node, Boundary))
        positions = builder.visit(node)
        if begins_anywhere:
            positions = builder.join(builder.visit(ANY_TEXT), positions)
        self.sink = 0
        if ends_anywhere:
            rest = builder.visit(ANY_TEXT)
            self.sink = rest.first | END
            positions = builder.join(positions, rest)
        positions = builder.join(_PositionSets(nullable=False, first=START, last=START), positions)
        builder.join(positions, _PositionSets(nullable=False, first=END, last=END))
        self.steps: tuple[Transitions, ...] = tuple(
            builder.resolve(number, before) for number in range(len(builder.follow))
        )
        self.sets: Mapping[CharSet, int] = builder.sets
        spend(builder.work)


def bits(positions: int) -> Iterator[int]:
    """Yield the numbers of the positions in a set."""
    while positions:
        lowest = positions & -positions
        yield lowest.bit_length() - 1
        positions ^= lowest


class _Builder:
    def __init__(self, *, boundaries: bool) -> None:
        self.boundaries = boundaries
        self.follow = [0, 0]  # of START and END
        self.sets: dict[CharSet, int] = {}
        self.assertions: dict[int, Assertion] = {}
        self.asserted = 0  # the positions of all assertions
        self.words = 0  # the positions that read a word character; none unless `boundaries`
        self.work = 0

    def spend(self, work: int) -> None:
        self.work += work
        if self.work > MAX_WORK:
            raise TooManyStatesError(MAX_WORK, "steps to build")

    def visit(self, node: PatternNode) -> _PositionSets:
        match node:
            case Chars(chars):
                return self._chars(chars)
            case Concatenation(items):
                joined = _NO_POSITIONS
                for item in items:
                    joined = self.join(joined, self.visit(item))
                return joined
            case Alternation(items):
                pieces = [self.visit(item) for item in items]
                nullable, first, last = False, 0, 0
                for piece in pieces:
                    nullable, first, last = nullable or piece.nullable, first | piece.first, last | piece.last
                return _PositionSets(nullable, first, last)
            case Repetition(item, minimum, maximum):
                return self._repetition(item, minimum, maximum)
            case Start() | End() | Boundary() | Lookaround():
                position = self._position()
                self.assertions[position.bit_length() - 1] = node
                self.asserted |= position
                return _PositionSets(nullable=False, first=position, last=position)

    def join(self, left: _PositionSets, right: _PositionSets) -> _PositionSets:
        self._link(left.last, right.first)
        return _PositionSets(
            left.nullable and right.nullable,
            left.first | right.first if left.nullable else left.first,
            right.last | left.last if right.nullable else right.last,
        )

    def _position(self) -> int:
        self.spend(_POSITION_WORK)
        self.follow.append(0)
        return 1 << len(self.follow) - 1

    def _link(self, last: int, first: int) -> None:
        if not first:
            return
        self.spend(last.bit_count())
        for number in bits(last):
            self.follow[number] |= first

    def _chars(self, chars: CharSet) -> _PositionSets:
        positions = 0
        words = chars & WORD if self.boundaries else CharSet()
        for part in (words, chars - words if words else chars):
            if part:
                position = self._position()
                self.sets[part] = self.sets.get(part, 0) | position
                positions |= position
                if part is words:
                    self.words |= position
        return _PositionSets(nullable=False, first=positions, last=positions)

    def _repetition(self, item: PatternNode, minimum: int, maximum: int | None) -> _PositionSets:
        # x{2,} -> x x+      x{2,4} -> x x (x (x)?)?      (x?){2,4} -> (x?)(x?)((x?)(x?)?)?
        if maximum == 0:
            return _NO_POSITIONS
        if maximum is None:
            again = self.visit(item)
            self._link(again.last, again.first)
            tail = again._replace(nullable=again.nullable or minimum == 0)
        else:
            tail = _NO_POSITIONS
            for _ in range(maximum - minimum):
                tail = self.join(self.visit(item), tail)._replace(nullable=True)
        for _ in range(minimum - (maximum is None and minimum > 0)):
            tail = self.join(self.visit(item), tail)
        return tail

    def resolve(self, number: int, before: Preceding) -> Transitions:
        """Return the steps from a position, with the assertions in between resolved where possible.

        `before` is what precedes the whole expression.
        """
        follow = self.follow[number]
        if 1 << number & self.asserted:
            return {}
        if not follow & self.asserted:
            return {UNCONDITIONAL: follow}
        if number:
            before = Preceding.WORD if 1 << number & self.words else Preceding.OTHER
        readable = ~(self.asserted | START)
        nonwords = readable & ~(self.words | END)
        steps: dict[frozenset[Condition], int] = {}
        begun = (number, readable, UNCONDITIONAL)
        seen, pending = {begun}, [begun]
        while pending:
            here, allowed, conditions = pending.pop()
            self.spend(1)
            follow = self.follow[here]
            if follow & allowed:
                steps[conditions] = steps.get(conditions, 0) | follow & allowed
            for assertion in bits(follow & self.asserted):
                rest, needed = allowed, conditions
                match self.assertions[assertion]:
                    case Start() if before != Preceding.TEXT_START:
                        rest = 0
                    case End():
                        rest &= END
                    case Boundary(negated):
                        rest &= self.words if (before == Preceding.WORD) == negated else nonwords | END
                    case Lookaround() as lookaround:
                        needed = conditions | {Condition(lookaround, before)}
                visit = (assertion, rest, needed)
                if rest and visit not in seen:
                    seen.add(visit)
                    pending.append(visit)
        return steps
