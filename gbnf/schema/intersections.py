"""The intersection of schema objects for numbers, arrays and objects (`gbnf.schema.strings` has strings).

Each function takes the conjuncts (schema objects that must all be satisfied; references, combinators and
finite sets have been handled) and returns the shape of its type, or None if no value of the type is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from gbnf.regular.automaton import Dfa
from gbnf.regular.pattern_syntax import PatternError
from gbnf.schema.document import Subschema
from gbnf.schema.keywords import ABOVE, BELOW, FIRST_ITEMS, HAS_ITEM, NOT_INTEGER
from gbnf.schema.strings import integer_keyword, number_keyword, smallest
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    UNSATISFIABLE,
    Array,
    Bound,
    Conjunction,
    KeyClass,
    Number,
    Object,
    conjunction,
)
from gbnf.work_limits import TooManyStatesError, spend

#: The most states, in total, of the classes into which patterns divide the keys.
MAX_KEY_STATES = 3000
#: Bounds of this size and above are not enforced.
MAX_BOUND_SIZE = 10**40

ReportCallback = Callable[[str, str, str], None]
#: The language of the keys that a schema allows, or None for every key.
KeyLanguage = Callable[[Subschema], Dfa | None]
#: The schemas that evaluate parts of a value for a subschema, and whether all choices among them are made.
Evaluating = Callable[[Subschema], tuple[tuple[Subschema, ...], bool]]


def number_shape(conjuncts: Sequence[Subschema], report: ReportCallback, *, integer: bool) -> Number | None:
    """Return the numbers; `integer`: the conjuncts' types allow integers only."""
    low: Bound | None = None
    high: Bound | None = None
    divisors: list[Fraction] = []
    for conjunct in conjuncts:
        low = _tighter(low, _enforceable_bound(conjunct, "minimum", report), 1)
        high = _tighter(high, _enforceable_bound(conjunct, "maximum", report), -1)
        divisor = number_keyword(conjunct, "multipleOf")
        if divisor is not None:
            divisors.append(divisor)
    kind: bool | None = True if integer else None
    if any(NOT_INTEGER in conjunct.raw for conjunct in conjuncts):
        if integer:
            return None
        kind = False
    if integer:
        divisors = [divisor for divisor in divisors if divisor.numerator != 1]
        low = low and _whole(low, math.ceil, 1)
        high = high and _whole(high, math.floor, -1)
    if (
        low
        and high
        and (low.value > high.value or (low.value == high.value and (low.exclusive or high.exclusive)))
    ):
        return None
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
        for keyword in ("minContains", "maxContains"):
            if _constrains_contains(conjunct, keyword):
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


def object_shape(
    conjuncts: Sequence[Subschema], report: ReportCallback, keys: KeyLanguage, evaluating: Evaluating
) -> Object | None:
    """Return the objects.

    `keys` returns the language of `propertyNames`, `evaluating` which schemas evaluate properties for one
    with `unevaluatedProperties`.
    """
    shape = _object(conjuncts[0], report)
    for conjunct in conjuncts[1:]:
        shape = _intersect_objects(shape, _object(conjunct, report), conjunct, report)
    for conjunct in conjuncts:
        if conjunct.raw.get("unevaluatedProperties", True) is not True:
            shape = _close_unevaluated(shape, conjunct, report, evaluating)
    others, properties = shape.others, dict(shape.properties)
    open_shape = Object({}, (), others)
    for name in shape.required:
        properties.setdefault(name, open_shape.child(name))
    for conjunct in conjuncts:
        if "propertyNames" in conjunct.raw:
            properties, others = _apply_property_names(conjunct, properties, others, report, keys)
    if any(properties[name] == UNSATISFIABLE for name in shape.required):
        return None
    low, high = max(shape.min_properties, len(shape.required)), shape.max_properties
    if high is not None and low > high:
        return None
    return Object(
        properties,
        shape.required,
        others,
        shape.one_of_groups,
        shape.min_properties,
        high,
        _chains(conjuncts, properties, shape.required),
        tuple(conjuncts),
    )


