"""The complement of a schema allows exactly the values that the schema forbids, or is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf.errors import SchemaError
from gbnf.schema.document import Document
from gbnf.schema.flatten import Flattener
from gbnf.schema.negation import NoComplementError
from support.schemas import DOCUMENTS, SHALLOW, spelled
from support.value_sets import ExpandedSchema
from support.values import JSON_VALUES, VALIDATORS, VALUES_OF_EACH_TYPE, canonical, is_valid, values_near


def complement_allows(schema: Any, values: list[Any]) -> list[bool]:
    """Which of the values some branch of the complement allows. Raises NoComplementError."""
    document = Document(schema)
    flattener = Flattener(document, lambda *_: None)
    branches = flattener.complement(document.root)
    return [any(document.allows(branch, value) for branch in branches) for value in values]


@given(st.sampled_from([*VALIDATORS]), st.data())
def test_a_value_is_in_the_complement_exactly_if_it_is_invalid(
    draft: int | None, data: st.DataObject
) -> None:
    schema = data.draw(SHALLOW.map(lambda one: spelled(one, draft)) | DOCUMENTS)
    values = [canonical(data.draw(values_near(schema) | JSON_VALUES)), *VALUES_OF_EACH_TYPE]
    try:
        allowed = complement_allows(schema, values)
    except (NoComplementError, SchemaError):
        assume(condition=False)
    assert allowed == [not is_valid(schema, value) for value in values]


@given(SHALLOW, st.data())
def test_a_set_and_that_of_the_complement_share_no_value_and_miss_none(
    schema: Any, data: st.DataObject
) -> None:
    value = canonical(data.draw(values_near(schema) | JSON_VALUES))
    inside, outside = ExpandedSchema(schema), ExpandedSchema({"not": schema})
    for one in (value, *VALUES_OF_EACH_TYPE):
        found = (one in inside, one in outside)
        assert any(found), one
        assert not all(found) or inside.reports or outside.reports, one


_2019 = "https://json-schema.org/draft/2019-09/schema"
_DRAFT_4 = "http://json-schema.org/draft-04/schema#"
_DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "forbidden", "allowed"),
    [
        (True, [], [1, {}]),
        (False, [1, {}], []),
        ({"type": ["null", "boolean", "number", "string", "array", "object"]}, [], [1, "a", {}]),
        ({"enum": [1, 2.5, "a", True, None]}, [1.5, 3, 0, "b", False, [], {}], [1, 2.5, "a", True, None]),
        ({"const": [1, "a"]}, [[], [1], [1, "b"], [2, "a"], [1, "a", None], {}, 1], [[1, "a"], [1.0, "a"]]),
        ({"enum": [[], {}]}, [[1], {"a": 1}, "", 0, None], [[], {}]),
        ({"const": {"a": 1, "b": [0.5]}}, [{}, {"a": 1}, {"a": 1, "b": []}], [{"b": [0.5], "a": 1.0}]),
        ({"$schema": _DRAFT_4, "enum": [[[1], {"a": True}]]}, [[[1], {"a": 1}], [[1]]], [[[1], {"a": True}]]),
        (
            {"enum": [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 2}]},
            [{}, {"a": 1}, {"b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 1}, {"a": 2, "b": 1, "c": 1}],
            [{"b": 1, "a": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 2}],
        ),
        ({"$schema": _DRAFT_4, "minimum": 2, "exclusiveMinimum": True}, [2, 1], [2.5, "a"]),
        ({"items": {"type": "null"}}, [[None, 1]], [[], [None], {}]),
        ({"contains": {"type": "null"}}, [[], [1]], [[1, None], {}]),
        ({"$schema": _DRAFT_7, "$ref": "#/definitions/a", "minimum": 9, "definitions": {"a": {}}}, [], [1]),
    ],
)
def test_complements(schema: Any, forbidden: list[Any], allowed: list[Any]) -> None:
    expected = [True] * len(forbidden) + [False] * len(allowed)
    assert complement_allows(schema, [*forbidden, *allowed]) == expected


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"multipleOf": 2}, "multipleOf"),
        ({"uniqueItems": True}, "uniqueItems"),
        ({"const": [1] * 101}, "enum"),
        ({"const": {"a": {"b": [*range(100)]}}}, "enum"),
        ({"prefixItems": [{}]}, "prefixItems"),
        ({"$schema": _2019, "items": [{"type": "null"}]}, "items"),
        ({"prefixItems": [{}], "items": {"type": "null"}}, "prefixItems"),
        ({"contains": {}, "minContains": 2}, "contains"),
        ({"additionalProperties": False}, "additionalProperties"),
        ({"unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"propertyNames": {}}, "propertyNames"),
        ({"if": {}, "then": False}, "if"),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"oneOf": [{"const": number} for number in range(6)]}, "oneOf"),
        ({"$ref": "#"}, "$ref"),
    ],
)
def test_what_has_no_complement_names_the_keyword(schema: Any, keyword: str) -> None:
    with pytest.raises(NoComplementError) as caught:
        complement_allows(schema, [])
    assert caught.value.keyword == keyword
