"""The extended validators agree with jsonschema, except for patterns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft3Validator, Draft202012Validator

from gbnf.schema.validators import extend_validator
from support.effort import scaled
from support.schemas import DOCUMENTS
from support.values import JSON_VALUES, VALIDATORS, is_valid, values_near


@settings(max_examples=scaled(60))
@given(st.data())
def test_it_agrees_with_jsonschema(data: st.DataObject) -> None:
    schema = data.draw(DOCUMENTS)
    value = data.draw(values_near(schema) | JSON_VALUES)
    dialects = {one.META_SCHEMA.get("$schema"): one for one in VALIDATORS.values()}
    validator = extend_validator(dialects.get(schema.get("$schema"), Draft202012Validator))
    checker = Draft202012Validator.FORMAT_CHECKER
    assert validator(schema, format_checker=checker).is_valid(value) == is_valid(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        # Where Python's `re` differs from ECMA-262.
        ({"pattern": r"^\d$"}, "١", False),
        ({"pattern": "^a$"}, "a\n", False),
        ({"pattern": r"^(?<first>a)\k<first>$"}, "aa", True),
        ({"pattern": r"^(?<first>a)\k<first>$"}, "aa\n", False),
        ({"patternProperties": {"^a$": {"type": "null"}}}, {"a\n": 1}, True),
        ({"patternProperties": {"^a$": {}}, "additionalProperties": False}, {"a\n": 1}, False),
        ({"patternProperties": {"^a$": {}}, "unevaluatedProperties": False}, {"a\n": 1}, False),
        ({"patternProperties": {r"^\p{L}$": {}}, "unevaluatedProperties": False}, {"é": 1}, True),
        ({"propertyNames": {"pattern": "^a$"}}, {"a\n": 1}, False),
    ],
)  # fmt: skip
def test_patterns_are_those_of_ecma_262(schema: Any, value: Any, valid: bool) -> None:
    assert extend_validator(Draft202012Validator)(schema).is_valid(value) == valid


@pytest.mark.parametrize(
    ("schema", "valid"),
    [
        ({"anyOf": [{"properties": {"a": True}}, {"required": ["b"]}]}, True),
        ({"anyOf": [{"properties": {"a": {"type": "null"}}}, True]}, False),
        ({"if": {"required": ["a"]}, "then": {"properties": {"a": True}}}, True),
        ({"if": False, "then": {"properties": {"a": True}}}, False),
        ({"dependentSchemas": {"a": {"properties": {"a": True}}}}, True),
        ({"$ref": "#/$defs/d", "$defs": {"d": {"properties": {"a": True}}}}, True),
        ({"not": {"properties": {"a": True}, "required": ["b"]}}, False),
        ({"allOf": [{"additionalProperties": {"type": "integer"}}]}, True),
        ({"patternProperties": {r"^\p{L}$": {}}}, True),
    ],
)
def test_unevaluated_properties_are_those_that_no_keyword_evaluates(schema: Any, valid: bool) -> None:
    asking = {**schema, "unevaluatedProperties": False}
    assert extend_validator(Draft202012Validator)(asking).is_valid({"a": 1}) == valid


def test_a_draft_with_fewer_keywords_is_extended_too() -> None:
    """Draft 3 has no `required` of its own, and its patterns are translated like those of the others."""
    schema = {"properties": {"a": {"pattern": r"^\d$", "required": True}}}
    assert extend_validator(Draft3Validator)(schema).is_valid({"a": "1"})
    assert not extend_validator(Draft3Validator)(schema).is_valid({"a": "١"})
    assert not extend_validator(Draft3Validator)(schema).is_valid({})
