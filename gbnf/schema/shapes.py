"""The intersection of schema objects, one JSON type at a time.

Each function takes the facets (schema objects that must all hold; their references, combinators and finite
sets are dealt with already) and returns the shape of its type, or None where no value of the type is left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from gbnf.errors import SchemaError
from gbnf.schema.document import Subschema
from gbnf.schema.values import ANYTHING, NEVER, Array, Conjunction, Number, Object, String, conjunction


def string_shape(facets: Sequence[Subschema]) -> String | None:
    low = max((_count(facet, "minLength") or 0 for facet in facets), default=0)
    high = _least(_count(facet, "maxLength") for facet in facets)
    return None if high is not None and low > high else String(low, high)


def number_shape(facets: Sequence[Subschema], *, integer: bool) -> Number | None:
    """Bounds hold for integers only; `has_bounds` says whether a caller has bounds to report otherwise."""
    if not integer:
        return Number()
    low: Fraction | None = None
    high: Fraction | None = None
    for facet in facets:
        for keyword, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            for bound in _integer_bounds(facet, keyword, exclusive):
                if keyword == "minimum":
                    low = bound if low is None else max(low, bound)
                else:
                    high = bound if high is None else min(high, bound)
    return None if low is not None and high is not None and low > high else Number(True, low, high)


def bound_keywords(facet: Subschema) -> list[str]:
    return [
        keyword
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        if keyword in facet.raw and facet.raw[keyword] is not False
    ]


def array_shape(facets: Sequence[Subschema]) -> Array | None:
    shape = Array()
    for facet in facets:
        shape = _meet_arrays(shape, _array(facet))
    if shape.max_items is not None:
        if shape.min_items > shape.max_items:
            return None
        shape = Array(shape.prefix[: shape.max_items], shape.items, shape.min_items, shape.max_items)
    return shape


def object_shape(facets: Sequence[Subschema], *, closed: bool) -> Object | None:
    """`closed`: where no facet speaks of additional properties and some are declared, there are none."""
    shape = Object()
    for facet in facets:
        shape = _meet_objects(shape, _object(facet))
    says_more = any(
        "additionalProperties" in facet.raw or "patternProperties" in facet.raw for facet in facets
    )
    additional = None if closed and shape.properties and not says_more else shape.additional
    properties = dict(shape.properties)
    for name in shape.required:
        if properties.setdefault(name, NEVER if additional is None else additional) == NEVER:
            return None
    return Object(properties, shape.required, additional, shape.one_of_groups)


def _array(facet: Subschema) -> Array:
    raw = facet.raw
    prefix: tuple[Conjunction, ...] = ()
    rest: Conjunction = ANYTHING
    if isinstance(raw.get("prefixItems"), list):
        prefix = tuple((facet.at("prefixItems", index),) for index in range(len(raw["prefixItems"])))
    if isinstance(raw.get("items"), list):  # a tuple, up to draft 2019-09
        prefix = tuple((facet.at("items", index),) for index in range(len(raw["items"])))
        if "additionalItems" in raw:
            rest = (_schema(facet, "additionalItems"),)
    elif "items" in raw:
        rest = (_schema(facet, "items"),)
    low, high = _count(facet, "minItems") or 0, _count(facet, "maxItems")
    if rest and rest[0].raw is False:
        high = len(prefix) if high is None else min(high, len(prefix))
    return Array(prefix, rest, low, high)


def _meet_arrays(left: Array, right: Array) -> Array:
    length = max(len(left.prefix), len(right.prefix))
    prefix = tuple(
        conjunction(*(side.prefix[i] if i < len(side.prefix) else side.items for side in (left, right)))
        for i in range(length)
    )
    return Array(
        prefix,
        conjunction(left.items, right.items),
        max(left.min_items, right.min_items),
        _least((left.max_items, right.max_items)),
    )


def _object(facet: Subschema) -> Object:
    raw = facet.raw
    names = raw.get("properties", {})
    if not isinstance(names, Mapping):
        raise SchemaError(f"{facet.pointer}/properties", f"properties must be an object, not {names!r}")
    required = raw.get("required", [])
    if isinstance(required, bool):  # draft 3 wrote it inside the property
        required = []
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise SchemaError(
            f"{facet.pointer}/required", f"required must be an array of names, not {required!r}"
        )
    additional: Conjunction | None = ANYTHING
    if "patternProperties" in raw:
        additional = ANYTHING
    elif "additionalProperties" in raw:
        place = _schema(facet, "additionalProperties")
        additional = None if place.raw is False else (() if place.raw is True else (place,))
    groups = raw.get("requires_one_of", []) if facet.pointer == "" else []
    return Object(
        {name: () if names[name] is True else (facet.at("properties", name),) for name in names},
        tuple(dict.fromkeys(required)),
        additional,
        tuple(frozenset(group) for group in groups),
    )


def _meet_objects(left: Object, right: Object) -> Object:
    def child(side: Object, name: str) -> Conjunction:
        if name in side.properties:
            return side.properties[name]
        return NEVER if side.additional is None else side.additional

    properties = {
        name: conjunction(child(left, name), child(right, name))
        for name in dict.fromkeys([*left.properties, *right.properties])
    }
    for name, places in properties.items():
        if NEVER[0] in places:
            properties[name] = NEVER
    additional = (
        None
        if left.additional is None or right.additional is None
        else conjunction(left.additional, right.additional)
    )
    return Object(
        properties,
        tuple(dict.fromkeys([*left.required, *right.required])),
        additional,
        left.one_of_groups + right.one_of_groups,
    )


def _schema(facet: Subschema, keyword: str) -> Subschema:
    place = facet.at(keyword)
    if not isinstance(place.raw, bool | Mapping):
        raise SchemaError(place.pointer, f"{keyword} must be a schema, not {place.raw!r}")
    return place


def _integer_bounds(facet: Subschema, keyword: str, exclusive: str) -> list[Fraction]:
    """The inclusive integer bounds that a facet sets: `exclusive` is a number, or up to draft 4 a flag."""
    upward = keyword == "minimum"
    bounds = []
    for name in (keyword, exclusive):
        value = facet.raw.get(name)
        if value is None or isinstance(value, bool):
            continue
        number = _fraction(facet, name, value)
        rounded = Fraction(math.ceil(number) if upward else math.floor(number))
        if (name == exclusive or facet.raw.get(exclusive) is True) and rounded == number:
            rounded += 1 if upward else -1
        bounds.append(rounded)
    return bounds


def _fraction(facet: Subschema, keyword: str, value: Any) -> Fraction:
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise SchemaError(
            f"{facet.pointer}/{keyword}", f"{keyword} must be a number, not {value!r}"
        ) from error


def _count(facet: Subschema, keyword: str) -> int | None:
    value = facet.raw.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise SchemaError(
            f"{facet.pointer}/{keyword}", f"{keyword} must be a whole number of at least 0, not {value!r}"
        )
    return int(value)


def _least(bounds: Any) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
