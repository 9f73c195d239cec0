"""Objects as automata over their properties.

The properties that one schema declares are a chain: they come in its order. A state is the position in each
chain, which `requires_one_of` groups are satisfied and how many properties came before (if their number is
bounded). From each state, every later property of a chain may come, up to the next required one, all keys in
one trie. Chains interleave freely, and other properties may come anywhere in between. For any order, see
`gbnf.compiler.any_order`.

Invariants: each property comes at most once and in declared order, required ones always; there are no
trailing commas.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from gbnf.compiler.any_order import ObjectExpr, ObjectMembers, OrderBudget, any_order_expr
from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, Alt, Expr, Seq, literal, seq
from gbnf.regular.automaton import Dfa
from gbnf.schema.value_sets import Object
from gbnf.work_limits import TooManyStatesError

#: The most states of one object; beyond, bounds on the number of properties are not enforced.
MAX_STATES = 1000
#: The most states of an object with `requires_one_of`: each set of satisfied groups is one.
MAX_GROUP_STATES = 2000
#: The greatest number of properties that is counted: each is a level of nesting in the grammar.
MAX_COUNT = 100
#: The most declared properties in one trie.
_CHUNK = 16

#: The keys of a class of other properties (None: every key), and an expression for their values.
Other = tuple["Dfa | None", Expr]


def object_expr(
    shape: Object,
    values: dict[str, Expr],
    others: Sequence[Other],
    layout: Layout,
    scope: Scope,
    budget: OrderBudget,
) -> ObjectExpr:
    """Return the objects of `shape`, with `values` as the expressions of declared properties."""
    members = members_of(shape, values, others, layout, scope)
    if members is None:
        return ObjectExpr(EMPTY_LANGUAGE)
    if budget.any_order and len(members.values) > 1:
        return any_order_expr(members, layout, scope, budget)
    loosened: list[tuple[str, str]] = []
    pairs, least, most = members.others, members.least, members.most
    chains = _joined(_chains(shape, values), budget)
    counted = max(least, most or 0)
    if counted > MAX_COUNT or counted * math.prod(len(chain) + 1 for chain in chains) > MAX_STATES:
        keyword = "minProperties" if least > (most or 0) else "maxProperties"
        loosened.append((keyword, "it makes too many states"))
        least, most = 0, None
    elif least > 1 and pairs:
        loosened.append(("minProperties", "an additional property given twice counts twice"))
    try:
        expr = _ObjectAutomaton(shape, chains, values, pairs, (least, most), layout, scope).expression()
    except TooManyStatesError:
        loosened.append(("requires_one_of", "it makes too many states"))
        shape = replace(shape, one_of_groups=())
        expr = _ObjectAutomaton(shape, chains, values, pairs, (least, most), layout, scope).expression()
    return ObjectExpr(expr, tuple(loosened))


def members_of(
    shape: Object, values: Mapping[str, Expr], others: Sequence[Other], layout: Layout, scope: Scope
) -> ObjectMembers | None:
    """Return what the objects of a shape consist of; None if a required property is impossible.

    `values` are those of declared properties, and of other keys that are told apart from the rest.
    """
    if any(values[name] == EMPTY_LANGUAGE for name in shape.required):
        return None
    possible = {name: value for name, value in values.items() if value != EMPTY_LANGUAGE}
    pairs = _other_pairs(values, others, layout, scope)
    least, most = shape.min_properties, shape.max_properties
    if not pairs and most is not None and most >= len(possible):
        most = None
    if least <= len(shape.required):
        least = 0
    return ObjectMembers(possible, frozenset(shape.required), shape.one_of_groups, pairs, least, most)


def _chains(shape: Object, values: dict[str, Expr]) -> list[list[str]]:
    """Return the satisfiable properties by the schema that declares them, each chain in its order."""
    possible = [name for name in values if values[name] != EMPTY_LANGUAGE]
    left = set(possible)
    chains = [[name for name in chain if name in left] for chain in shape.chains]
    return [chain for chain in chains if chain] or [possible]


def _joined(chains: list[list[str]], budget: OrderBudget) -> list[list[str]]:
    """Return the chains; the last ones are joined where they would take too many pairs to interleave."""
    count = sum(map(len, chains))
    while len(chains) > 1 and not budget.reserve_interleaving(
        math.prod(len(chain) + 1 for chain in chains) * count
    ):
        *chains, one, other = chains
        chains.append([*one, *other])
    return chains


def _other_pairs(names: Collection[str], others: Sequence[Other], layout: Layout, scope: Scope) -> list[Expr]:
    """Return a pair for each class of other keys, without the declared ones."""
    pairs = []
    for keys, value in others:
        key = EMPTY_LANGUAGE if value == EMPTY_LANGUAGE else layout.other_keys(keys, names, scope)
        if key != EMPTY_LANGUAGE:
            pairs.append(seq(scope.add("OtherKey", key), layout.colon, value))
    return pairs


class _ObjectState(NamedTuple):
    at: tuple[int, ...]  # how many properties of each chain came before
    satisfied: int  # a bit for each group
    given: int  # properties so far, as far as they are counted


class _Pair(NamedTuple):
    """A declared property that may come next, by chain and position, and the state after it."""

    chain: int
    position: int
    follower: _ObjectState


class _ObjectAutomaton:
    def __init__(
        self,
        shape: Object,
        chains: list[list[str]],
        values: dict[str, Expr],
        others: Sequence[Expr],
        bounds: tuple[int, int | None],
        layout: Layout,
        scope: Scope,
    ) -> None:
        self._chains = chains
        self._values = values
        self._others = others
        self._least, self._most = bounds
        self._counted = max(self._least, 0 if self._most is None else self._most)
        self._layout = layout
        self._scope = scope
        self._start = _ObjectState((0,) * len(chains), 0, 0)
        self._required = [[name in shape.required for name in chain] for chain in chains]
        self._ends = [
            max((i + 1 for i, needed in enumerate(row) if needed), default=0) for row in self._required
        ]
        where = {name: (c, i) for c, chain in enumerate(chains) for i, name in enumerate(chain)}
        groups = [[where[name] for name in sorted(group) if name in where] for group in shape.one_of_groups]
        self._groups = [group for group in groups if not any(self._required[c][i] for c, i in group)]
        self._all_satisfied = (1 << len(self._groups)) - 1
        self._satisfies: dict[tuple[int, int], int] = {}  # the bits of the groups that each property is in
        for bit, group in enumerate(self._groups):
            for index in group:
                self._satisfies[index] = self._satisfies.get(index, 0) | 1 << bit
        self._tries: dict[tuple[int, _ObjectState], tuple[list[_Pair], _ObjectState | None]] = {}
        self._rests: dict[_ObjectState, Expr] = {}
        self._entries: dict[_Pair, Expr] = {}
        self._later: dict[tuple[int, _ObjectState], Expr] = {}

    def expression(self) -> Expr:
        """Return the objects, and add the productions that they need."""
        if not all(self._groups):
            return EMPTY_LANGUAGE
        self._write_rests()
        alternatives = [seq(self._layout.begin_object, self._pairs(self._start))]
        if self._may_end(self._start):
            alternatives.append(self._layout.empty_object)
        return factor_prefixes(alternatives)

    def _full(self, state: _ObjectState) -> bool:
        return self._most is not None and state.given >= self._most

    def _counting(self, state: _ObjectState) -> int:
        return min(state.given + 1, self._counted)

    def _next(self, chain: int, state: _ObjectState) -> tuple[list[_Pair], _ObjectState | None]:
        """Return the properties of a chain that may come next, up to the end of a trie.

        Also returns the state from which the next trie continues, None if nothing is left.
        """
        known = self._tries.get((chain, state))
        if known is None:
            known = self._tries[chain, state] = ([], None) if self._full(state) else self._trie(chain, state)
        return known

    def _trie(self, chain: int, state: _ObjectState) -> tuple[list[_Pair], _ObjectState | None]:
        found: list[_Pair] = []
        names, start, given = self._chains[chain], state.at[chain], self._counting(state)
        before, after = state.at[:chain], state.at[chain + 1 :]
        limit = (start // _CHUNK + 1) * _CHUNK
        for index in range(start, min(limit, len(names))):
            satisfied = state.satisfied | self._satisfies.get((chain, index), 0)
            follower = _ObjectState((*before, index + 1, *after), satisfied, given)
            if all(
                satisfied & 1 << bit or any(at >= follower.at[group_chain] for group_chain, at in group)
                for bit, group in enumerate(self._groups)
            ):  # each unsatisfied group has a property that may still come
                found.append(_Pair(chain, index, follower))
            if self._required[chain][index]:
                return found, None
        return found, state._replace(at=(*before, limit, *after)) if limit < len(names) else None

    def _name(self, pair: _Pair) -> str:
        return self._chains[pair.chain][pair.position]

    def _label(self, state: _ObjectState) -> str:
        if sum(map(bool, state.at)) > 1:
            return "After " + " ".join(map(str, state.at))
        last = next((names[at - 1] for names, at in zip(self._chains, state.at, strict=True) if at), "")
        return f"After {last}" if last else "More"

    def _after_other(self, state: _ObjectState) -> _ObjectState | None:
        """Return the state after an additional property; None if none is allowed."""
        if not self._others or self._full(state):
            return None
        return state._replace(given=self._counting(state))

    def _may_end(self, state: _ObjectState) -> bool:
        return (
            state.satisfied == self._all_satisfied
            and state.given >= self._least
            and all(at >= end for at, end in zip(state.at, self._ends, strict=True))
        )

    def _write_rests(self) -> None:
        """Find the states, name the rests that are used several times, and build them from the end on."""
        uses: dict[_ObjectState, int] = {}
        entered: dict[_Pair, int] = {}
        recursive: set[_ObjectState] = set()
        pending, states = [self._start], {self._start}
        tries: set[tuple[int, _ObjectState]] = set()
        while pending:
            state = pending.pop()
            followers: list[_ObjectState] = []
            for chain in range(len(self._chains)):
                beyond: _ObjectState | None = state
                while beyond is state or (beyond is not None and (chain, beyond) not in tries):
                    if beyond is not state:
                        tries.add((chain, beyond))
                    pairs, beyond = self._next(chain, beyond)
                    for pair in pairs:
                        entered[pair] = count = entered.get(pair, 0) + 1
                        if count == 1:
                            followers.append(pair.follower)
            other = self._after_other(state)
            if other == state:
                recursive.add(state)
            elif other is not None:
                followers += [other] * len(self._others)
            for follower in followers:
                uses[follower] = uses.get(follower, 0) + 1
                if follower not in states:
                    if len(states) == MAX_GROUP_STATES and self._groups:
                        raise TooManyStatesError(MAX_GROUP_STATES)
                    states.add(follower)
                    pending.append(follower)
        into: dict[_ObjectState, list[_Pair]] = {}
        for pair in sorted(entered):
            into.setdefault(pair.follower, []).append(pair)
        for state in sorted(states, key=lambda state: (sum(state.at), state), reverse=True):
            self._rests[state] = self._rest(
                state, shared=uses.get(state, 0) > 1, recursive=state in recursive
            )
            for pair in into.get(state, ()):
                name = self._name(pair)
                entry = seq(self._layout.colon, self._values[name], self._rests[state])
                shared = entered[pair] > 1 and entry != EMPTY_LANGUAGE
                self._entries[pair] = self._scope.add(name + " Entry", entry) if shared else entry

    def _rest(self, state: _ObjectState, *, shared: bool, recursive: bool) -> Expr:
        if recursive:
            self._rests[state] = ref = self._scope.reserve(self._label(state))
            return self._scope.define(ref, self._rest_production(state))
        production = self._rest_production(state)
        if shared and isinstance(production, Seq | Alt):
            return self._scope.add(self._label(state), production)
        return production

    def _pairs(self, state: _ObjectState) -> Expr:
        """Return the pairs that may come next: some of declared properties inline, others by reference."""
        found = [pair for chain in range(len(self._chains)) for pair in self._of_chain(chain, state)]
        if (after_other := self._after_other(state)) is not None:
            found += [seq(other, self._rests[after_other]) for other in self._others]
        return factor_prefixes(found)

    def _of_chain(self, chain: int, state: _ObjectState) -> list[Expr]:
        pairs, beyond = self._next(chain, state)
        words = sorted(((self._layout.key(self._name(pair)), pair) for pair in pairs), key=itemgetter(0))
        expressions = [seq(literal(key), self._entries[pair]) for key, pair in words]
        if beyond is not None:
            if (chain, beyond) not in self._later:
                later = factor_prefixes(self._of_chain(chain, beyond))
                self._later[chain, beyond] = self._scope.add("Keys", later)
            expressions.append(self._later[chain, beyond])
        return expressions

    def _rest_production(self, state: _ObjectState) -> Expr:
        """Return what follows a value: more pairs, each after a comma, or the closing bracket."""
        more = seq(self._layout.comma, self._pairs(state))
        return self._layout.or_end(more) if self._may_end(state) else more
