"""Objects as automata over their properties.

A state says which declared properties lie behind, which `requires_one_of` groups are satisfied and how many
properties there were (as far as a bound on their number asks). From each state every later property is
offered up to the next one that can't be left out, all keys in one trie: so each property comes at most once
and in declared order, required ones always, and no comma dangles. Other properties may stand anywhere
between, and so may required ones that nobody declares. In any order, all may; each set of those that lie
behind is then a state of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor, key_except, quoted
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import NOTHING, Alt, Expr, Seq, literal, seq
from gbnf.regular.automaton import Dfa
from gbnf.regular.errors import TooManyStates
from gbnf.schema.values import Object

#: The most states of one object; beyond, bounds on the number of properties are loosened.
MAX_STATES = 1000
#: The most declared properties that may come in any order: each set of them is a state.
MAX_ANY_ORDER = 8

#: The most properties that may come at any time beside those in declared order.
MAX_UNORDERED = 4

#: How many declared properties are offered in one trie.
CHUNK = 16

#: The keys of a class of other properties (None: every key), and an expression for what stands under them.
Other = tuple["Dfa | None", Expr]


class BuiltObject(NamedTuple):
    """An object's expression, and each keyword that it doesn't hold, with the reason."""

    expr: Expr
    loosened: tuple[tuple[str, str], ...] = ()


def object_expr(
    shape: Object,
    values: dict[str, Expr],
    others: Sequence[Other],
    layout: Layout,
    scope: Scope,
    *,
    any_order: bool = False,
) -> BuiltObject:
    """The objects of `shape`: `values` holds an expression for each declared property.

    `any_order`: declared properties may come in any order, where they are at most `MAX_ANY_ORDER`.
    """
    if any(values[name] == NOTHING for name in shape.required):
        return BuiltObject(NOTHING)
    loosened: list[tuple[str, str]] = []
    pairs = _other_pairs(shape, others, layout, scope)
    declared = sum(value != NOTHING for value in values.values())
    least, most = shape.min_properties, shape.max_properties
    if not pairs and most is not None and most >= declared:
        most = None
    if least <= len(shape.required):
        least = 0
    counted = max(least, most or 0)
    free = _free_names(shape, values, any_order=any_order)
    names = [name for name in values if values[name] != NOTHING and name not in free]
    ordered = len(names)
    names += free
    if counted * (ordered + 1 << len(free)) > MAX_STATES:
        keyword = "minProperties" if least > (most or 0) else "maxProperties"
        loosened.append((keyword, "it makes too many states"))
        least, most = 0, None
    elif least > 1 and pairs:
        loosened.append(("minProperties", "an additional property given twice counts twice"))
    expr = _Automaton(shape, names, ordered, values, pairs, (least, most), layout, scope).expression()
    return BuiltObject(expr, tuple(loosened))


def _free_names(shape: Object, values: dict[str, Expr], *, any_order: bool) -> list[str]:
    """The properties that may come at any time: those without a place in the declaration, or all, if few."""
    possible = [name for name in values if values[name] != NOTHING]
    if any_order and len(possible) <= MAX_ANY_ORDER:
        return possible
    unordered = [name for name in possible if name in shape.unordered]
    return unordered if len(unordered) <= MAX_UNORDERED else []


def _other_pairs(shape: Object, others: Sequence[Other], layout: Layout, scope: Scope) -> list[Expr]:
    """A pair for each class of other keys, the declared ones taken out."""
    pairs = []
    for keys, value in others:
        if value == NOTHING:
            continue
        if keys is None:
            key = key_except(shape.properties, scope)
        else:
            from gbnf.regular.lower import string_expr  # noqa: PLC0415  # most objects have no patterns

            try:
                named = keys - Dfa.of_words(shape.properties) if shape.properties else keys
            except TooManyStates:
                named = keys
            if named.is_empty:
                continue
            key = string_expr(named, scope.inside("Key"))
        pairs.append(seq(scope.add("OtherKey", key), layout.colon, value))
    return pairs


class _State(NamedTuple):
    behind: int  # how many ordered properties lie behind
    seen: int  # a bit for each free property that does
    satisfied: int  # a bit for each group
    given: int  # properties so far, as far as they are counted


class _Pair(NamedTuple):
    """A declared property that may come, by its place in the automaton, and the state behind it."""

    place: int
    follower: _State


_START = _State(0, 0, 0, 0)


class _Automaton:
    """`names` holds the properties: the first `ordered` of them in that order, the others at any time."""

    def __init__(
        self,
        shape: Object,
        names: list[str],
        ordered: int,
        values: dict[str, Expr],
        others: Sequence[Expr],
        bounds: tuple[int, int | None],
        layout: Layout,
        scope: Scope,
    ) -> None:
        self._names = names
        self._ordered = ordered
        self._values = values
        self._others = others
        self._least, self._most = bounds
        self._counted = max(self._least, 0 if self._most is None else self._most)
        self._layout = layout
        self._scope = scope
        position = {name: index for index, name in enumerate(self._names)}
        self._required = [name in shape.required for name in self._names]
        self._last_required = max(
            (i for i, needed in enumerate(self._required[:ordered]) if needed), default=-1
        )
        self._needed = sum(1 << bit for bit, needed in enumerate(self._required[ordered:]) if needed)
        groups = [
            sorted(position[name] for name in group if name in position) for group in shape.one_of_groups
        ]
        self._groups = [group for group in groups if not any(self._required[index] for index in group)]
        self._all_satisfied = (1 << len(self._groups)) - 1
        self._satisfies = [
            sum(1 << bit for bit, group in enumerate(self._groups) if index in group)
            for index in range(len(self._names))
        ]
        self._rests: dict[_State, Expr] = {}
        self._entries: dict[_Pair, Expr] = {}
        self._later: dict[_State, Expr] = {}

    def expression(self) -> Expr:
        if not all(self._groups):
            return NOTHING
        self._write_rests()
        alternatives = [seq(self._layout.begin_object, pair) for pair in self._pairs(_START)]
        if self._may_end(_START):
            alternatives.append(self._layout.empty_object)
        return factor(alternatives)

    def _full(self, state: _State) -> bool:
        return self._most is not None and state.given >= self._most

    def _counting(self, state: _State) -> int:
        return min(state.given + 1, self._counted)

    def _next(self, state: _State) -> list[_Pair]:
        """The declared properties that may come next."""
        if self._full(state):
            return []
        found = []
        for index in range(state.behind, self._ordered):
            found.append(_Pair(index, self._follower(state._replace(behind=index + 1), index)))
            if self._required[index] or self._last_chance(state, index):
                break
        for index in range(self._ordered, len(self._names)):
            bit = 1 << index - self._ordered
            if not state.seen & bit:
                found.append(_Pair(index, self._follower(state._replace(seen=state.seen | bit), index)))
        return found

    def _last_chance(self, state: _State, index: int) -> bool:
        """Whether a group that is not satisfied has no later property than this one."""
        return any(
            group[-1] == index and not state.satisfied & 1 << bit for bit, group in enumerate(self._groups)
        )

    def _follower(self, state: _State, index: int) -> _State:
        return state._replace(satisfied=state.satisfied | self._satisfies[index], given=self._counting(state))

    def _label(self, state: _State) -> str:
        last = f"After {self._names[state.behind - 1]}" if state.behind else "More"
        return f"{last} {state.seen}" if state.seen else last

    def _after_other(self, state: _State) -> _State | None:
        """The state behind an additional property; None where there may be none."""
        if not self._others or self._full(state):
            return None
        return state._replace(given=self._counting(state))

    def _may_end(self, state: _State) -> bool:
        return (
            state.satisfied == self._all_satisfied
            and state.given >= self._least
            and state.behind > self._last_required
            and state.seen & self._needed == self._needed
        )

    def _write_rests(self) -> None:
        """Find the states, name the rests that stand in several places, and write them from the end on."""
        uses: Counter[_State] = Counter()
        entered: Counter[_Pair] = Counter()
        recursive: set[_State] = set()
        pending, states = [_START], {_START}
        while pending:
            state = pending.pop()
            pairs = self._next(state)
            entered.update(pairs)
            followers = [pair.follower for pair in pairs]
            other = self._after_other(state)
            if other == state:
                recursive.add(state)
            elif other is not None:
                followers += [other] * len(self._others)
            for follower in followers:
                uses[follower] += 1
                if follower not in states:
                    states.add(follower)
                    pending.append(follower)
        into: dict[_State, list[_Pair]] = {}
        for pair in sorted(entered):
            into.setdefault(pair.follower, []).append(pair)
        for state in sorted(
            states, key=lambda state: (state.behind, state.seen, state.given, state.satisfied), reverse=True
        ):
            self._rests[state] = self._rest(state, shared=uses[state] > 1, recursive=state in recursive)
            for pair in into.get(state, ()):
                name = self._names[pair.place]
                entry = seq(self._layout.colon, self._values[name], self._rests[state])
                shared = entered[pair] > 1 and entry != NOTHING
                self._entries[pair] = self._scope.add(name + " Entry", entry) if shared else entry

    def _rest(self, state: _State, *, shared: bool, recursive: bool) -> Expr:
        if recursive:
            self._rests[state] = ref = self._scope.reserve(self._label(state))
            return self._scope.define(ref, self._rest_production(state))
        production = self._rest_production(state)
        if shared and isinstance(production, Seq | Alt):
            return self._scope.add(self._label(state), production)
        return production

    def _pairs(self, state: _State) -> list[Expr]:
        after_other = self._after_other(state)
        others = (
            [] if after_other is None else [seq(other, self._rests[after_other]) for other in self._others]
        )
        return [pair for pair in (*self._declared(state), *others) if pair != NOTHING]

    def _declared(self, state: _State) -> list[Expr]:
        """The declared properties that may come next: a few, and by reference those of the following ones."""
        pairs = self._next(state)
        free = [self._keyed(pair) for pair in pairs if pair.place >= self._ordered]
        return [*self._in_order(state, [pair for pair in pairs if pair.place < self._ordered]), *free]

    def _in_order(self, state: _State, pairs: list[_Pair]) -> list[Expr]:
        limit = (state.behind // CHUNK + 1) * CHUNK
        near = [pair for pair in pairs if pair.place < limit]
        expressions = [self._keyed(pair) for pair in near]
        if len(near) < len(pairs):
            boundary = state._replace(behind=limit)
            if boundary not in self._later:
                later = self._in_order(boundary, pairs[len(near) :])
                self._later[boundary] = self._scope.add("Keys", factor(later))
            expressions.append(self._later[boundary])
        return expressions

    def _keyed(self, pair: _Pair) -> Expr:
        return seq(literal(quoted(self._names[pair.place])), self._entries[pair])

    def _rest_production(self, state: _State) -> Expr:
        """What follows a value: more pairs, each behind a comma, or the closing bracket."""
        alternatives = [seq(self._layout.comma, pair) for pair in self._pairs(state)]
        if self._may_end(state):
            alternatives.append(self._layout.end_object)
        return factor(alternatives)
