"""Random schemas of every draft and values that satisfy them, made naively and judged by jsonschema alone.

Schemas are made in the words of 2020-12, and then spelled for a draft.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

import jsonschema
from hypothesis import strategies as st

#: Names that stress key tries and rule names: shared prefixes, clashes in camelCase, escapes, other scripts.
NAMES = [
    "a", "a_b", "aB", "ab", "abc", "A", "b", "name", "names", "from_step", "café", "日本", "with space",
    'quo"te', "back\\slash", "tab\t", "", "x-y", "x.y", "1st", "string", "jsonValue", "root", "ws", "é", "e",
]  # fmt: skip

TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "ab", "read_file", "read_files", "write", 'say "hi"', "\\", "\n", "日本", "😀", "\x7f"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], min_codepoint=1), max_size=6),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-1000, 1000), st.sampled_from([0.5, -2.25, 1e30, 1.0]), TEXTS
)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES) | TEXTS, inner, max_size=3)
    ),
    max_leaves=6,
)


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
#: To a schema without references, and to one that refers to itself below: by place and by identifier.
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

#: The drafts, by their first years or numbers; None is a schema that declares none.
VALIDATORS = {
    4: jsonschema.Draft4Validator,
    6: jsonschema.Draft6Validator,
    7: jsonschema.Draft7Validator,
    2019: jsonschema.Draft201909Validator,
    2020: jsonschema.Draft202012Validator,
    None: jsonschema.Draft202012Validator,
}
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


def _target(reference: str, root: Any) -> Any:
    """What one of our own references leads to."""
    defined = root.get("$defs", root.get("definitions", {}))
    return defined.get("plain" if reference.endswith("plain") else "tree")


#: References that are followed on the way to a value.
_HOPS = 3


def values_near(schema: Any, root: Any = None, hops: int = 0) -> st.SearchStrategy[Any]:
    """Values that often satisfy `schema`, keys in declared order. Nothing is promised: judge them."""
    if not isinstance(schema, Mapping):
        return JSON_VALUES
    root = schema if root is None else root
    options: list[st.SearchStrategy[Any]] = []
    if "$ref" in schema:
        options.append(
            values_near(_target(schema["$ref"], root), root, hops + 1) if hops < _HOPS else JSON_VALUES
        )
    if "enum" in schema:
        options.append(st.sampled_from(schema["enum"]))
    if "const" in schema:
        options.append(st.just(schema["const"]))
    for keyword in ("anyOf", "oneOf", "allOf"):
        options += [values_near(branch, root, hops) for branch in schema.get(keyword, ())]
    options += [values_near(schema[one], root, hops) for one in ("then", "else", "if") if one in schema]
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types:
        options.append(_of_type(name, schema, root, hops))
    return st.one_of(options) if options else JSON_VALUES


def _of_type(name: str, schema: Mapping[str, Any], root: Any, hops: int) -> st.SearchStrategy[Any]:
    match name:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "number" | "integer" if "multipleOf" in schema:
            return st.integers(-20, 20).map(lambda factor: factor * schema["multipleOf"])
        case "integer":
            low = int(schema.get("minimum", schema.get("exclusiveMinimum", -1200)))
            high = int(schema.get("maximum", schema.get("exclusiveMaximum", 1200)))
            return st.integers(min(low, high), max(low, high))
        case "number":
            ends = [
                schema[key]
                for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
                if key in schema and schema[key] is not True and schema[key] is not False
            ]
            near = st.sampled_from(ends or [0]).flatmap(
                lambda end: st.sampled_from([end, end + 1, end - 1, end + 0.125, end - 0.0625])
            )
            return near | st.one_of(
                st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False)
            )
        case "string":
            low = schema.get("minLength", 0)
            if "pattern" in schema:
                return TEXTS | st.from_regex(schema["pattern"])
            if "format" in schema:
                return TEXTS | st.sampled_from(
                    ["2024-02-29", "2023-02-29", "10.0.0.1", "1.2.3", "12:30:00Z", "24:00:00Z"]
                )
            alphabet = st.characters(exclude_categories=["Cs"], min_codepoint=1)
            return TEXTS | st.text(alphabet, min_size=low, max_size=schema.get("maxLength", low + 5))
        case "array":
            return _array_near(schema, root, hops)
        case _:
            return _object_near(schema, root, hops)


@st.composite
def _array_near(draw: st.DrawFn, schema: Mapping[str, Any], root: Any, hops: int) -> list[Any]:
    prefix, rest = _items(schema)
    low = schema.get("minItems", 0)
    size = draw(st.integers(low, schema.get("maxItems", low + 3)))
    return [
        draw(values_near(prefix[index] if index < len(prefix) else rest, root, hops)) for index in range(size)
    ]


def _items(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """What stands for the first items, and for the others."""
    if isinstance(schema.get("items"), list):
        return schema["items"], schema.get("additionalItems")
    return schema.get("prefixItems", []), schema.get("items")


@st.composite
def _object_near(draw: st.DrawFn, schema: Mapping[str, Any], root: Any, hops: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    found: dict[str, Any] = {}
    patterned = list(schema.get("patternProperties", {}).values())
    inside = st.one_of(
        [values_near(one, root, hops) for one in (schema.get("additionalProperties"), *patterned)]
    )
    keys = st.sampled_from([*NAMES, "ac", "x_1", "zz"]) | TEXTS
    others = st.dictionaries(keys, inside, max_size=2)
    extra = draw(others) if patterned or schema.get("additionalProperties", True) is not False else {}
    extra = {key: value for key, value in extra.items() if key not in properties}
    for name, inner in properties.items():
        if name in schema.get("required", ()) or draw(st.booleans()):
            found[name] = draw(values_near(inner, root, hops))
        if draw(st.booleans()) and extra:
            key, value = extra.popitem()
            found[key] = value
    return {**found, **extra}


def in_declared_order(schema: Any, value: Any) -> bool:
    """Whether no object in `value` lists two declared keys against the order of any part of the schema."""
    return _in_order([schema], value, schema)


def _in_order(schemas: list[Any], value: Any, root: Any) -> bool:
    parts = [part for schema in schemas for part in _parts(schema, root, 0)]
    if isinstance(value, list):
        return all(
            _in_order(
                [prefix[index] if index < len(prefix) else rest for prefix, rest in map(_items, parts)]
                + [part["contains"] for part in parts if "contains" in part],
                item,
                root,
            )
            for index, item in enumerate(value)
        )
    if not isinstance(value, dict):
        return True
    for part in parts:
        declared = part.get("properties", {})
        if [key for key in value if key in declared] != [key for key in declared if key in value]:
            return False
    return all(
        _in_order([one for part in parts for one in _members(part, key)], item, root)
        for key, item in value.items()
    )


def _members(part: Mapping[str, Any], key: str) -> list[Any]:
    """Every schema that may speak of what stands under a key."""
    found = [part[one] for one in ("additionalProperties", "unevaluatedProperties") if one in part]
    return [*found, part.get("properties", {}).get(key), *part.get("patternProperties", {}).values()]


def _parts(schema: Any, root: Any, hops: int) -> list[Mapping[str, Any]]:
    """The schema, and those inside that judge the same value."""
    if not isinstance(schema, Mapping):
        return []
    inner = [branch for keyword in ("anyOf", "oneOf", "allOf") for branch in schema.get(keyword, ())]
    inner += [schema[keyword] for keyword in ("if", "then", "else", "not") if keyword in schema]
    inner += [*schema.get("dependentSchemas", {}).values(), *schema.get("dependencies", {}).values()]
    if "$ref" in schema and hops < _HOPS:
        inner.append(_target(schema["$ref"], root))
    return reduce(lambda found, one: found + _parts(one, root, hops + 1), inner, [schema])


def canonical(value: Any) -> Any:
    """The value with whole numbers as integers, of as many digits as a grammar has room for."""
    match value:
        case float() if value.is_integer():
            return int(value) % 10**39
        case list():
            return [canonical(item) for item in value]
        case dict():
            return {key: canonical(item) for key, item in value.items()}
        case _:
            return value


def is_valid(schema: Any, value: Any) -> bool:
    """The judgement of jsonschema's validator of the schema's draft, patterns read as ECMA-262 reads them.

    Formats mean in every draft what they mean in the last.
    """
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    validator = next(
        (one for one in VALIDATORS.values() if one.META_SCHEMA.get("$schema") == declared),
        jsonschema.Draft202012Validator,
    )
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return bool(validator(in_python(schema), format_checker=checker).is_valid(value))


#: The two texts of a value that the default layout accepts.
SERIALISERS = [
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    lambda value: json.dumps(value, ensure_ascii=False, separators=(", ", ": ")),
]


def in_python(schema: Any) -> Any:
    """The schema, patterns translated: Python's `$` matches before a last newline, its `\\d` any digit."""
    if isinstance(schema, list):
        return [in_python(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: in_python(value) for key, value in schema.items()}
    if isinstance(found.get("dependencies"), dict):  # referencing takes all of them for what the first is
        found["dependencies"] = {
            name: {"required": held} if isinstance(held, list) else held
            for name, held in found["dependencies"].items()
        }
    if isinstance(found.get("pattern"), str):
        found["pattern"] = _translated(found["pattern"])
    if isinstance(found.get("patternProperties"), dict):
        found["patternProperties"] = {
            _translated(key): value for key, value in found["patternProperties"].items()
        }
    return found


def _translated(pattern: str) -> str:
    return pattern.replace("$", r"\Z").replace(r"\d", "[0-9]")
