"""One JSON Schema with everything that it refers to.

A reference leads from one `Subschema` to another. The `referencing` library resolves references, anchors and
identifiers, so this module knows the keywords of the drafts only by name.

Invariants: two subschemas are equal exactly if they are the same object in the document and dynamic
references lead to the same targets from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote
from weakref import ref

from gbnf.errors import GbnfError, SchemaError, is_rust_panic
from gbnf.schema.closing import close_objects
from gbnf.schema.drafts import DIALECT, DRAFTS
from gbnf.schema.keywords import (
    CONDITION,
    OPTIONAL,
    UNEVALUATED,
    child_pointer,
    map_subschemas,
    resolve_pointer,
    unknown_keywords,
    walk,
)
from gbnf.schema.metaschema import MAX_POINTER_LENGTH, MetaschemaChecker
from gbnf.schema.names import Names, names_of
from gbnf.schema_caches import schema_cache
from gbnf.surrogates import has_surrogate
from gbnf.work_limits import WorkLimitError, is_spent

if TYPE_CHECKING:
    from referencing import Resource, Specification

    from gbnf.schema.dynamic_scopes import DynamicScopes

#: The keywords below which schemas evaluate parts of the same value.
_EVALUATING = frozenset({"allOf", "anyOf", "oneOf", CONDITION, OPTIONAL})


@dataclass(slots=True, eq=False)  # not frozen: there are many, and `__init__` would take three times as long
class Subschema:
    """A schema in a document: raw (a boolean or an object), with its JSON Pointer. Treat it as immutable."""

    raw: Any
    pointer: str
    resolver: Any = field(repr=False)
    #: Whether `resolver` already uses the subschema's own identifier as its base URI.
    entered: bool = field(default=False, repr=False)
    #: Whether the schema was generated from one of the author's.
    is_generated: bool = field(default=False, repr=False)
    #: Whether a schema around it, of the same value, constrains what it leaves unevaluated.
    is_observed: bool = field(default=False, repr=False)
    #: The resources on the path to the subschema that determine its dynamic references.
    dynamic_scope: tuple[str, ...] = field(default=(), repr=False)

    def at(self, *steps: str | int) -> Subschema:
        """Return the subschema below this one, by keys and indices. Raises KeyError or IndexError."""
        raw, pointer = self.raw, self.pointer
        for step in steps:
            raw = raw[step]
            if len(pointer) < MAX_POINTER_LENGTH:
                pointer = child_pointer(pointer, step)
        observed = steps[0] in _EVALUATING and self.observes
        return Subschema(raw, pointer, self.resolver, is_observed=observed, dynamic_scope=self.dynamic_scope)

    def members(self, keyword: str) -> list[Subschema]:
        """Return the schemas that a combinator lists."""
        return [self.at(keyword, index) for index in range(len(self.raw[keyword]))]

    @property
    def observes(self) -> bool:
        """Whether it depends on what the schemas below it, of the same value, evaluate."""
        return self.is_observed or not UNEVALUATED.isdisjoint(self.raw)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Subschema)
            and self.raw is other.raw
            and self.is_observed == other.is_observed
            and self.dynamic_scope == other.dynamic_scope
        )

    def __hash__(self) -> int:
        return id(self.raw)


class UndecidedError(GbnfError):
    """jsonschema can't tell whether a value is valid."""


class _LateResolver:
    """The resolver of a whole schema, created on first use: many schemas have no references.

    It does not keep the document alive, so that a document is released where it is used last.
    """

    def __init__(self, document: Document) -> None:
        self._document = ref(document)

    def __getattr__(self, name: str) -> Any:
        resolver = vars(self).get("_resolver")
        if resolver is None:
            document = self._document()
            assert document is not None, "subschemas are used with their document only"
            resolver = self._resolver = document.dynamic_scopes.resolver
        return getattr(resolver, name)


