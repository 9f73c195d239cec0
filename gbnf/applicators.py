"""Where schemas stand inside a schema: the applicators of JSON Schema 2020-12, as tables.

Everything that walks a raw schema goes by these tables, so that a property named `items`, or a schema-like
value inside `enum` or `default`, is never taken for a schema.
Source: https://json-schema.org/draft/2020-12/json-schema-core, sections 8.2.4, 10 and 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

Form: TypeAlias = Literal["one", "list", "map"]

IN_PLACE: Mapping[str, Form] = {
    "allOf": "list",
    "anyOf": "list",
    "oneOf": "list",
    "not": "one",
    "if": "one",
    "then": "one",
    "else": "one",
    "dependentSchemas": "map",
}
"""Keywords whose schemas judge the same value as the schema that they stand in."""

CHILD: Mapping[str, Form] = {
    "properties": "map",
    "patternProperties": "map",
    "additionalProperties": "one",
    "unevaluatedProperties": "one",
    "propertyNames": "one",
    "prefixItems": "list",
    "items": "one",
    "contains": "one",
    "unevaluatedItems": "one",
}
"""Keywords whose schemas judge parts of the value."""

DEFINITIONS: Mapping[str, Form] = {"$defs": "map", "definitions": "map"}
"""Keywords whose schemas judge nothing until a reference leads there."""

FORMS: Mapping[str, Form] = {**IN_PLACE, **CHILD, **DEFINITIONS}

Place: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead from a schema to a place below it; the first is the keyword."""


SAYS_MORE = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties"})
"""Keywords that speak of other properties than the declared ones."""

_ELSEWHERE = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})


def looks_elsewhere(schema: Mapping[str, Any]) -> bool:
    """Whether more than the schema's own `properties` may declare."""
    return not _ELSEWHERE.isdisjoint(schema)


def subschemas(schema: Any) -> Iterator[tuple[Place, Any]]:
    """The schemas directly inside `schema`, each with its place, in document order.

    Malformed keywords hold nothing; boolean schemas hold nothing and are yielded like any other.
    """
    if not isinstance(schema, Mapping):
        return
    for keyword, held in schema.items():
        match FORMS.get(keyword), held:
            case "one", Mapping() | bool():
                yield (keyword,), held
            case "list", list():
                yield from (((keyword, index), member) for index, member in enumerate(held))
            case "map", Mapping():
                yield from (((keyword, name), member) for name, member in held.items())


def rebuilt(schema: Mapping[str, Any], change: Callable[[Place, Any], Any]) -> dict[str, Any]:
    """A copy of `schema` with each schema directly inside it replaced by `change(place, schema)`."""
    copy = dict(schema)
    for place, member in subschemas(schema):
        if len(place) == 1:
            copy[place[0]] = change(place, member)  # type: ignore[index]  # a keyword is a string
        else:
            keyword, key = place
            if copy[keyword] is schema[keyword]:  # type: ignore[index]  # likewise
                copy[keyword] = held = copy[keyword].copy()  # type: ignore[index]  # likewise
            held[key] = change(place, member)
    return copy


def walk(schema: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """`schema` and every schema below it, each with its place, outermost first; no reference is followed."""
    yield place, schema
    for below, member in subschemas(schema):
        yield from walk(member, (*place, *below))


def followed(reference: Any, root: Any) -> tuple[Place, Any] | None:
    """The place that a reference by JSON pointer (`#/$defs/name`) leads to; None for all others."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    place: list[str | int] = []
    found = root
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        return None
    for step in pointer.split("/")[1:]:
        key: str | int = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            key = int(step)
        elif not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
        place.append(key)
    return tuple(place), found
