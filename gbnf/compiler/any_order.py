"""Properties in any order.

Exactly, that takes a state for each set of properties that came before: small objects have them
(`gbnf.compiler.objects`, `permuted_expr`). Larger ones count instead: how many of the required properties
came before, how many of the others (if their number is bounded), and which `requires_one_of` groups are
satisfied. For objects without duplicate keys that is the same, in states that grow linearly: all required
properties are present exactly if as many came as there are. So no order is rejected, and what is accepted
beyond has a duplicate key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gbnf.compiler.declared_order import trie
from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.rules import Scope
from gbnf.effort import TooManyStates
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Ref, alt, repeat, seq

#: The most states of an object that counts its properties.
MAX_COUNTING_STATES = 2000
#: The most pairs that any order of all objects of a schema may take, exactly.
MAX_ANY_ORDER_PAIRS = 10_000
#: The most pairs that interleaving may take, estimated from above: of one object, and of all in a schema.
MAX_PAIRS = 1500
MAX_INTERLEAVED_PAIRS = 30_000
#: What is accepted though it is not allowed, where properties are counted.
DUPLICATES_COUNT = "properties in any order: one that is given twice counts twice"


def permuted_expr(pairs: Sequence[Expr], layout: Layout, scope: Scope) -> Expr:
    """Return each of the pairs once, in any order. A state is the set of the remaining ones."""

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


def counted_expr(pairs: Sequence[Expr], layout: Layout, scope: Scope) -> Expr:
    """Return as many pairs as there are, in any order: each of them once, unless a key is a duplicate."""
    pair = scope.add("Pair", factor_prefixes(pairs))
    return seq(pair, repeat(seq(layout.comma, pair), len(pairs) - 1, len(pairs) - 1))


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


class _Class(NamedTuple):
    """Properties that lead from a state to the same next one, as a rule."""

    pair: Ref
    is_required: bool
    satisfies: int  # a bit for each group


class _Counts(NamedTuple):
    """How many required and other properties came before, as far as they count, and the groups satisfied."""

    required: int
    others: int
    satisfied: int


class CountingObjects:
    """The objects of the properties in `values` in any order, which are counted.

    `values` are expressions by name, none of them empty. `groups`: sets of names of which each must have one
    present. `others` are pairs of other keys and values. `bounds`: the least and the most properties (None:
    any number).
    """

    def __init__(
        self,
        values: Mapping[str, Expr],
        required: frozenset[str],
        groups: Sequence[frozenset[str]],
        others: Sequence[Expr],
        bounds: tuple[int, int | None],
        layout: Layout,
        scope: Scope,
    ) -> None:
        self._layout, self._scope = layout, scope
        self._required = len(required)
        least, most = bounds
        self._least = max(least - self._required, 0)  # of the properties that are not required
        self._most = None if most is None else most - self._required
        self._counted = max(self._least, self._most or 0)
        open_groups = [group for group in groups if not group & required]
        self._all_satisfied = (1 << len(open_groups)) - 1
        names: dict[tuple[bool, int], list[str]] = {}
        for name in values:
            bits = sum(1 << bit for bit, group in enumerate(open_groups) if name in group)
            names.setdefault((name in required, bits), []).append(name)
        if others:
            names.setdefault((False, 0), [])
        self._classes: list[_Class] = []
        for (is_required, bits), members in names.items():
            words = sorted((layout.key(name), seq(layout.colon, values[name])) for name in members)
            extra = others if (is_required, bits) == (False, 0) else ()
            pair = alt(*([trie(words)] if words else []), *extra)
            ref = scope.add("Required" if is_required else "Optional", pair)
            self._classes.append(_Class(ref, is_required, bits))
        self._rests: dict[_Counts, Ref] = {}

    def expression(self) -> Expr:
        """Return the objects, and add the productions that they need. Raises TooManyStates."""
        start = _Counts(0, 0, 0)
        if self._most is not None and self._most < 0:
            return EMPTY_LANGUAGE
        for state in self._reachable(start):
            self._rests[state] = self._scope.reserve("Rest")
        for state in reversed(self._rests):
            alternatives = [seq(self._layout.comma, pair) for pair in self._pairs(state)]
            if self._may_end(state):
                alternatives.append(self._layout.end_object)
            self._scope.define(self._rests[state], factor_prefixes(alternatives))
        alternatives = [seq(self._layout.begin_object, pair) for pair in self._pairs(start)]
        if self._may_end(start):
            alternatives.append(self._layout.empty_object)
        return factor_prefixes(alternatives)

    def _reachable(self, start: _Counts) -> list[_Counts]:
        found, pending = {start: None}, [start]
        while pending:
            for _, follower in self._steps(pending.pop()):
                if follower not in found:
                    if len(found) == MAX_COUNTING_STATES:
                        raise TooManyStates(MAX_COUNTING_STATES)
                    found[follower] = None
                    pending.append(follower)
        return sorted(found)

    def _steps(self, state: _Counts) -> Iterator[tuple[_Class, _Counts]]:
        """Yield each class whose properties may come next, and the state after them."""
        for kind in self._classes:
            satisfied = state.satisfied | kind.satisfies
            if not kind.is_required:
                if self._most is None or state.others < self._most:
                    yield kind, _Counts(state.required, min(state.others + 1, self._counted), satisfied)
            elif state.required < self._required:
                yield kind, _Counts(state.required + 1, state.others, satisfied)

    def _pairs(self, state: _Counts) -> list[Expr]:
        return [seq(kind.pair, self._rests[follower]) for kind, follower in self._steps(state)]

    def _may_end(self, state: _Counts) -> bool:
        return (
            state.required == self._required
            and state.others >= self._least
            and state.satisfied == self._all_satisfied
        )
