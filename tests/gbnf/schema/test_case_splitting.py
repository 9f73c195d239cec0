"""Sets that are called disjoint share no value. The converse is not promised, beyond the tables below."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.schema.case_splitting import disjoint
from support.schemas import SCHEMAS, SHALLOW
from support.value_sets import ExpandedSchema
from support.values import JSON_VALUES, VALUES_OF_EACH_TYPE, canonical, is_valid, values_near


def are_disjoint(left: Any, right: Any) -> bool:
    """Whether the sets of two schemas are called disjoint, in either order."""
    both = ExpandedSchema({"$defs": {"left": left, "right": right}})
    root = both.root[0]
    one, other = (both.expander.expand((root.at("$defs", name),)) for name in ("left", "right"))
    found = disjoint(one, other, both.expander.expand)
    assert disjoint(other, one, both.expander.expand) == found
    return found


@given(SCHEMAS, SCHEMAS, st.data())
def test_disjoint_sets_share_no_value(left: Any, right: Any, data: st.DataObject) -> None:
    values = [canonical(data.draw(values_near(left))), canonical(data.draw(values_near(right)))]
    if are_disjoint(left, right):
        for one in (*values, *VALUES_OF_EACH_TYPE):
            assert not (is_valid(left, one) and is_valid(right, one)), one


@given(SHALLOW, SHALLOW, st.data())
def test_sets_that_share_a_value_are_not_disjoint(left: Any, right: Any, data: st.DataObject) -> None:
    """As above, for values that both schemas are sure to have: each is widened by one of the other's."""
    value = canonical(data.draw(values_near(left) | values_near(right) | JSON_VALUES))
    wider = [one if is_valid(one, value) else {"anyOf": [one, {"const": value}]} for one in (left, right)]
    assert not are_disjoint(*wider)


def _one(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    """Objects that must have one property."""
    return {"type": "object", "required": [name], "properties": {name: schema}, **more}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"type": "null"}, {"type": "boolean"}),
        ({"type": "integer"}, {"type": "number", "not": {"type": "integer"}}),
        ({"type": "number", "maximum": 1}, {"type": "number", "exclusiveMinimum": 1}),
        ({"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2}),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}),
        ({"enum": ["a", 1]}, {"enum": ["b", True]}),
        ({"const": "a"}, {"type": "string", "pattern": "^b"}),
        ({"type": "array", "maxItems": 1}, {"type": "array", "minItems": 2}),
        (
            {"type": "array", "minItems": 1, "items": {"type": "null"}},
            {"type": "array", "minItems": 1, "prefixItems": [{"type": "string"}]},
        ),
        (_one("kind", {"const": "a"}), _one("kind", {"const": "b"})),
        (_one("a", {}), {"type": "object", "additionalProperties": False}),
        (_one("a", {}), {"type": "object", "properties": {"a": False}}),
    ],
)
def test_disjoint(left: Any, right: Any) -> None:
    assert are_disjoint(left, right)
