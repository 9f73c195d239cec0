"""The sets of values that follow from the `type` of schemas alone, or from a list of strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import KEYWORDS, TYPES
from gbnf.schema.value_sets import ALL_VALUES, Boolean, Conjunction, Null, Number, String, ValueSet

_EVERY_TYPE = ("null", "boolean", "number", "string", "array", "object")  # as in ALL_VALUES
_ALL_TYPES = frozenset(_EVERY_TYPE)
_SINGLE = {name: frozenset([name]) for name in _EVERY_TYPE} | {"integer": frozenset(["number"])}


def allowed_types(conjuncts: tuple[Subschema, ...]) -> tuple[frozenset[str], bool]:
    """Return the JSON types that every conjunct allows, and whether numbers must be integers."""
    allowed, integer = _ALL_TYPES, False
    for conjunct in conjuncts:
        declared = conjunct.raw.get("type")
        if declared is None:
            continue
        if allowed is _ALL_TYPES and isinstance(declared, str):  # most often, one schema declares one type
            integer = declared == "integer"
            allowed = _SINGLE[declared]
            continue
        names = [declared] if isinstance(declared, str) else declared
        if "integer" in names and "number" not in names:
            integer = True
        allowed &= frozenset("number" if name == "integer" else name for name in names)
    return allowed, integer


def set_of_types(subschemas: Conjunction, document: Document) -> ValueSet:
    """Return every value of the types that the subschemas name themselves."""
    types = _ALL_TYPES
    for subschema in subschemas:
        raw = document.enter(subschema).raw
        declared = raw.get("type") if isinstance(raw, Mapping) else None
        names = [declared] if isinstance(declared, str) else declared
        if not isinstance(names, list) or any(name not in TYPES for name in names):
            continue
        if not (document.refs_hide_siblings and "$ref" in raw):
            types &= {"number" if name == "integer" else name for name in names}
    shapes = [shape for shape, name in zip(ALL_VALUES.shapes, _EVERY_TYPE, strict=True) if name in types]
    return ValueSet(shapes=tuple(shapes), reason="no JSON type is left")


_PLAIN: dict[str, ValueSet] = {
    "null": ValueSet(shapes=(Null(),)),
    "boolean": ValueSet(shapes=(Boolean(),)),
    "integer": ValueSet(shapes=(Number(integer=True),)),
    "number": ValueSet(shapes=(Number(),)),
    "string": ValueSet(shapes=(String(),)),
}


def plain_set(raw: Any) -> ValueSet | None:
    """Return the values of a schema with just a scalar type or a list of strings, as most have; else None."""
    if not (type(raw) is dict or isinstance(raw, Mapping)):  # the first is much faster
        return None
    asking = [keyword for keyword in raw if keyword in KEYWORDS]
    declared = raw.get("type")
    if asking == ["type"]:
        return _PLAIN.get(declared) if isinstance(declared, str) else None
    if len(asking) <= 2 and "enum" in asking and (len(asking) == 1 or declared == "string"):
        listed = raw["enum"]
        if isinstance(listed, list) and listed and all(isinstance(value, str) for value in listed):
            return ValueSet(tuple(dict.fromkeys(listed)))
    return None