@schema_cache(maxsize=64)
def _specification(dialect: str) -> Specification[Any]:
    from referencing.jsonschema import DRAFT202012, specification_with  # noqa: PLC0415  # only for references

    return _lenient(specification_with(dialect, default=DRAFT202012))


class Document:
    """A schema, its dialect and its references; with `closed`, see `gbnf.schema.closing`."""

    def __init__(self, schema: Any, *, closed: bool = False) -> None:
        declared = schema.get("$schema") if isinstance(schema, Mapping) else None
        self.dialect = str(declared or DIALECT).rstrip("#")
        self._specification = partial(_specification, self.dialect)
        draft = DRAFTS.get(self.dialect, "2020-12")
        #: Up to draft 7, keywords beside `$ref` are ignored.
        self.refs_hide_siblings = draft.startswith("draft")
        # Where no draft is declared, keywords of all of them mean what they meant in theirs.
        self._unknown = unknown_keywords(draft) if declared and draft != "draft-03" else frozenset[str]()
        self._forms = MetaschemaChecker(draft if self.dialect in DRAFTS and declared else "", self._unknown)
        self._forms.check(schema, "")
        self._identifier = "id" if draft in {"draft-03", "draft-04"} else "$id"
        self._closed = closed
        if closed:
            schema = close_objects(
                schema, self._specification, unknown=self._unknown, refs_hide_siblings=self.refs_hide_siblings
            )
            self._unknown -= {"unevaluatedProperties"}  # closing adds it, whatever the draft
        self.root = Subschema(schema, "", _LateResolver(self), entered=True)
        self._readable: dict[int, tuple[Any, Any]] = {}
        self._parents: dict[int, tuple[int, str]] | None = None
        self._pointers: dict[int, str] = {}
        self._targets: dict[tuple[Subschema, str, str, bool], Subschema] = {}
        self._has_resources = False  # schemas of an identifier of their own, where "#/" is not the root
        self._validator: Any = None

    @cached_property
    def dynamic_scopes(self) -> DynamicScopes:
        """The resolution of the document's references."""
        from gbnf.schema.dynamic_scopes import DynamicScopes  # noqa: PLC0415  # many schemas have no references

        return DynamicScopes(self._specification(), self.root.raw, self._names)

    @cached_property
    def _names(self) -> Names:
        return names_of(self.root.raw, self._identifier)

    def enter(self, subschema: Subschema) -> Subschema:
        """Return the subschema with references resolved against its own identifier, if it declares one.

        Keywords that the declared draft does not have are removed.
        """
        raw = subschema.raw
        if not (type(raw) is dict or isinstance(raw, Mapping)):  # the first is much faster
            return subschema
        if not self._unknown.isdisjoint(raw):
            readable = self._readable.get(id(raw))
            if readable is None:
                members = {keyword: value for keyword, value in raw.items() if keyword not in self._unknown}
                # the original schema is kept too, so that no other object gets its `id`
                readable = self._readable[id(raw)] = (members, raw)
            subschema = replace(subschema, raw=readable[0])
        if subschema.entered:
            return subschema
        if "$id" in raw or "id" in raw:
            from gbnf.schema.dynamic_scopes import base_uri  # noqa: PLC0415  # as above

            resource: Resource[Any] = self._specification().create_resource(raw)
            if resource.id() is not None:
                self._has_resources = True
                resolver = subschema.resolver.in_subresource(resource)
                dynamic_scope = self.dynamic_scopes.entered(subschema.dynamic_scope, base_uri(resolver))
                return replace(subschema, resolver=resolver, entered=True, dynamic_scope=dynamic_scope)
        return subschema

    def follow(self, subschema: Subschema, keyword: str) -> Subschema:
        """Return the subschema that a reference of `subschema` leads to. Raises SchemaError."""
        key = (subschema, keyword, subschema.pointer, self._has_resources)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = self._follow(subschema, keyword)
        return target

    def _follow(self, subschema: Subschema, keyword: str) -> Subschema:
        reference = subschema.raw[keyword]
        found = None if any(self._names) else resolve_pointer(reference, self.root.raw)
        if found is not None:  # as most, and much faster
            raw, resolver, dynamic_scope = found[1], subschema.resolver, subschema.dynamic_scope
        else:
            raw, resolver, dynamic_scope = self._resolve(subschema, keyword)
        if not str(reference).startswith("#"):
            self._has_resources = True
        if str(reference).startswith("#/") and not self._has_resources:
            pointer = unquote(reference[1:])
        else:
            pointer = self.pointer(raw) or f"{subschema.pointer}/{keyword}"
        self._forms.check(raw, pointer)
        return Subschema(
            raw, pointer, resolver, entered=True, is_observed=subschema.observes, dynamic_scope=dynamic_scope
        )

    def _resolve(self, subschema: Subschema, keyword: str) -> tuple[Any, Any, tuple[str, ...]]:
        from referencing.exceptions import Unresolvable  # noqa: PLC0415  # as above

        reference = subschema.raw[keyword]
        try:
            return self.dynamic_scopes.follow(keyword, reference, subschema.resolver, subschema.dynamic_scope)
        except (Unresolvable, AttributeError, TypeError, ValueError) as error:
            raise SchemaError(
                f"{subschema.pointer}/{keyword}",
                f"the reference {reference!r} leads nowhere",
                "References must stay inside the schema; nothing is fetched.",
            ) from error

    def with_own_pointer(self, subschema: Subschema) -> Subschema:
        """Return the subschema with its own JSON Pointer, where it was reached inside a generated one."""
        pointer = self.pointer(subschema.raw)
        if pointer is None or pointer == subschema.pointer:
            return subschema
        return replace(subschema, pointer=pointer)

    def pointer(self, raw: Any) -> str | None:
        """Return the pointer of an object of the document; None for others."""
        if self._parents is None:
            self._parents = _parents(self.root.raw)
        steps = []
        here = id(raw)
        if here != id(self.root.raw) and here not in self._parents:
            return None
        while here in self._parents and here not in self._pointers:
            here, step = self._parents[here]
            steps.append(step)
        pointer = (self._pointers.get(here, "") + "".join(reversed(steps)))[:MAX_POINTER_LENGTH]
        self._pointers[id(raw)] = pointer
        return pointer

    def allows(self, subschema: Subschema, value: Any) -> bool:
        """Return whether jsonschema finds `value` valid against `subschema`.

        Raises UndecidedError if it can't tell, SchemaError for a reference that leads nowhere.
        """
        from referencing.exceptions import Unresolvable  # noqa: PLC0415  # as above

        if self._validator is None:
            from gbnf.schema.validators import schema_validator  # noqa: PLC0415  # most schemas need none

            self._validator = schema_validator(self.root.raw, closed=self._closed)
        errors = self._validator.descend(value, subschema.raw, resolver=subschema.resolver)
        try:
            return next(iter(errors), None) is None
        except Unresolvable as error:
            raise SchemaError(subschema.pointer, f"a reference in it leads nowhere: {error}") from None
        except WorkLimitError:
            if is_spent():
                raise
            raise UndecidedError("it takes too many references") from None
        except BaseException as error:
            # jsonschema raises errors of any kind on schemas that it has not checked.
            if not isinstance(error, Exception) and not is_rust_panic(error):
                raise
            raise UndecidedError(f"{type(error).__name__}: {error}") from None


