"""Closed objects: an object that declares properties but not `additionalProperties` allows no others.

In JSON Schema, objects are open by default; in a tool call they are closed. Here the schema is rewritten, for
compiler, validator, dialects and repair alike: `additionalProperties: false` is added where an object's own
`properties` declare everything, `unevaluatedProperties: false` beside references and combinators, whose
properties count too. `patternProperties` leaves an object open, as `additionalProperties` does.

Schemas of `not`, `if`, `contains` and `propertyNames` do not change: they are conditions, and a stricter
condition would accept more. A definition is closed itself where all references to it stand alone; otherwise
it is closed where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gbnf.schema.keywords import (
    CHILD_APPLICATORS,
    CONDITIONS,
    DEFINITIONS,
    IN_PLACE_APPLICATORS,
    KEYWORDS,
    REFERENCES,
    SchemaPath,
    map_subschemas,
    subschemas,
)
from gbnf.work_limits import spend

if TYPE_CHECKING:
    from referencing import Specification

_LIMITS = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties"})
_ELSEWHERE = frozenset({*REFERENCES, "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})
_BRANCHING = ("anyOf", "oneOf")
_CHILDREN = frozenset(CHILD_APPLICATORS) - CONDITIONS
_IN_PLACE = frozenset(IN_PLACE_APPLICATORS) - CONDITIONS

#: The work of visiting one schema, in the units of `gbnf.work_limits`.
_SCHEMA_WORK = 5


def close_objects(
    schema: Any,
    specification: Callable[[], Specification[Any]] | None = None,
    *,
    unknown: frozenset[str] = frozenset(),
    refs_hide_siblings: bool = False,
) -> Any:
    """Return `schema` with every object closed that declares properties but not which others it may have.

    For other drafts than 2020-12: `specification` resolves references, keywords in `unknown` are removed, and
    `refs_hide_siblings` says whether keywords beside `$ref` are ignored.
    """
    if not isinstance(schema, Mapping):
        return schema
    if unknown:
        schema = _without(schema, unknown)
    return _Closing(InPlaceSchemas(schema, specification), refs_hide_siblings).closed(schema, value=True)


def close_arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, closed even if it declares none. It is of draft 2020-12."""
    closed: dict[str, Any] = close_objects(args)
    if (_LIMITS | _ELSEWHERE).isdisjoint(closed):
        closed["additionalProperties"] = False
    return closed


class InPlaceSchemas:
    """The schemas that apply to the same value: a schema, its `allOf`, references and branches."""

    def __init__(self, root: Any, specification: Callable[[], Specification[Any]] | None = None) -> None:
        self.root, self._specification = root, specification

    @cached_property
    def _resolver(self) -> Any:
        from referencing import Registry  # noqa: PLC0415  # many schemas have no references
        from referencing.jsonschema import DRAFT202012  # noqa: PLC0415  # as above

        specification = DRAFT202012 if self._specification is None else self._specification()
        resource = specification.create_resource(self.root)
        registry: Registry[Any] = Registry().with_resource("urn:schema", resource)
        return registry.resolver("urn:schema")

    def of(self, schema: Any, *, branches: bool) -> Iterator[Mapping[str, Any]]:
        """Yield `schema` and the schemas that apply to the same value, each once, without conditions."""
        seen: set[int] = set()
        pending = [schema]
        while pending:
            here = pending.pop()
            if not isinstance(here, Mapping) or id(here) in seen:
                continue
            spend(_SCHEMA_WORK)
            seen.add(id(here))
            yield here
            below = [
                member
                for path, member in subschemas(here)
                if path[0] == "allOf" or (branches and path[0] in _IN_PLACE)
            ]
            pending += [*reversed(below), *reversed(self.targets(here))]

    def targets(self, schema: Mapping[str, Any]) -> list[Any]:
        """Return the schemas that the references of `schema` lead to, without those that lead nowhere."""
        targets = []
        for keyword in REFERENCES:
            if keyword in schema:
                from referencing.exceptions import Unresolvable  # noqa: PLC0415  # as above

                try:
                    targets.append(self._resolver.lookup(schema[keyword]).contents)
                except (Unresolvable, AttributeError, TypeError, ValueError):
                    continue
        return targets

    def declares(self, schema: Any, *, branches: bool = True) -> bool:
        """Return whether properties are declared."""
        return any(here.get("properties") for here in self.of(schema, branches=branches))

    def limits(self, schema: Any) -> bool:
        """Return whether a keyword for additional properties applies."""
        return any(not _LIMITS.isdisjoint(here) for here in self.of(schema, branches=False))

    def combined(self) -> frozenset[int]:
        """Return the `id` of each schema that applies to a value together with others, or is in a condition.

        Schemas inside a condition are skipped; only the targets of their references are visited.
        """
        combined: set[int] = set()
        aliases: list[tuple[Any, Any]] = []  # a definition that is a reference, and its target
        seen: set[tuple[int, str]] = set()
        pending = [(self.root, "value")]
        while pending:
            schema, role = pending.pop()
            if not isinstance(schema, Mapping) or (id(schema), role) in seen:
                continue
            spend(_SCHEMA_WORK)
            seen.add((id(schema), role))
            stands_alone = role in ("value", "definition") and _is_reference(schema)
            for target in self.targets(schema):
                if not stands_alone:
                    combined.add(id(target))
                elif role == "definition":
                    aliases.append((schema, target))
            for path, member in subschemas(schema):
                if role == "condition" or path[0] in CONDITIONS:
                    pending.append((member, "condition"))
                elif path[0] in _IN_PLACE:
                    combined.add(id(member))
                    pending.append((member, "in place"))
                else:
                    pending.append((member, "definition" if path[0] in DEFINITIONS else "value"))
        while targets := {id(target) for schema, target in aliases if id(schema) in combined} - combined:
            combined |= targets
        return frozenset(combined)


