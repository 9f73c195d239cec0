"""Many choices beside each other, decided one after the other.

Ten `if`s beside each other make a thousand combinations, yet where they test one property for different
values, nearly all are contradictory. So a branch that obviously contradicts the earlier decisions is dropped
before anything is combined with it.

Invariants: sets that are called disjoint share no value. The converse is not guaranteed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from gbnf.schema.document import Subschema
from gbnf.schema.flatten import FlatSchema
from gbnf.schema.keywords import types_of
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    Array,
    Conjunction,
    Number,
    Object,
    Shape,
    String,
    ValueSet,
    is_no_range,
    shape_type,
    value_key,
)
from gbnf.strict_json import json_type
from gbnf.work_limits import TooManyStatesError, spend

#: Maximum branches that are tried.
MAX_DECISIONS = 1000

#: The work of visiting one conjunct, in the units of `gbnf.work_limits`.
_CONJUNCT_WORK = 8
_SETTLING = frozenset({"const", "enum"})
#: Maximum values of an enumeration whose types are checked.
_FEW = 20


class _Facts:
    """What one conjunct says by itself: its types, the names that it requires and declares."""

    __slots__ = ("_conjunct", "_properties", "properties", "required", "types")

    def __init__(self, conjunct: Subschema) -> None:
        self._conjunct = conjunct
        self.types = _types(conjunct)
        self.required = frozenset(_names(conjunct, "required"))
        self.properties = frozenset(_names(conjunct, "properties"))
        self._properties: dict[str, tuple[Subschema, bool]] = {}

    def property(self, name: str) -> tuple[Subschema, bool]:
        """Return a property's subschema, and whether it may settle that there are no values."""
        declaration = self._properties.get(name)
        if declaration is None:
            subschema = self._conjunct.at("properties", name)
            raw = subschema.raw
            settles = raw is False or (isinstance(raw, Mapping) and not _SETTLING.isdisjoint(raw))
            declaration = self._properties[name] = (subschema, settles)
        return declaration


def cases(
    flat: FlatSchema,
    flatten: Callable[[Iterable[Subschema], tuple[Subschema, ...]], FlatSchema],
    impossible: Callable[[Conjunction], bool],
    most: int,
) -> list[FlatSchema] | None:
    """Return the cases after deciding every choice but the exclusive ones, at most `most`.

    `impossible` returns whether no value satisfies a conjunction. None if there are too many cases, or
    nothing to decide.
    """
    facts_of = cache(_Facts)  # a conjunct is in many cases
    decided_cases: list[FlatSchema] = []
    pending = [flat]
    decisions = 0
    while pending:
        case = pending.pop()
        choice = next((branching for branching in case.branchings if not branching.exclusive), None)
        if choice is None:
            decided_cases.append(case)
            if len(decided_cases) > most:
                return None
            continue
        decisions += len(choice.branches)
        if decisions > MAX_DECISIONS:
            return None
        others = tuple(branching for branching in case.branchings if branching is not choice)
        for branch in reversed(choice.branches):
            decided = flatten((branch,), case.conjuncts)
            spend(_CONJUNCT_WORK * (1 + len(decided.conjuncts)))
            if any(conjunct.raw is False for conjunct in decided.conjuncts[len(case.conjuncts) :]):
                continue
            facts = [facts_of(conjunct) for conjunct in decided.conjuncts]
            if not _contradictory(facts, len(case.conjuncts), impossible):
                pending.append(FlatSchema(decided.conjuncts, (*others, *decided.branchings)))
    return decided_cases if decided_cases != [flat] else None


def _contradictory(facts: list[_Facts], before: int, impossible: Callable[[Conjunction], bool]) -> bool:
    """Return whether conjuncts obviously contradict each other; the first `before` of them do not."""
    types = types_of({}).intersection(*[fact.types for fact in facts])
    if not types:
        return True
    if types != {"object"}:
        return False
    needed = frozenset[str]().union(*[fact.required for fact in facts])
    touched = frozenset[str]().union(*[fact.required | fact.properties for fact in facts[before:]])
    for name in sorted(touched & needed):
        declared = [fact.property(name) for fact in facts if name in fact.properties]
        if any(settles for _, settles in declared) and impossible(tuple(part for part, _ in declared)):
            return True
    return False


