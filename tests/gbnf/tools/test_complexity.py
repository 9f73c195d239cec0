"""The complexity score: any value has one, and more to decide never scores less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gbnf.tools import load_manifests
from gbnf.tools.complexity import Complexity, args_complexity, is_complex
from support.json_values import nested

words = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "$ref", "#", "#/properties/a", "object", "array", "a", "b",  # noqa: E501  # one case a line
     "additionalProperties", "requires_one_of", "if", "enum", "$defs", "prefixItems", "allOf"]
)  # fmt: skip
schemas = nested(st.none() | st.booleans() | st.integers(0, 2) | words, words, most=5, size=30)


@given(schemas)
def test_any_value_has_a_score_that_its_text_decides(schema: Any) -> None:
    complexity = args_complexity(schema)
    assert complexity == args_complexity(json.loads(json.dumps(schema)))
    assert complexity == args_complexity(json.loads(json.dumps(schema, sort_keys=True)))
    assert min(complexity.polymorphism, complexity.nesting, complexity.free_form, complexity.width) >= 0
    assert is_complex(schema, complexity.score)
    assert not is_complex(schema, complexity.score + 1)


@given(st.dictionaries(st.text(max_size=3), schemas, max_size=4), schemas)
def test_another_property_never_scores_less(properties: Any, more: Any) -> None:
    before = args_complexity({"properties": properties})
    after = args_complexity({"properties": {**properties, "another": more}})
    assert after.score >= before.score


def test_each_part_counts_its_own() -> None:
    scalar = {"type": "string"}
    flat = {"properties": dict.fromkeys("abcd", scalar)}
    assert args_complexity(flat) == Complexity()
    assert args_complexity({"properties": dict.fromkeys("abcdefgh", scalar)}) == Complexity(width=2)
    assert args_complexity({**flat, "requires_one_of": [["a", "b"]]}) == Complexity(polymorphism=2)
    assert args_complexity({"properties": {"a": {"type": ["string", "null"]}}}) == Complexity(polymorphism=2)
    assert args_complexity({"properties": {"a": {"anyOf": [scalar, scalar]}}}) == Complexity(polymorphism=2)
    assert args_complexity({"properties": {"a": {}, "b": {"type": "array"}}}) == Complexity(free_form=4)
    assert args_complexity({"properties": {"a": {"properties": {"b": scalar}}}}) == Complexity(nesting=3)
    assert args_complexity({"properties": {"a": {"type": "object"}}}) == Complexity(nesting=3, free_form=2)


def test_recursion_is_measured_to_a_limit() -> None:
    assert args_complexity({"properties": {"a": {"$ref": "#"}}}).nesting == 24
    assert args_complexity({"$ref": "#"}).score == 0
    assert args_complexity(True).score == args_complexity(False).score == 0


def test_of_the_bundled_tools_only_the_form_is_complex() -> None:
    bundled_tools = load_manifests(Path(__file__).parents[3] / "manifests")
    assert [tool.name for tool in bundled_tools if is_complex(tool.model_args())] == ["get_inputs"]
