"""Put the keys of a value in the order in which its schema declares them, as far as it declares any.

Naive on purpose, and without any code of the compiler: it walks schema and value side by side through
everything that may say something about the value, and takes keys in the order in which it meets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from references import REFERENCES, target

_SAME_PLACE = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("not", "if", "then", "else")
_NAMED = ("dependentSchemas", "dependencies")


def in_declared_order(root: Any, value: Any) -> Any:
    """An equal value whose objects list declared keys first, in declared order, then the others."""
    return _ordered(root, (root,), value)


def _ordered(root: Any, schemas: tuple[Any, ...], value: Any) -> Any:
    schemas = tuple(_at_this_place(root, schemas))
    match value:
        case dict():
            declared = dict.fromkeys(
                key
                for schema in schemas
                for source in (schema.get("properties", {}), *_values(schema, dict))
                for key in source
            )
            keys = [
                *(key for key in declared if key in value),
                *(key for key in value if key not in declared),
            ]
            return {key: _ordered(root, _below(schemas, key), value[key]) for key in keys}
        case list():
            return [_ordered(root, _inside(schemas, index), item) for index, item in enumerate(value)]
        case _:
            return value


def _at_this_place(root: Any, schemas: tuple[Any, ...]) -> Iterator[Mapping[str, Any]]:
    """The schema objects that speak of one value, in the order of the document."""
    pending, seen = list(reversed(schemas)), set[int]()
    while pending:
        schema = pending.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        more: list[Any] = []
        for keyword, inner in schema.items():
            if keyword in _SAME_PLACE and isinstance(inner, list):
                more += inner
            elif keyword in _BRANCHES:
                more.append(inner)
            elif keyword in _NAMED and isinstance(inner, Mapping):
                more += inner.values()
            elif keyword in REFERENCES:
                more.append(target(root, inner))
        pending += reversed(more)


def _below(schemas: tuple[Mapping[str, Any], ...], key: str) -> tuple[Any, ...]:
    found: list[Any] = []
    for schema in schemas:
        if key in schema.get("properties", {}):
            found.append(schema["properties"][key])
        else:
            found += schema.get("patternProperties", {}).values()
            found += [schema.get("additionalProperties"), schema.get("unevaluatedProperties")]
        found += [{"const": each[key]} for each in _values(schema, dict) if key in each]
    return tuple(found)


def _inside(schemas: tuple[Mapping[str, Any], ...], index: int) -> tuple[Any, ...]:
    found: list[Any] = []
    for schema in schemas:
        items = schema.get("items")
        prefix = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems") if isinstance(items, list) else items
        found.append(prefix[index] if index < len(prefix) else rest)
        found += [schema.get("contains"), schema.get("unevaluatedItems")]
        found += [{"const": each[index]} for each in _values(schema, list) if index < len(each)]
    return tuple(found)


def _values(schema: Mapping[str, Any], kind: type) -> list[Any]:
    """The objects, or arrays, that `const` and `enum` name: they declare an order too."""
    return [each for each in (schema.get("const"), *schema.get("enum", ())) if isinstance(each, kind)]
