"""Resolution of references, dynamic ones too, by the resources on the path to them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urldefrag, urljoin

from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from referencing import Registry, Resource, Specification, exceptions

from gbnf.errors import SchemaError
from gbnf.schema.names import Names, objects, own_dynamic_anchors

_ROOT_URI = "urn:schema"


_MAX_NODES = 200_000
"""Objects and arrays of a schema in which identifiers and anchors are looked for."""


def _expanded_size(schema: Any) -> int:
    """Return how many objects and arrays a schema has as JSON: one in several places counts in each.

    A schema of Python values may contain one value many times, and `referencing` visits each occurrence.
    """
    sizes: dict[int, int] = {}
    begun: set[int] = set()
    pending = [(schema, False)] if isinstance(schema, Mapping | list) else []
    while pending:
        node, is_done = pending.pop()
        members = node.values() if isinstance(node, Mapping) else node
        containers = [member for member in members if isinstance(member, Mapping | list)]
        if is_done:  # an object inside itself has no end
            sizes[id(node)] = 1 + sum(sizes.get(id(member), _MAX_NODES) for member in containers)
        elif id(node) not in begun:
            begun.add(id(node))
            pending.append((node, True))
            pending += [(member, False) for member in containers]
    return sizes.get(id(schema), 1)


class DynamicScopes:
    """Resolves references by the resources on the path to them.

    A `$dynamicRef` leads to the outermost resource on the path that has a dynamic anchor of its name, a
    `$recursiveRef` likewise. So only those resources on the path count that are the first to have an anchor
    which several have: these are the scope of a subschema, without the root. Most documents have none.
    Source: 2020-12 core, 8.2.3.2; 2019-09 core, 8.2.4.2.
    """

    def __init__(self, specification: Specification[Any], schema: Any, names: Names) -> None:
        resource: Resource[Any] = specification.create_resource(schema)
        self._root = resource.id() or _ROOT_URI
        dynamic, has_names, refers_outside = names
        registry: Registry[Any] = SPECIFICATIONS.with_resource(self._root, resource)
        if has_names or refers_outside:
            if _expanded_size(schema) > _MAX_NODES:
                problem = (
                    f"with shared values counted each time, it has over {_MAX_NODES:,} objects and arrays"
                )
                raise SchemaError("", problem, "Put what is used several times into $defs.")
            with suppress(AttributeError, TypeError, ValueError):  # identifiers that are not names
                registry = registry.crawl()  # once, and not at each reference
        self._registry = registry
        self.resolver = registry.resolver(self._root)
        several = {name for name, count in dynamic.items() if count > 1}
        # The metaschemas have an anchor "meta", or recursive ones.
        self._several = frozenset(several | {"meta", ""}) if refers_outside else frozenset(several)
        self._provided: dict[str, frozenset[str]] = {}
        self._resolvers: dict[tuple[str, tuple[str, ...]], Any] = {}

    def follow(
        self, keyword: str, reference: str, resolver: Any, dynamic_scope: tuple[str, ...]
    ) -> tuple[Any, Any, tuple[str, ...]]:
        """Return the schema that a reference leads to, its resolver and its scope.

        `resolver` and `dynamic_scope` are those of the subschema that has the reference.
        """
        if not self._several:
            resolved = resolver.lookup(reference)
            return resolved.contents, resolved.resolver, ()
        base = base_uri(resolver)
        uri, fragment = (
            (base, reference[1:]) if reference.startswith("#") else urldefrag(urljoin(base, reference))
        )
        if keyword != "$ref" and not fragment.startswith("/") and fragment in self._provides(uri):
            path = (self._root, *dynamic_scope)
            uri = next((resource for resource in path if fragment in self._provides(resource)), uri)
        resolved = self._registry.resolver(uri).lookup(f"#{fragment}")
        base = base_uri(resolved.resolver)
        dynamic_scope = self.entered(dynamic_scope, base)
        return resolved.contents, self._resolver(base, dynamic_scope), dynamic_scope

    def entered(self, dynamic_scope: tuple[str, ...], uri: str) -> tuple[str, ...]:
        """Return the scope of a subschema in the resource `uri`, reached from one with `dynamic_scope`."""
        if not self._several:
            return ()
        provided = frozenset().union(*map(self._provides, (self._root, *dynamic_scope)))
        return dynamic_scope if (self._provides(uri) & self._several) <= provided else (*dynamic_scope, uri)

    def _provides(self, uri: str) -> frozenset[str]:
        """Return the dynamic anchors of the resource itself."""
        anchors = self._provided.get(uri)
        if anchors is None:
            try:
                contents = self._registry.resolver(uri).lookup("#").contents
            except exceptions.Unresolvable:
                contents = True
            names = frozenset(
                name for raw in objects(contents, own=True) for name in own_dynamic_anchors(raw)
            )
            if not isinstance(contents, Mapping) or contents.get("$recursiveAnchor") is not True:
                names -= {""}  # it counts at the root only
            anchors = self._provided[uri] = names
        return anchors

    def _resolver(self, base: str, dynamic_scope: tuple[str, ...]) -> Any:
        """Return a resolver for jsonschema, which finds the scope in the resources that were looked up."""
        resolver = self._resolvers.get((base, dynamic_scope))
        if resolver is None:
            resolver = self.resolver
            for uri in (*dynamic_scope, base):
                resolver = resolver.lookup(uri).resolver
            self._resolvers[base, dynamic_scope] = resolver
        return resolver


def base_uri(resolver: Any) -> str:
    """Return the base URI of a resolver of `referencing`."""
    return str(resolver._base_uri)  # noqa: SLF001  # it has no public name
