"""The states of a match: the terminals that may come next, each with its stack."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TypeAlias

from gbnf.grammar.analysis import BYTE, utf8_length
from gbnf.grammar.code_points import matchable
from gbnf.grammar.emit import emit_expr, emit_literal
from gbnf.grammar.ir import CharClass, char_class
from gbnf.grammar.network import CharsNode, Cost, Node, RepeatNode, TextNode

END_OF_TEXT = "end of text"
_MANY_STACKS = 1 << 30  # where counting ends


@dataclass(eq=False, slots=True)
class Frame:
    """An entry of a stack: continue at `node` (`count` 0), or iteration number `count` of a repetition.

    `cost`: of the shortest text from here to the end of the grammar. `stacks`: how many this entry is on top
    of.
    """

    node: Node
    count: int
    parent: Stack
    cost: Cost = field(init=False)
    stacks: int = field(init=False)

    def __post_init__(self) -> None:
        node = self.node
        within = node.cost_after(self.count) if isinstance(node, RepeatNode) and self.count else node.cost
        self.cost = within + (self.parent.cost if self.parent is not None else 0)
        self.stacks = stack_count(self.parent)


@dataclass(eq=False, slots=True)
class Frames:
    """Several stacks with the same continuation; None is the empty one. `cost`, `stacks`: see `Frame`."""

    members: tuple[Frame | None, ...]
    cost: Cost = field(init=False)
    stacks: int = field(init=False)

    def __post_init__(self) -> None:
        self.cost = min(0 if member is None else member.cost for member in self.members)
        self.stacks = min(sum(map(stack_count, self.members)), _MANY_STACKS)


Stack: TypeAlias = Frame | Frames | None
Top: TypeAlias = tuple[TextNode | CharsNode, int, Stack]
Tops: TypeAlias = tuple[tuple[Top, ...], bool]


@dataclass(eq=False, slots=True)
class State:
    """The tops of all derivations of a text, with the cached steps from here."""

    tops: tuple[Top, ...]
    can_end: bool
    stacks: int = field(init=False)
    steps: dict[str, State | None] = field(default_factory=dict)
    only_literal: str = ""  # the rest of the literal, if it is the only top
    _allowed: CharClass | None = None
    _cost: Cost | None = None

    def __post_init__(self) -> None:
        self.stacks = sum(stack_count(stack) for _, _, stack in self.tops)
        if len(self.tops) == 1 and isinstance(self.tops[0][0], TextNode):
            self.only_literal = self.tops[0][0].text[self.tops[0][1] :]

    @property
    def allowed(self) -> CharClass:
        """The characters that may come next."""
        if self._allowed is None:
            self._allowed = char_class(*chain.from_iterable(_first(top) for top in self.tops))
        return self._allowed

    @property
    def cost(self) -> Cost:
        """The cost of the shortest completion."""
        if self._cost is None:
            self._cost = 0 if self.can_end else min(map(_cost, self.tops), default=math.inf)
        return self._cost

    def cheapest_text(self) -> str:
        """Return how the shortest completion begins: a literal's rest, or a class's first character."""
        node, offset, _ = min(self.tops, key=_cost)
        return node.text[offset:] if isinstance(node, TextNode) else chr(matchable(node.of)[0][0])

    def only_text(self) -> str:
        """Return the rest of the only literal, or the only character that all tops accept, else ""."""
        if self.only_literal:
            return self.only_literal
        ranges = {pair for top in self.tops for pair in _first(top)}
        if len(ranges) != 1:
            return ""
        ((low, high),) = ranges
        return chr(low) if low == high else ""

    def next_texts(self) -> list[str]:
        """Return the rest of the only literal, or one character of all that the same terminals accept."""
        return [self.only_literal] if self.only_literal else next_characters(self.tops)

    def expected(self) -> tuple[str, ...]:
        """Return the terminals that may come next, as GBNF, and `END_OF_TEXT` last if the text may end."""
        shown = [
            emit_literal(node.text[offset:]) if isinstance(node, TextNode) else emit_expr(node.of)
            for node, offset, _ in self.tops
        ]
        return tuple(dict.fromkeys([*shown, *[END_OF_TEXT] * self.can_end]))


def next_characters(tops: Iterable[Top]) -> list[str]:
    """Return one character of all that the same terminals accept, close to "a"."""
    literals: dict[int, list[int]] = {}
    classes: list[tuple[int, tuple[int, ...]]] = []
    for index, (node, offset, _) in enumerate(tops):
        if isinstance(node, TextNode):
            literals.setdefault(ord(node.text[offset]), []).append(index)
        else:
            classes.append((index, node.bounds))
    lows = set(literals)
    if classes:
        lows.update(low + 1 for low in literals)
        lows.update(chain.from_iterable(bounds for _, bounds in classes))
    found: dict[tuple[int, ...], str] = {}
    for low, after in pairwise([*sorted(lows), sys.maxunicode + 1]):
        accepting = [index for index, bounds in classes if bisect_right(bounds, low) & 1]
        accepting += literals.get(low, ())
        if accepting:
            char = chr(max(low, min(ord("a"), after - 1)) if classes else low)
            found[*accepting] = min(found.get((*accepting,), char), char, key=_strangeness)
    return list(found.values())


def _strangeness(char: str) -> tuple[bool, int]:
    return not char.isascii(), abs(ord(char) - ord("a"))


def _first(top: Top) -> tuple[tuple[int, int], ...]:
    node, offset, _ = top
    if isinstance(node, TextNode):
        code_point = ord(node.text[offset])
        return ((code_point, code_point),)
    return matchable(node.of)


def _cost(top: Top) -> Cost:
    """Return the cost of the shortest completion of one derivation."""
    node, offset, stack = top
    matched = utf8_length(node.text[:offset]) if offset and isinstance(node, TextNode) else 0
    return node.cost - BYTE * matched + (stack.cost if stack is not None else 0)


def stack_count(stack: Stack) -> int:
    """Return how many stacks a linked stack stands for."""
    return 1 if stack is None else stack.stacks
