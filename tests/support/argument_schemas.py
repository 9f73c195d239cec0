"""Schemas of tools' arguments with arguments near them, for formats that write values by their types.

The schemas are simple enough that `types_of` knows which types they allow, and that no grammar loosens them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from support.json_values import nested

TYPES = frozenset({"string", "number", "boolean", "null", "array", "object"})

#: Texts by which formats tell what they read, and others that are easily lost.
SIGNS = (
    "", " ", "\n", "\t", "\r\n", "\x07", "\x7f", "\x85", "\u2028", "\ufeff", "a", "Zürich", "日本", "😀",
    "\U0001f469\u200d\U0001f680", '"', "'", "\\", "\\n", "\\u0041", "&amp;", "<", ">", "[", "]", "{",
    "}", "(", ")", ",", ", ", ":", "=", "|", "null", "None", "true", "False", "5", "-0.5e3", "1.2.3",
    "[1]", "{}", '{"a": 1}', "['a']", "5 ", "nul", "Infinity", "</parameter>", "\n</parameter>\n",
    "<parameter=a>", "</function>", "</tool_call>", "<tool_call>", "</arg_value>", "<arg_key>",
    "</arg_key>", "]]>", "<![CDATA[", "</param>", '<|"|>', "]<]minimax[>[", "</a>", "</item>", "<item>",
    "<|close|>argument", "<|sep|>", "</｜DSML｜parameter>", "</atem:parameter>", "[TOOL_CALLS]", "[ARGS]",
    "<|im_end|>", "<|eot_id|>", "</s>", "</think>", "<think>", "```", "<|tool_call_end|>",
    "to=functions.a", ">>>all\n", "%}", "{{ a }}",
)  # fmt: skip

#: Without unassigned characters, which `repr` escapes: each version of Python knows others.
_CHARACTERS = st.characters(exclude_categories=["Cs", "Cn"], min_codepoint=1)
TEXTS = st.one_of(
    st.sampled_from(SIGNS),
    st.lists(st.sampled_from(SIGNS), min_size=2, max_size=4).map("".join),
    st.text(_CHARACTERS, max_size=8),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.sampled_from([0.5, -2.25, 1e-7, 1e30]), TEXTS
)
_ODD_KEYS = (
    "with space", 'quo"te', "a>b", "a=b", "a:b", "</arg_key>", "it's", "<a", "tab\t", "null", "{", "}", "]",
    "",
)  # fmt: skip
KEYS = st.sampled_from(["a", "b", "A", "ab", "item", "name", "x_1", "x-y", "Zürich", *_ODD_KEYS])
PLAIN_KEYS = st.sampled_from(["a", "b", "c", "ab", "A", "name", "x_1", "x-y", "item", "text"])
JSON = nested(SCALARS, KEYS, size=5)
PATTERNS = ("^[a-c]{1,3}$", "^x_", r"^\d+$", "é$", "a.c", "^(read|write)_files?$", "^[^<]*$", "^[ -~]*$")


@st.composite
def _bounds(draw: st.DrawFn, low: str, high: str, greatest: int) -> dict[str, int]:
    least, most = sorted(draw(st.tuples(st.integers(0, greatest), st.integers(0, greatest))))
    return draw(st.sampled_from([{}, {low: least}, {high: most}, {low: least, high: most}]))


_LEAVES = st.one_of(
    st.just({"type": "string"}),
    st.sampled_from(sorted(TYPES)).map(lambda kind: {"type": kind}),
    st.lists(st.sampled_from(sorted(TYPES)), min_size=2, max_size=3, unique=True).map(
        lambda kinds: {"type": kinds}
    ),
    st.just({}),
    _bounds("minLength", "maxLength", 6).map(lambda bounds: {"type": "string", **bounds}),
    st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern}),
    st.sampled_from(PATTERNS).map(lambda pattern: {"type": ["string", "null", "number"], "pattern": pattern}),
    st.just({"type": "string", "format": "date"}),
    _bounds("minimum", "maximum", 300).map(lambda bounds: {"type": "integer", **bounds}),
    _bounds("exclusiveMinimum", "maximum", 9).map(lambda bounds: {"type": "number", **bounds}),
    st.lists(SCALARS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    TEXTS.map(lambda text: {"const": text}),
    JSON.map(lambda value: {"const": value}),
)


@st.composite
def _objects(
    draw: st.DrawFn, inner: st.SearchStrategy[Any], keys: st.SearchStrategy[str], least: int = 0
) -> dict[str, Any]:
    names = draw(st.lists(keys, unique=True, min_size=least, max_size=4))
    return {
        "type": "object",
        "properties": {name: draw(inner) for name in names},
        "required": draw(st.lists(st.sampled_from(names), unique=True)) if names else [],
        "additionalProperties": draw(st.sampled_from([False, False, True]) | inner),
    }


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda items, bounds: {"type": "array", "items": items, **bounds},
        inner,
        _bounds("minItems", "maxItems", 3),
    )


_SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        _objects(inner, KEYS | PLAIN_KEYS),
        _arrays(inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: {"anyOf": some}),
    ),
    max_leaves=4,
)

#: Schemas of arguments.
ARGUMENTS = _objects(_SCHEMAS, PLAIN_KEYS, least=1) | _objects(_SCHEMAS, KEYS | PLAIN_KEYS)


def near(schema: Any) -> st.SearchStrategy[Any]:
    """Values that are often valid, the keys of objects in declared order."""
    if not schema:
        return JSON
    if "anyOf" in schema:
        return st.one_of([near(one) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    kinds = schema["type"]
    return st.one_of([_near(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def _near(kind: str, schema: Any) -> st.SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer" | "number":
            low, high = (
                schema.get("minimum", schema.get("exclusiveMinimum", -(10**6))),
                schema.get("maximum", 10**6),
            )
            whole = st.integers(min(low, high), max(low, high))
            return whole if kind == "integer" else whole | st.sampled_from([0.5, -2.25, 1e-7, 1e30])
        case "string":
            given = TEXTS
            if "pattern" in schema:
                given = st.from_regex(schema["pattern"], alphabet=_CHARACTERS)
            if "format" in schema:
                given = st.dates().map(str)
            low, high = schema.get("minLength", 0), schema.get("maxLength", 10**6)
            return given.map(lambda text: (text + "x" * low)[:high] if low or high < 10**6 else text)
        case "array":
            low = schema.get("minItems", 0)
            return st.lists(near(schema.get("items")), min_size=low, max_size=schema.get("maxItems", low + 3))
        case _:
            return _object_near(schema)


@st.composite
def _object_near(draw: st.DrawFn, schema: Any) -> dict[str, Any]:
    properties, other = schema.get("properties", {}), schema.get("additionalProperties", True)
    given = {
        name: draw(near(inner))
        for name, inner in properties.items()
        if name in schema.get("required", ()) or draw(st.integers(0, 3))
    }
    if other is not False and draw(st.integers(0, 2)) == 0:
        others = draw(st.dictionaries(KEYS, near(None if other is True else other), max_size=2))
        given |= {name: value for name, value in others.items() if name not in properties}
    return given


def types_of(schema: Any) -> frozenset[str]:
    """Return the types that a schema allows; an integer is a number."""
    if not isinstance(schema, dict):
        return TYPES
    if "anyOf" in schema:
        return frozenset().union(*map(types_of, schema["anyOf"]))
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if listed is not None:
        return frozenset(map(type_of, listed))
    kinds = schema.get("type", sorted(TYPES))
    return frozenset(
        "number" if kind == "integer" else kind for kind in ([kinds] if isinstance(kinds, str) else kinds)
    )


def member_schema(schema: Any, key: str) -> Any:
    """Return what a schema says of the values under a key; None for nothing."""
    if not isinstance(schema, dict):
        return None
    if "anyOf" in schema:
        found = [member_schema(one, key) for one in schema["anyOf"] if "object" in types_of(one)]
        return None if None in found or not found else {"anyOf": found}
    other = schema.get("additionalProperties")
    return schema.get("properties", {}).get(key, other if isinstance(other, dict) else None)


def declares(schema: Any, key: str) -> bool:
    """Return whether a schema names a key."""
    if not isinstance(schema, dict):
        return False
    if "anyOf" in schema:
        return any(declares(one, key) for one in schema["anyOf"])
    return "const" in schema or "enum" in schema or key in schema.get("properties", {})


def item_schema(schema: Any) -> Any:
    """Return what a schema says of the items of arrays; None for nothing."""
    if not isinstance(schema, dict):
        return None
    if "anyOf" in schema:
        found = [item_schema(one) for one in schema["anyOf"] if "array" in types_of(one)]
        return None if None in found or not found else {"anyOf": found}
    return schema.get("items")


def type_of(value: Any) -> str:
    """Return the JSON type of a value; that of an integer is "number", that of a tuple is none."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return ""
