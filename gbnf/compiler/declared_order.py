"""Objects whose properties form one chain and come in its order: the usual case, compiled in one pass.

A state is how many properties came before. What follows a required property is inline; the other states, to
which several lead, are rules. `gbnf.compiler.objects` has the general automaton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Literal, alt, seq

#: The most declared properties in one trie.
CHUNK = 16


class DeclaredOrder:
    """The objects of the properties `names`, of which `required` are always present.

    `values` are expressions by name, none of them empty; `others` are pairs of key and value that may come
    anywhere in between.
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
        self._names = names
        self._keys = [layout.key(name) for name in names]
        self._values = values
        self._others = others
        self._layout = layout
        self._scope = scope
        # Those that may come next end with the first that must.
        self._stops = [len(names)] * (len(names) + 1)
        self._may_end = [True] * (len(names) + 1)
        for index in reversed(range(len(names))):
            needed = names[index] in required
            self._stops[index] = index + 1 if needed else self._stops[index + 1]
            self._may_end[index] = not needed and self._may_end[index + 1]
        self._entries: list[Expr] = [EMPTY_LANGUAGE] * len(names)
        self._later: dict[int, Expr] = {}

    def expression(self) -> Expr:
        """Return the objects, and add the productions that they need."""
        count, layout = len(self._names), self._layout
        first_of_run = 0
        firsts = []  # of each property, the first state from which it may come next
        for index in range(count):
            firsts.append(first_of_run)
            if self._stops[index] == index + 1:
                first_of_run = index + 1
        for state in range(count, 0, -1):
            rest, name = self._rest(state), self._names[state - 1]
            entry = seq(layout.colon, self._values[name], rest)
            shared = firsts[state - 1] < state - 1
            self._entries[state - 1] = self._scope.add(name + " Entry", entry) if shared else entry
        begun = self._pairs(0, self._rest(0) if self._others else EMPTY_LANGUAGE)
        alternatives = [seq(layout.begin_object, begun)]
        if self._may_end[0]:
            alternatives.append(layout.empty_object)
        return factor_prefixes(alternatives)

    def _rest(self, state: int) -> Expr:
        """Return what follows a value: more pairs, each after a comma, or the closing bracket."""
        if not self._others:
            return self._production(state, EMPTY_LANGUAGE)
        label = f"After {self._names[state - 1]}" if state else "More"
        ref = self._scope.reserve(label)
        return self._scope.define(ref, self._production(state, ref))

    def _production(self, state: int, rest: Expr) -> Expr:
        pairs = self._pairs(state, rest)
        if pairs == EMPTY_LANGUAGE:
            return self._layout.end_object if self._may_end[state] else EMPTY_LANGUAGE
        more = seq(self._layout.comma, pairs)
        return self._layout.or_end(more) if self._may_end[state] else more

    def _pairs(self, state: int, rest: Expr) -> Expr:
        """Return the pairs that may come next; `rest` follows additional ones."""
        return alt(self._declared(state), *[seq(other, rest) for other in self._others])

    def _declared(self, state: int) -> Expr:
        """Return the declared properties that may come next: some inline, the others by reference."""
        stop = self._stops[state]
        limit = min((state // CHUNK + 1) * CHUNK, stop)
        words = sorted(
            zip(self._keys[state:limit], self._entries[state:limit], strict=True), key=itemgetter(0)
        )
        near = factor_prefixes([seq(Literal(key), entry) for key, entry in words])
        if limit == stop:
            return near
        if limit not in self._later:
            self._later[limit] = self._scope.add("Keys", self._declared(limit))
        return alt(near, self._later[limit])
