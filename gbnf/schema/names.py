"""What in a schema decides where its references lead: identifiers, anchors, references to the outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gbnf.schema.keywords import REFERENCES

_ANCHORS = frozenset({"$anchor", "$dynamicAnchor", "$recursiveAnchor"})
_SCALARS = frozenset({str, int, float, bool, type(None)})


class Names(NamedTuple):
    """What a schema contains that affects references.

    `dynamic`: the names of all dynamic anchors, "" for each `$recursiveAnchor`. `has_names`: whether it has
    anchors, or identifiers below the root. `refers_outside`: whether it refers to other schemas.
    """

    dynamic: Counter[str]
    has_names: bool
    refers_outside: bool


def names_of(schema: Any, identifier: str) -> Names:
    """Return the names in a schema; `identifier` is the keyword of its draft for identifiers."""
    dynamic: Counter[str] = Counter()
    has_names = refers_outside = False
    affecting = frozenset({identifier, *_ANCHORS, *REFERENCES})
    for raw in objects(schema):
        if affecting.isdisjoint(raw):  # as most
            continue
        has_names |= raw is not schema and identifier in raw
        if not _ANCHORS.isdisjoint(raw):
            has_names = True
            dynamic.update(own_dynamic_anchors(raw))
        for keyword in REFERENCES:
            reference = raw.get(keyword)
            refers_outside |= isinstance(reference, str) and reference[:1] != "#"
    return Names(dynamic, has_names, refers_outside)


def objects(schema: Any, *, own: bool = False) -> Iterator[Mapping[str, Any]]:
    """Yield every object in a schema, each once; `own`: none of those in a resource below it."""
    pending = [schema] if isinstance(schema, Mapping | list) else []
    seen = {id(schema)}
    for raw in pending:  # it grows while it is walked
        members: Any = raw
        if not isinstance(raw, list):
            if own and raw is not schema and isinstance(raw.get("$id"), str):
                continue
            yield raw
            members = raw.values()
        for member in members:
            if type(member) not in _SCALARS and id(member) not in seen:
                seen.add(id(member))
                if type(member) is dict or isinstance(member, Mapping | list):
                    pending.append(member)


def own_dynamic_anchors(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dynamic anchors that an object declares itself; "" for `$recursiveAnchor`."""
    if isinstance(raw.get("$dynamicAnchor"), str):
        yield raw["$dynamicAnchor"]
    if raw.get("$recursiveAnchor") is True:
        yield ""
