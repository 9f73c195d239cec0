"""The intersection of schema objects for numbers and arrays (strings and objects have their own modules).

Each function takes the conjuncts (schema objects that must all be satisfied; references, combinators and
finite sets have been handled) and returns the shape of its type, or None if no value of the type is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from gbnf.schema.document import Subschema
from gbnf.schema.keywords import ABOVE, BELOW, FIRST_ITEMS, HAS_ITEM, NOT_INTEGER
from gbnf.schema.strings import ReportCallback, integer_keyword, number_keyword, smallest
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    UNSATISFIABLE,
    Array,
    Bound,
    Conjunction,
    Number,
    child,
    conjunction,
    is_no_range,
)
from gbnf.work_limits import spend

#: Bounds of this size and above are not enforced.
MAX_BOUND_SIZE = 10**40

#: The schemas that evaluate parts of a value for a subschema, and whether all choices among them are made.
Evaluating = Callable[[Subschema], tuple[tuple[Subschema, ...], bool]]
UNDECIDED = "not every choice beside it is enforced, so what other branches evaluate may be allowed"


def number_shape(conjuncts: Sequence[Subschema], report: ReportCallback, *, integer: bool) -> Number | None:
    """Return the numbers; `integer`: the conjuncts' types allow integers only."""
    low: Bound | None = None
    high: Bound | None = None
    divisors: list[Fraction] = []
    for conjunct in conjuncts:
        low = _tighter(low, _bound(conjunct, "minimum", report), 1)
        high = _tighter(high, _bound(conjunct, "maximum", report), -1)
        divisor = number_keyword(conjunct, "multipleOf")
        if divisor is not None:
            divisors.append(divisor)
    excludes_integers = any(NOT_INTEGER in conjunct.raw for conjunct in conjuncts)
    if integer and excludes_integers:
        return None
    if integer:
        divisors = [divisor for divisor in divisors if divisor.numerator != 1]
        low = low and _whole(low, math.ceil, 1)
        high = high and _whole(high, math.floor, -1)
    if is_no_range(low, high):
        return None
    kind = integer if integer or excludes_integers else None
    return Number(kind, low, high, tuple(dict.fromkeys(divisors)), tuple(conjuncts))


def array_shape(
    conjuncts: Sequence[Subschema], report: ReportCallback, evaluating: Evaluating
) -> Array | None:
    """Return the arrays; `evaluating`: which schemas evaluate items for one with `unevaluatedItems`."""
    shape = _array(conjuncts[0])
    for conjunct in conjuncts[1:]:
        shape = _intersect_arrays(shape, _array(conjunct))
    for conjunct in conjuncts:
        if conjunct.raw.get("unevaluatedItems", True) is not True:
            shape = _close_unevaluated_items(shape, conjunct, report, evaluating)
    for conjunct in conjuncts:
        raw = conjunct.raw
        for keyword in ("minContains", "maxContains") if "contains" in raw else ():
            if keyword in raw and not (keyword == "minContains" and raw[keyword] in (0, 1)):
                report(f"{conjunct.pointer}/{keyword}", keyword, "the grammar does not enforce this keyword")
    low, high = shape.min_items, shape.max_items
    for index, subschemas in enumerate(shape.prefix):
        if subschemas == UNSATISFIABLE:
            high = index if high is None else min(high, index)
    if shape.items == UNSATISFIABLE:
        high = len(shape.prefix) if high is None else min(high, len(shape.prefix))
    if shape.contains:
        low = max(low, 1)
    if high is not None and low > high:
        return None
    prefix = shape.prefix if high is None else shape.prefix[:high]
    return Array(prefix, shape.items, low, high, shape.contains, shape.unique, tuple(conjuncts))


def _close_unevaluated_items(
    shape: Array, asking: Subschema, report: ReportCallback, evaluating: Evaluating
) -> Array:
    """Apply `unevaluatedItems` to the items after the tuples that evaluate items for it.

    `contains` evaluates items too: those that match it, at any position.
    """
    evaluators, is_decided = evaluating(asking)
    pointer = f"{asking.pointer}/unevaluatedItems"
    if any("contains" in conjunct.raw for conjunct in evaluators):
        report(pointer, "unevaluatedItems", "`contains` evaluates items at any position")
        return shape
    if not is_decided:
        report(pointer, "unevaluatedItems", UNDECIDED)
    if any(_evaluates_all_items(conjunct, asking) for conjunct in evaluators):
        return shape
    value = child(asking, "unevaluatedItems")
    evaluated = max(len(_array(conjunct).prefix) for conjunct in evaluators)
    prefix = [*shape.prefix, *[shape.items] * (evaluated - len(shape.prefix))]
    return replace(
        shape,
        prefix=tuple(
            items if index < evaluated else conjunction(items, value) for index, items in enumerate(prefix)
        ),
        items=conjunction(shape.items, value),
    )


