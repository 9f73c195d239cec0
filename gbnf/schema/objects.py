"""The intersection of schema objects for objects; see `gbnf.schema.intersections`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from gbnf.regular.automaton import Dfa
from gbnf.regular.pattern_syntax import PatternError
from gbnf.schema.document import Subschema
from gbnf.schema.intersections import UNDECIDED, Evaluating
from gbnf.schema.strings import ReportCallback, integer_keyword, intersection, smallest
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    UNSATISFIABLE,
    Conjunction,
    KeyClass,
    Object,
    child,
    conjunction,
)
from gbnf.work_limits import MAX_KEY_STATES, TooManyStatesError, spend

#: The language of the keys that a schema allows, or None for every key.
KeyLanguage = Callable[[Subschema], Dfa | None]


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
    chains = _chains(conjuncts, properties, shape.required)
    groups = shape.one_of_groups
    return Object(
        properties, shape.required, others, groups, shape.min_properties, high, chains, tuple(conjuncts)
    )


def _chains(
    conjuncts: Sequence[Subschema], properties: Mapping[str, Conjunction], required: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the properties, each with the schema that declares it first, in the order of the declaration.

    Those of branches that may be satisfied too, but were not chosen, come last.
    """
    unplaced = dict.fromkeys(properties)
    chains = []
    alone = dict.fromkeys(required)
    for conjunct in conjuncts:
        names = conjunct.raw.get("properties", ())
        if conjunct.is_generated:
            alone |= dict.fromkeys(names)
            continue
        chain = tuple(name for name in names if name in unplaced)
        for name in chain:
            del unplaced[name]
        chains.append(chain)
    chains += [(name,) for name in unplaced if name in alone]
    last = chains.pop() if chains else ()
    chains.append((*last, *(name for name in unplaced if name not in alone)))
    return tuple(chain for chain in chains if chain)


def _object(conjunct: Subschema, report: ReportCallback) -> Object:
    raw = conjunct.raw
    names = raw.get("properties", {})
    required = raw.get("required", [])
    if isinstance(required, bool):
        required = []
    rest: Conjunction = UNCONSTRAINED
    if "additionalProperties" in raw:
        rest = child(conjunct, "additionalProperties")
    properties = {name: child(conjunct, "properties", name) for name in names}
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
        value = child(conjunct, "patternProperties", pattern)
        try:
            keys = search(pattern)
            unmatched, divided = unmatched - keys, [KeyClass(unmatched & keys, value)]
            for key_class in matched:
                assert key_class.keys is not None
                both = key_class.keys & keys
                if both.is_empty:  # as for most pairs of patterns: nothing to divide
                    divided.append(key_class)
                else:
                    divided.append(KeyClass(key_class.keys - keys, key_class.value))
                    divided.append(KeyClass(both, conjunction(key_class.value, value)))
            _check_size(divided)
        except (PatternError, TooManyStatesError) as error:
            for other in conjunct.raw["patternProperties"]:
                reason = str(error) if other == pattern else "a pattern beside it is not enforced"
                report(f"{conjunct.pointer}/patternProperties/{other}", "patternProperties", reason)
            if "additionalProperties" in conjunct.raw:
                reason = "a pattern beside it is not enforced, so other properties are left open"
                report(f"{conjunct.pointer}/additionalProperties", "additionalProperties", reason)
            return properties, (KeyClass(None, UNCONSTRAINED),)
        matched = [part for part in divided if part.keys is not None and not part.keys.is_empty]
        properties = {
            name: conjunction(subschemas, value) if keys.accepts(name) else subschemas
            for name, subschemas in properties.items()
        }
    return properties, (*matched, KeyClass(unmatched, rest))


def _check_size(classes: Sequence[KeyClass]) -> None:
    """Raise TooManyStatesError if the classes of keys take too many, in total."""
    if sum(len(part.keys.table.rows) for part in classes if part.keys is not None) > MAX_KEY_STATES:
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
        others = tuple(KeyClass(intersection(other.keys, allowed), other.value) for other in others)
    except TooManyStatesError as error:
        report(f"{conjunct.pointer}/propertyNames", "propertyNames", str(error))
        return properties, others
    restricted = {
        name: subschemas if allowed.accepts(name) else UNSATISFIABLE
        for name, subschemas in properties.items()
    }
    return restricted, tuple(other for other in others if other.keys is None or not other.keys.is_empty)


def _close_unevaluated(
    shape: Object, asking: Subschema, report: ReportCallback, evaluating: Evaluating
) -> Object:
    """Apply `unevaluatedProperties` to the keys that no schema evaluates for it."""
    evaluators, is_decided = evaluating(asking)
    pointer = f"{asking.pointer}/unevaluatedProperties"
    if not is_decided:
        report(pointer, "unevaluatedProperties", UNDECIDED)
    for conjunct in evaluators:
        limits = {"additionalProperties"} if conjunct.raw is asking.raw else _EVALUATING_ALL
        if not limits.isdisjoint(conjunct.raw):
            return shape
    names = dict.fromkeys(name for conjunct in evaluators for name in conjunct.raw.get("properties", ()))
    patterns = [pattern for conjunct in evaluators for pattern in conjunct.raw.get("patternProperties", ())]
    value = child(asking, "unevaluatedProperties")
    from gbnf.regular.ecma262 import search  # noqa: PLC0415  # most schemas have no patterns

    try:
        languages = [search(pattern) for pattern in patterns]
        evaluated = reduce(or_, languages) if languages else None
        others = tuple(
            other if _meets(other, evaluated) else KeyClass(other.keys, conjunction(other.value, value))
            for other in shape.others
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
        shape, properties=properties, others=tuple(other for other in others if other.value != UNSATISFIABLE)
    )


_EVALUATING_ALL = frozenset({"additionalProperties", "unevaluatedProperties"})


def _meets(key_class: KeyClass, evaluated: Dfa | None) -> bool:
    """Return whether the keys of a class, which no pattern divides further, are evaluated."""
    if evaluated is None:
        return False
    if key_class.keys is None:  # the patterns' classes took too many states
        raise TooManyStatesError(MAX_KEY_STATES)
    return not (key_class.keys & evaluated).is_empty


def _intersect_objects(left: Object, right: Object, conjunct: Subschema, report: ReportCallback) -> Object:
    spend(3 * (len(left.properties) + len(right.properties)) + 2 * len(left.others) * len(right.others))
    properties = {
        name: conjunction(left.child(name), right.child(name))
        for name in dict.fromkeys([*left.properties, *right.properties])
    }
    pairs = (
        (intersection(left_class.keys, right_class.keys), conjunction(left_class.value, right_class.value))
        for left_class in left.others
        for right_class in right.others
    )
    try:
        met = [
            pair for pair in pairs if pair[1] != UNSATISFIABLE and (pair[0] is None or not pair[0].is_empty)
        ]
        others = tuple(KeyClass(*pair) for pair in met)
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