class _Closing:
    def __init__(self, schemas: InPlaceSchemas, refs_hide_siblings: bool) -> None:
        self._schemas, self._refs_hide_siblings = schemas, refs_hide_siblings
        self._combined = schemas.combined()
        self._closed_schemas: dict[tuple[int, bool, bool], Any] = {}  # a schema in many places stays one

    def closed(self, schema: Any, *, value: bool, closes_around: bool = False) -> Any:
        """Return `schema` with its objects closed.

        `value`: no other schema around it applies to the same value. `closes_around`: one that does is
        closed.
        """
        if not isinstance(schema, Mapping):
            return schema
        key = (id(schema), value, closes_around)
        if key not in self._closed_schemas:
            self._closed_schemas[key] = self._closed(schema, value, closes_around)
        return self._closed_schemas[key]

    def _closed(self, schema: Mapping[str, Any], value: bool, closes_around: bool) -> dict[str, Any]:
        closing = self._addition(schema) if value else {}
        closes = (closes_around or bool(closing)) and "unevaluatedProperties" not in schema

        def below(path: SchemaPath, member: Any) -> Any:
            if path[0] in CONDITIONS:
                return member
            if path[0] in _CHILDREN:
                return self.closed(member, value=True)
            if path[0] in DEFINITIONS:
                return self.closed(member, value=id(member) not in self._combined)
            closed = self.closed(member, value=False, closes_around=closes)
            return self._opened(member, closed, schema) if closing and path[0] in _BRANCHING else closed

        copy = map_subschemas(schema, below)
        if closing and self._refs_hide_siblings and "$ref" in schema:
            copy = {"allOf": [copy]}
        copy |= closing
        if closes_around and any(
            "patternProperties" in here for here in self._schemas.of(schema, branches=False)
        ):
            copy.setdefault("unevaluatedProperties", True)
        return copy

    def _addition(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword that closes the objects of a schema, if they are to be closed."""
        if _is_reference(schema) and not any(
            id(target) in self._combined for target in self._schemas.targets(schema)
        ):
            return {}  # the target is closed itself
        if self._schemas.limits(schema) or not self._schemas.declares(schema):
            return {}
        return {"additionalProperties" if _ELSEWHERE.isdisjoint(schema) else "unevaluatedProperties": False}

    def _opened(self, branch: Any, closed: Any, beside: Mapping[str, Any]) -> Any:
        """Return a branch, open if neither it nor the schema around it declares properties."""
        schemas = self._schemas
        declared_beside = schemas.declares(beside, branches=False)
        if branch is False or declared_beside or schemas.limits(branch) or schemas.declares(branch):
            return closed
        return {**(closed if isinstance(closed, dict) else {}), "unevaluatedProperties": True}


def _is_reference(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is a reference without other keywords."""
    return KEYWORDS & schema.keys() == {"$ref"}


def _without(schema: Any, keywords: frozenset[str]) -> Any:
    """Return `schema` without the keywords, at any depth."""
    if not isinstance(schema, Mapping):
        return schema
    remaining = {keyword: value for keyword, value in schema.items() if keyword not in keywords}
    return map_subschemas(remaining, lambda _path, member: _without(member, keywords))