_NAMES = frozenset({"$id", "$anchor", "$dynamicAnchor", "$schema"})


def with_local_references(schema: Any, base: str = "#") -> Any:
    """Return a schema of draft 2020-12 without names, each reference a JSON Pointer.

    So it may be a part of another schema, at `base`, with its `$defs` at the root. Raises SchemaError for a
    reference that leads nowhere or out of the keywords of the schema, and for a dynamic one whose target
    depends on the path to it.
    """
    document = Document(schema)
    anchors = [member.get("$dynamicAnchor") for _, member in walk(schema) if isinstance(member, Mapping)]
    ids = {id(member) for _, member in walk(schema)}

    def rewritten(subschema: Subschema) -> Any:
        here = document.enter(subschema)
        if not isinstance(here.raw, Mapping):
            return here.raw
        copy = map_subschemas(here.raw, lambda path, _: rewritten(here.at(*path)))
        members = {keyword: value for keyword, value in copy.items() if keyword not in _NAMES}
        for keyword in [name for name in ("$ref", "$dynamicRef") if name in here.raw]:
            name = members.pop(keyword).rpartition("#")[2]
            target = document.follow(here, keyword).raw
            pointer = document.pointer(target)
            is_dynamic = keyword == "$dynamicRef" and anchors.count(name) > 1
            if is_dynamic or (isinstance(target, Mapping) and (pointer is None or id(target) not in ids)):
                problem = f"the target of {here.raw[keyword]!r} has no single JSON Pointer"
                raise SchemaError(f"{here.pointer}/{keyword}", problem, 'Refer to "#/$defs/…".')
            replacement = target
            if pointer is not None:
                start = "#" if pointer.startswith("/$defs/") else base
                replacement = {"$ref": start + quote(pointer, safe="/~$!&'()*+,;=:@")}
            if isinstance(replacement, dict) and "$ref" not in members:
                members |= replacement
            else:
                members["allOf"] = [*members.get("allOf", ()), replacement]
        return members

    return rewritten(document.root)


