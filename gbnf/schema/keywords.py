"""The keywords of JSON Schema that the compiler knows, and which of them contain subschemas.

A keyword that isn't in `KEYWORDS` does not affect which values are valid: it is an annotation, standard or
custom (2020-12 core, 4.3.1). Every walk through a raw schema uses the tables of applicators, so that a
property named `items`, or a schema-like value inside `enum` or `default`, is never taken for a schema.
Source: https://json-schema.org/draft/2020-12/json-schema-core, sections 8.2.4, 10 and 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

#: The keywords that make values valid or invalid.
KEYWORDS = frozenset(
    {
        "$ref", "$dynamicRef", "$recursiveRef",
        "type", "enum", "const",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minLength", "maxLength", "pattern", "format",
        "items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems",
        "uniqueItems", "contains", "minContains", "maxContains",
        "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
        "unevaluatedProperties", "minProperties", "maxProperties",
        "dependentRequired", "dependentSchemas", "dependencies",
        "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    }
)  # fmt: skip

#: Private keywords, in complements, for what JSON Schema has no keyword for, or not in every draft.
NOT_PATTERN = "gbnf:notPattern"
NOT_FORMAT = "gbnf:notFormat"
NOT_WORDS = "gbnf:notWords"
NOT_INTEGER = "gbnf:notInteger"
ABOVE = "gbnf:above"
BELOW = "gbnf:below"
HAS_ITEM = "gbnf:holds"
FIRST_ITEMS = "gbnf:firstItems"
PRIVATE = frozenset({NOT_PATTERN, NOT_FORMAT, NOT_WORDS, NOT_INTEGER, ABOVE, BELOW, HAS_ITEM, FIRST_ITEMS})
#: Wraps the condition of an `if` that is satisfied.
CONDITION = "gbnf:condition"
#: Lists schemas that may be satisfied too: what they evaluate then counts.
OPTIONAL = "gbnf:optional"

_LATER = {
    "draft-06": {"const", "contains", "propertyNames"},
    "draft-07": {"if", "then", "else"},
    "2019-09": {
        "dependentRequired", "dependentSchemas", "minContains", "maxContains", "$recursiveRef",
        "unevaluatedItems", "unevaluatedProperties",
    },
    "2020-12": {"prefixItems", "$dynamicRef"},
}  # fmt: skip
_EARLIER = {"2019-09": {"dependencies"}, "2020-12": {"dependencies", "$recursiveRef"}}


@cache
def unknown_keywords(draft: str) -> frozenset[str]:
    """Return the keywords of other drafts that a draft (`draft-04` to `2020-12`) does not have."""
    drafts = ["draft-04", *_LATER]
    later = drafts[drafts.index(draft) + 1 :]
    return frozenset(_EARLIER.get(draft, set()).union(*(_LATER[name] for name in later)))


JsonType: TypeAlias = Literal["string", "number", "boolean", "null", "array", "object"]
JSON_TYPES: tuple[JsonType, ...] = ("null", "boolean", "number", "string", "array", "object")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def types_of(raw: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that `type` allows, all without it; integers are numbers."""
    declared = raw.get("type", TYPES)
    names = [declared] if isinstance(declared, str) else declared
    return frozenset(["number" if name == "integer" else name for name in names])


#: The keywords that lead to another schema.
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

#: The keywords that constrain what other keywords leave unevaluated, and so depend on the branches chosen.
UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})

#: The keywords that offer branches.
CHOICES = frozenset({"anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies"})


ApplicatorKind: TypeAlias = Literal["one", "list", "map"]

IN_PLACE_APPLICATORS: Mapping[str, ApplicatorKind] = {
    "allOf": "list",
    "anyOf": "list",
    "oneOf": "list",
    "not": "one",
    "if": "one",
    "then": "one",
    "else": "one",
    "dependentSchemas": "map",
}
"""Keywords whose schemas judge the same value as the schema around them."""

