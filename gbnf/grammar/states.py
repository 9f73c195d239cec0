"""What a state of a match consists of: the terminals that may come next, each with its stack."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TypeAlias

from gbnf.grammar.analysis import BYTE, utf8_length
from gbnf.grammar.code_points import Ranges, matchable
from gbnf.grammar.network import CharsNode, Cost, Node, RepeatNode, TextNode

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
    characters: dict[tuple[int, ...], str] = {}
    for low, after in pairwise([*sorted(lows), sys.maxunicode + 1]):
        accepting = [index for index, bounds in classes if bisect_right(bounds, low) & 1]
        accepting += literals.get(low, ())
        if accepting:
            char = chr(max(low, min(ord("a"), after - 1)) if classes else low)
            characters[*accepting] = min(characters.get((*accepting,), char), char, key=_strangeness)
    return list(characters.values())


def _strangeness(char: str) -> tuple[bool, int]:
    return not char.isascii(), abs(ord(char) - ord("a"))


def first_characters(top: Top) -> Ranges:
    """Return the code points that a terminal accepts next."""
    node, offset, _ = top
    if isinstance(node, TextNode):
        code_point = ord(node.text[offset])
        return ((code_point, code_point),)
    return matchable(node.chars)


def ending_cost(top: Top) -> Cost:
    """Return the cost of the shortest ending of one derivation."""
    node, offset, stack = top
    matched = utf8_length(node.text[:offset]) if offset and isinstance(node, TextNode) else 0
    return node.cost - BYTE * matched + (stack.cost if stack is not None else 0)


def stack_count(stack: Stack) -> int:
    """Return how many stacks a linked stack stands for."""
    return 1 if stack is None else stack.stacks
