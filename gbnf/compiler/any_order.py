"""Declared properties in many orders, by a grammar that stays small.

Any order at all takes a state for each set of properties. Here each property splits those that are left into
a part declared before it and a part declared after it: either part comes as a whole before the other, and is
split in turn. So declared order is one of the orders, a property may come early, and the skipped ones may
come at the end. Orders that go back and forth, such as `2 3 1 4`, are rejected.

Parts are intervals of the declared order: n²/2 rules, with n³/6 pairs in all. With more than
`MAX_SPLIT` properties, a part declared before one keeps the order of its blocks, of `PROPERTIES_PER_BLOCK`
properties each: then there are about n²/2 pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import itemgetter

from gbnf.compiler.declared_order import trie
from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, EPSILON, Expr, alt, optional, repeat, seq

#: The most properties without blocks.
MAX_SPLIT = 12
#: The properties in one block of a larger object.
PROPERTIES_PER_BLOCK = 8
#: The most pairs that any order of all objects of a schema may take.
MAX_ANY_ORDER_PAIRS = 10_000
#: The most pairs that interleaving may take, estimated from above: of one object, and of all in a schema.
MAX_PAIRS = 1500
MAX_INTERLEAVED_PAIRS = 30_000


def permuted_expr(pairs: Sequence[Expr], layout: Layout, scope: Scope) -> Expr:
    """Return all of the pairs, in any order. A state is the set of the remaining ones."""

    def rest(left: tuple[Expr, ...]) -> Expr:
        if len(left) == 1:
            return left[0]
        if left not in rests:
            first = [
                seq(one, layout.comma, rest((*left[:at], *left[at + 1 :]))) for at, one in enumerate(left)
            ]
            rests[left] = scope.add(f"Order {len(left)}", factor_prefixes(first))
        return rests[left]

    rests: dict[tuple[Expr, ...], Expr] = {}
    return rest(tuple(pairs))


def split_pairs(count: int) -> int:
    """Estimate how many pairs of key and value `count` properties take."""
    return (
        count**3 // 6
        if count <= MAX_SPLIT
        else count * (count // 2 + PROPERTIES_PER_BLOCK * PROPERTIES_PER_BLOCK // 6)
    )


class OrderBudget:
    """The pairs that the objects of a schema may still take to allow more than one order.

    `any_order`: whether more than the interleaving of chains is wanted.
    """

    def __init__(self, *, any_order: bool) -> None:
        self.any_order = any_order
        self._any_order_left = MAX_ANY_ORDER_PAIRS
        self._interleaving_left = MAX_INTERLEAVED_PAIRS

    def reserve_any_order(self, pairs: int, share: int) -> bool:
        """Take `pairs` for any order of an object, up to 1/`share` of those left; return whether possible."""
        if not self.any_order or pairs * share > self._any_order_left:
            return False
        self._any_order_left -= pairs
        return True

    def reserve_interleaving(self, pairs: int) -> bool:
        """Take `pairs` to interleave the chains of an object; return whether possible."""
        if pairs > min(MAX_PAIRS, self._interleaving_left):
            return False
        self._interleaving_left -= pairs
        return True


class Splits:
    """The objects of the properties `names` (at least one), in the orders that splitting allows.

    The arguments are those of `gbnf.compiler.declared_order.DeclaredOrder`. A part is a pair of indices: of
    the first property, and after the last.
    """

    def __init__(
        self,
        names: Sequence[str],
        required: frozenset[str],
        values: Mapping[str, Expr],
        others: Sequence[Expr],
        layout: Layout,
        scope: Scope,
    ) -> None:
        self._layout = layout
        self._outer = scope
        # Each name occurs several times for each pair.
        self._scope = Scope(scope.table, (*scope.hint[:1], *scope.hint[1:][-1:]))
        self._others = alt(*others)
        self._more: Expr = EPSILON
        if others:
            self._more = scope.add("More", repeat(seq(layout.comma, self._others)))
        self._keys = [layout.key(name) for name in names]
        self._values = [
            scope.add(f"{name} Value", seq(layout.colon, values[name], self._more)) for name in names
        ]
        self._needed = [0, *accumulate(int(name in required) for name in names)]
        self._count = len(names)
        self._block = len(names) if len(names) <= MAX_SPLIT else PROPERTIES_PER_BLOCK
        self._parts: dict[tuple[int, int], Expr] = {}
        self._rows: dict[tuple[int, int], Expr] = {}
        self._filled_rows: dict[tuple[int, int], Expr] = {}

    def expression(self) -> Expr:
        """Return the objects, and add the productions that they need."""
        count, layout = self._count, self._layout
        for length in range(1, count):
            for start in range(count - length + 1):
                end = start + length
                if end == count or end <= self._end_of_block(start):
                    part = seq(layout.comma, self._split(start, end))
                    self._parts[start, end] = self._scope.add(f"Next {start} {end}", part)
        everything = self._split(0, count)
        begun = everything
        if self._others != EMPTY_LANGUAGE:
            everything = self._outer.add("Properties", everything)
            following = seq(layout.comma, everything)
            behind = following if self._is_needed(0, count) else optional(following)
            begun = alt(everything, seq(self._others, self._more, behind))
        filled = seq(layout.begin_object, begun, layout.end_object)
        return filled if self._is_needed(0, count) else alt(filled, layout.empty_object)

    def _end_of_block(self, place: int) -> int:
        return min((place // self._block + 1) * self._block, self._count)

    def _is_needed(self, start: int, end: int) -> bool:
        """Return whether a part has a required property."""
        return self._needed[start] < self._needed[end]

    def _split(self, start: int, end: int) -> Expr:
        """Return any of a part's properties, followed by the rest of the part."""
        words = []
        for place in range(start, end):
            before, behind = (start, place), (place + 1, end)
            if start == place:
                rest = self._some(*behind)
            elif place + 1 == end:
                rest = self._some(*before)
            else:
                up = seq(self._some(*behind), self._all(*before))
                down = seq(self._some(*before), self._all(*behind))
                rest = alt(up, down)
            if not self._is_needed(*before) and not self._is_needed(*behind):
                rest = optional(rest)
            words.append((self._keys[place], seq(self._values[place], rest)))
        return trie(sorted(words, key=itemgetter(0)))

    def _all(self, start: int, end: int) -> Expr:
        """Return a part after a property; optional if none of it is required."""
        if start == end:
            return EPSILON
        part = self._parts.get((start, end))
        if part is not None:
            return part if self._is_needed(start, end) else optional(part)
        row = self._rows.get((start, end))
        if row is None:
            border = self._end_of_block(start)
            row = seq(self._all(start, border), self._all(border, end))
            if start % self._block == 0:
                row = self._rows[start, end] = self._scope.add(f"All {start} {end}", row)
        return row

    def _some(self, start: int, end: int) -> Expr:
        """Return at least one property of a part, after another one."""
        if start == end:
            return EPSILON
        part = self._parts.get((start, end))
        if part is not None:
            return part
        row = self._filled_rows.get((start, end))
        if row is None:
            border = self._end_of_block(start)
            row = seq(self._parts[start, border], self._all(border, end))
            if not self._is_needed(start, border):
                row = alt(row, self._some(border, end))
            if start % self._block == 0:
                row = self._filled_rows[start, end] = self._scope.add(f"Some {start} {end}", row)
        return row
