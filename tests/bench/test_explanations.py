"""A finding explains violations at its location, above it or below it, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from explanations import unexplained
from gbnf.findings import Finding


def finding(pointer: str, keyword: str) -> Finding:
    return Finding("", pointer, keyword, "unenforced", "because")


NAMES = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a", "maxLength": 3}}}
SHARED = {"$defs": {"short": {"maxLength": 2}}, "properties": {"a": {"$ref": "#/$defs/short"}}}
CHOICE = {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/even"}], "$defs": {"even": {"multipleOf": 0.3}}}
LISTS = {
    "$ref": "list",
    "$defs": {
        "list": {"$id": "list", "items": {"$dynamicRef": "#item"}},
        "item": {"$dynamicAnchor": "item", "type": "string"},
    },
}
WHEN = {"if": {"required": ["a"]}, "then": {"required": ["b"]}}


PATTERN = finding("/properties/name/pattern", "pattern")


@pytest.mark.parametrize(
    ("schema", "data", "findings", "broken"),
    [
        pytest.param(NAMES, {"name": "b"}, [PATTERN], "", id="at its location"),
        pytest.param(
            NAMES, {"name": "b"}, [finding("/properties/name", "pattern")], "", id="location without keyword"
        ),
        pytest.param(NAMES, {"name": "b"}, [finding("/properties", "properties")], "", id="above"),
        pytest.param(
            SHARED, {"a": "long"}, [finding("/$defs/short/maxLength", "maxLength")], "", id="behind a $ref"
        ),
        pytest.param(
            SHARED, {"a": "long"}, [finding("/properties/a/$ref", "$ref")], "", id="the $ref itself"
        ),
        pytest.param(CHOICE, 1.1, [finding("/$defs/even/multipleOf", "multipleOf")], "", id="in a branch"),
        pytest.param(CHOICE, 1.1, [finding("/anyOf/0/type", "type")], "", id="below"),
        pytest.param(WHEN, {"a": 1}, [finding("/if", "if")], "", id="the condition"),
        pytest.param(
            LISTS, [1], [finding("/$ref/items/$dynamicRef", "$dynamicRef")], "", id="by way of a $ref"
        ),
        pytest.param(
            LISTS, [1], [finding("/$defs/list/items/$dynamicRef", "$dynamicRef")], "", id="on the way"
        ),
        pytest.param({"uniqueItems": False}, [1], [finding("/x", "x")], "", id="jsonschema finds nothing"),
        pytest.param(NAMES, {"name": "b"}, [], "pattern at /properties/name/pattern", id="no report"),
        pytest.param(
            NAMES,
            {"name": "b"},
            [finding("/properties/name/maxLength", "maxLength"), replace(PATTERN, kind="free_form")],
            "pattern at /properties/name/pattern",
            id="a neighbour, and no more than a remark",
        ),
        pytest.param(
            NAMES, {"name": "bbbb"}, [PATTERN], "maxLength at /properties/name/maxLength", id="one of two"
        ),
        pytest.param(
            SHARED, {"a": "long"}, [], "maxLength at /$defs/short/maxLength", id="not behind a $ref"
        ),
    ],
)
def test_what_is_unexplained(schema: Any, data: Any, findings: list[Finding], broken: str) -> None:
    assert unexplained(schema, data, findings) == ([broken] if broken else [])
