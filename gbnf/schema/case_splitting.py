"""Many choices beside each other, decided one after the other.

Ten `if`s beside each other make a thousand combinations, yet where they test one property for different
values, nearly all are contradictory. So a branch that obviously contradicts the earlier decisions is dropped
before anything is combined with it.

Invariants: sets that are called disjoint share no value. The converse is not guaranteed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gbnf.schema.document import Subschema
from gbnf.schema.flatten import FlatSchema
from gbnf.schema.keywords import types_of
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    Array,
    Boolean,
    Conjunction,
    Null,
    Number,
    Object,
    Shape,
    String,
    ValueSet,
    is_no_range,
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
        found = self._properties.get(name)
        if found is None:
            subschema = self._conjunct.at("properties", name)
            raw = subschema.raw
            settles = raw is False or (isinstance(raw, Mapping) and not _SETTLING.isdisjoint(raw))
            found = self._properties[name] = (subschema, settles)
        return found


class _Case(NamedTuple):
    """A case, and what its conjuncts say together."""

    flat: FlatSchema
    facts: tuple[_Facts, ...] = ()
    types: frozenset[str] = types_of({})
    needed: frozenset[str] = frozenset()


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
    known: dict[Subschema, _Facts] = {}
    found: list[FlatSchema] = []
    pending = [_with_facts(_Case(flat), flat.conjuncts, known)]
    decisions = 0
    while pending:
        case = pending.pop()
        conjuncts, branchings = case.flat.conjuncts, case.flat.branchings
        choice = next((one for one in branchings if not one.exclusive), None)
        if choice is None:
            found.append(case.flat)
            if len(found) > most:
                return None
            continue
        decisions += len(choice.branches)
        if decisions > MAX_DECISIONS:
            return None
        others = tuple(one for one in branchings if one is not choice)
        for branch in reversed(choice.branches):
            decided = flatten((branch,), conjuncts)
            spend(_CONJUNCT_WORK * (1 + len(decided.conjuncts)))
            new = decided.conjuncts[len(conjuncts) :]
            if any(conjunct.raw is False for conjunct in new):
                continue
            both = FlatSchema(decided.conjuncts, (*others, *decided.branchings))
            narrowed = _with_facts(case._replace(flat=both), new, known)
            if not _contradictory(narrowed, narrowed.facts[len(conjuncts) :], impossible):
                pending.append(narrowed)
    return found if found != [flat] else None


def _with_facts(case: _Case, new: tuple[Subschema, ...], known: dict[Subschema, _Facts]) -> _Case:
    """Return the case with the facts of its new conjuncts. `known` has those of the conjuncts met before."""
    facts, types, needed = list(case.facts), case.types, case.needed
    for conjunct in new:
        one = known.get(conjunct)
        if one is None:
            one = known[conjunct] = _Facts(conjunct)
        facts.append(one)
        types &= one.types
        needed |= one.required
    return _Case(case.flat, tuple(facts), types, needed)


def _contradictory(case: _Case, new: tuple[_Facts, ...], impossible: Callable[[Conjunction], bool]) -> bool:
    """Return whether the conjuncts obviously contradict each other; those before the `new` ones do not."""
    if not case.types:
        return True
    if case.types != {"object"}:
        return False
    touched = frozenset().union(*(one.required | one.properties for one in new))
    for name in sorted(touched & case.needed):
        declared = [one.property(name) for one in case.facts if name in one.properties]
        if any(settles for _, settles in declared) and impossible(tuple(one for one, _ in declared)):
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
    return all(disjoint_shapes(one, other, expand) for one in left.shapes for other in right.shapes)


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
    for one, other in ((left, right), (right, left)):
        for name in one.required:
            spend(_PAIR_WORK)
            # A discriminator: what one requires, the other forbids or gives different values.
            if not other.others and name not in other.properties:
                return True
            if _plainly_disjoint(one.properties[name], other.child(name), expand) and (
                name in other.required or expand(other.child(name)).is_empty
            ):
                return True
    return False


def _plainly_disjoint(left: Conjunction, right: Conjunction, expand: Expand) -> bool:
    """Return whether two children are known to be disjoint; only scalars are compared."""
    if UNCONSTRAINED in (left, right):
        return False
    one, other = expand(left), expand(right)
    if any(isinstance(shape, Object | Array) for shape in one.shapes) and any(
        isinstance(shape, Object | Array) for shape in other.shapes
    ):
        return False
    return disjoint(one, other, expand)


def _share_no_string(left: String, right: String) -> bool:
    if left.language is None or right.language is None:
        return False
    try:
        return (left.language & right.language).is_empty
    except TooManyStatesError:
        return False


def _lengths_differ(low: int, high: int | None, other_low: int, other_high: int | None) -> bool:
    return (high is not None and high < other_low) or (other_high is not None and other_high < low)


def _may_contain(shape: Shape, value: object) -> bool:
    match shape, value:
        case (Null(), None) | (Boolean(), bool()) | (Array(), list()) | (Object(), dict()):
            return True
        case Number(), int() | float():
            return not isinstance(value, bool)
        case String(language=language), str():
            return language is None or language.accepts(value)
        case _:
            return False
