"""Closed objects, and what `unevaluatedProperties` leaves: the grammar agrees with jsonschema."""

from __future__ import annotations

import json
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf import compile_pool, compile_schema, validate_call
from gbnf.errors import SchemaError
from gbnf.schema.closing import close_objects
from gbnf.tools import Tool
from support.effort import scaled
from support.oracle import engine

_NAMES = ("a", "b", "c")
_OBJECTS: list[dict[str, Any]] = [
    dict(zip(names, values, strict=True))
    for count in range(len(_NAMES) + 1)
    for names in permutations(_NAMES, count)
    for values in product((0, None), repeat=count)
]
_VALUES = st.sampled_from([True, {"const": 0}, {"type": "null"}])


@st.composite
def _plain(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if draw(st.integers(0, 4)):
        names = draw(st.lists(st.sampled_from(_NAMES), unique=True, max_size=2))
        schema["properties"] = {name: draw(_VALUES) for name in names}
    if draw(st.booleans()):
        schema["required"] = [draw(st.sampled_from(_NAMES))]
    if draw(st.integers(0, 9)) == 0:
        schema["patternProperties"] = {draw(st.sampled_from(["^a", "c"])): draw(_VALUES)}
    if draw(st.integers(0, 9)) == 0:
        schema["additionalProperties"] = draw(_VALUES)
    return schema


@st.composite
def _combined(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    schema = draw(_plain())
    kinds = st.sampled_from(["anyOf", "oneOf", "allOf", "if", "dependentSchemas", "$ref"])
    for keyword in draw(st.lists(kinds, min_size=1, max_size=2, unique=True)):
        match keyword:
            case "if":
                schema["if"] = draw(_plain())
                schema |= {name: draw(inner) for name in ("then", "else") if draw(st.booleans())}
            case "dependentSchemas":
                schema[keyword] = {draw(st.sampled_from(_NAMES)): draw(inner)}
            case "$ref":
                schema[keyword] = "#/$defs/" + draw(st.sampled_from("de"))
            case _:
                schema[keyword] = draw(st.lists(inner, min_size=1, max_size=3))
    if draw(st.integers(0, 3)) == 0:
        schema["unevaluatedProperties"] = draw(st.one_of(st.just(False), _VALUES))
    return schema


#: Schemas of objects with few names, nested in place only.
_SCHEMAS = st.builds(
    lambda schema, one, other: {**schema, "type": "object", "$defs": {"d": one, "e": other}},
    st.recursive(_plain(), _combined, max_leaves=5),
    _plain(),
    _plain().map(lambda schema: {"anyOf": [{"$ref": "#/$defs/d"}, schema]}),
)


def _accepted(grammar: Any, values: list[Any]) -> set[str]:
    """Return the values that the grammar accepts, keys sorted: it may fix their order."""
    texts = [json.dumps(value) for value in values]
    accepts = [engine().match(grammar, text).complete for text in texts]
    return {
        json.dumps(value, sort_keys=True) for value, accepted in zip(values, accepts, strict=True) if accepted
    }


def _valid(schema: Any) -> set[str]:
    validator = Draft202012Validator(schema)
    return {json.dumps(value, sort_keys=True) for value in _OBJECTS if validator.is_valid(value)}


@pytest.mark.slow
@settings(max_examples=scaled(60))
@given(_SCHEMAS, st.booleans())
def test_the_grammar_of_an_object_is_what_jsonschema_accepts(schema: Any, closed: bool) -> None:
    valid = _valid(close_objects(schema) if closed else schema)
    try:
        grammar = compile_schema(schema, closed=closed)
    except SchemaError:
        assert not valid
        return
    accepted = _accepted(grammar, _OBJECTS)
    assert valid <= accepted
    if grammar.exact:
        assert valid == accepted


def _tool(schema: Any, **more: Any) -> Tool:
    return Tool("t", args={"type": "object", "properties": {"v": schema}, "required": ["v"], **more})


@pytest.mark.slow
@settings(max_examples=scaled(50))
@given(_SCHEMAS)
def test_grammar_and_validator_of_a_tool_agree(schema: Any) -> None:
    tool = _tool(schema, **{"$defs": schema.pop("$defs")})
    calls = [{"name": "t", "arguments": {"v": value}} for value in _OBJECTS]
    valid = {json.dumps(call, sort_keys=True) for call in calls if validate_call(call, [tool]).ok}
    try:
        grammar = compile_pool([tool])
    except SchemaError:
        assert not valid
        return
    assume(grammar.exact)
    assert valid == _accepted(grammar, calls)


_A: dict[str, Any] = {"properties": {"a": {}}}
_B: dict[str, Any] = {"properties": {"b": {}}}
_C: dict[str, Any] = {"properties": {"c": {}}}
_FALSE: dict[str, Any] = {"unevaluatedProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [_A, _B], **_FALSE},
        {"anyOf": [{**_A, "required": ["a"]}, True, _B], **_FALSE},
        {"oneOf": [True, False], **_A, **_FALSE},
        {"if": _A, **_FALSE},
        {"dependentSchemas": {"a": _B}, **_A, **_FALSE},
        {"anyOf": [{"anyOf": [_A, _B]}, _C], "unevaluatedProperties": {"const": 0}},
        {"$ref": "#/$defs/m", "$defs": {"m": {"allOf": [{"$ref": "#/$defs/a"}, _FALSE]}, "a": _A}},
        {"allOf": [{"anyOf": [_A, _B], **_FALSE}, {"anyOf": [_B, _C], **_FALSE}]},
        {"not": {"not": _A}, **_B, **_FALSE},
        {"anyOf": [{"patternProperties": {"^a": {}}}, _B], **_FALSE},
    ],
)
def test_what_branches_evaluate_is_enforced_exactly(schema: Any) -> None:
    grammar = compile_schema({"type": "object", **schema})
    assert grammar.exact
    assert _accepted(grammar, _OBJECTS) == _valid(schema)


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (_A, {**_A, "additionalProperties": False}),
        ({**_A, "required": ["a"], "anyOf": [_B]}, {**_A, "required": ["a"], "anyOf": [_B], **_FALSE}),
        ({**_A, "additionalProperties": {}}, None),
        ({"type": "object"}, None),
        ({"not": _A}, None),
        (
            {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": _A}, "additionalProperties": {}},
            {
                "properties": {"x": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {**_A, "additionalProperties": False}},
                "additionalProperties": {},
            },
        ),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": _A}, **_B},
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": _A}, **_B, **_FALSE},
        ),
    ],
)
def test_only_keywords_are_added(schema: Any, closed: Any) -> None:
    assert close_objects(schema) == (schema if closed is None else closed)


