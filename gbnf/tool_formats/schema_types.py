"""The JSON types that a schema allows, read leniently: rather too many than too few, and never an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

from gbnf.strict_json import json_type

ANY: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_DEPTH = 16


@dataclass(frozen=True)
class TypedSchema:
    """A subschema of the document `root`."""

    raw: Any
    root: Any

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that it allows; "integer" beside every "number"."""
        return _types(self.raw, self.root, _DEPTH)

    def property(self, name: str) -> TypedSchema:
        """Return the subschema of a property."""
        return TypedSchema(_member(self.raw, self.root, name, _DEPTH), self.root)

    def item(self, index: int) -> TypedSchema:
        """Return the subschema of an item."""
        return TypedSchema(_member(self.raw, self.root, index, _DEPTH), self.root)


def _types(raw: Any, root: Any, depth: int) -> frozenset[str]:
    if raw is False:
        return frozenset()
    if not isinstance(raw, Mapping) or not depth:
        return ANY
    declared = raw.get("type", ())
    names = {declared} if isinstance(declared, str) else {each for each in declared if isinstance(each, str)}
    types = (frozenset(names) & ANY) or ANY
    types |= {"integer"} if "number" in types else frozenset()
    listed = [raw["const"]] if "const" in raw else raw.get("enum")
    if isinstance(listed, list):
        kinds = frozenset(map(json_type, listed))
        types &= kinds | ({"integer"} if "number" in kinds else frozenset())
    for part in _all_of(raw, root):
        types &= _types(part, root, depth - 1)
    for choices in _any_of(raw):
        types &= frozenset().union(*(_types(choice, root, depth - 1) for choice in choices))
    return types


def _member(raw: Any, root: Any, key: str | int, depth: int) -> Any:
    """Return a schema that implies the constraints on a member."""
    if not isinstance(raw, Mapping) or not depth:
        return True
    parts = [_own_member(raw, key), *(_member(part, root, key, depth - 1) for part in _all_of(raw, root))]
    owner = "array" if isinstance(key, int) else "object"
    for choices in _any_of(raw):
        owners = [choice for choice in choices if owner in _types(choice, root, depth - 1)]
        parts.append({"anyOf": [_member(choice, root, key, depth - 1) for choice in owners or choices]})
    parts = [part for part in parts if part is not True]
    return True if not parts else parts[0] if len(parts) == 1 else {"allOf": parts}


def _own_member(raw: Mapping[str, Any], key: str | int) -> Any:
    if isinstance(key, int):
        first = raw.get("prefixItems", ())
        return first[key] if isinstance(first, list) and key < len(first) else raw.get("items", True)
    properties = raw.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    patterns = raw.get("patternProperties")
    for pattern, schema in patterns.items() if isinstance(patterns, Mapping) else ():
        try:
            if re.search(pattern, key):
                return schema
        except re.error:
            return True
    return raw.get("additionalProperties", True)


def _all_of(raw: Mapping[str, Any], root: Any) -> list[Any]:
    parts = raw.get("allOf")
    found = list(parts) if isinstance(parts, list) else []
    return [*found, _target(raw["$ref"], root)] if "$ref" in raw else found


def _any_of(raw: Mapping[str, Any]) -> list[list[Any]]:
    return [raw[key] for key in ("anyOf", "oneOf") if isinstance(raw.get(key), list)]


def _target(reference: Any, root: Any) -> Any:
    """Return what a reference inside the document refers to; True for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return True
    found = root
    for written in filter(None, unquote(reference[1:]).split("/")):
        step = written.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return True
    return found
