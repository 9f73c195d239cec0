"""Random schemas and values that satisfy them, made naively and judged by jsonschema alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
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

#: Schemas of every keyword.
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    _RICHER_LEAVES,
    lambda inner: st.one_of(
        _richer_objects(inner),
        _richer_arrays(inner),
        _combined(inner),
        _conditional(inner),
        _unevaluated(inner),
    ),
    max_leaves=6,
)


def values_near(schema: Any) -> st.SearchStrategy[Any]:
    """Values that often satisfy `schema`, keys in declared order. Nothing is promised: judge them."""
    if not isinstance(schema, Mapping):
        return JSON_VALUES
    options: list[st.SearchStrategy[Any]] = []
    if "enum" in schema:
        options.append(st.sampled_from(schema["enum"]))
    if "const" in schema:
        options.append(st.just(schema["const"]))
    for keyword in ("anyOf", "oneOf", "allOf"):
        options += [values_near(branch) for branch in schema.get(keyword, ())]
    options += [values_near(schema[keyword]) for keyword in ("then", "else", "if") if keyword in schema]
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types:
        options.append(_of_type(name, schema))
    return st.one_of(options) if options else JSON_VALUES


def _of_type(name: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
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
                if key in schema
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
            return _array_near(schema)
        case _:
            return _object_near(schema)


@st.composite
def _array_near(draw: st.DrawFn, schema: Mapping[str, Any]) -> list[Any]:
    prefix = schema.get("prefixItems", [])
    low = schema.get("minItems", 0)
    size = draw(st.integers(low, schema.get("maxItems", low + 3)))
    return [
        draw(values_near(prefix[index] if index < len(prefix) else schema.get("items")))
        for index in range(size)
    ]


@st.composite
def _object_near(draw: st.DrawFn, schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    found: dict[str, Any] = {}
    patterned = list(schema.get("patternProperties", {}).values())
    inside = st.one_of([values_near(one) for one in (schema.get("additionalProperties"), *patterned)])
    keys = st.sampled_from([*NAMES, "ac", "x_1", "zz"]) | TEXTS
    others = st.dictionaries(keys, inside, max_size=2)
    extra = draw(others) if patterned or schema.get("additionalProperties", True) is not False else {}
    extra = {key: value for key, value in extra.items() if key not in properties}
    for name, inner in properties.items():
        if name in schema.get("required", ()) or draw(st.booleans()):
            found[name] = draw(values_near(inner))
        if draw(st.booleans()) and extra:
            key, value = extra.popitem()
            found[key] = value
    return {**found, **extra}


def in_declared_order(schema: Any, value: Any) -> bool:
    """Whether no object in `value` lists two declared keys against the order of every schema part."""
    if isinstance(value, dict):
        for part in _parts(schema):
            order = [key for key in value if key in part.get("properties", {})]
            if order != [key for key in part.get("properties", {}) if key in value]:
                return False
    return True


def _parts(schema: Any) -> list[Mapping[str, Any]]:
    if not isinstance(schema, Mapping):
        return []
    found = [schema]
    for keyword in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(keyword, ()):
            found += _parts(branch)
    for keyword in ("if", "then", "else", "not"):
        found += _parts(schema.get(keyword))
    for branch in schema.get("dependentSchemas", {}).values():
        found += _parts(branch)
    return found


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
    """jsonschema's judgement, with formats, and with patterns read as ECMA-262 reads them."""
    schema = in_python(schema)
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    return bool(validator.is_valid(value))


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
    if isinstance(found.get("pattern"), str):
        found["pattern"] = _translated(found["pattern"])
    if isinstance(found.get("patternProperties"), dict):
        found["patternProperties"] = {
            _translated(key): value for key, value in found["patternProperties"].items()
        }
    return found


def _translated(pattern: str) -> str:
    return pattern.replace("$", r"\Z").replace(r"\d", "[0-9]")
