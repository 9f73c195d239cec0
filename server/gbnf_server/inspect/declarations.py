"""What a schema declares for the value at a path: types and bounds, names of properties, listed values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gbnf.compiler.literals import json_string
from gbnf.prompts.descriptions import type_text, value_bounds
from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import CONDITIONS, IN_PLACE_APPLICATORS, REFERENCES, subschemas
from gbnf.schema.pattern_matching import pattern_matches

_BRANCHES = IN_PLACE_APPLICATORS.keys() - CONDITIONS
_MOST_SUBSCHEMAS = 100
_MOST_DESCRIBED = 4
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Declared:
    """What the branches of a schema declare at a path, all together.

    `types`: `integer, ≥ 5`, "" if there are none. `names`: of properties, `values`: of `enum` and `const`
    that are no containers; both as JSON.
    """

    types: str = ""
    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


def declared_at(document: Document, path: Sequence[str | int]) -> Declared:
    """Return what a schema declares at a path. Raises SchemaError for a reference that leads nowhere."""
    nodes = _with_branches(document, [document.root])
    for step in path:
        nodes = _with_branches(document, [child for node in nodes for child in _children(node, step)])
    types: dict[str, None] = {}
    names: dict[str, None] = {}
    values: dict[str, None] = {}
    for raw in (node.raw for node in nodes):
        is_typed = not raw.keys().isdisjoint(("type", "enum", "const"))
        facts = [type_text(raw, document.root.raw)] if is_typed else []
        types[", ".join([*facts, *value_bounds(raw)])] = None
        for declared in (raw.get("properties"), raw.get("required")):
            if isinstance(declared, Mapping | list):
                names.update((json_string(name), None) for name in declared if isinstance(name, str))
        listed = [raw["const"]] if "const" in raw else raw.get("enum")
        for value in listed if isinstance(listed, list) else ():
            if not isinstance(value, dict | list):
                values[json_string(value) if isinstance(value, str) else json.dumps(value)] = None
    text = "; ".join([*filter(None, types)][:_MOST_DESCRIBED])
    return Declared(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", tuple(names), tuple(values))


def _with_branches(document: Document, roots: Iterable[Subschema]) -> list[Subschema]:
    """Return subschemas with those of the same value that they refer to, combine or choose between."""
    pending = list(roots)
    entered: dict[int, Subschema] = {}
    for node in pending:  # which grows
        if not isinstance(node.raw, Mapping) or id(node.raw) in entered or len(entered) >= _MOST_SUBSCHEMAS:
            continue
        here = entered[id(node.raw)] = document.enter(node)
        pending += [document.follow(here, keyword) for keyword in REFERENCES if keyword in here.raw]
        pending += [here.at(*path) for path, _ in subschemas(here.raw) if path[0] in _BRANCHES]
    return list(entered.values())


def _children(subschema: Subschema, step: str | int) -> Iterator[Subschema]:
    """Yield the subschemas of the value under a key or an index."""
    others = "items" if isinstance(step, int) else "additionalProperties"
    is_declared = False
    for path, _ in subschemas(subschema.raw):
        match path:
            case ("properties" | "prefixItems", key) if key == step:
                pass
            case ("patternProperties", str(pattern)) if isinstance(step, str) and pattern_matches(
                pattern, step
            ):
                pass
            case _:
                continue
        is_declared = True
        yield subschema.at(*path)
    if not is_declared and others in subschema.raw:
        yield subschema.at(others)