def _evaluates_all_items(conjunct: Subschema, asking: Subschema) -> bool:
    """Return whether a schema that evaluates items for `asking` evaluates them all."""
    raw = conjunct.raw
    if isinstance(raw.get("items"), list):
        return "additionalItems" in raw
    return "items" in raw or ("unevaluatedItems" in raw and raw is not asking.raw)


def _array(conjunct: Subschema) -> Array:
    raw = conjunct.raw
    prefix: tuple[Conjunction, ...] = ()
    rest: Conjunction = UNCONSTRAINED
    for keyword in ("prefixItems", FIRST_ITEMS):
        if keyword in raw:
            prefix = tuple(child(conjunct, keyword, index) for index in range(len(raw[keyword])))
    if isinstance(raw.get("items"), list):  # a tuple, up to draft 2019-09
        prefix = tuple(child(conjunct, "items", index) for index in range(len(raw["items"])))
        if "additionalItems" in raw:
            rest = child(conjunct, "additionalItems")
    elif "items" in raw:
        rest = child(conjunct, "items")
    contains: tuple[Conjunction, ...] = ()
    if "contains" in raw and raw.get("minContains") != 0:
        contains = (child(conjunct, "contains"),)
    if HAS_ITEM in raw:  # it is what `items` above denies
        contained = replace(conjunct.at(HAS_ITEM), pointer=f"{conjunct.pointer}/items")
        contains = (*contains, (contained,))
    unique = raw.get("uniqueItems") is True
    return Array(
        prefix,
        rest,
        integer_keyword(conjunct, "minItems") or 0,
        integer_keyword(conjunct, "maxItems"),
        contains,
        unique,
    )


def _intersect_arrays(left: Array, right: Array) -> Array:
    length = max(len(left.prefix), len(right.prefix))
    spend(5 + 2 * length)
    return Array(
        tuple(conjunction(left.child(index), right.child(index)) for index in range(length)),
        conjunction(left.items, right.items),
        max(left.min_items, right.min_items),
        smallest((left.max_items, right.max_items)),
        tuple(dict.fromkeys((*left.contains, *right.contains))),
        left.unique or right.unique,
    )


def _bound(conjunct: Subschema, keyword: str, report: ReportCallback) -> Bound | None:
    """Return the bound that a conjunct sets by `minimum` or `maximum`, and what belongs to it.

    The exclusive keyword is a number, or up to draft 4 a flag. None: there is no bound, or one with too many
    digits to be enforced.
    """
    sign, strict = (1, ABOVE) if keyword == "minimum" else (-1, BELOW)
    exclusive = f"exclusive{keyword.capitalize()}"
    inclusive = number_keyword(conjunct, keyword)
    bound = None if inclusive is None else Bound(inclusive, conjunct.raw.get(exclusive) is True)
    for other in (exclusive, strict):
        value = number_keyword(conjunct, other)
        if value is not None:
            bound = _tighter(bound, Bound(value, exclusive=True), sign)
    if bound is None or abs(bound.value) < MAX_BOUND_SIZE:
        return bound
    names = [name for name in (keyword, exclusive) if name in conjunct.raw]
    for name in names or [keyword]:  # of a complement, the other keyword
        report(f"{conjunct.pointer}/{name}", name, "the bound has too many digits")
    return None


def _tighter(left: Bound | None, right: Bound | None, sign: int) -> Bound | None:
    """Return the greater of two lower bounds (`sign` 1), or the lesser of two upper ones (-1)."""
    if left is None or right is None:
        return left or right
    return max(left, right, key=lambda bound: (sign * bound.value, bound.exclusive))


def _whole(bound: Bound, rounded: Callable[[Fraction], int], step: int) -> Bound:
    """Return the inclusive integer bound that allows the same integers."""
    whole = rounded(bound.value)
    return Bound(Fraction(whole + step if bound.exclusive and whole == bound.value else whole))
