"""One JSON Schema with everything that it refers to.

A `Subschema` is a place in the document; a reference leads from one to another. References, anchors and
identifiers follow the `referencing` library, so this room knows the draft's keywords only by name.
Two places are the same `Subschema` exactly when they are the same object in the schema, however reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from referencing import Registry, Resource, Specification, exceptions
from referencing.jsonschema import DRAFT202012, specification_with

from gbnf.effort import is_spent
from gbnf.errors import SchemaError, is_panic
from gbnf.regular.errors import EffortSpent
from gbnf.schema.forms import Forms
from gbnf.schema.keywords import unknown_keywords

_DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ROOT_URI = "urn:schema"
_VALIDATORS: dict[str, Any] = {
    "http://json-schema.org/draft-03/schema": jsonschema.Draft3Validator,
    "http://json-schema.org/draft-04/schema": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    _DEFAULT_DIALECT: jsonschema.Draft202012Validator,
}
_DRAFTS = {dialect: dialect.removesuffix("/schema").rpartition("/")[2] for dialect in _VALIDATORS}


@dataclass(frozen=True, slots=True, eq=False)
class Subschema:
    """A place in a document: its raw schema (boolean or object) and its JSON pointer."""

    raw: Any
    pointer: str
    resolver: Any = field(repr=False)
    #: Whether `resolver` takes the place's own identifier for its base already.
    entered: bool = field(default=False, repr=False)
    #: Whether the schema is none of the author's, but made from one.
    made: bool = field(default=False, repr=False)
    #: What the place asks about without declaring it: "if" the condition of the value itself, "inside" what
    #: stands in a condition, a `not` or a `contains`; "" for all others. Only closed objects look at it.
    test: str = field(default="", repr=False)

    def at(self, *steps: str | int) -> Subschema:
        """The place below this one; `steps` are keys and indices. Raises KeyError or IndexError."""
        raw, pointer = self.raw, self.pointer
        for step in steps:
            raw = raw[step]
            pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
        return Subschema(raw, pointer, self.resolver, test=self.test and "inside")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subschema) and self.raw is other.raw and self.test == other.test

    def __hash__(self) -> int:
        return id(self.raw)


class UnjudgedError(Exception):
    """jsonschema can't tell whether a value is valid."""


class _LateResolver:
    """The resolver of a whole schema, made when it is asked for: many schemas refer to nothing."""

    def __init__(self, specification: Specification[Any], schema: Any) -> None:
        self._specification, self._schema = specification, schema

    def __getattr__(self, name: str) -> Any:
        resolver = vars(self).get("_resolver")
        if resolver is None:
            resource: Resource[Any] = self._specification.create_resource(self._schema)
            uri = resource.id() or _ROOT_URI
            registry: Registry[Any] = SPECIFICATIONS.with_resource(uri, resource)
            resolver = self._resolver = registry.resolver(uri)
        return getattr(resolver, name)


@lru_cache(maxsize=64)
def _specification(dialect: str) -> Specification[Any]:
    return _forgiving(specification_with(dialect, default=DRAFT202012))


