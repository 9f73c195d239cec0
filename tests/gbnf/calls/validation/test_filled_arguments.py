"""A value that a step reference inserts is judged like an argument, by that argument's schemas alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf.calls.validation.validator import filled_argument_errors
from gbnf.tools import Tool

SCHEMAS: tuple[Any, ...] = (
    {"type": "string", "minLength": 2},
    {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    {"enum": ["a", 1, None]},
    {"anyOf": [{"type": "integer", "minimum": 3}, {"pattern": "^a"}]},
    {"$ref": "#/$defs/named"},
    True,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 5) | st.sampled_from(["", "a", "ab", "ba"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=5,
)


def make_tool(schema: Any, **args: Any) -> Tool:
    definitions = {"named": {"type": "object", "required": ["x"]}}
    properties = {"paths": schema, "other": {"type": "integer"}}
    return Tool.from_mapping(
        {"name": "t", "args": {"type": "object", "$defs": definitions, "properties": properties, **args}}
    )


@given(st.sampled_from(SCHEMAS), VALUES)
def test_it_agrees_with_jsonschema(schema: Any, value: Any) -> None:
    errors = filled_argument_errors(make_tool(schema, required=["other"]), "paths", value)
    root = {"$defs": {"named": {"type": "object", "required": ["x"]}}, "allOf": [schema]}
    assert (not errors) == Draft202012Validator(root).is_valid(value)
    assert all(error and "\n" not in error for error in errors)


@pytest.mark.parametrize("value", ["a", 1])
def test_a_property_that_the_runtime_fills_in_has_its_other_keywords(value: Any) -> None:
    tool = make_tool({"type": "string", "runtime_resolved": True})
    assert bool(filled_argument_errors(tool, "paths", value)) == (value == 1)


def test_a_value_nested_too_deep_is_an_error() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    recursive = {"$defs": {"named": {"items": {"$ref": "#/$defs/named"}}}}
    [error] = filled_argument_errors(make_tool({"$ref": "#/$defs/named"}, **recursive), "paths", value)
    assert error.startswith("the entries can't be judged (")