def _close_unevaluated_items(
    shape: Array, asking: Subschema, report: ReportCallback, evaluating: Evaluating
) -> Array:
    """Apply `unevaluatedItems` to the items after the tuples that evaluate items for it.

    `contains` evaluates items too: those that match it, at any position.
    """
    found, is_decided = evaluating(asking)
    pointer = f"{asking.pointer}/unevaluatedItems"
    if any("contains" in conjunct.raw for conjunct in found):
        report(pointer, "unevaluatedItems", "`contains` evaluates items at any position")
        return shape
    if not is_decided:
        report(pointer, "unevaluatedItems", _UNDECIDED)
    if any(_evaluates_all_items(conjunct, asking) for conjunct in found):
        return shape
    value = _child(asking, "unevaluatedItems")
    evaluated = max(len(_array(conjunct).prefix) for conjunct in found)
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


def _chains(
    conjuncts: Sequence[Subschema], properties: Mapping[str, Conjunction], required: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the properties, each with the schema that declares it first, in the order of the declaration.

    Those of branches that may be satisfied too, but were not chosen, come last.
    """
    left = dict.fromkeys(properties)
    chains = []
    alone = dict.fromkeys(required)
    for conjunct in conjuncts:
        names = conjunct.raw.get("properties", ())
        if conjunct.is_generated:
            alone |= dict.fromkeys(names)
            continue
        chain = tuple(name for name in names if name in left)
        for name in chain:
            del left[name]
        chains.append(chain)
    chains += [(name,) for name in left if name in alone]
    last = chains.pop() if chains else ()
    chains.append((*last, *(name for name in left if name not in alone)))
    return tuple(chain for chain in chains if chain)


def _constrains_contains(conjunct: Subschema, keyword: str) -> bool:
    """Return whether a keyword that shapes can't express constrains the array."""
    raw = conjunct.raw
    if keyword not in raw:
        return False
    return "contains" in raw and not (keyword == "minContains" and raw[keyword] in (0, 1))


def _array(conjunct: Subschema) -> Array:
    raw = conjunct.raw
    prefix: tuple[Conjunction, ...] = ()
    rest: Conjunction = UNCONSTRAINED
    for keyword in ("prefixItems", FIRST_ITEMS):
        if keyword in raw:
            prefix = tuple(_child(conjunct, keyword, index) for index in range(len(raw[keyword])))
    if isinstance(raw.get("items"), list):  # a tuple, up to draft 2019-09
        prefix = tuple(_child(conjunct, "items", index) for index in range(len(raw["items"])))
        if "additionalItems" in raw:
            rest = _child(conjunct, "additionalItems")
    elif "items" in raw:
        rest = _child(conjunct, "items")
    contains: tuple[Conjunction, ...] = ()
    if "contains" in raw and raw.get("minContains") != 0:
        contains = (_child(conjunct, "contains"),)
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
    prefix = tuple(
        conjunction(*(side.prefix[i] if i < len(side.prefix) else side.items for side in (left, right)))
        for i in range(length)
    )
    return Array(
        prefix,
        conjunction(left.items, right.items),
        max(left.min_items, right.min_items),
        smallest((left.max_items, right.max_items)),
        tuple(dict.fromkeys((*left.contains, *right.contains))),
        left.unique or right.unique,
    )


def _object(conjunct: Subschema, report: ReportCallback) -> Object:
    raw = conjunct.raw
    names = raw.get("properties", {})
    required = raw.get("required", [])
    if isinstance(required, bool):
        required = []
    rest: Conjunction = UNCONSTRAINED
    if "additionalProperties" in raw:
        rest = _child(conjunct, "additionalProperties")
    properties = {name: _child(conjunct, "properties", name) for name in names}
    others: tuple[KeyClass, ...] = (KeyClass(None, rest),)
    if raw.get("patternProperties"):
        properties, others = _apply_pattern_properties(conjunct, properties, rest, report)
    groups = raw.get("requires_one_of", []) if conjunct.pointer == "" else []
    return Object(
        properties,
        tuple(dict.fromkeys(required)),
        tuple(other for other in others if other.value != UNSATISFIABLE),
        tuple(frozenset(group) for group in groups),
        integer_keyword(conjunct, "minProperties") or 0,
        integer_keyword(conjunct, "maxProperties"),
    )


def _apply_pattern_properties(
    conjunct: Subschema, properties: dict[str, Conjunction], rest: Conjunction, report: ReportCallback
) -> tuple[dict[str, Conjunction], tuple[KeyClass, ...]]:
    """Split the keys into classes by the patterns that they match; what matches none is under `rest`."""
    from gbnf.regular.ecma262 import search  # noqa: PLC0415  # most schemas have no patterns

    unmatched: Dfa = Dfa.all_words()
    matched: list[KeyClass] = []
    for pattern in conjunct.raw["patternProperties"]:
        value = _child(conjunct, "patternProperties", pattern)
        try:
            keys = search(pattern)
            unmatched, more = unmatched - keys, [KeyClass(unmatched & keys, value)]
            for one in matched:
                assert one.keys is not None
                both = one.keys & keys
                if both.is_empty:  # as for most pairs of patterns: nothing to divide
                    more.append(one)
                else:
                    more.append(KeyClass(one.keys - keys, one.value))
                    more.append(KeyClass(both, conjunction(one.value, value)))
            _check_size(more)
        except (PatternError, TooManyStatesError) as error:
            for other in conjunct.raw["patternProperties"]:
                reason = str(error) if other == pattern else "a pattern beside it is not enforced"
                report(f"{conjunct.pointer}/patternProperties/{other}", "patternProperties", reason)
            if "additionalProperties" in conjunct.raw:
                reason = "a pattern beside it is not enforced, so other properties are left open"
                report(f"{conjunct.pointer}/additionalProperties", "additionalProperties", reason)
            return properties, (KeyClass(None, UNCONSTRAINED),)
        matched = [one for one in more if one.keys is not None and not one.keys.is_empty]
        properties = {
            name: conjunction(subschemas, value) if keys.accepts(name) else subschemas
            for name, subschemas in properties.items()
        }
    return properties, (*matched, KeyClass(unmatched, rest))


def _check_size(classes: Sequence[KeyClass]) -> None:
    """Raise TooManyStatesError if the classes of keys take too many, in total."""
    if sum(len(one.keys.table.rows) for one in classes if one.keys is not None) > MAX_KEY_STATES:
        raise TooManyStatesError(MAX_KEY_STATES)


def _apply_property_names(
    conjunct: Subschema,
    properties: dict[str, Conjunction],
    others: tuple[KeyClass, ...],
    report: ReportCallback,
    keys: KeyLanguage,
) -> tuple[dict[str, Conjunction], tuple[KeyClass, ...]]:
    """Keep the keys that `propertyNames` allows."""
    allowed = keys(conjunct.at("propertyNames"))
    if allowed is None:
        return properties, others
    try:
        others = tuple(
            KeyClass(allowed if other.keys is None else other.keys & allowed, other.value) for other in others
        )
    except TooManyStatesError as error:
        report(f"{conjunct.pointer}/propertyNames", "propertyNames", str(error))
        return properties, others
    kept = {
        name: subschemas if allowed.accepts(name) else UNSATISFIABLE
        for name, subschemas in properties.items()
    }
    return kept, tuple(other for other in others if other.keys is None or not other.keys.is_empty)


def _close_unevaluated(
    shape: Object, asking: Subschema, report: ReportCallback, evaluating: Evaluating
) -> Object:
    """Apply `unevaluatedProperties` to the keys that no schema evaluates for it."""
    found, is_decided = evaluating(asking)
    pointer = f"{asking.pointer}/unevaluatedProperties"
    if not is_decided:
        report(pointer, "unevaluatedProperties", _UNDECIDED)
    for conjunct in found:
        limits = {"additionalProperties"} if conjunct.raw is asking.raw else _EVALUATING_ALL
        if not limits.isdisjoint(conjunct.raw):
            return shape
    names = dict.fromkeys(name for conjunct in found for name in conjunct.raw.get("properties", ()))
    patterns = [pattern for conjunct in found for pattern in conjunct.raw.get("patternProperties", ())]
    value = _child(asking, "unevaluatedProperties")
    try:
        evaluated = _found_in(patterns)
        others = tuple(
            one if _meets(one, evaluated) else KeyClass(one.keys, conjunction(one.value, value))
            for one in shape.others
        )
    except (PatternError, TooManyStatesError):
        report(pointer, "unevaluatedProperties", "a pattern beside it is not enforced")
        return shape
    properties = dict(shape.properties)
    for name in {**properties, **names}:
        own = shape.child(name)
        is_evaluated = name in names or (evaluated is not None and evaluated.accepts(name))
        properties[name] = own if is_evaluated else conjunction(own, value)
    return replace(
        shape, properties=properties, others=tuple(one for one in others if one.value != UNSATISFIABLE)
    )


_EVALUATING_ALL = frozenset({"additionalProperties", "unevaluatedProperties"})
_UNDECIDED = "not every choice beside it is enforced, so what other branches evaluate may be allowed"


def _found_in(patterns: Sequence[str]) -> Dfa | None:
    """Return the keys in which some pattern is found; None without patterns. Raises as `search` does."""
    from gbnf.regular.ecma262 import search  # noqa: PLC0415  # most schemas have no patterns

    found: Dfa | None = None
    for pattern in patterns:
        found = search(pattern) if found is None else found | search(pattern)
    return found


def _meets(one: KeyClass, evaluated: Dfa | None) -> bool:
    """Return whether the keys of a class, which no pattern divides further, are evaluated."""
    if evaluated is None:
        return False
    if one.keys is None:  # the patterns' classes took too many states
        raise TooManyStatesError(MAX_KEY_STATES)
    return not (one.keys & evaluated).is_empty


def _intersect_objects(left: Object, right: Object, conjunct: Subschema, report: ReportCallback) -> Object:
    spend(3 * (len(left.properties) + len(right.properties)) + 2 * len(left.others) * len(right.others))
    properties = {
        name: conjunction(left.child(name), right.child(name))
        for name in dict.fromkeys([*left.properties, *right.properties])
    }
    try:
        others = tuple(_intersect_key_classes(left.others, right.others))
    except TooManyStatesError as error:
        report(f"{conjunct.pointer}/patternProperties", "patternProperties", str(error))
        others = (KeyClass(None, UNCONSTRAINED),)
    return Object(
        properties,
        tuple(dict.fromkeys([*left.required, *right.required])),
        others,
        left.one_of_groups + right.one_of_groups,
        max(left.min_properties, right.min_properties),
        smallest((left.max_properties, right.max_properties)),
    )


def _intersect_key_classes(left: tuple[KeyClass, ...], right: tuple[KeyClass, ...]) -> list[KeyClass]:
    met = []
    for one in left:
        for other in right:
            keys = (
                one.keys if other.keys is None else other.keys if one.keys is None else one.keys & other.keys
            )
            value = conjunction(one.value, other.value)
            if value != UNSATISFIABLE and (keys is None or not keys.is_empty):
                met.append(KeyClass(keys, value))
    return met


def _child(conjunct: Subschema, *steps: str | int) -> Conjunction:
    child = conjunct.at(*steps)
    if child.raw is False:
        return UNSATISFIABLE
    return UNCONSTRAINED if child.raw is True else (child,)


def _bound(conjunct: Subschema, keyword: str) -> Bound | None:
    """Return the bound that a conjunct sets by `minimum` or `maximum` and what belongs to it.

    The exclusive keyword is a number, or up to draft 4 a flag.
    """
    is_low = keyword == "minimum"
    exclusive = "exclusiveMinimum" if is_low else "exclusiveMaximum"
    inclusive = number_keyword(conjunct, keyword)
    found = None if inclusive is None else Bound(inclusive, conjunct.raw.get(exclusive) is True)
    for other in (exclusive, ABOVE if is_low else BELOW):
        strict = number_keyword(conjunct, other)
        if strict is not None:
            found = _tighter(found, Bound(strict, exclusive=True), 1 if is_low else -1)
    return found


def _enforceable_bound(conjunct: Subschema, keyword: str, report: ReportCallback) -> Bound | None:
    """Return the bound of a conjunct, or None if it has too many digits to be enforced."""
    bound = _bound(conjunct, keyword)
    if bound is None or abs(bound.value) < MAX_BOUND_SIZE:
        return bound
    names = [name for name in (keyword, f"exclusive{keyword.capitalize()}") if name in conjunct.raw]
    for name in names or [keyword]:  # of a complement, the other keyword
        report(f"{conjunct.pointer}/{name}", name, "the bound has too many digits")
    return None


def _tighter(one: Bound | None, other: Bound | None, sign: int) -> Bound | None:
    """Return the greater of two lower bounds (`sign` 1), or the lesser of two upper ones (-1)."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda bound: (sign * bound.value, bound.exclusive))


def _whole(bound: Bound, rounded: Callable[[Fraction], int], step: int) -> Bound:
    """Return the inclusive integer bound that allows the same integers."""
    whole = rounded(bound.value)
    return Bound(Fraction(whole + step if bound.exclusive and whole == bound.value else whole))
