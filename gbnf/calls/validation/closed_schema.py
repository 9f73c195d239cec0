"""The schema that validates a tool call: the manifest's, with objects closed.

In JSON Schema, objects are open by default. In a tool call, an object that declares properties but not
`additionalProperties` (or `patternProperties`) allows no others, and the arguments as a whole are closed even
if they declare none. Objects are closed by `unevaluatedProperties`, so that properties declared by `allOf`,
`anyOf` and references count too. Schemas of `not`, `if` and `contains` do not change: they are conditions,
and a stricter condition would accept more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from referencing import Registry, exceptions
from referencing.jsonschema import DRAFT202012

from gbnf.schema.applicators import (
    ADDITIONAL_PROPERTY_KEYWORDS,
    CHILD_APPLICATORS,
    IN_PLACE_APPLICATORS,
    SchemaPath,
    declares_elsewhere,
    map_subschemas,
)
from gbnf.tools.tool import is_runtime_resolved

_TESTS = frozenset({"not", "if", "contains", "propertyNames"})
_BRANCHING = ("anyOf", "oneOf")
_BELOW = frozenset(CHILD_APPLICATORS) - _TESTS
_IN_PLACE = frozenset(IN_PLACE_APPLICATORS) - _TESTS

FILLED_BY_RUNTIME: dict[str, Any] = {"runtime_resolved": True, "not": {}}
"""The schema of a property that the runtime fills in: no value is valid."""


def validation_schema(args: Mapping[str, Any], without: frozenset[str], *, closed: bool) -> dict[str, Any]:
    """Return `args` for the validator: without the top-level properties in `without`, closed if `closed`."""
    if without:
        properties = {
            name: schema for name, schema in args.get("properties", {}).items() if name not in without
        }
        args = {**args, "properties": properties}
    root = _ClosedSchemaBuilder(args, closed=closed).prepared(args, value=True)
    assert isinstance(root, dict)
    if closed and not ADDITIONAL_PROPERTY_KEYWORDS & root.keys() and not declares_elsewhere(root):
        root["additionalProperties"] = False
    return root


def declared_names(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """Return every property that `schema` allows a model to give, its own and those of its references."""
    names: dict[str, None] = {}
    for here in _References(root).in_place(schema, branches=True):
        names |= {
            name: None for name, member in here.get("properties", {}).items() if member != FILLED_BY_RUNTIME
        }
    return list(names)


def property_schemas(root: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yield the schemas of the property `name` that apply in every object that `root` accepts."""
    for here in _References(root).in_place(root, branches=False):
        if name in here.get("properties", {}):
            yield here["properties"][name]


class _References:
    """The schemas that apply to the same value: a schema, its `allOf`, references and branches."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        registry: Registry[Any] = Registry().with_resource("urn:args", DRAFT202012.create_resource(root))
        self._resolver = registry.resolver("urn:args")

    def in_place(self, schema: Any, *, branches: bool) -> Iterator[Mapping[str, Any]]:
        """Yield `schema` and the schemas that apply to the same value, each once, without conditions."""
        seen: set[int] = set()
        pending = [schema]
        while pending:
            here = pending.pop()
            if not isinstance(here, Mapping) or id(here) in seen:
                continue
            seen.add(id(here))
            yield here
            if "$ref" in here:
                try:
                    pending.append(self._resolver.lookup(here["$ref"]).contents)
                except exceptions.Unresolvable:
                    continue
            more = [here.get("allOf", [])]
            if branches:
                more += [here.get(keyword, []) for keyword in _BRANCHING]
                more.append([here[keyword] for keyword in ("then", "else") if keyword in here])
                more.append(list(here.get("dependentSchemas", {}).values()))
            pending += [member for members in reversed(more) for member in reversed(members)]

    def declared(self, schema: Any, *, branches: bool = True) -> Iterator[str]:
        """Yield the names of declared properties."""
        for here in self.in_place(schema, branches=branches):
            yield from here.get("properties", {})

    def has_patterns(self, schema: Any) -> bool:
        """Return whether `patternProperties` applies."""
        return any("patternProperties" in here for here in self.in_place(schema, branches=False))

    def has_limit(self, schema: Any) -> bool:
        """Return whether a keyword for additional properties applies."""
        return any(
            ADDITIONAL_PROPERTY_KEYWORDS & here.keys() for here in self.in_place(schema, branches=False)
        )


class _ClosedSchemaBuilder:
    def __init__(self, root: Mapping[str, Any], *, closed: bool) -> None:
        self._references, self._closes = _References(root), closed

    def prepared(self, schema: Any, *, value: bool, closes_around: bool = False) -> Any:
        """Return `schema` for the validator.

        `value`: no other schema around it applies to the same value. `closes_around`: one that does is
        closed.
        """
        if not isinstance(schema, Mapping):
            return schema
        if is_runtime_resolved(schema):
            return FILLED_BY_RUNTIME
        closing = self._closing(schema) if value and self._closes else {}
        closes = (closes_around or bool(closing)) and "unevaluatedProperties" not in schema

        def below(place: SchemaPath, member: Any) -> Any:
            if place[0] in _TESTS:
                return member
            if place[0] in _BELOW:
                return self.prepared(member, value=True)
            prepared = self.prepared(member, value=False, closes_around=closes and place[0] in _IN_PLACE)
            if closing and place[0] in _BRANCHING:
                return self._opened(member, prepared, beside=schema)
            return prepared

        prepared = map_subschemas(_without_demands_on_runtime(schema), below) | closing
        if closes_around and self._references.has_patterns(schema):
            prepared.setdefault("unevaluatedProperties", True)
        return prepared

    def _closing(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if self._references.has_limit(schema) or next(self._references.declared(schema), None) is None:
            return {}
        return {"unevaluatedProperties" if declares_elsewhere(schema) else "additionalProperties": False}

    def _opened(self, branch: Any, prepared: Any, *, beside: Mapping[str, Any]) -> Any:
        """Return a branch, open if it declares no properties."""
        if branch is False or next(self._references.declared(beside, branches=False), None) is not None:
            return prepared
        if self._references.has_limit(branch) or next(self._references.declared(branch), None) is not None:
            return prepared
        return {**(prepared if isinstance(prepared, dict) else {}), "unevaluatedProperties": True}


def _without_demands_on_runtime(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `schema` without required properties that the runtime fills in."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    kept = [name for name in required if not is_runtime_resolved(properties.get(name))]
    return {**schema, "required": kept} if len(kept) < len(required) else schema