def _parents(root: Any) -> dict[int, tuple[int, str]]:
    """Return for the `id` of each object and array below `root` the `id` of its parent, and the step to it.

    Below the longest pointers the parent is that of an ancestor, so the path up is never longer.
    """
    parents: dict[int, tuple[int, str]] = {}
    pending = [(root, 0)]
    while pending:
        raw, length = pending.pop()
        items = raw.items() if isinstance(raw, Mapping) else enumerate(raw)
        for key, child in items:
            if isinstance(child, Mapping | list) and id(child) not in parents and child is not root:
                step = child_pointer("", key)
                parents[id(child)] = parents[id(raw)] if length >= MAX_POINTER_LENGTH else (id(raw), step)
                pending.append((child, length + len(step)))
    return parents


def lone_surrogate(raw: Any) -> str | None:
    """Return the JSON Pointer of a string or key with a lone surrogate; None if there is none."""
    pending = [(raw, "")]
    while pending:
        here, pointer = pending.pop()
        if isinstance(here, str) and has_surrogate(here):
            return pointer
        items: Iterable[tuple[Any, Any]] = enumerate(here) if isinstance(here, list) else ()
        if isinstance(here, Mapping):
            items = here.items()
            pending += [(key, pointer) for key in here]
        pending += [(item, f"{pointer}/{str(key).encode(errors='replace').decode()}") for key, item in items]
    return None


def _lenient(specification: Specification[Any]) -> Specification[Any]:
    """Return a draft's specification that raises for no schema.

    An `id` that is not a string identifies nothing. `dependencies` may contain schemas and lists of names;
    `referencing` takes all of them for what the first one is.
    """

    def id_of(contents: Any) -> str | None:
        try:
            identifier = specification.id_of(contents)
        except AttributeError:  # it takes every `id` for a string
            return None
        return identifier if isinstance(identifier, str) else None

    def subresources_of(contents: Any) -> Iterable[Any]:
        if isinstance(contents, Mapping) and isinstance(contents.get("dependencies"), Mapping):
            schemas = {
                name: child for name, child in contents["dependencies"].items() if isinstance(child, Mapping)
            }
            contents = {**contents, "dependencies": schemas}
        return specification.subresources_of(contents)

    make: Callable[..., Specification[Any]] = type(specification)  # its decorator hides them from mypy
    return make(
        name=specification.name,
        id_of=id_of,
        subresources_of=subresources_of,
        anchors_in=lambda _, contents: specification.anchors_in(contents),
        maybe_in_subresource=specification.maybe_in_subresource,
    )
