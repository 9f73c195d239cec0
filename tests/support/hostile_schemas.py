"""Schemas that an attacker might send: bombs, odd references, malformed keywords, deep nesting.

`hostile_schema` draws one from a `random.Random`, so that a seed names a schema; `hostile_schemas` is the
same as a Hypothesis strategy. Every schema consists of JSON values only, of which one
may stand in several places: printed, a few would have no end. Most are small on purpose: what a
compiler must bound is the work that a few bytes ask for, not the work of reading many.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from hypothesis import strategies as st

#: Draws a schema.
Family: TypeAlias = Callable[[Random], Any]

_DRAFTS = (
    "http://json-schema.org/draft-03/schema#",
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
SCHEMA_KEYWORDS = (
    "$ref", "$dynamicRef", "$recursiveRef", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor",
    "$schema", "$vocabulary", "$defs", "definitions", "type", "enum", "const", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format",
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems",
    "contains", "minContains", "maxContains", "properties", "required", "additionalProperties",
    "patternProperties", "propertyNames", "unevaluatedProperties", "minProperties", "maxProperties",
    "dependentRequired", "dependentSchemas", "dependencies", "allOf", "anyOf", "oneOf", "not", "if", "then",
    "else", "description", "default", "requires_one_of",
)  # fmt: skip
_JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, 10**400, float("nan"), float("inf"), "", "a", "object",
    "integer", "number", "[", "(", "#", "\ud800", "\x00", [], [[]], ["a"], ["a", "a"], [1, 1.0, True],
    {}, {"": {}}, {"a": 1}, {"a": {"type": "string"}}, [{}], [True, False], {"$ref": "#"}, [{"$ref": "#"}],
)  # fmt: skip
_REFERENCES = (
    "#", "#/", "#/$defs/a", "#/$defs/b", "#/$defs/0", "#/properties/a", "#/allOf/0", "#/not", "#/anyOf/9",
    "#a", "#b", "##", "#%ZZ", "%", "", "a", "b", "//", "a#b", "urn:a", "urn:schema", "https://e.com/r", "?",
    "http://[", "file:///etc/passwd", "#/$defs/a/~2", "#/\ud800", *_DRAFTS,
    "https://json-schema.org/draft/2020-12/meta/applicator",
)  # fmt: skip
_PATTERNS = (
    "(x+x+)+y", "(a|a)*b", "^(a{1,1000}){1,1000}$", "(((a{9}){9}){9}){9}", "^(a|b)*a(a|b){30}$",
    "(a?){60}a{60}", "[\\s\\S]{0,5000}",
    "\\p{L}{1,900}\\p{N}*", "^(?=.*a)(?=.*b)(?=.*c)(?!.*d).{3,80}$", "(?<!a)b(?<=ab)*",
    "(a)\\1+", "(?:(?:(?:a*)*)*)*b", "^$", "\\b\\B", "[", "(", "a{2,1}", "a{999999999}", "(?i)[a-zß]{1,99}",
    "|".join(f"{n}[a-z]*{n}" for n in range(40)), "(" * 150 + ")" * 150, "\\d+(?:\\.\\d+)*$", "^(.*,){11}P",
)  # fmt: skip


def _few(random: Random) -> int:
    """Small numbers mostly, at times one at which exponents show."""
    return random.choice((1, 2, 3, 5, 8, 12, 20, 40))


def _leaf(random: Random) -> Any:
    return random.choice(
        (
            True,
            False,
            {},
            {"type": "string"},
            {"type": "integer", "minimum": random.randint(-9, 9)},
            {"const": random.choice(("a", 1, None, [], {"a": 1}))},
            {"enum": list(range(_few(random)))},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "array", "items": {"type": "integer"}},
            {"pattern": random.choice(_PATTERNS)},
        )
    )


def _name(random: Random) -> str:
    return random.choice(("a", "b", "c", "ab", "aa", "", "é", "$ref", "type"))


def _chain(random: Random) -> Any:
    """References, each of which doubles what the next asks."""
    length = random.choice((2, 5, 11, 30, 100))
    steps: tuple[Callable[[Any], Any], ...] = (
        lambda ref: {"oneOf": [ref, {"not": ref}]},
        lambda ref: {"anyOf": [ref, {"not": ref}, {"items": ref}]},
        lambda ref: {"allOf": [ref, ref, {"not": {"not": ref}}]},
        lambda ref: {"not": {"oneOf": [ref, {"properties": {"a": ref}}]}},
        lambda ref: {"if": ref, "then": {"not": ref}, "else": ref},
        lambda ref: {"items": ref, "contains": ref, "prefixItems": [ref, {"not": ref}]},
        lambda ref: {"properties": {"a": ref, "b": {"not": ref}}, "additionalProperties": ref},
        lambda ref: {"dependentSchemas": {"a": ref, "b": {"not": ref}}},
        lambda ref: {"patternProperties": {"a": ref, "b": ref, "^c": {"not": ref}}},
        lambda ref: {"propertyNames": ref, "unevaluatedProperties": {"not": ref}},
    )
    step = random.choice(steps)
    mixed = random.random() < 0.3
    definitions: dict[str, Any] = {}
    for number in range(length):
        if mixed:
            step = random.choice(steps)
        definitions[str(number)] = step({"$ref": f"#/$defs/{number + 1}"})
    last = "0" if random.random() < 0.1 else None
    definitions[str(length)] = {"$ref": "#/$defs/0"} if last else _leaf(random)
    more = {"enum": [1, "a", [], {"a": 1}]} if random.random() < 0.2 else {}
    return {"$defs": definitions, "$ref": "#/$defs/0", **more}


def _product(random: Random) -> Any:
    """Choices beside one another, with or without contradictions between them."""
    wide, long = _few(random), _few(random)
    keyword = random.choice(("anyOf", "oneOf", "allOf"))
    shared = random.random() < 0.5

    def branch(i: int, j: int) -> Any:
        name = "a" if shared else f"a{i}_{j}"
        return random.choice(
            (
                {"properties": {name: {"const": j}}, "required": [name]},
                {"required": [name]},
                {"not": {"required": [name]}},
                {"minProperties": j},
                {"type": "string", "pattern": f"^{'a' * j}.*{i}"},
                {"type": "number", "multipleOf": j + 1},
            )
        )

    return {"allOf": [{keyword: [branch(i, j) for j in range(wide)]} for i in range(long)]}


def _conditions(random: Random) -> Any:
    names = [f"k{i}" for i in range(_few(random))]
    made = [
        {
            "if": {"properties": {name: random.choice(({"const": 1}, {"type": "string"}, True))}},
            "then": {"required": [random.choice(names)]},
            "else": {"properties": {random.choice(names): False}},
        }
        for name in names
    ]
    return {
        "allOf": made,
        "dependentRequired": {name: random.sample(names, len(names) // 2) for name in names},
        "dependentSchemas": {name: _leaf(random) for name in names},
        "unevaluatedProperties": random.choice((False, True, {"type": "string"})),
    }


def _strings(random: Random) -> Any:
    made: dict[str, Any] = {"type": "string"}
    if random.random() < 0.8:
        made["pattern"] = random.choice(_PATTERNS)
    if random.random() < 0.4:
        made["format"] = random.choice(("date-time", "uri", "email", "ipv6", "uuid", "regex", "nonsense"))
    for keyword in ("minLength", "maxLength"):
        if random.random() < 0.4:
            made[keyword] = random.choice((0, 1, 7, 80, 999, 1200, 10**5, 10**9))
    if random.random() < 0.3:
        made = {"allOf": [made, {"not": {"pattern": random.choice(_PATTERNS)}}]}
    if random.random() < 0.2:
        made = {"enum": ["a" * n + "!" for n in (1, 5, 30)], **made}
    return made


def _numbers(random: Random) -> Any:
    factors = (1, 7, 997, 0.1, 1e-300, 1e300, 0.01, 12345.678, 5e-324, 2**61 - 1)
    made: dict[str, Any] = {"type": random.choice(("number", "integer"))}
    made["allOf"] = [{"multipleOf": random.choice(factors)} for _ in range(_few(random))]
    for keyword in ("minimum", "exclusiveMaximum"):
        if random.random() < 0.5:
            made[keyword] = random.choice((-1e308, -1, 0, 0.5, 10**30, 1e308, 5e-324))
    return made


def _arrays(random: Random) -> Any:
    sizes = (0, 1, 5, 40, 300, 10**4, 10**9)
    made: dict[str, Any] = {"type": "array", "items": _leaf(random)}
    made["prefixItems"] = [_leaf(random) for _ in range(random.choice((1, 3, 40, 400)))]
    for keyword in ("minItems", "maxItems", "minContains", "maxContains"):
        if random.random() < 0.3:
            made[keyword] = random.choice(sizes)
    if random.random() < 0.5:
        made["contains"] = _leaf(random)
    if random.random() < 0.5:
        made["uniqueItems"] = True
    if random.random() < 0.3:
        made["unevaluatedItems"] = random.choice((False, _leaf(random)))
    return made


def _objects(random: Random) -> Any:
    count = random.choice((0, 3, 12, 100, 1500))
    made: dict[str, Any] = {"type": "object", "properties": {f"p{i}": _leaf(random) for i in range(count)}}
    made["required"] = [f"p{i}" for i in range(0, count, 1 + _few(random))]
    made["patternProperties"] = {
        random.choice((*_PATTERNS, f"^p.*{i}", f"{i}$")): _leaf(random) for i in range(_few(random))
    }
    beside = {
        "propertyNames": _strings(random),
        "additionalProperties": _leaf(random),
        "unevaluatedProperties": False,
        "minProperties": random.choice((1, 90, 10**6)),
        "maxProperties": random.choice((0, 5, 90, 10**6)),
    }
    return made | {keyword: value for keyword, value in beside.items() if random.random() < 0.3}


def _references(random: Random) -> Any:
    """References to anything: cycles, values that are no schemas, other drafts, dynamic scopes."""

    def place(depth: int) -> Any:
        made: dict[str, Any] = {}
        if random.random() < 0.6:
            made[random.choice(("$ref", "$ref", "$dynamicRef", "$recursiveRef"))] = random.choice(_REFERENCES)
        if random.random() < 0.2:
            made[random.choice(("$anchor", "$dynamicAnchor"))] = random.choice(("a", "b"))
        if random.random() < 0.15:
            made["$recursiveAnchor"] = True
        if random.random() < 0.2:
            made[random.choice(("$id", "id"))] = random.choice(
                ("a", "b", "urn:a", "https://e.com/r", "#a", "")
            )
        if random.random() < 0.2:
            made["enum"] = [1, "a", {"a": 1}, [1]]
        if depth and random.random() < 0.8:
            inner = [place(depth - 1) for _ in range(random.randint(1, 3))]
            keyword = random.choice(
                ("allOf", "anyOf", "oneOf", "not", "properties", "items", "if", "prefixItems")
            )
            lists = keyword in ("allOf", "anyOf", "oneOf", "prefixItems")
            made[keyword] = inner if lists else {"a": inner[0]} if keyword == "properties" else inner[0]
        if random.random() < 0.2:
            made[random.choice(("unevaluatedProperties", "unevaluatedItems"))] = False
        return made

    root = place(3)
    root["$defs"] = {"a": place(2), "b": place(2)}
    if random.random() < 0.4:
        root["$schema"] = random.choice(_DRAFTS)
    return root


def _malformed(random: Random) -> Any:
    """Keywords with values that they can't have."""

    def junk(depth: int) -> Any:
        if not depth or random.random() < 0.5:
            return random.choice(_JUNK)
        return {random.choice(SCHEMA_KEYWORDS): junk(depth - 1) for _ in range(random.randint(1, 3))}

    return {random.choice(SCHEMA_KEYWORDS): junk(3) for _ in range(random.randint(1, 5))}


