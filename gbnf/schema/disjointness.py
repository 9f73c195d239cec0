"""Whether two sets of values are disjoint.

Invariants: sets that are called disjoint share no value. The converse is not guaranteed.
"""

from __future__ import annotations

from collections.abc import Callable

from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    Array,
    Boolean,
    Bound,
    Conjunction,
    Null,
    Number,
    Object,
    Shape,
    String,
    ValueSet,
    same_value,
)
from gbnf.work_limits import TooManyStatesError, spend

Expand = Callable[[Conjunction], ValueSet]

#: The work of comparing two shapes, or two properties, in the units of `gbnf.work_limits`.
_PAIR_WORK = 3


def disjoint(left: ValueSet, right: ValueSet, expand: Expand) -> bool:
    """Return whether the sets are known to share no value."""
    if any(same_value(one, other) for one in left.values for other in right.values):
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
                or _below(left.maximum, right.minimum)
                or _below(right.maximum, left.minimum)
            )
        case String(), String():
            return _lengths_differ(
                left.min_length, left.max_length, right.min_length, right.max_length
            ) or _share_no_string(left, right)
        case Array(), Array():
            return _lengths_differ(left.min_items, left.max_items, right.min_items, right.max_items) or (
                min(left.min_items, right.min_items) > 0
                and _plainly_disjoint(_first_item(left), _first_item(right), expand)
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


def _first_item(array: Array) -> Conjunction:
    return array.prefix[0] if array.prefix else array.items


def _share_no_string(left: String, right: String) -> bool:
    if left.language is None or right.language is None:
        return False
    try:
        return (left.language & right.language).is_empty
    except TooManyStatesError:
        return False


def _below(high: Bound | None, low: Bound | None) -> bool:
    if high is None or low is None:
        return False
    return high.value < low.value or (high.value == low.value and (high.exclusive or low.exclusive))


def _lengths_differ(low: int, high: int | None, other_low: int, other_high: int | None) -> bool:
    return (high is not None and high < other_low) or (other_high is not None and other_high < low)


def _may_contain(shape: Shape, value: object) -> bool:
    match shape, value:
        case Null(), None:
            return True
        case Boolean(), bool():
            return True
        case Number(), int() | float():
            return not isinstance(value, bool)
        case String(language=language), str():
            return language is None or language.accepts(value)
        case (Array(), list()) | (Object(), dict()):
            return True
        case _:
            return False