CHILD_APPLICATORS: Mapping[str, ApplicatorKind] = {
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

CONDITIONS = frozenset({"not", "if", "contains", "propertyNames"})
"""Keywords whose schemas are conditions: a stricter condition may accept more values."""

DEFINITIONS: Mapping[str, ApplicatorKind] = {"$defs": "map", "definitions": "map"}
"""Keywords whose schemas apply only where a reference leads to them."""

APPLICATORS: Mapping[str, ApplicatorKind] = {**IN_PLACE_APPLICATORS, **CHILD_APPLICATORS, **DEFINITIONS}

SchemaPath: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead from a schema to one below it; the first is the keyword."""
Place: TypeAlias = "tuple[Place | None, SchemaPath]"
"""Where a schema is in another: the place of the schema around it, and the path from there."""


def subschemas(schema: Any) -> Iterator[tuple[SchemaPath, Any]]:
    """Yield the schemas directly inside `schema`, each with its path, in document order.

    Malformed keywords are skipped; boolean schemas are yielded like any other.
    """
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        if keyword not in APPLICATORS:
            continue
        match APPLICATORS[keyword], value:
            case "one", Mapping() | bool():
                yield (keyword,), value
            case "list", list():
                yield from (((keyword, index), member) for index, member in enumerate(value))
            case "map", Mapping():
                yield from (((keyword, name), member) for name, member in value.items())


def map_subschemas(schema: Mapping[str, Any], change: Callable[[SchemaPath, Any], Any]) -> dict[str, Any]:
    """Return a copy of `schema` with each schema directly inside it replaced by `change(path, schema)`."""
    copy = dict(schema)
    for path, member in subschemas(schema):
        if len(path) == 1:
            copy[path[0]] = change(path, member)  # type: ignore[index]  # a keyword is a string
        else:
            keyword, key = path
            if copy[keyword] is schema[keyword]:  # type: ignore[index]  # likewise
                copy[keyword] = value = copy[keyword].copy()  # type: ignore[index]  # likewise
            value[key] = change(path, member)
    return copy


def walk(schema: Any, path: SchemaPath = ()) -> Iterator[tuple[SchemaPath, Any]]:
    """Yield `schema` and all schemas below it, each with its path, outermost first; follows no references."""
    return ((path_of(place), here) for place, here in places(schema, path))


def places(schema: Any, path: SchemaPath = ()) -> Iterator[tuple[Place, Any]]:
    """As `walk`, with places instead of paths, which take quadratic memory in a deep schema."""
    waiting: list[tuple[Place, Any]] = [((None, path), schema)]
    while waiting:
        place, here = waiting.pop()
        yield place, here
        waiting += [((place, below), member) for below, member in subschemas(here)][::-1]


def path_of(place: Place) -> SchemaPath:
    """Return the path of a place."""
    parts: list[SchemaPath] = []
    above: Place | None = place
    while above is not None:
        above, part = above
        parts.append(part)
    return tuple(chain.from_iterable(reversed(parts)))


def resolve_pointer(reference: Any, root: Any) -> tuple[SchemaPath, Any] | None:
    """Return the path and target of a reference by JSON Pointer (`#/$defs/name`); None for all others."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    path: list[str | int] = []
    target = root
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        return None
    for step in pointer.split("/")[1:]:
        key: str | int = pointer_key(step)
        if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
            key = int(step)
        elif not isinstance(target, Mapping) or key not in target:
            return None
        target = target[key]
        path.append(key)
    return tuple(path), target


def pointer_key(step: str) -> str:
    """Return the key that a step of a JSON Pointer stands for."""
    return step.replace("~1", "/").replace("~0", "~")


def child_pointer(pointer: str, key: object) -> str:
    """Return the JSON Pointer of the member under a key or an index."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def path_pointer(path: Iterable[object]) -> str:
    """Return the JSON Pointer of a path of keys and indices."""
    return "".join([child_pointer("", step) for step in path])
