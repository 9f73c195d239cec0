"""Properties in any order.

Exactly, that takes a state for each set of properties that came before. Small objects have them. Larger ones
have them for their required properties only, and count the others as far as that is needed: an optional
property may then come twice. Where even the required ones are too many, they are counted too: all are present
exactly if as many came as there are, unless one came twice. So no order is refused, and what is accepted
beyond has a duplicate key.

Objects of several shapes, the alternatives of a union, are one automaton where that is small: its state also
is the set of shapes that what came before belongs to. Each shape by itself would be a stack of llama.cpp's
engine until the object ends, and recursive ones multiply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from os.path import commonprefix
from typing import NamedTuple

from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, Alt, Expr, Ref, Seq, alt, literal, seq
from gbnf.work_limits import TooManyStatesError

#: The most pairs of an object, over all states, with which properties are told apart or bounded in number.
MAX_EXACT_PAIRS = 200
#: The most pairs of all such objects of a schema.
MAX_ANY_ORDER_PAIRS = 3_000
#: The most states of an object that counts its properties.
MAX_COUNTING_STATES = 2000
#: The most required properties of several shapes as one automaton; its most states, and those in a schema.
MAX_JOINT_REQUIRED = 10
MAX_JOINT_STATES = 2000
MAX_ALL_JOINT_STATES = 8000
#: The most pairs that interleaving may take, estimated from above: of one object, and of all in a schema.
MAX_PAIRS = 1500
MAX_INTERLEAVED_PAIRS = 30_000
#: What is accepted though it is not allowed, where properties are counted.
DUPLICATES_COUNT = "properties in any order: one that is given twice counts twice"
DUPLICATES = "properties in any order: one may be given twice"


class OrderBudget:
    """The pairs that the objects of a schema may still take to allow more than one order.

    `any_order`: whether more than the interleaving of chains is wanted.
    """

    def __init__(self, *, any_order: bool) -> None:
        self.any_order = any_order
        self._any_order_left = MAX_ANY_ORDER_PAIRS
        self._interleaving_left = MAX_INTERLEAVED_PAIRS
        self.joint_states_left = MAX_ALL_JOINT_STATES

    def reserve_any_order(self, pairs: int) -> bool:
        """Take `pairs` for any order of an object; return whether possible."""
        if pairs > min(MAX_EXACT_PAIRS, self._any_order_left):
            return False
        self._any_order_left -= pairs
        return True

    def reserve_interleaving(self, pairs: int) -> bool:
        """Take `pairs` to interleave the chains of an object; return whether possible."""
        if pairs > min(MAX_PAIRS, self._interleaving_left):
            return False
        self._interleaving_left -= pairs
        return True


class ObjectMembers(NamedTuple):
    """What the objects of one shape consist of.

    `values`: expressions by name, none of them empty. `groups`: sets of names of which each must have one
    present. `others`: pairs of other keys and values. `least` and `most`: how many properties (None: any
    number).
    """

    values: Mapping[str, Expr]
    required: frozenset[str]
    groups: Sequence[frozenset[str]] = ()
    others: Sequence[Expr] = ()
    least: int = 0
    most: int | None = None

    @property
    def decisive(self) -> frozenset[str]:
        """The properties that decide whether an object may end: those required, alone or in a group."""
        return self.required.union(*self.groups).intersection(self.values)


class ObjectExpr(NamedTuple):
    """An object's expression, and each keyword that it doesn't enforce, with the reason."""

    expr: Expr
    loosened: tuple[tuple[str, str], ...] = ()


def any_order_expr(members: ObjectMembers, layout: Layout, scope: Scope, budget: OrderBudget) -> ObjectExpr:
    """Return the objects of one shape, with their properties in any order."""
    loosened: list[tuple[str, str]] = []
    while True:
        exact, rest_most = _told_apart(members, budget)
        bounds = [("minProperties", members.least), ("maxProperties", members.most is not None)]
        limit = MAX_COUNTING_STATES if members.groups or any(is_bound for _, is_bound in bounds) else None
        try:
            expr = _Automaton((members,), exact, rest_most, limit, layout, scope).expression()
        except TooManyStatesError:
            if any(is_bound for _, is_bound in bounds):
                loosened += [(keyword, _TOO_MANY) for keyword, is_bound in bounds if is_bound]
                members = members._replace(least=0, most=None)
            else:
                loosened.append(("requires_one_of", _TOO_MANY))
                members = members._replace(groups=())
        else:
            break
    if len(exact) < len(members.values):
        loosened.append(("properties", DUPLICATES))
        counted = {"required": not members.required <= exact, "minProperties": members.least > 0}
        loosened += [(keyword, DUPLICATES_COUNT) for keyword, is_counted in counted.items() if is_counted]
    elif members.least > 1 and members.others:
        loosened.append(("minProperties", "an additional property given twice counts twice"))
    return ObjectExpr(expr, tuple(loosened))


_TOO_MANY = "it makes too many states"


def joint_expr(
    shapes: Sequence[ObjectMembers], layout: Layout, scope: Scope, budget: OrderBudget
) -> ObjectExpr | None:
    """Return the objects of several shapes as one automaton; None where it would be too large.

    The shapes have the same names in `values`, apart from those that are impossible, and no bounds.
    """
    names = frozenset[str]().union(*(members.values for members in shapes))
    exact = frozenset[str]().union(*(members.decisive for members in shapes))
    if len(exact) > MAX_JOINT_REQUIRED:
        return None
    if exact < names and budget.reserve_any_order((len(names) << len(names)) // 2):
        exact = names
    most = min(MAX_JOINT_STATES, budget.joint_states_left)
    automaton = _Automaton(shapes, exact, None, most, layout, scope)
    try:
        expr = automaton.expression()
    except TooManyStatesError:
        return None
    budget.joint_states_left -= automaton.states
    return ObjectExpr(expr, (("properties", DUPLICATES),) if exact < names else ())


def _told_apart(members: ObjectMembers, budget: OrderBudget) -> tuple[frozenset[str], int | None]:
    """Return the properties of which each comes at most once, and how many of the others may come at most.

    None: any number.
    """
    names, decisive = frozenset(members.values), members.decisive
    counts = max(members.least, members.most or 0) - len(members.required)
    for exact in dict.fromkeys([names, decisive, frozenset[str]()]):
        rest = names - exact
        optional = len(rest - members.required)
        for most in dict.fromkeys([None if members.others else optional, None]):
            states = (len(rest & members.required) + 1) * ((most or 0) + 1) * (max(counts, 0) + 1)
            pairs = (states << len(exact)) * (len(exact) + 2 * bool(rest)) // 2
            if budget.reserve_any_order(pairs):
                return exact, most if optional else None
    return frozenset(), None


class _Class(NamedTuple):
    """Properties that lead from a state to the same next one.

    `bit`: of a property that comes once; 0 for others. `shapes`: a bit for each shape that has them.
    `satisfies`: a bit for each group. `is_declared`: its pairs begin with the automaton's common prefix.
    """

    pair: Expr
    bit: int
    shapes: int
    is_required: bool
    satisfies: int
    is_declared: bool


class _OrderState(NamedTuple):
    """What came before, as far as it matters.

    `given`: the properties that come once. `required`: how many of the other required ones. `optional`: how
    many optional ones, as far as bounds count them. `rest`: how many of the declared ones that may come
    twice. `satisfied`: the groups. `shapes`: those that are still possible.
    """

    given: int
    required: int
    optional: int
    rest: int
    satisfied: int
    shapes: int


class _Node(NamedTuple):
    """A state: whether the object may end, and its steps, each a class and the node after it, by index."""

    may_end: bool
    steps: tuple[tuple[int, int], ...]


@lru_cache(maxsize=256)
def _subsets(count: int, needed: int, others: int) -> tuple[_Node, ...]:
    """Return the nodes of an object that has each of `count` properties at most once.

    `needed`: a bit for each required one. `others`: how many classes of other keys there are.
    """
    order = sorted(range(1 << count), key=lambda given: (given.bit_count(), given))
    numbers = {given: number for number, given in enumerate(order)}
    nodes = []
    for number, given in enumerate(order):
        steps = [(at, numbers[given | 1 << at]) for at in range(count) if not given >> at & 1]
        steps += [(count + at, number) for at in range(others)]
        nodes.append(_Node(not needed & ~given, tuple(steps)))
    return tuple(nodes)


class _Automaton:
    """The objects of some shapes in any order; of several shapes, each of `decisive` is among `exact`.

    The properties in `exact` come at most once, those declared beside them at most `rest_most` times.
    """

    def __init__(
        self,
        shapes: Sequence[ObjectMembers],
        exact: frozenset[str],
        rest_most: int | None,
        max_states: int | None,
        layout: Layout,
        scope: Scope,
    ) -> None:
        self._layout, self._scope, self._max_states = layout, scope, max_states
        self._rest_most = rest_most
        names = list(dict.fromkeys(name for members in shapes for name in members.values))
        self._bits = {name: 1 << at for at, name in enumerate(name for name in names if name in exact)}
        self._needed = [sum(self._bits.get(name, 0) for name in members.required) for members in shapes]
        only = shapes[0]
        self._required = len(only.required - exact)
        self._least = max(only.least - len(only.required), 0)
        self._most = None if only.most is None else only.most - len(only.required)
        self._counted = max(self._least, self._most or 0)
        self._groups = [
            [group for group in members.groups if not group & members.required] for members in shapes
        ]
        self._all_satisfied = (1 << len(self._groups[0])) - 1
        keys = [layout.key(name) for name in names]
        self._prefix = commonprefix(keys)  # noqa: RUF071  # these are no paths
        self._classes = list(self._make_classes(shapes, names))
        self._included = list(self._make_included(shapes, names)) if len(shapes) > 1 else []
        self._known_distinct: dict[tuple[int, int], int] = {}
        #: Whether a state is nothing but the set of the properties that came before.
        self._is_plain = (
            len(shapes) == 1
            and exact >= set(names)
            and not self._groups[0]
            and not self._counted
            and self._most is None
        )
        #: How many states the objects took.
        self.states = 0

    def _make_classes(self, shapes: Sequence[ObjectMembers], names: Sequence[str]) -> Iterator[_Class]:
        words: dict[tuple[int, int, bool, int], list[tuple[str, Expr]]] = {}
        labels: dict[int, str] = {}
        for name in names:
            bit = self._bits.get(name, 0)
            labels[bit] = name if bit else "Rest"
            having: dict[Expr, int] = {}
            for at, members in enumerate(shapes):
                if name in members.values:
                    value = members.values[name]
                    having[value] = having.get(value, 0) | 1 << at
            is_required = name in shapes[0].required
            satisfies = sum(1 << at for at, group in enumerate(self._groups[0]) if name in group)
            for value, mask in having.items():
                word = (self._layout.key(name)[len(self._prefix) :], seq(self._layout.colon, value))
                key = (bit, mask, is_required, satisfies if len(shapes) == 1 else 0)
                words.setdefault(key, []).append(word)
        for (bit, mask, is_required, satisfies), members_of_class in words.items():
            ordered = sorted(members_of_class, key=itemgetter(0))
            pairs = factor_prefixes([seq(literal(word), rest) for word, rest in ordered])
            pair = self._scope.add(f"{labels[bit]} Pair", pairs)
            yield _Class(pair, bit, mask, is_required, satisfies, is_declared=True)
        others: dict[Expr, int] = {}
        for at, members in enumerate(shapes):
            for other in members.others:
                others[other] = others.get(other, 0) | 1 << at
        for other, mask in others.items():
            yield _Class(other, 0, mask, is_required=False, satisfies=0, is_declared=False)

    def _make_included(
        self, shapes: Sequence[ObjectMembers], names: Sequence[str]
    ) -> Iterator[list[tuple[int, int]]]:
        """Yield for each shape others, each with the properties of which all must have come.

        When they have, all that the shape still allows is allowed by the other, which is a bit.
        """
        others = [frozenset(members.others) for members in shapes]
        rows = [[members.values.get(name) for name in names] for members in shapes]
        bits = [self._bits.get(name, 0) for name in names]
        for at, row in enumerate(rows):
            found = []
            for other_at, other in enumerate(rows):
                if at == other_at or shapes[other_at].groups or not others[at] <= others[other_at]:
                    continue
                unlike = [
                    bit
                    for bit, value, accepted in zip(bits, row, other, strict=True)
                    if value is not None and value is not accepted and value != accepted
                ]
                if all(unlike):
                    needed = sum(unlike) | self._needed[other_at] & ~self._needed[at]
                    found.append((1 << other_at, needed))
            yield found

    def _distinct(self, given: int, shapes: int) -> int:
        """Return the shapes without those of which all that is still allowed is allowed by another."""
        known = self._known_distinct.get((given, shapes))
        if known is None:
            known = shapes
            for at, others in enumerate(self._included):
                if known >> at & 1 and any(known & other and not needed & ~given for other, needed in others):
                    known &= ~(1 << at)
            self._known_distinct[given, shapes] = known
        return known

    def expression(self) -> Expr:
        """Return the objects, and add the productions that they need. Raises TooManyStatesError."""
        if self._most is not None and self._most < 0:
            return EMPTY_LANGUAGE
        nodes = self._nodes()
        self.states = len(nodes)
        layout, refs = self._layout, self._scope.reserve_many("More", len(nodes))
        rests = [
            ref if node.steps else layout.end_object if node.may_end else EMPTY_LANGUAGE
            for node, ref in zip(nodes, refs, strict=True)
        ]
        for node, ref in zip(reversed(nodes), reversed(refs), strict=True):
            if node.steps:
                more = seq(layout.comma, self._pairs(node, rests))
                self._scope.define(ref, layout.or_end(more) if node.may_end else more)
        alternatives = [seq(layout.begin_object, self._pairs(nodes[0], rests))]
        if nodes[0].may_end:
            alternatives.append(layout.empty_object)
        return factor_prefixes(alternatives)

    def _pairs(self, node: _Node, rests: Sequence[Expr]) -> Expr:
        """Return the pairs that may come next, each a rule, and what follows them."""
        declared: list[Expr] = []
        others: list[Expr] = []
        for at, follower in node.steps:
            kind, rest = self._classes[at], rests[follower]
            if rest is EMPTY_LANGUAGE:
                continue
            if kind.is_declared:
                declared.append(Seq((kind.pair, rest)) if type(rest) is Ref else seq(kind.pair, rest))
            else:
                others.append(seq(kind.pair, rest))
        if declared:
            together = declared[0] if len(declared) == 1 else Alt(tuple(declared))
            others.insert(0, seq(literal(self._prefix), together))
        return others[0] if len(others) == 1 else alt(*others)

    def _nodes(self) -> Sequence[_Node]:
        """Return the states as nodes, the start first. Raises TooManyStatesError."""
        bits = len(self._bits)
        if self._is_plain:
            return _subsets(bits, self._needed[0], len(self._classes) - bits)
        start = _OrderState(0, 0, 0, 0, 0, (1 << len(self._needed)) - 1)
        steps = self._reachable(start)
        others = sorted(steps.keys() - {start}, key=lambda state: (state.given.bit_count(), state))
        numbers = {state: number for number, state in enumerate([start, *others])}
        return [
            _Node(self._may_end(state), tuple([(at, numbers[follower]) for at, follower in steps[state]]))
            for state in numbers
        ]

    def _reachable(self, start: _OrderState) -> dict[_OrderState, list[tuple[int, _OrderState]]]:
        """Return the steps of each state."""
        found: dict[_OrderState, list[tuple[int, _OrderState]]] = {start: []}
        pending = [start]
        while pending:
            state = pending.pop()
            found[state] = list(self._steps(state))
            for _, follower in found[state]:
                if follower not in found:
                    if self._max_states is not None and len(found) > self._max_states:
                        raise TooManyStatesError(self._max_states)
                    found[follower] = []
                    pending.append(follower)
        return found

    def _steps(self, state: _OrderState) -> Iterator[tuple[int, _OrderState]]:
        """Yield each class whose properties may come next, by index, and the state after them."""
        given, required, optional, rest, satisfied, shapes = state
        for at, kind in enumerate(self._classes):
            left = shapes & kind.shapes
            if not left or given & kind.bit:
                continue
            if left & left - 1:
                left = self._distinct(given | kind.bit, left)
            counts = optional
            if kind.is_required:
                if not kind.bit and required == self._required:
                    continue
            elif self._most is not None and optional >= self._most:
                continue
            else:
                counts = min(optional + 1, self._counted)
            is_rest = kind.is_declared and not kind.bit and not kind.is_required
            if is_rest and self._rest_most is not None and rest == self._rest_most:
                continue
            follower = _OrderState(
                given | kind.bit,
                required + (kind.is_required and not kind.bit),
                counts,
                rest + (is_rest and self._rest_most is not None),
                satisfied | kind.satisfies,
                left,
            )
            yield at, follower

    def _may_end(self, state: _OrderState) -> bool:
        if len(self._needed) > 1:
            return any(
                state.shapes & 1 << at and not needed & ~state.given and self._has_groups(at, state.given)
                for at, needed in enumerate(self._needed)
            )
        return (
            not self._needed[0] & ~state.given
            and state.required == self._required
            and state.optional >= self._least
            and state.satisfied == self._all_satisfied
        )

    def _has_groups(self, at: int, given: int) -> bool:
        return all(any(given & self._bits.get(name, 0) for name in group) for group in self._groups[at])
