"""A schema of an earlier draft, rewritten in 2020-12, accepts the same values: jsonschema is the judge."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.schema.drafts import DRAFTS, as_2020_12, canonical_dialect
from support.schemas import DOCUMENTS
from support.values import JSON_VALUES, VALUES_OF_EACH_TYPE, is_valid, values_near


@given(data=st.data())
def test_it_accepts_the_same_values_and_rewriting_again_changes_nothing(data: st.DataObject) -> None:
    schema = data.draw(DOCUMENTS)
    before = copy.deepcopy(schema)
    rewritten = as_2020_12(schema)
    assert schema == before
    assert "$schema" not in rewritten
    assert as_2020_12(rewritten) == rewritten
    jsonschema.Draft202012Validator.check_schema(rewritten)
    for value in (data.draw(values_near(schema) | JSON_VALUES), *VALUES_OF_EACH_TYPE):
        assert is_valid(rewritten, value) == is_valid(schema, value), (rewritten, value)


@pytest.mark.parametrize("dialect", DRAFTS)
def test_any_scheme_and_an_empty_fragment_name_a_dialect(dialect: str) -> None:
    uri = dialect.partition("://")[2]
    for declared in (f"http://{uri}", f"https://{uri}", f"http://{uri}#", f"https://{uri}#"):
        assert canonical_dialect(declared) == dialect


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        # without a declared draft, each keyword means what it meant in its own
        ({"items": [{"type": "null"}], "additionalItems": False}, {"prefixItems": [{"type": "null"}], "items": False}),  # noqa: E501  # one case a line
        ({"items": [], "additionalItems": {"type": "null"}}, {"items": {"type": "null"}}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"dependencies": {"a": ["b"], "b": {"required": ["c"]}}}, {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["c"]}}}),  # noqa: E501  # likewise
        ({"dependencies": {"a": "b"}}, {"dependentRequired": {"a": ["b"]}}),
        ({"dependencies": {"a": ["b"]}, "dependentRequired": {"a": ["c"]}}, {"dependentRequired": {"a": ["c", "b"]}}),  # noqa: E501  # likewise
        ({"$ref": "#/definitions/a", "minLength": 1}, {"$ref": "#/definitions/a", "minLength": 1}),
        ({"$id": "#name"}, {"$anchor": "name"}),
        # a property may have a keyword's name
        ({"properties": {"items": [1]}, "enum": [{"items": [1]}]}, {"properties": {"items": [1]}, "enum": [{"items": [1]}]}),  # noqa: E501  # likewise
        # draft 4
        ({"$schema": "http://json-schema.org/draft-04/schema", "id": "urn:x"}, {"$id": "urn:x"}),
        # 2019-09
        ({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": {"$recursiveRef": "#"}}, {"items": {"$ref": "#"}}),  # noqa: E501  # likewise
        # an unknown dialect is the last one
        ({"$schema": "https://example.org/mine", "dependencies": {"a": ["b"]}}, {}),
        (True, True),
        ({"items": 3, "dependencies": 3, "$ref": 3, "exclusiveMinimum": "1"}, {"items": 3, "dependencies": 3, "$ref": 3, "exclusiveMinimum": "1"}),  # noqa: E501  # likewise
    ],
)  # fmt: skip
def test_examples(schema: Any, expected: Any) -> None:
    assert as_2020_12(schema) == expected


def test_references_follow_what_was_moved() -> None:
    schema = {
        "properties": {
            "items": {"items": [{"type": "string"}], "additionalItems": {"type": "integer"}},
            "first": {"$ref": "#/properties/items/items/0"},
            "rest": {"$ref": "#/properties/items/additionalItems"},
            "nowhere": {"$ref": "#/properties/absent/0"},
        }
    }
    properties = as_2020_12(schema)["properties"]
    assert properties["first"]["$ref"] == "#/properties/items/prefixItems/0"
    assert properties["rest"]["$ref"] == "#/properties/items/items"
    assert properties["nowhere"] == {"$ref": "#/properties/absent/0"}


def test_a_recursive_anchor_is_dynamic() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": True,
        "additionalProperties": {"$recursiveRef": "#"},
        "type": "object",
    }
    validator = jsonschema.Draft202012Validator(as_2020_12(schema))
    assert validator.is_valid({"a": {"b": {}}})
    assert not validator.is_valid({"a": {"b": 1}})
