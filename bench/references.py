"""Resolve references within one schema document, naively and without code of the compiler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: The keywords that lead elsewhere.
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def target(root: Any, reference: Any) -> Any:
    """Return what a reference within the document leads to; None if that is outside, or hard to tell.

    Base URIs aren't computed: a reference leads to the first `$id` that ends like it.
    """
    if not isinstance(reference, str):
        return None
    base, _, fragment = reference.partition("#")
    place = next((node for node in nodes(root) if base and _says(node, base)), None) if base else root
    if fragment.startswith("/"):
        for part in fragment.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and name.isdigit() and int(name) < len(place):
                place = place[int(name)]
            else:
                place = place.get(name) if isinstance(place, Mapping) else None
    elif fragment:
        named = ("$anchor", "$dynamicAnchor")
        place = next((node for node in nodes(root) if fragment in [node.get(name) for name in named]), None)
    return place


def _says(node: Mapping[str, Any], base: str) -> bool:
    name = node.get("$id", node.get("id"))
    return isinstance(name, str) and name.rstrip("#").endswith(base)


def nodes(node: Any) -> Iterator[Mapping[str, Any]]:
    """Return the objects of a document, outer ones first."""
    if isinstance(node, Mapping):
        yield node
    if isinstance(node, Mapping | list):
        for inner in node.values() if isinstance(node, Mapping) else node:
            yield from nodes(inner)