def _deep(random: Random) -> Any:
    depth = random.choice((10, 90, 500, 3000, 10_000))
    wraps: tuple[Callable[[Any], Any], ...] = (
        lambda inner: {"properties": {"a": inner}},
        lambda inner: {"items": inner},
        lambda inner: {"prefixItems": [inner]},
        lambda inner: {"not": inner},
        lambda inner: {"allOf": [inner]},
        lambda inner: {"anyOf": [inner, {"type": "null"}]},
        lambda inner: {"oneOf": [inner, {"type": "array", "items": inner}]},
        lambda inner: {"if": inner, "then": {"type": "string"}},
        lambda inner: {"contains": inner},
        lambda inner: {"patternProperties": {"a": inner}},
        lambda inner: {"additionalProperties": inner},
        lambda inner: {"propertyNames": inner},
        lambda inner: {"dependentSchemas": {"a": inner}},
        lambda inner: {"unevaluatedProperties": inner},
    )
    wrap = random.choice(wraps)
    made = _leaf(random)
    for _ in range(depth):
        made = wrap(made)
    if random.random() < 0.2:
        value: Any = 1
        for _ in range(depth):
            value = [value] if random.random() < 0.5 else {"a": value}
        made = {random.choice(("const", "default")): value, "allOf": [made]}
    return made


