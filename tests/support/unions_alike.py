"""Schemas of unions whose alternatives begin alike, inside each other and recursive, and values of them."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

_NAMES = ("a", "b", "c", "d")
_LEAVES: tuple[Any, ...] = (
    {"const": 0},
    {"const": 5},
    {"type": "null"},
    {"type": "boolean"},
    {"enum": [1, "x"]},
)


def late_union(levels: int) -> dict[str, Any]:
    """Return tuples inside each other, of which only the end of each tells which one is meant."""
    definitions: dict[str, Any] = {f"a{levels}": {"const": 0}, f"b{levels}": {"const": 5}}
    for level in range(levels):
        for name, ends in (("a", (1, 2)), ("b", (3, 4))):
            definitions[f"{name}{level}"] = {
                "anyOf": [
                    _tuple([{"$ref": f"#/$defs/{inner}{level + 1}"}, {"const": end}])
                    for inner, end in zip("ab", ends, strict=True)
                ]
            }
    return {"$defs": definitions, "$ref": "#/$defs/a0"}


def _tuple(items: list[Any]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


@st.composite
def unions_alike(draw: st.DrawFn, recursive: bool | None = None) -> dict[str, Any]:
    """Definitions that refer to later ones and, if `recursive`, to any; each is a union with a leaf."""
    names = _NAMES[: draw(st.integers(1, 4))]
    loops = draw(st.booleans()) if recursive is None else recursive

    def child(at: int) -> st.SearchStrategy[Any]:
        inner = names if loops else names[at + 1 :]
        refs = [{"$ref": f"#/$defs/{name}"} for name in inner]
        return st.sampled_from([*refs, *refs, *_LEAVES])

    def shape(at: int) -> st.SearchStrategy[Any]:
        tuples = st.lists(child(at), min_size=1, max_size=3).map(_tuple)
        lists = st.builds(lambda items: {"type": "array", "items": items, "minItems": 1}, child(at))
        objects = st.builds(
            lambda values, required, others: {
                "type": "object",
                "properties": values,
                "required": sorted(required & values.keys()),
                **others,
            },
            st.dictionaries(st.sampled_from("xyz"), child(at), min_size=1, max_size=3),
            st.frozensets(st.sampled_from("xyz")),
            st.sampled_from([{"additionalProperties": False}, {"additionalProperties": False}, {}]),
        )
        return st.one_of(tuples, tuples, objects, objects, lists)

    definitions = {
        name: {"anyOf": [draw(st.sampled_from(_LEAVES)), *draw(st.lists(shape(at), min_size=1, max_size=4))]}
        for at, name in enumerate(names)
    }
    return {"$defs": definitions, "$ref": f"#/$defs/{names[0]}"}


def value_of(schema: Any, random: Random, depth: int, definitions: Any = None) -> Any:
    """Return a value that the schema allows, with at most about `depth` levels."""
    definitions = definitions if definitions is not None else schema.get("$defs", {})
    match schema:
        case {"$ref": ref}:
            return value_of(definitions[ref.rpartition("/")[2]], random, depth, definitions)
        case {"anyOf": choices}:
            chosen = random.choice(choices[1:] if depth > 0 and len(choices) > 1 else choices[:1])
            return value_of(chosen, random, depth, definitions)
        case {"const": value}:
            return value
        case {"enum": values}:
            return random.choice(values)
        case {"type": "null"}:
            return None
        case {"type": "boolean"}:
            return random.random() < 0.5
        case {"prefixItems": items}:
            return _children(items, random, depth, definitions)
        case {"items": item}:
            return _children([item] * random.randint(1, 2), random, depth, definitions)
    names = [name for name in schema["properties"] if name in schema["required"] or random.random() < 0.7]
    random.shuffle(names)
    values = _children([schema["properties"][name] for name in names], random, depth, definitions)
    return dict(zip(names, values, strict=True))


def _children(schemas: list[Any], random: Random, depth: int, definitions: Any) -> list[Any]:
    """Return a value of each schema; one of them is deep."""
    deepest = random.randrange(len(schemas)) if schemas else 0
    return [
        value_of(one, random, depth - 1 if at == deepest else depth // 3 - 1, definitions)
        for at, one in enumerate(schemas)
    ]