@pytest.mark.parametrize("draft", ["07", "04"])
def test_a_draft_without_the_keyword_closes_objects_too(draft: str) -> None:
    schema = {
        "$schema": f"http://json-schema.org/draft-{draft}/schema#",
        "type": "object",
        "properties": {"v": {"$ref": "#/definitions/d"}, "w": {"allOf": [{"$ref": "#/definitions/d"}]}},
        "definitions": {"d": {"type": "object", "anyOf": [_A, _B]}},
    }
    grammar = compile_schema(schema, closed=True)
    assert grammar.exact
    for name in ("v", "w"):
        accepted = _accepted(grammar, [{name: value} for value in _OBJECTS])
        assert accepted == {
            json.dumps({name: value}, sort_keys=True) for value in _OBJECTS if "c" not in value
        }


def test_a_union_by_tags_stays_as_small_as_its_branches() -> None:
    """Without the exclusion of branches by their tags, all sets of branches would be tried."""
    branches = [
        {"properties": {"kind": {"const": number}, f"p{number}": {}}, "required": ["kind"]}
        for number in range(60)
    ]
    grammar = compile_schema({"type": "object", "anyOf": branches, **_FALSE}, property_order="declared")
    each_closed = [{**branch, "type": "object", "additionalProperties": False} for branch in branches]
    assert grammar.exact
    assert str(grammar) == str(compile_schema({"anyOf": each_closed}, property_order="declared"))


def test_where_branches_make_too_many_cases_no_valid_object_is_refused() -> None:
    names = [f"p{number}" for number in range(12)]
    branches = [{"properties": {name: {}}, "required": [name]} for name in names]
    grammar = compile_schema({"type": "object", "anyOf": branches, **_FALSE})
    keywords = {finding.keyword for finding in grammar.report if finding.kind == "unenforced"}
    assert keywords == {"unevaluatedProperties", "properties"}  # a property may come twice in any order
    for given_names in (names, names[3:9], names[-1:]):
        assert engine().match(grammar, json.dumps(dict.fromkeys(given_names))).complete
    assert not engine().match(grammar, json.dumps({"p0": None, "q": None})).accepted


_NULL_A: dict[str, Any] = {"properties": {"a": {"type": "null"}}}
_NULL_X: dict[str, Any] = {"properties": {"x": {"type": "null"}}}
_PATTERNS: dict[str, Any] = {"patternProperties": {"^a": {"type": "null"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{**_NULL_A, **_PATTERNS}]},
        {**_NULL_X, "anyOf": [{**_NULL_A, **_PATTERNS}]},
        {"anyOf": [_NULL_A, _PATTERNS]},
        {"oneOf": [_NULL_X, {"required": ["a"], **_NULL_A, **_PATTERNS}]},
        {"oneOf": [_NULL_X, {"required": ["a"], **_NULL_A}]},
        {"anyOf": [{"anyOf": [{**_NULL_A, **_PATTERNS}]}, _NULL_X]},
        {"if": {"required": ["a"]}, "then": {**_NULL_A, **_PATTERNS}, "else": _NULL_X},
        {**_NULL_X, "dependentSchemas": {"x": _PATTERNS}},
        {**_NULL_X, "anyOf": [_NULL_A, {"additionalProperties": True}]},
    ],
)
def test_branches_of_closed_objects_mean_the_same_to_both(schema: Any) -> None:
    calls = [
        json.dumps({"name": "t", "arguments": {"v": value}})
        for value in ({"q": 1}, {"a": None}, {"ab": 1}, {"x": None}, {"x": None, "q": 1}, {"a": None, "q": 1})
    ]
    pool = [_tool({"type": "object", **schema})]
    grammar = compile_pool(pool)
    assert grammar.exact
    accepted = [engine().match(str(grammar), call).complete for call in calls]
    assert accepted == [validate_call(json.loads(call), pool).ok for call in calls]