def _values(random: Random) -> Any:
    """Values beside keywords that judge them."""
    values: list[Any] = ["a" * n + "!" for n in range(30)]
    values += [1, 1.0, True, None, [], [[]], {"a": [1]}, "\x00", "\u0661", "\n", 10**40, 1e-320]
    judge = random.choice((_strings, _references, _chain, _product, _numbers, _objects))(random)
    return {
        "enum": random.sample(values, 12),
        "allOf": [judge],
        "not": random.choice(({"$ref": "#"}, _leaf(random))),
    }


FAMILIES: dict[str, Family] = {
    "chain": _chain,
    "product": _product,
    "conditions": _conditions,
    "strings": _strings,
    "numbers": _numbers,
    "arrays": _arrays,
    "objects": _objects,
    "references": _references,
    "malformed": _malformed,
    "deep": _deep,
    "values": _values,
}


def hostile_schema(random: Random) -> Any:
    """One schema; at times one inside another, or several beside one another."""
    families = list(FAMILIES.values())
    schema = random.choice(families)(random)
    shape = random.random()
    if shape < 0.1:
        return {"allOf": [schema, random.choice(families)(random)]}
    if shape < 0.2:
        return {"properties": {_name(random): schema, "z": random.choice(families)(random)}}
    if shape < 0.25 and isinstance(schema, dict):
        return {"$schema": random.choice(_DRAFTS), **schema}
    if shape < 0.3:
        return {"not": schema}
    return schema


def hostile_schemas() -> st.SearchStrategy[Any]:
    """`hostile_schema` as a strategy: a seed is drawn, and smaller seeds are no smaller schemas."""
    return st.integers(0, 2**32 - 1).map(lambda seed: hostile_schema(Random(seed)))


def small_hostile_schemas() -> st.SearchStrategy[Any]:
    """Those that Hypothesis can print and shrink: references and malformed keywords."""
    family = st.sampled_from(["references", "malformed", "strings", "numbers"])
    return st.tuples(family, st.integers(0, 2**32 - 1)).map(
        lambda drawn: FAMILIES[drawn[0]](Random(drawn[1]))
    )
