"""Schemas of earlier drafts, rewritten as JSON Schema 2020-12.

Several modules read the schema of a tool, and know 2020-12 only, so it is rewritten once, when the tool is
loaded. The rewritten schema accepts the same values. Where no draft is declared, keywords of all drafts mean
what they meant in theirs, as in `gbnf.schema.document`.
Sources: https://json-schema.org/draft/2020-12/release-notes, and those of the earlier drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf.schema.keywords import APPLICATORS, KEYWORDS, map_subschemas, resolve_pointer, unknown_keywords

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DRAFTS = {
    "http://json-schema.org/draft-03/schema": "draft-03",
    "http://json-schema.org/draft-04/schema": "draft-04",
    "http://json-schema.org/draft-06/schema": "draft-06",
    "http://json-schema.org/draft-07/schema": "draft-07",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    DIALECT: "2020-12",
}
"""The dialects of JSON Schema, and the names of their drafts."""

_CANONICAL = {uri.partition("://")[2]: uri for uri in DRAFTS}
_HIDDEN = (KEYWORDS | {"$id", "id", "$anchor"}) - {"$ref"}
"""The keywords that a reference hides, up to draft 7."""

_RECURSIVE = "gbnf-recursive"
_MAPS = {keyword for keyword, form in APPLICATORS.items() if form == "map"} | {"dependencies"}
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


def canonical_dialect(declared: object) -> str:
    """Return the URI of the dialect that `$schema` declares, without `#`, with the scheme of the standard."""
    uri = str(declared).rstrip("#")
    return _CANONICAL.get(uri.partition("://")[2], uri)


def as_2020_12(schema: Any) -> Any:
    """Return the schema in draft 2020-12, without `$schema`; `schema` itself is not changed.

    Malformed keywords are kept as they are.
    """
    return _Rewriter(_draft(schema, ""), schema).rewritten(schema)


def _draft(schema: Any, default: str) -> str:
    if not isinstance(schema, Mapping) or not isinstance(schema.get("$schema"), str):
        return default
    return DRAFTS.get(canonical_dialect(schema["$schema"]), "2020-12")


class _Rewriter:
    """Rewrites the schemas of one resource, which is of one draft: "" where none is declared."""

    def __init__(self, draft: str, root: Any) -> None:
        self._draft, self._root = draft, root
        self._is_old = not draft or draft.startswith("draft-")  # up to draft 7
        self._has_tuples = draft != "2020-12"
        unknown = frozenset[str]() if draft in ("", "draft-03") else unknown_keywords(draft)
        self._unknown = unknown - {"dependencies", "$recursiveRef"}

    def rewritten(self, schema: Any) -> Any:
        """Return a schema below the root of this resource, or the root itself."""
        if not isinstance(schema, Mapping):
            return schema
        identifier = schema.get("$id", schema.get("id") if self._draft in ("draft-03", "draft-04") else None)
        if schema is not self._root and isinstance(identifier, str) and not identifier.startswith("#"):
            return _Rewriter(_draft(schema, self._draft), schema).rewritten(schema)
        new = {
            keyword: value
            for keyword, value in schema.items()
            if keyword not in self._unknown and keyword != "$schema"
        }
        if self._draft.startswith("draft-") and isinstance(new.get("$ref"), str):
            new = {keyword: value for keyword, value in new.items() if keyword not in _HIDDEN}
        else:
            self._identifiers(new)
        self._tuples(new)
        self._bounds(new)
        self._dependencies(new)
        self._references(new)
        return map_subschemas(new, lambda _path, member: self.rewritten(member))

    def _identifiers(self, new: dict[str, Any]) -> None:
        """Use `$id` and `$anchor` for `id` and for identifiers that are a fragment (2019-09)."""
        if self._draft in ("draft-03", "draft-04") and isinstance(new.get("id"), str):
            new["$id"] = new.pop("id")
        identifier = new.get("$id")
        if self._is_old and isinstance(identifier, str) and identifier.startswith("#"):
            del new["$id"]
            if identifier != "#":
                new["$anchor"] = identifier[1:]

    def _tuples(self, new: dict[str, Any]) -> None:
        """Use `prefixItems` and `items` for an array of `items` and `additionalItems` (2020-12)."""
        if self._has_tuples and isinstance(new.get("items"), list) and "prefixItems" not in new:
            prefix = new.pop("items")
            if prefix:
                new["prefixItems"] = prefix
            if "additionalItems" in new:
                new["items"] = new["additionalItems"]
        new.pop("additionalItems", None)

    def _bounds(self, new: dict[str, Any]) -> None:
        """Use exclusive bounds that are numbers (draft 6)."""
        if self._draft not in ("", "draft-03", "draft-04"):
            return
        for exclusive, bound in _BOUNDS.items():
            if not isinstance(new.get(exclusive), bool) or isinstance(new.get(bound), bool):
                continue
            if new.pop(exclusive) and bound in new:
                new[exclusive] = new.pop(bound)

    def _dependencies(self, new: dict[str, Any]) -> None:
        """Use `dependentRequired` and `dependentSchemas` for `dependencies` (2019-09)."""
        places = ("dependencies", "dependentRequired", "dependentSchemas")
        if "dependencies" not in new or not all(isinstance(new.get(name, {}), Mapping) for name in places):
            return
        dependencies = new.pop("dependencies")
        if not self._is_old:
            return  # later drafts do not have it
        required = dict(new.get("dependentRequired", {}))
        schemas = dict(new.get("dependentSchemas", {}))
        for name, needed in dependencies.items():
            if isinstance(needed, Mapping | bool):
                schemas[name] = {"allOf": [schemas[name], needed]} if name in schemas else needed
            else:
                names, earlier = [needed] if isinstance(needed, str) else needed, required.get(name, [])
                if isinstance(names, list) and isinstance(earlier, list):
                    names = [*earlier, *names]
                required[name] = names if isinstance(earlier, list) else earlier  # malformed ones stay so
        new |= {"dependentRequired": required} if required else {}
        new |= {"dependentSchemas": schemas} if schemas else {}

    def _references(self, new: dict[str, Any]) -> None:
        """Adapt references to moved keywords, and use `$dynamicRef` for `$recursiveRef` (2020-12)."""
        if isinstance(reference := new.get("$ref"), str) and reference.startswith("#/"):
            new["$ref"] = self._moved(reference)
        if new.pop("$recursiveAnchor", None) is True and self._draft in ("", "2019-09"):
            new["$dynamicAnchor"] = _RECURSIVE
        if "$recursiveRef" not in new or self._draft not in ("", "2019-09"):
            return
        reference = new.pop("$recursiveRef")
        is_dynamic = isinstance(self._root, Mapping) and self._root.get("$recursiveAnchor") is True
        target = {"$dynamicRef": f"#{_RECURSIVE}"} if is_dynamic else {"$ref": reference}
        if new.keys() & target.keys():
            new["allOf"] = [*new.get("allOf", ()), target]
        else:
            new |= target

    def _moved(self, reference: str) -> str:
        """Return a JSON Pointer with the keywords that its target is below in the rewritten schema."""
        resolved, steps = resolve_pointer(reference, self._root), reference[2:].split("/")
        if resolved is None or len(resolved[0]) != len(steps):
            return reference
        here: Any = self._root
        is_schema = True  # so that a property named `items` stays
        for index, key in enumerate(resolved[0]):
            if isinstance(here, list):
                here, is_schema = here[int(key)], True
                continue
            inner = here[key]
            if is_schema:
                has_tuple = self._has_tuples and isinstance(here.get("items"), list)
                if has_tuple and key in ("items", "additionalItems"):
                    steps[index] = "prefixItems" if key == "items" else "items"
                elif key == "dependencies" and self._is_old:
                    steps[index] = "dependentSchemas"
            is_schema = not is_schema or key not in _MAPS
            here = inner
        return "#/" + "/".join(steps)
