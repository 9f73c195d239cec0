"""All that a schema says of one place of a value: its parts, and the keys that they declare together."""

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
    """The schemas that judge the value of one place, in whatever part of the root schema they stand.

    A key that one of them declares is known, even where another one doesn't name it, or doesn't apply.
    `whole`: the place is that of the arguments, which are closed even where they declare none.
    """

    def __init__(self, schemas: Iterable[Any], root: Mapping[str, Any], *, whole: bool = False) -> None:
        self._root, self._whole = root, whole
        self._unresolved = False
        self._parts = tuple(self._in_place(schemas))

    def _in_place(self, schemas: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        """Each schema, and what judges the same value beside it; what `not` forbids declares nothing."""
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
        """The properties that some part requires."""
        return frozenset(name for part in self._parts for name in part.get("required", ()))

    @cached_property
    def closed(self) -> bool:
        """Whether it is sure that an object here takes no key but those that are known."""
        said = [part[keyword] for part in self._parts for keyword in _OPENING if keyword in part]
        if self._unresolved or any(each is not False for each in said):
            return False
        if said:
            return True
        if any("patternProperties" in part for part in self._parts):
            return False
        return bool(self.names) or (self._whole and len(self._parts) == 1)

    def knows(self, key: str) -> bool:
        """Whether some part declares this key: by its name, by a pattern, or in a value that it allows."""
        return any(
            key in part.get("properties", {})
            or any(_matches(pattern, key) for pattern in part.get("patternProperties", {}))
            or any(isinstance(value, Mapping) and key in value for value in _listed(part))
            for part in self._parts
        )

    def member(self, key: str) -> Location:
        """The place of an object's member."""
        schemas: list[Any] = []
        for part in self._parts:
            properties, patterns = part.get("properties", {}), part.get("patternProperties", {})
            schemas += [properties[key]] if key in properties else []
            schemas += [schema for pattern, schema in patterns.items() if _matches(pattern, key)]
            schemas += [part[keyword] for keyword in _OPENING if keyword in part]
        return Location(schemas, self._root)

    def item(self, at: int) -> Location:
        """The place of a list's member."""
        return Location((item_schema(part, at) for part in self._parts), self._root)


def item_schema(schema: Mapping[str, Any], at: int) -> Any:
    """What one schema says of a list's member; None where it says nothing."""
    first = schema.get("prefixItems", ())
    return first[at] if at < len(first) else schema.get("items")


def _listed(schema: Mapping[str, Any]) -> list[Any]:
    return [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]


def _matches(pattern: str, key: str) -> bool:
    """As the validator matches; a pattern that nothing reads may match anything."""
    return pattern_matches(pattern, key) is not False
