"""Random schemas of every keyword and draft, generated in the words of 2020-12 and then spelled for a draft.

`support.values` generates values near them and judges these.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from support.values import JSON_VALUES, NAMES, VALIDATORS


@st.composite
def _bounds(draw: st.DrawFn, low: str, high: str, greatest: int) -> dict[str, int]:
    first, second = sorted(draw(st.tuples(st.integers(0, greatest), st.integers(0, greatest))))
    return {
        **({low: first} if draw(st.booleans()) else {}),
        **({high: second} if draw(st.booleans()) else {}),
    }


@st.composite
def _integers(draw: st.DrawFn) -> dict[str, Any]:
    first, second = sorted(draw(st.tuples(st.integers(-1200, 1200), st.integers(-1200, 1200))))
    schema: dict[str, Any] = {"type": "integer"}
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = first
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = second + 2
    return schema


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    schema: dict[str, Any] = {"type": "object", "properties": {name: draw(inner) for name in names}}
    if names:
        schema["required"] = draw(st.lists(st.sampled_from(names), unique=True))
    extra = draw(st.sampled_from(["silent", "closed", "open", "typed"]))
    if extra == "closed":
        schema["additionalProperties"] = False
    elif extra == "open":
        schema["additionalProperties"] = True
    elif extra == "typed":
        schema["additionalProperties"] = draw(inner)
    return schema


@st.composite
def _arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", **draw(_bounds("minItems", "maxItems", 4))}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
    if draw(st.booleans()):
        schema["items"] = draw(st.one_of(inner, st.just(False)))
    return schema


def _combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    branches = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda some: {"anyOf": some}, branches),
        st.builds(lambda some: {"oneOf": some}, branches),
        st.builds(lambda some: {"allOf": some}, branches),
        st.builds(
            lambda one, some: {**one, "anyOf": some}, inner.filter(lambda s: "anyOf" not in s), branches
        ),
    )


_LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(["null", "boolean", "number", "string", "array", "object"]).map(
        lambda name: {"type": name}
    ),
    st.lists(
        st.sampled_from(["null", "boolean", "integer", "number", "string"]), unique=True, min_size=1
    ).map(lambda names: {"type": names}),
    st.just({}),
    _integers(),
    _bounds("minLength", "maxLength", 5).map(lambda bounds: {"type": "string", **bounds}),
    st.lists(JSON_VALUES, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    JSON_VALUES.map(lambda value: {"const": value}),
)

PATTERNS = ["^a", "b$", "^[a-c]{1,3}$", "^x_", r"\d+", "^(read|write)_files?$", "a.c", "^(?!ab)", "é"]


@st.composite
def _numbers(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["number", "integer"]))}
    ends = st.sampled_from([-10, -2.5, -1, -0.125, 0, 0.05, 0.5, 1, 2.75, 9, 10, 99.9, 250])
    for keyword in draw(
        st.lists(st.sampled_from(["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"]))
    ):
        schema[keyword] = draw(ends)
    if draw(st.integers(0, 3)) == 0:
        schema["multipleOf"] = draw(st.sampled_from([1, 2, 7, 0.5, 0.25, 2.5]))
    return schema


@st.composite
def _richer_objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema = draw(_objects(inner))
    extra = draw(
        st.lists(
            st.sampled_from(["patterns", "names", "bounds", "dependent", "schemas"]), unique=True, max_size=2
        )
    )
    names = list(schema["properties"]) or ["a"]
    if "patterns" in extra:
        schema["patternProperties"] = draw(
            st.dictionaries(st.sampled_from(PATTERNS), inner, min_size=1, max_size=2)
        )
    if "names" in extra:
        schema["propertyNames"] = draw(
            st.sampled_from([{"maxLength": 3}, {"pattern": "^[a-z]"}, {"enum": ["a", "b", "name", "zz"]}])
        )
    if "bounds" in extra:
        schema |= draw(_bounds("minProperties", "maxProperties", 3))
    if "dependent" in extra:
        schema["dependentRequired"] = {
            draw(st.sampled_from(names)): draw(st.lists(st.sampled_from([*names, "b"]), unique=True))
        }
    if "schemas" in extra:
        schema["dependentSchemas"] = {draw(st.sampled_from(names)): draw(inner)}
    return schema


@st.composite
def _richer_arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema = draw(_arrays(inner))
    if draw(st.booleans()):
        schema["contains"] = draw(inner)
    if draw(st.integers(0, 3)) == 0:
        schema["uniqueItems"] = True
        schema["items"] = draw(
            st.one_of(inner, st.just({"enum": ["a", "b", 1]}), st.just({"type": "boolean"}))
        )
    return schema


def _conditional(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        inner.map(lambda one: {"not": one}),
        st.builds(lambda base, one: {**base, "not": one}, inner.filter(lambda s: "not" not in s), inner),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
        st.builds(lambda a, b: {"if": a, "then": b}, inner, inner),
    )


@st.composite
def _unevaluated(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    keyword, parts = draw(
        st.sampled_from([("unevaluatedProperties", _objects(inner)), ("unevaluatedItems", _arrays(inner))])
    )
    asking = {keyword: draw(st.one_of(st.just(False), inner))}
    one, other = draw(parts), draw(parts)
    return draw(
        st.sampled_from(
            [
                {**one, **asking},
                {**one, "allOf": [other], **asking},
                {"allOf": [one, {**other, **asking}]},
                {"anyOf": [one, other], **asking},
                {"not": {"not": {**one, **asking}}},
            ]
        )
    )


_RICHER_LEAVES = st.one_of(
    _LEAVES,
    _numbers(),
    st.builds(
        lambda pattern, bounds: {"type": "string", "pattern": pattern, **bounds},
        st.sampled_from(PATTERNS),
        _bounds("minLength", "maxLength", 4),
    ),
    st.sampled_from(["date", "ipv4", "uuid", "time"]).map(lambda name: {"type": "string", "format": name}),
)


def _schemas(leaves: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            _richer_objects(inner),
            _richer_arrays(inner),
            _combined(inner),
            _conditional(inner),
            _unevaluated(inner),
        ),
        max_leaves=6,
    )


#: Schemas of every keyword, in the words of 2020-12, without references.
SCHEMAS = _schemas(_RICHER_LEAVES)

#: Schemas of one level.
SHALLOW = st.one_of(
    _RICHER_LEAVES,
    _richer_objects(_LEAVES),
    _richer_arrays(_LEAVES),
    _conditional(_LEAVES),
    _combined(_LEAVES),
    _unevaluated(_LEAVES),
)

_TREE_URI = "https://example.com/tree"
#: To a schema without references, and to one that refers to itself below: by pointer and by identifier.
_REFERENCES = st.sampled_from(["#/$defs/plain", "#/$defs/tree", _TREE_URI]).map(
    lambda reference: {"$ref": reference}
)
_REFERRING = st.one_of(
    _REFERENCES, st.builds(lambda one, beside: {**one, **beside}, _REFERENCES, _RICHER_LEAVES)
)
_TREES = st.one_of(
    _objects(_RICHER_LEAVES | st.just({"$ref": _TREE_URI})),
    _arrays(_RICHER_LEAVES | st.just({"$ref": _TREE_URI})),
)

DRAFTS = st.sampled_from([*VALIDATORS])


@st.composite
def _documents(draw: st.DrawFn) -> dict[str, Any]:
    draft = draw(DRAFTS)
    if draw(st.booleans()):
        return spelled(draw(SCHEMAS), draft)
    schema = draw(_schemas(_RICHER_LEAVES | _REFERRING))
    defined = {"plain": draw(SCHEMAS), "tree": {"$id": _TREE_URI, **draw(_TREES)}}
    return spelled({**schema, "$defs": defined}, draft)


#: Schemas of every keyword and draft, with references.
DOCUMENTS = _documents()


def spelled(schema: dict[str, Any], draft: int | None) -> dict[str, Any]:
    """A schema of 2020-12 in the words of a draft; keywords that the draft lacks stay, and say nothing."""
    if draft == 2019 and "unevaluatedProperties" in json.dumps(schema):
        schema = _without_typed_others(schema)
    found = _spelled(schema, draft or 2020)
    dialect = VALIDATORS[draft].META_SCHEMA.get("$schema")
    return {"$schema": dialect, **found} if draft else found


def _spelled(schema: Any, draft: int) -> Any:
    if not isinstance(schema, dict):
        return schema if draft > 4 else {} if schema else {"not": {}}
    found = _rebuilt(schema, lambda one: _spelled(one, draft))
    if schema.get("additionalProperties") in (True, False):
        found["additionalProperties"] = schema["additionalProperties"]
    if draft < 2020 and "prefixItems" in found:
        if "items" in found:
            found["additionalItems"] = found["items"]
        found["items"] = found.pop("prefixItems")
    if draft < 2019:
        needed = {**found.pop("dependentSchemas", {}), **found.pop("dependentRequired", {})}
        # Draft 4 wants at least one name.
        needed = {name: one for name, one in needed.items() if one != []}
        found |= {"dependencies": needed} if needed else {}
        if "$defs" in found:
            found["definitions"] = found.pop("$defs")
        if "$ref" in found:
            found["$ref"] = found["$ref"].replace("$defs", "definitions")
    if draft == 4:
        if "$id" in found:
            found["id"] = found.pop("$id")
        if "const" in found and "enum" not in found:
            found["enum"] = [found.pop("const")]
        if found.get("required") == []:
            del found["required"]
        for keyword, exclusive, tighter in (
            ("minimum", "exclusiveMinimum", max),
            ("maximum", "exclusiveMaximum", min),
        ):
            if exclusive in found:
                ends = [found[one] for one in (keyword, exclusive) if one in found]
                found[exclusive] = tighter(ends) == found[exclusive]
                found[keyword] = tighter(ends)
    return found


def _rebuilt(schema: dict[str, Any], change: Any) -> dict[str, Any]:
    """A copy with each schema directly inside changed."""
    found = dict(schema)
    for keyword, value in schema.items():
        if keyword in _MAPS:
            found[keyword] = {name: change(one) for name, one in value.items()}
        elif keyword in _LISTS:
            found[keyword] = [change(one) for one in value]
        elif keyword in _SINGLE:
            found[keyword] = change(value)
    return found


_MAPS = {"properties", "patternProperties", "dependentSchemas", "$defs"}
_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SINGLE = {
    "items", "contains", "additionalProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems",
    "not", "if", "then", "else",
}  # fmt: skip


def _without_typed_others(schema: Any) -> Any:
    """Without schemas for other properties, in which jsonschema's 2019-09 looks for evaluated names."""
    if not isinstance(schema, dict):
        return schema
    found = _rebuilt(schema, _without_typed_others)
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if isinstance(found.get(keyword), dict):
            found[keyword] = True
    return found