def _types(conjunct: Subschema) -> frozenset[str]:
    """Return the types that a conjunct allows."""
    allowed = types_of(conjunct.raw)
    listed = [conjunct.raw["const"]] if "const" in conjunct.raw else conjunct.raw.get("enum")
    if isinstance(listed, list) and len(listed) <= _FEW:
        allowed &= types_of({"type": [json_type(value) for value in listed]})
    return allowed


def _names(conjunct: Subschema, keyword: str) -> Iterable[str]:
    names = conjunct.raw.get(keyword, ())
    return names if isinstance(names, list | Mapping) else ()


Expand = Callable[[Conjunction], ValueSet]

#: The work of comparing two shapes, or two properties, in the units of `gbnf.work_limits`.
_PAIR_WORK = 3


def disjoint(left: ValueSet, right: ValueSet, expand: Expand) -> bool:
    """Return whether the sets are known to share no value."""
    if not set(map(value_key, left.values)).isdisjoint(map(value_key, right.values)):
        return False
    for values, shapes in ((left.values, right.shapes), (right.values, left.shapes)):
        if any(_may_contain(shape, value) for value in values for shape in shapes):
            return False
    return all(disjoint_shapes(shape, other, expand) for shape in left.shapes for other in right.shapes)


def disjoint_shapes(left: Shape, right: Shape, expand: Expand) -> bool:
    """Return whether the shapes are known to share no value."""
    spend(_PAIR_WORK)
    match left, right:
        case Number(), Number():
            return (
                (left.integer, right.integer) in ((True, False), (False, True))
                or is_no_range(right.minimum, left.maximum)
                or is_no_range(left.minimum, right.maximum)
            )
        case String(), String():
            return _lengths_differ(
                left.min_length, left.max_length, right.min_length, right.max_length
            ) or _share_no_string(left, right)
        case Array(), Array():
            return _lengths_differ(left.min_items, left.max_items, right.min_items, right.max_items) or (
                min(left.min_items, right.min_items) > 0
                and _plainly_disjoint(left.child(0), right.child(0), expand)
            )
        case Object(), Object():
            return _disjoint_objects(left, right, expand)
        case _:
            return type(left) is not type(right)


def _disjoint_objects(left: Object, right: Object, expand: Expand) -> bool:
    for first, second in ((left, right), (right, left)):
        for name in first.required:
            spend(_PAIR_WORK)
            # A discriminator: what the first requires, the second forbids or gives different values.
            if not second.others and name not in second.properties:
                return True
            if _plainly_disjoint(first.properties[name], second.child(name), expand) and (
                name in second.required or expand(second.child(name)).is_empty
            ):
                return True
    return False


def _plainly_disjoint(left: Conjunction, right: Conjunction, expand: Expand) -> bool:
    """Return whether two children are known to be disjoint; only scalars are compared."""
    if UNCONSTRAINED in (left, right):
        return False
    left_values, right_values = expand(left), expand(right)
    if any(isinstance(shape, Object | Array) for shape in left_values.shapes) and any(
        isinstance(shape, Object | Array) for shape in right_values.shapes
    ):
        return False
    return disjoint(left_values, right_values, expand)


def _share_no_string(left: String, right: String) -> bool:
    if left.language is None or right.language is None:
        return False
    try:
        return (left.language & right.language).is_empty
    except TooManyStatesError:
        return False


def _lengths_differ(low: int, high: int | None, other_low: int, other_high: int | None) -> bool:
    return (high is not None and high < other_low) or (other_high is not None and other_high < low)


def _may_contain(shape: Shape, value: Any) -> bool:
    if shape_type(shape) != json_type(value).replace("integer", "number"):
        return False
    return not isinstance(shape, String) or shape.language is None or shape.language.accepts(value)
