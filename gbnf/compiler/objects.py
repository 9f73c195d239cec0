"""Objects with their properties in declared order or in any.

In declared order, the properties that one schema declares are a chain: they come in its order. Chains
interleave freely.

In any order, exactly, that takes a state for each set of properties that came before. Small objects have
them. Larger ones have them for their required properties only, and count the others as far as that is needed:
an optional property may then come twice. Where even the required ones are too many, for one object or for the
budget of the schema, these come in declared order, those of different schemas interleaved, with the others
anywhere between them. So a required property is never missing and never comes twice.

Objects of several shapes, the alternatives of a union, are one automaton where that is small. Each shape by
itself would be a stack of llama.cpp's engine until the object ends, and recursive ones multiply.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gbnf.compiler.layout import Layout
from gbnf.compiler.property_automaton import ObjectMembers, Occurrence, PropertyAutomaton
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, seq
from gbnf.regular.automaton import Dfa
from gbnf.schema.value_sets import Object
from gbnf.work_limits import TooManyStatesError

#: The most pairs of an object, over all states, with which properties are told apart or bounded in number.
MAX_EXACT_PAIRS = 200
#: The same where only the required properties are told apart.
MAX_REQUIRED_PAIRS = 1300
#: The most pairs of all such objects of a schema; beyond, an object may still take a few.
MAX_ANY_ORDER_PAIRS = 3_000
FREE_PAIRS = 40
#: The most states of an object that counts its properties, or in which some are alternatives.
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
_TOO_MANY = "it makes too many states"

#: The keys of a class of other properties (None: every key), and an expression for their values.
Other = tuple["Dfa | None", Expr]


class OrderBudget:
    """The pairs that the objects of a schema may still take to allow more than one order.

    `any_order`: whether more than the interleaving of chains is wanted.
    """

    def __init__(self, *, any_order: bool) -> None:
        self.any_order = any_order
        self._any_order_left = MAX_ANY_ORDER_PAIRS
        self._interleaving_left = MAX_INTERLEAVED_PAIRS
        self.joint_states_left = MAX_ALL_JOINT_STATES
        #: The rules that any order took beyond the declared one.
        self.rules = 0

    def reserve_any_order(self, pairs: int, most: int = MAX_EXACT_PAIRS) -> bool:
        """Take `pairs` for any order of an object, which may take `most`; return whether possible."""
        if pairs > min(most, max(self._any_order_left, FREE_PAIRS)):
            return False
        self._any_order_left = max(self._any_order_left - pairs, 0)
        return True

    def reserve_interleaving(self, pairs: int) -> bool:
        """Take `pairs` to interleave the chains of an object; return whether possible."""
        if pairs > min(MAX_PAIRS, self._interleaving_left):
            return False
        self._interleaving_left -= pairs
        return True


class ObjectExpr(NamedTuple):
    """An object's expression, and each keyword that it doesn't enforce, with the reason."""

    expr: Expr
    loosened: tuple[tuple[str, str], ...] = ()


def object_expr(
    shape: Object,
    values: Mapping[str, Expr],
    others: Sequence[Other],
    layout: Layout,
    scope: Scope,
    budget: OrderBudget,
) -> ObjectExpr:
    """Return the objects of `shape`, with `values` as the expressions of declared properties."""
    members = members_of(shape, values, others, layout, scope)
    if members is None:
        return ObjectExpr(EMPTY_LANGUAGE)
    chains = _chains(shape, members)
    if budget.any_order and len(members.values) > 1:
        return members_expr(members, layout, scope, budget, declared=chains)
    return members_expr(members, layout, scope, budget, _joined(chains, budget))


def members_expr(
    members: ObjectMembers,
    layout: Layout,
    scope: Scope,
    budget: OrderBudget,
    chains: Sequence[Sequence[str]] | None = None,
    declared: Sequence[Sequence[str]] = (),
) -> ObjectExpr:
    """Return the objects of one shape, with their properties in the order of chains, or in any.

    `declared`: the chains of those that come in declared order where any order takes too much.
    """
    before = len(scope.table.productions)
    loosened: list[tuple[str, str]] = []
    while True:
        order = (
            _any_order(members, budget, declared)
            if chains is None
            else Occurrence(frozenset(members.values), chains=chains)
        )
        is_bound = bool(members.least) or members.most is not None
        limit = MAX_COUNTING_STATES if members.groups or is_bound else None
        try:
            expr = PropertyAutomaton((members,), order, limit, layout, scope).expression()
        except TooManyStatesError:
            if is_bound:
                loosened += [("minProperties", _TOO_MANY)] if members.least else []
                loosened += [("maxProperties", _TOO_MANY)] if members.most is not None else []
                members = members._replace(least=0, most=None)
            else:
                loosened.append(("requires_one_of", _TOO_MANY))
                members = members._replace(groups=())
        else:
            break
    if chains is None:
        budget.rules += max(len(scope.table.productions) - before - 2 * len(members.values), 0)
    if len(order.exact) < len(members.values):
        loosened.append(("properties", DUPLICATES))
        if members.least:
            loosened.append(("minProperties", DUPLICATES_COUNT))
    elif members.least > 1 and members.others:
        loosened.append(("minProperties", "an additional property given twice counts twice"))
    return ObjectExpr(expr, tuple(loosened))


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
    before = len(scope.table.productions)
    try:
        automaton = PropertyAutomaton(shapes, Occurrence(exact), most, layout, scope)
    except TooManyStatesError:
        return None
    expr = automaton.expression()
    budget.joint_states_left -= automaton.states
    budget.rules += len(scope.table.productions) - before
    return ObjectExpr(expr, (("properties", DUPLICATES),) if exact < names else ())


def _any_order(members: ObjectMembers, budget: OrderBudget, declared: Sequence[Sequence[str]]) -> Occurrence:
    """Return which properties come at most once, as many as the budget allows, and the order of these."""
    names, required = frozenset(members.values), members.required
    counts = max(members.least, members.most or 0) - len(members.required)
    for exact in dict.fromkeys([names, members.decisive, required]):
        limit = MAX_REQUIRED_PAIRS if exact <= members.decisive else MAX_EXACT_PAIRS
        optional = len(names - exact)
        for most in dict.fromkeys([None if members.others else optional, None]):
            states = ((most or 0) + 1) * (max(counts, 0) + 1)
            pairs = (states << len(exact)) * (len(exact) + 2 * bool(optional)) // 2
            if budget.reserve_any_order(pairs, limit):
                return Occurrence(exact, most if optional else None)
    chains = [[name for name in chain if name in required] for chain in declared or [[*members.values]]]
    chains = [chain for chain in chains if chain]
    return Occurrence(required, chains=_joined(chains, budget) if chains else None)


def members_of(
    shape: Object, values: Mapping[str, Expr], others: Sequence[Other], layout: Layout, scope: Scope
) -> ObjectMembers | None:
    """Return what the objects of a shape consist of; None if there are none.

    `values` are those of declared properties, and of other keys that are told apart from the rest.
    """
    possible = {name: value for name, value in values.items() if value != EMPTY_LANGUAGE}
    required = frozenset(shape.required)
    if not required <= possible.keys() or any(group.isdisjoint(possible) for group in shape.one_of_groups):
        return None
    pairs = _other_pairs(values, others, layout, scope)
    least, most = shape.min_properties, shape.max_properties
    if not pairs and most is not None and most >= len(possible):
        most = None
    if least <= len(required):
        least = 0
    return ObjectMembers(possible, required, shape.one_of_groups, pairs, least, most)


def _chains(shape: Object, members: ObjectMembers) -> list[list[str]]:
    """Return the satisfiable properties by the schema that declares them, each chain in its order."""
    chains = [[name for name in chain if name in members.values] for chain in shape.chains]
    return [chain for chain in chains if chain] or [[*members.values]]


def _joined(chains: list[list[str]], budget: OrderBudget) -> list[list[str]]:
    """Return the chains; the last ones are joined where they would take too many pairs to interleave."""
    count = sum(map(len, chains))
    while len(chains) > 1 and not budget.reserve_interleaving(
        math.prod(len(chain) + 1 for chain in chains) * count
    ):
        *chains, before_last, last = chains
        chains.append([*before_last, *last])
    return chains


def _other_pairs(names: Collection[str], others: Sequence[Other], layout: Layout, scope: Scope) -> list[Expr]:
    """Return a pair for each class of other keys, without the declared ones."""
    pairs = []
    for keys, value in others:
        key = EMPTY_LANGUAGE if value == EMPTY_LANGUAGE else layout.other_keys(keys, names, scope)
        if key != EMPTY_LANGUAGE:
            pairs.append(seq(scope.add("OtherKey", key), layout.colon, value))
    return pairs
