"""The set that a schema expands to contains exactly the values that jsonschema finds valid."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf.errors import SchemaError
from gbnf.schema.document import Document, Subschema, UndecidedError
from gbnf.schema.flatten import Branching, Flattener
from gbnf.schema.keywords import CHOICES, REFERENCES
from gbnf.schema.value_sets import Bound, Null, Number
from support.effort import scaled
from support.schemas import DOCUMENTS
from support.value_sets import ExpandedSchema
from support.values import JSON_VALUES, VALUES_OF_EACH_TYPE, canonical, is_valid, values_near

#: More digits than a float has: jsonschema then compares another number than the one that is written.
_TOO_MANY_DIGITS = re.compile(r"[\d.]{17}")


def expanded(schema: Any) -> ExpandedSchema:
    try:
        return ExpandedSchema(schema)
    except SchemaError:
        assume(condition=False)
        raise


@settings(max_examples=scaled(50))
@given(st.data())
def test_a_value_is_in_the_set_exactly_if_it_is_valid(data: st.DataObject) -> None:
    schema = data.draw(DOCUMENTS)
    value = canonical(data.draw(values_near(schema) | JSON_VALUES))
    assume(not _TOO_MANY_DIGITS.search(json.dumps(value)))
    found = expanded(schema)
    for one in (value, *VALUES_OF_EACH_TYPE):
        if is_valid(schema, one):
            assert one in found, (one, found.values)
        else:
            assert one not in found or found.reports, (one, found.values)


@settings(max_examples=scaled(40))
@given(DOCUMENTS)
def test_an_empty_set_says_why(schema: Any) -> None:
    found = expanded(schema).values
    assert bool(found.reason) >= found.is_empty


def _number(
    low: float | None, high: float | None, *, integer: bool | None = None, exclusive: bool = False
) -> Number:
    first, last = (None if end is None else Bound(Fraction(end), exclusive) for end in (low, high))
    return Number(integer, first, last)


_X_IS_1 = {"required": ["x"], "properties": {"x": {"const": 1}}}


@pytest.mark.parametrize(
    ("schema", "shapes"),
    [
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 2.5}, [_number(1, 2, integer=True)]),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, [_number(0, 1, exclusive=True)]),
        ({"type": ["number", "null"], "minimum": 3, "maximum": 2}, [Null()]),
        ({"anyOf": [{"type": "null"}, {"type": "null"}]}, [Null()]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, [_number(None, None, integer=False)]),
        ({"type": "array", "prefixItems": [{}, False], "minItems": 2}, []),
        ({"type": "object", "minProperties": 2, "maxProperties": 1}, []),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, []),
    ],
)
def test_shapes(schema: Any, shapes: list[Any]) -> None:
    assert list(ExpandedSchema(schema).values.shapes) == shapes


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"enum": [1, "a", {}, 1.0], "type": ["string", "number"]}, ["a", 1]),
        ({"enum": ["a", "b"], "not": {"const": "a"}}, ["b"]),
        ({"enum": [1, 2, 3], "oneOf": [{"minimum": 2}, {"maximum": 2}]}, [3, 1]),
        ({"enum": [{}, {"x": 1}, {"x": 2}], "allOf": [_X_IS_1]}, [{"x": 1}]),
        ({"enum": [True, 1], "const": 1}, [1]),
        ({"enum": [1, 2], "if": {"const": 1}, "then": False}, [2]),
    ],
)
def test_listed_values_are_filtered_by_the_keywords_beside_them(schema: Any, values: list[Any]) -> None:
    found = ExpandedSchema(schema)
    assert found.values.shapes == ()
    assert sorted(map(json.dumps, found.values.values)) == sorted(map(json.dumps, values))
    assert not found.reports


@pytest.mark.parametrize(
    ("schema", "reports"),
    [
        ({"contains": {}, "minContains": 2, "maxContains": 3},
         {("/minContains", "minContains"), ("/maxContains", "maxContains")}),
        ({"not": {"uniqueItems": True}}, {("/not", "not")}),
        ({"type": "string", "pattern": r"^(a)\1$"}, {("/pattern", "pattern")}),
        ({"type": "number", "minimum": 10**40}, {("/minimum", "minimum")}),
        ({"anyOf": [{"properties": {str(name): True}} for name in range(30)], "unevaluatedProperties": False},
         {("/unevaluatedProperties", "unevaluatedProperties")}),
        ({"enum": [[[]]], "type": "array"}, set()),
        ({"const": json.loads("[" * 99 + "]" * 99)}, {("/const", "const")}),
        ({"enum": [json.loads('{"a":' * 99 + "1" + "}" * 99)]}, {("/enum", "enum")}),
    ],
)  # fmt: skip
def test_what_a_set_does_not_enforce_is_reported(schema: Any, reports: set[tuple[str, str]]) -> None:
    found = ExpandedSchema(schema)
    assert not found.values.is_empty
    assert set(found.reports) == reports


_FLATTENED = CHOICES | {*REFERENCES, "allOf"}
_NEED_SIBLINGS = {"unevaluatedItems", "unevaluatedProperties"}


class _FlatJudge:
    """Judges by what flattening made of a schema: jsonschema sees only what is left in each conjunct."""

    def __init__(self, schema: Any) -> None:
        self.reports: list[str] = []
        self.document = Document(schema)
        self.flattener = Flattener(self.document, lambda pointer, *_: self.reports.append(pointer))

    def allows(self, subschema: Subschema, value: Any) -> bool:
        flat = self.flattener.flatten((subschema,))
        return all(self._conjunct_allows(conjunct, value) for conjunct in flat.conjuncts) and all(
            self._one_holds(choice, value) for choice in flat.branchings
        )

    def _conjunct_allows(self, conjunct: Subschema, value: Any) -> bool:
        raw = conjunct.raw
        if isinstance(raw, dict) and _NEED_SIBLINGS.isdisjoint(raw):
            raw = {keyword: member for keyword, member in raw.items() if keyword not in _FLATTENED}
        return self.document.allows(Subschema(raw, conjunct.pointer, conjunct.resolver), value)

    def _one_holds(self, choice: Branching, value: Any) -> bool:
        # Of exclusive branches jsonschema counts those that hold: flattening may have widened one of them.
        holding = sum(self.document.allows(branch, value) for branch in choice.branches)
        return any(self.allows(branch, value) for branch in choice.branches) and (
            holding == 1 or not choice.exclusive
        )


@settings(max_examples=scaled(50))
@given(st.data())
def test_conjuncts_and_choices_allow_exactly_the_valid_values(data: st.DataObject) -> None:
    schema = data.draw(DOCUMENTS)
    value = canonical(data.draw(values_near(schema) | JSON_VALUES))
    try:
        judge = _FlatJudge(schema)
        for one in (value, *VALUES_OF_EACH_TYPE):
            allowed = judge.allows(judge.document.root, one)
            assert allowed == is_valid(schema, one) or (allowed and judge.reports), one
    except (SchemaError, UndecidedError):
        assume(condition=False)