class Document:
    """A schema, its dialect and its references."""

    def __init__(self, schema: Any) -> None:
        declared = schema.get("$schema") if isinstance(schema, Mapping) else None
        self.dialect = str(declared or _DEFAULT_DIALECT).rstrip("#")
        self._specification = _specification(self.dialect)
        self.root = Subschema(schema, "", _LateResolver(self._specification, schema), entered=True)
        draft = _DRAFTS.get(self.dialect, "2020-12")
        #: Up to draft 7, keywords beside `$ref` are ignored.
        self.refs_hide_siblings = draft.startswith("draft")
        # Where no draft is declared, keywords of all of them mean what they meant in theirs.
        self._unknown = unknown_keywords(draft) if declared and draft != "draft-03" else frozenset[str]()
        self._forms = Forms(draft if self.dialect in _DRAFTS and declared else "", self._unknown)
        self._forms.check(schema, "")
        self._readable: dict[int, Subschema] = {}
        self._homes: dict[int, str] | None = None
        self._has_resources = False  # schemas of an identifier of their own, where "#/" is not the root
        self._validator: Any = None
        self._dynamic_anchors: Counter[str] | None = None

    def is_static(self, reference: str) -> bool:
        """Whether a `$dynamicRef` or `$recursiveRef` can lead to one place only, wherever it is met."""
        if self._dynamic_anchors is None:
            self._dynamic_anchors = Counter(_dynamic_anchors(self.root.raw))
        return self._dynamic_anchors[reference.rpartition("#")[2]] <= 1

    def enter(self, place: Subschema) -> Subschema:
        """The same place, with references resolved against its own identifier where it declares one.

        Keywords of other drafts than the declared one are gone from it.
        """
        raw = place.raw
        if isinstance(raw, Mapping) and not self._unknown.isdisjoint(raw):
            place = self._known_only(place)
        if place.entered or not isinstance(raw, Mapping):
            return place
        if "$id" in raw or "id" in raw:
            resource: Resource[Any] = self._specification.create_resource(raw)
            if resource.id() is not None:
                self._has_resources = True
                resolver = place.resolver.in_subresource(resource)
                return Subschema(raw, place.pointer, resolver, entered=True, test=place.test)
        return place

    def _known_only(self, place: Subschema) -> Subschema:
        known = self._readable.get(id(place.raw))
        if known is None:
            raw = {keyword: value for keyword, value in place.raw.items() if keyword not in self._unknown}
            known = self._readable[id(place.raw)] = replace(place, raw=raw)
        return replace(known, test=place.test)

    def follow(self, place: Subschema, keyword: str) -> Subschema:
        """The place that `$ref` or `$dynamicRef` of `place` leads to. Raises SchemaError."""
        reference = place.raw[keyword]
        try:
            resolved = place.resolver.lookup(reference)
        except (exceptions.Unresolvable, AttributeError, TypeError, ValueError) as error:
            raise SchemaError(
                f"{place.pointer}/{keyword}",
                f"the reference {reference!r} leads nowhere",
                "References must stay inside the schema; nothing is fetched.",
            ) from error
        raw = resolved.contents
        if not str(reference).startswith("#"):
            self._has_resources = True
        if str(reference).startswith("#/") and not self._has_resources:
            pointer = reference[1:]
        else:
            pointer = self._pointers().get(id(raw), f"{place.pointer}/{keyword}")
        self._forms.check(raw, pointer)
        return Subschema(raw, pointer, resolved.resolver, entered=True, test=place.test)

    def home(self, place: Subschema) -> Subschema:
        """The place by its own pointer, where it was reached inside a schema that was made."""
        pointer = self._pointers().get(id(place.raw))
        if pointer is None or pointer == place.pointer:
            return place
        return replace(place, pointer=pointer)

    def _pointers(self) -> dict[int, str]:
        """The pointer of each object of the document."""
        if self._homes is None:
            self._homes = {}
            pending = [self.root]
            while pending:
                place = pending.pop()
                raw = place.raw
                if isinstance(raw, Mapping):
                    self._homes[id(raw)] = place.pointer
                    pending += [place.at(key) for key in raw]
                elif isinstance(raw, list):
                    pending += [place.at(index) for index in range(len(raw))]
        return self._homes

    def reads(self, pattern: str) -> bool:
        """Whether `allows` can judge by this pattern; one that it can't read allows every text."""
        from gbnf.schema.validators import reads  # noqa: PLC0415  # most schemas need none

        return reads(pattern)

    def allows(self, place: Subschema, value: Any) -> bool:
        """Whether jsonschema finds `value` valid at `place`.

        Raises UnjudgedError where it can't tell, SchemaError for a reference that leads nowhere.
        """
        if self._validator is None:
            from gbnf.schema.validators import taught  # noqa: PLC0415  # most schemas need none

            validator = _VALIDATORS.get(self.dialect, jsonschema.Draft202012Validator)
            declares = isinstance(self.root.raw, Mapping) and "$schema" in self.root.raw
            readable = taught(validator, every_draft=not declares)
            self._validator = readable(self.root.raw, format_checker=validator.FORMAT_CHECKER)
        errors = self._validator.descend(value, place.raw, resolver=place.resolver)
        try:
            return next(iter(errors), None) is None
        except exceptions.Unresolvable as error:
            raise SchemaError(place.pointer, f"a reference in it leads nowhere: {error}") from None
        except EffortSpent:
            if is_spent():
                raise
            raise UnjudgedError("it takes too many references") from None
        except BaseException as error:
            # Whatever jsonschema meets in a schema that it doesn't check.
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise UnjudgedError(f"{type(error).__name__}: {error}") from None


def lone_surrogate(raw: Any, pointer: str = "") -> str | None:
    """The place of a text, a key or a value, with half a surrogate pair; None where there is none."""
    pending = [(raw, pointer)]
    while pending:
        here, place = pending.pop()
        if isinstance(here, str) and any("\ud800" <= char <= "\udfff" for char in here):
            return place
        if isinstance(here, Mapping):
            pending += [(key, place) for key in here]
            pending += [
                (value, f"{place}/{str(key).encode(errors='replace').decode()}")
                for key, value in here.items()
            ]
        elif isinstance(here, list):
            pending += [(value, f"{place}/{index}") for index, value in enumerate(here)]
    return None


def _forgiving(specification: Specification[Any]) -> Specification[Any]:
    """A draft for which an `id` that is no string, a property in the wrong place, identifies nothing."""

    def id_of(contents: Any) -> str | None:
        try:
            found = specification.id_of(contents)
        except AttributeError:  # it takes every `id` for a string
            return None
        return found if isinstance(found, str) else None

    forgiving = copy(specification)
    object.__setattr__(forgiving, "id_of", id_of)  # it is frozen, and nobody else has this copy
    return forgiving


def _dynamic_anchors(raw: Any) -> Iterator[str]:
    """The names of all dynamic anchors; "" for each `$recursiveAnchor`, which has none."""
    if isinstance(raw, Mapping):
        if isinstance(raw.get("$dynamicAnchor"), str):
            yield raw["$dynamicAnchor"]
        if raw.get("$recursiveAnchor") is True:
            yield ""
    if isinstance(raw, Mapping | list):
        for part in raw.values() if isinstance(raw, Mapping) else raw:
            yield from _dynamic_anchors(part)
