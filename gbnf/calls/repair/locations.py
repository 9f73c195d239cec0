"""All schemas that apply to one location of a value, and the keys that they declare together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from gbnf.schema.applicators import resolve_pointer
from gbnf.schema.pattern_matching import pattern_matches

_OPENING = ("additionalProperties", "unevaluatedProperties")
_LISTS = ("allOf", "anyOf", "oneOf")
_ONES = ("if", "then", "else")
_MAPS = ("dependentSchemas", "dependencies")


class Location:
    """The schemas that apply to the value at one location, from any part of the root schema.

    A key that one of them declares is known, even if another one does not name it, or does not apply.
    """

    def __init__(self, schemas: Iterable[Any], root: Mapping[str, Any]) -> None:
        self._root = root
        self._unresolved = False
        self._parts = tuple(self._in_place(schemas))

    def _in_place(self, schemas: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        """Yield each schema and those that apply to the same value; `not` declares nothing."""
        seen: set[int] = set()
        pending = list(schemas)
        while pending:
            here = pending.pop(0)
            if not isinstance(here, Mapping) or id(here) in seen:
                continue
            seen.add(id(here))
            yield here
            if "$ref" in here:
                target = resolve_pointer(here["$ref"], self._root)
                self._unresolved |= target is None
                pending += () if target is None else (target[1],)
            self._unresolved |= "$dynamicRef" in here
            pending += [member for keyword in _LISTS for member in here.get(keyword, ())]
            pending += [here[keyword] for keyword in _ONES if keyword in here]
            pending += [member for keyword in _MAPS for member in here.get(keyword, {}).values()]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The declared properties, in order."""
        return tuple(dict.fromkeys(name for part in self._parts for name in part.get("properties", {})))

    @cached_property
    def required(self) -> frozenset[str]:
        """The properties that one of the schemas requires."""
        return frozenset(name for part in self._parts for name in part.get("required", ()))

    @cached_property
    def closed(self) -> bool:
        """Whether an object here certainly allows only known keys."""
        limits = [part[keyword] for part in self._parts for keyword in _OPENING if keyword in part]
        return bool(limits) and not self._unresolved and all(limit is False for limit in limits)

    def knows(self, key: str) -> bool:
        """Return whether a schema declares this key: by name, by a pattern, or in an allowed value."""
        return any(
            key in part.get("properties", {})
            or any(_matches(pattern, key) for pattern in part.get("patternProperties", {}))
            or any(isinstance(value, Mapping) and key in value for value in _listed(part))
            for part in self._parts
        )

    def member(self, key: str) -> Location:
        """Return the location of an object's member."""
        schemas: list[Any] = []
        for part in self._parts:
            properties, patterns = part.get("properties", {}), part.get("patternProperties", {})
            schemas += [properties[key]] if key in properties else []
            schemas += [schema for pattern, schema in patterns.items() if _matches(pattern, key)]
            schemas += [part[keyword] for keyword in _OPENING if keyword in part]
        return Location(schemas, self._root)

    def item(self, at: int) -> Location:
        """Return the location of a list's item."""
        return Location((item_schema(part, at) for part in self._parts), self._root)


def item_schema(schema: Mapping[str, Any], at: int) -> Any:
    """Return the schema of a list's item, None if there is none."""
    first = schema.get("prefixItems", ())
    return first[at] if at < len(first) else schema.get("items")


def _listed(schema: Mapping[str, Any]) -> list[Any]:
    return [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]


def _matches(pattern: str, key: str) -> bool:
    """Return whether a pattern matches, as in the validator; an unsupported pattern may match anything."""
    return pattern_matches(pattern, key) is not False
