"""Values near a schema, generated naively, and jsonschema's judgement on them.

The references that are followed are those of `support.schemas`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from importlib.util import find_spec
from typing import Any

import jsonschema
from hypothesis import strategies as st

from gbnf.schema.validators import FORMAT_CHECKER
from support.json_values import nested

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
JSON_VALUES = nested(SCALARS, st.sampled_from(NAMES) | TEXTS, size=6)


#: A value of each type and size.
VALUES_OF_EACH_TYPE = [
    None, True, 0, 1, 0.5, "", "a", "2024-02-29", [], [1], ["a"], [1, "a"], {}, {"a": 1}, {"a": "b"}
]  # fmt: skip

#: The drafts, by their first years or numbers; None is a schema that declares none.
VALIDATORS = {
    4: jsonschema.Draft4Validator,
    6: jsonschema.Draft6Validator,
    7: jsonschema.Draft7Validator,
    2019: jsonschema.Draft201909Validator,
    2020: jsonschema.Draft202012Validator,
    None: jsonschema.Draft202012Validator,
}


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
    """The value with whole numbers as integers, of as many digits as a grammar allows."""
    match value:
        case float() if value.is_integer():
            return int(value) % 10**39
        case list():
            return [canonical(item) for item in value]
        case dict():
            return {key: canonical(item) for key, item in value.items()}
        case _:
            return value


#: jsonschema's own checks; ours in the core, where most of those are missing.
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER if find_spec("fqdn") else FORMAT_CHECKER


def is_valid(schema: Any, value: Any) -> bool:
    """The judgement of jsonschema's validator of the schema's draft, patterns read as ECMA-262 reads them.

    Formats mean in every draft what they mean in the last.
    """
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    validator = next(
        (one for one in VALIDATORS.values() if one.META_SCHEMA.get("$schema") == declared),
        jsonschema.Draft202012Validator,
    )
    return bool(validator(in_python(schema), format_checker=CHECKER).is_valid(value))


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
