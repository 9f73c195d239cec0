"""Objects as automata over their declared properties.

A state says how many declared properties lie behind and which `requires_one_of` groups are satisfied. From
each state every later property is offered up to the next one that can't be left out, all keys in one trie:
so each property comes at most once and in declared order, required ones always, and no comma dangles.
Additional properties may stand anywhere between.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor, key_except, quoted
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import NOTHING, Expr, Ref, literal, seq
from gbnf.schema.values import Object


def object_expr(
    shape: Object, values: dict[str, Expr], additional: Expr, layout: Layout, scope: Scope
) -> Expr:
    """The objects of `shape`: `values` holds an expression for each declared property, `additional` the one
    for any other (NOTHING where there is none)."""
    if any(values[name] == NOTHING for name in shape.required):
        return NOTHING
    return _Automaton(shape, values, additional, layout, scope).expression()


class _State(NamedTuple):
    behind: int  # declared properties that lie behind
    satisfied: int  # a bit for each group


_START = _State(0, 0)


class _Automaton:
    def __init__(
        self, shape: Object, values: dict[str, Expr], additional: Expr, layout: Layout, scope: Scope
    ) -> None:
        self._names = [name for name in shape.properties if values[name] != NOTHING]
        self._values = values
        self._layout = layout
        self._scope = scope
        position = {name: index for index, name in enumerate(self._names)}
        self._required = [name in shape.required for name in self._names]
        self._last_required = max(
            (index for index, needed in enumerate(self._required) if needed), default=-1
        )
        groups = [
            sorted(position[name] for name in group if name in position) for group in shape.one_of_groups
        ]
        self._groups = [group for group in groups if not any(self._required[index] for index in group)]
        self._all_satisfied = (1 << len(self._groups)) - 1
        self._satisfies = [
            sum(1 << bit for bit, group in enumerate(self._groups) if index in group)
            for index in range(len(self._names))
        ]
        self._other: Expr = NOTHING
        if additional != NOTHING:
            other_key = scope.add("OtherKey", key_except(shape.properties))
            self._other = seq(other_key, layout.colon, additional)
        self._rests: dict[_State, Expr] = {}
        self._entries: dict[_State, Expr] = {}

    def expression(self) -> Expr:
        if not all(self._groups):
            return NOTHING
        self._name_rests()
        alternatives = [seq(self._layout.begin_object, pair) for pair in self._pairs(_START)]
        if self._may_end(_START):
            alternatives.append(self._layout.empty_object)
        return factor(alternatives)

    def _next(self, state: _State) -> list[tuple[int, _State]]:
        """The properties that may come next, each with the state behind it."""
        found = []
        for index in range(state.behind, len(self._names)):
            found.append((index, _State(index + 1, state.satisfied | self._satisfies[index])))
            last_chance = any(
                group[-1] == index and not state.satisfied & 1 << bit
                for bit, group in enumerate(self._groups)
            )
            if self._required[index] or last_chance:
                break
        return found

    def _may_end(self, state: _State) -> bool:
        return state.satisfied == self._all_satisfied and state.behind > self._last_required

    def _name_rests(self) -> None:
        """Find the states, name the rests that stand in several places, and write them from the end on."""
        uses: Counter[_State] = Counter()
        pending, states = [_START], {_START}
        while pending:
            for _, follower in self._next(pending.pop()):
                uses[follower] += 1
                if follower not in states:
                    states.add(follower)
                    pending.append(follower)
        ordered = sorted(states)
        for state in ordered:
            if self._other != NOTHING or (uses[state] > 1 and state.behind < len(self._names)):
                name = f"After {self._names[state.behind - 1]}" if state.behind else "More"
                self._rests[state] = self._scope.reserve(name)
        for state in reversed(ordered):
            production = self._rest_production(state)
            named = self._rests.get(state)
            self._rests[state] = (
                self._scope.define(named, production) if isinstance(named, Ref) else production
            )
            if state.behind:
                entry = seq(
                    self._layout.colon, self._values[self._names[state.behind - 1]], self._rests[state]
                )
                shared = uses[state] > 1
                self._entries[state] = (
                    self._scope.add(self._names[state.behind - 1] + " Entry", entry) if shared else entry
                )

    def _pairs(self, state: _State) -> list[Expr]:
        pairs = [
            seq(literal(quoted(self._names[index])), self._entries[follower])
            for index, follower in self._next(state)
        ]
        if self._other != NOTHING:
            pairs.append(seq(self._other, self._rests[state]))
        return pairs

    def _rest_production(self, state: _State) -> Expr:
        """What follows a value: more pairs, each behind a comma, or the closing bracket."""
        alternatives = [seq(self._layout.comma, pair) for pair in self._pairs(state)]
        if self._may_end(state):
            alternatives.append(self._layout.end_object)
        return factor(alternatives)
