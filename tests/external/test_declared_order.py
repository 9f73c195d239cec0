"""The walk that puts keys in declared order keeps the value, and follows whatever speaks of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from external.declared_order import in_declared_order

PAIR: Any = {"properties": {"b": {}, "a": {}}}


@pytest.mark.parametrize(
    ("schema", "text", "ordered"),
    [
        pytest.param(PAIR, '{"a": 1, "x": 2, "b": 3}', '{"b": 3, "a": 1, "x": 2}', id="extra keys last"),
        pytest.param({"items": PAIR}, '[{"a": 1, "b": 2}]', '[{"b": 2, "a": 1}]', id="items"),
        pytest.param({"prefixItems": [PAIR]}, '[{"a": 1, "b": 2}]', '[{"b": 2, "a": 1}]', id="prefix"),
        pytest.param({"items": [PAIR]}, '[{"a": 1, "b": 2}]', '[{"b": 2, "a": 1}]', id="older prefix"),
        pytest.param(
            {"$defs": {"p": PAIR}, "additionalProperties": {"$ref": "#/$defs/p"}},
            '{"x": {"a": 1, "b": 2}}',
            '{"x": {"b": 2, "a": 1}}',
            id="reference",
        ),
        pytest.param(
            {"properties": {"b": {}}, "allOf": [{"properties": {"c": {}}}, {"properties": {"a": {}}}]},
            '{"a": 1, "b": 2, "c": 3}',
            '{"b": 2, "c": 3, "a": 1}',
            id="combined",
        ),
        pytest.param(
            {"enum": [[{"b": 1, "a": {"d": 2, "c": 3}}]]},
            '[{"a": {"c": 3, "d": 2}, "b": 1}]',
            '[{"b": 1, "a": {"d": 2, "c": 3}}]',
            id="values",
        ),
        pytest.param({"$ref": "#"}, '{"a": 1}', '{"a": 1}', id="endless"),
        pytest.param(True, '{"a": 1}', '{"a": 1}', id="anything"),
    ],
)
def test_order(schema: Any, text: str, ordered: str) -> None:
    found = in_declared_order(schema, json.loads(text))
    assert found == json.loads(text)
    assert json.dumps(found) == ordered
