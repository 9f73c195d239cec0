"""Derivations that a text has at once: their bound, their search, and what is merged for the engine."""

from __future__ import annotations

import json
from math import inf
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf import Tool, compile_pool, compile_schema
from gbnf.grammar.stacks import MAX_STACKS, StackSearch, nesting_products
from support.effort import scaled
from support.oracle import engine
from support.random_texts import generate
from support.unions_alike import late_union, unions_alike

ORDERS = st.sampled_from(["any", "declared"])
_REST = {"additionalProperties": False}


@settings(max_examples=scaled(50))
@given(schema=unions_alike(), order=ORDERS, seed=st.integers(0, 2**16))
def test_exact_grammars_derive_valid_values_only(schema: Any, order: Any, seed: int) -> None:
    grammar = compile_schema(schema, property_order=order)
    if not grammar.exact:
        return
    for number in range(3):
        value = json.loads(generate(grammar.rules, Random(seed + number), budget=200))
        Draft202012Validator(schema).validate(value)


def test_merged_alternatives_keep_what_all_of_them_have() -> None:
    root, more = {"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {"const": 5}]}
    array, object_ = {"type": "array", "minItems": 1}, {"type": "object", "required": ["a"]}
    alternatives = [
        {**array, "prefixItems": [{"enum": [1, 2]}, root], "maxItems": 3},
        {**array, "prefixItems": [{"enum": [2, 3]}, more], "maxItems": 4, "items": {"type": "null"}},
        {**object_, "properties": {"a": root, "b": {"const": 0}}, "maxProperties": 1, **_REST},
        {**object_, "properties": {"a": more}, **_REST},
    ]
    grammar = compile_schema({"anyOf": [{"const": 0}, *alternatives]})
    assert {finding.keyword for finding in grammar.report if finding.kind == "unenforced"} == {"anyOf"}
    accepted = ["[1]", "[3, [2, 5, 6, null]]", '{"a": 5}', '{"a": {"a": 0}}']
    refused = ["[]", "[4, 0]", "[2, 6]", "[1, 0, null, null, null]", "{}", '{"b": 0}', '{"a": 6}']
    verdicts = engine().match_many(grammar, [*accepted, *refused])
    assert [one.complete for one in verdicts] == [True] * len(accepted) + [False] * len(refused)


def test_a_tool_and_its_pool_are_bounded() -> None:
    args = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": late_union(24)["$defs"]}
    grammar = compile_pool([Tool("t", "", args=args)], max_depth=30)
    assert StackSearch(grammar.rules, [grammar.rules.root]).most(grammar.rules.root) <= MAX_STACKS
    assert not grammar.exact


@given(
    edges=st.dictionaries(st.integers(0, 9), st.frozensets(st.integers(0, 9), max_size=3), max_size=10),
    unions=st.dictionaries(st.integers(0, 9), st.integers(2, 9), max_size=10),
)
def test_the_product_of_unions_is_the_largest_of_all_paths(edges: Any, unions: Any) -> None:
    def largest(node: int, path: tuple[int, ...]) -> float:
        if node in path:
            return inf if any(one in unions for one in path[path.index(node) :]) else 1
        below = (largest(one, (*path, node)) for one in edges.get(node, ()))
        return float(unions.get(node, 1)) * max(below, default=1)

    references = {str(node): [str(one) for one in edges.get(node, ())] for node in range(10)}
    found = nesting_products(references, {str(node): times for node, times in unions.items()})
    expected = {str(node): largest(node, ()) for node in unions}
    assert found == {node: times for node, times in expected.items() if times > 128}
