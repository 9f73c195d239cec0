"""Properties in any order: what is accepted is valid, and what declared order accepts is among it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.compiler import objects
from gbnf.compiler.schema import compile_schema
from gbnf.schema_caches import SchemaCaches
from support.oracle import accepts
from support.random_texts import generate
from support.schemas import DRAFTS, spelled
from support.values import is_valid

EXACT = 6  # all properties of an object of six are told apart
NAMES = [
    f"{word}{suffix}"
    for suffix in ("", "_at", "Id", "\\", "2", "3")
    for word in ("name", "na", "type", "é", "x y")
]
KEYWORDS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"additionalProperties": False},
        {"additionalProperties": {"type": "null"}},
        {"patternProperties": {"^n": {"type": ["integer", "boolean"]}}},
        {"minProperties": 2},
        {"maxProperties": 3},
    ]
)


@st.composite
def _objects(draw: st.DrawFn, most: int = 14) -> dict[str, Any]:
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, most))]
    required = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    return spelled({**schema, "required": required, **draw(KEYWORDS)}, draw(DRAFTS))


@given(_objects(), st.integers(0, 2**32))
def test_declared_order_is_one_of_the_orders(schema: Any, seed: int) -> None:
    text = generate(compile_schema(schema).rules, random.Random(seed))
    assert accepts(compile_schema(schema, property_order="any"), text)


@given(_objects(), st.integers(0, 2**32))
def test_only_a_duplicate_key_makes_an_object_invalid(schema: Any, seed: int) -> None:
    grammar = compile_schema(schema, property_order="any")
    text = generate(grammar.rules, random.Random(seed))
    pairs = json.loads(text, object_pairs_hook=list)
    assert accepts(grammar, text)
    declared = [key for key, _ in pairs if key in schema["properties"]]
    if grammar.exact:
        assert len(declared) == len(set(declared))
    if grammar.exact or len(pairs) == len(dict(pairs)):
        assert is_valid(schema, dict(pairs)), (text, str(grammar))


@given(_objects(), st.data())
def test_an_object_takes_every_order_and_is_accepted_exactly_if_it_is_valid(
    schema: Any, data: st.DataObject
) -> None:
    declared = data.draw(st.permutations(list(schema["properties"])))
    needed = schema.get("required", ())
    missing = data.draw(st.sets(st.sampled_from(declared), max_size=1))
    names = [
        name for name in declared if name not in missing and (name in needed or data.draw(st.booleans()))
    ]
    value: dict[str, Any] = dict.fromkeys(names, 1)
    if data.draw(st.booleans()):
        value = {"zz": data.draw(st.sampled_from([None, 1])), **value}
    grammar = compile_schema(schema, property_order="any")
    assert accepts(grammar, json.dumps(value, ensure_ascii=False)) == is_valid(schema, value)


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_alternatives_of_required_properties_take_every_order(choice: str) -> None:
    names = [f"p{number}" for number in range(12)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "additionalProperties": False,
        "allOf": [{choice: [{"required": [f"p{at}"]}, {"required": [f"p{at + 1}"]}]} for at in (1, 7)],
    }
    grammar = compile_schema(schema, property_order="any")
    for names in (["p9", "p8", "p1"], ["p2", "p0", "p7"], ["p11", "p8"], ["p1", "p0"], ["p8", "p2", "p7"]):
        value = dict.fromkeys(names, 1)
        assert accepts(grammar, json.dumps(value)) == is_valid(schema, value), names


@pytest.mark.parametrize(
    ("states", "keywords"), [(2000, {"properties"}), (3, {"properties", "requires_one_of"})]
)
def test_groups_take_every_order(states: int, keywords: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_COUNTING_STATES", states)
    names = [f"p{number}" for number in range(12)]
    groups = [{"p1", "p2"}, {"p7", "p8"}]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "requires_one_of": [sorted(group) for group in groups],
    }
    grammar = compile_schema(schema, property_order="any")
    assert {one.keyword for one in grammar.report if one.kind == "unenforced"} == keywords
    for given_names in (["p9", "p8", "p1"], ["p2", "p0", "p7"], ["p11", "p8"], ["p1", "p0"], []):
        is_enough = all(group & set(given_names) for group in groups)
        assert accepts(grammar, json.dumps(dict.fromkeys(given_names, 1))) == (is_enough or states == 3)


def test_bounds_are_reported_where_they_take_too_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_COUNTING_STATES", 40)
    names = [f"p{number}" for number in range(30)]
    schema = {"properties": {name: {} for name in names}, "required": names[:20], "minProperties": 25}
    grammar = compile_schema({**schema, "type": "object"}, property_order="any")
    assert {one.keyword for one in grammar.report if one.kind == "unenforced"} == {
        "properties", "minProperties",
    }  # fmt: skip
    value = dict.fromkeys([*reversed(names[20:24]), *names[:20]], 1)
    assert accepts(grammar, json.dumps(value))  # too few, as reported
    del value["p7"]
    assert not accepts(grammar, json.dumps(value))


@given(st.integers(1, 20), st.integers(0, 12), st.sampled_from([True, False, {"type": "null"}]), st.data())
def test_a_required_property_is_never_missing_and_never_comes_twice(
    required: int, optional: int, others: Any, data: st.DataObject
) -> None:
    names = data.draw(st.permutations(NAMES))[: required + optional]
    needed = data.draw(st.permutations(names))[:required]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in names},
        "required": needed,
        "additionalProperties": others,
    }
    grammar = compile_schema(schema, property_order="any")
    text = generate(grammar.rules, random.Random(data.draw(st.integers(0, 2**32))))
    keys = [key for key, _ in json.loads(text, object_pairs_hook=list)]
    assert sorted(key for key in keys if key in needed) == sorted(needed)
    assert is_valid(schema, json.loads(text))
    in_order = [name for name in names if name in needed]
    for name in names:  # optional ones in any place, also before the required ones
        if name not in needed:
            in_order.insert(data.draw(st.integers(0, len(in_order))), name)
    assert accepts(grammar, json.dumps(dict.fromkeys(in_order, 1), ensure_ascii=False))


def test_few_properties_come_once_each_although_a_bound_is_too_large() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "maxProperties": 5000}
    grammar = compile_schema(schema)
    assert {one.keyword for one in grammar.report if one.kind == "unenforced"} == {"maxProperties"}
    assert accepts(grammar, '{"b": 1, "zz": 1, "a": 1}')
    assert not accepts(grammar, '{"a": 1, "a": 1}')


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9), max_size=5), st.data())
def test_a_listed_object_takes_every_order(value: dict[str, int], data: st.DataObject) -> None:
    schema: Any = data.draw(st.sampled_from([{"const": value}, {"enum": ["a", [value], value]}]))
    grammar = compile_schema(schema, property_order="any")
    assert grammar.report == ()
    shuffled = dict(data.draw(st.permutations(list(value.items()))))
    assert accepts(grammar, json.dumps(shuffled, ensure_ascii=False))
    for name in value:
        without = {key: item for key, item in shuffled.items() if key != name}
        assert not accepts(grammar, json.dumps(without, ensure_ascii=False))
    declared = compile_schema(schema, property_order="declared")
    assert accepts(declared, json.dumps(shuffled, ensure_ascii=False)) == (list(shuffled) == list(value))


def test_objects_inside_a_listed_object_take_every_order() -> None:
    grammar = compile_schema(
        {"const": {"a": {"b": 1, "c": [{"d": 2, "e": 3}]}, "f": 4}}, property_order="any"
    )
    assert accepts(grammar, '{"f": 4, "a": {"c": [{"e": 3, "d": 2}], "b": 1}}')
    assert not accepts(grammar, '{"f": 4, "a": {"c": [{"e": 3}], "b": 1}}')


def test_unique_items_that_are_listed_objects_take_every_order() -> None:
    items = {"enum": [{"a": 1, "b": 2}, 3]}
    schema = {"type": "array", "items": items, "uniqueItems": True}
    assert accepts(compile_schema(schema, property_order="any"), '[3, {"b": 2, "a": 1}]')


A, B = [f"a{number}" for number in range(6)], [f"b{number}" for number in range(6)]


def _required(names: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"const": 1} for name in names}, "required": names}


@pytest.mark.parametrize(
    ("schema", "orders"),
    [
        ({"allOf": [_required(A), _required(B)]}, [A + B, B + A, A[:3] + B + A[3:]]),
        ({**_required(B), "allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": _required(A)}}, [A + B, B + A]),
        ({**_required(A), "required": ["zz", *A, *B]}, [["zz", *A, *B]]),
        ({**_required(A + B), "required": [], "requires_one_of": [A + B]}, [["a3", "a1"], ["b2"]]),
        ({**_required(A + B), "required": [], "requires_one_of": [A, B]}, [["b3", "a1"], ["a1", "b0", "a0"]]),
    ],
)
@pytest.mark.parametrize("property_order", ["any", "declared"])
def test_required_properties_of_several_schemas_interleave(
    schema: Any, orders: list[list[str]], property_order: Any
) -> None:
    grammar = compile_schema(schema, property_order=property_order)
    for order in orders:
        if property_order == "any" or "requires_one_of" not in schema:
            assert accepts(grammar, json.dumps(dict.fromkeys(order, 1))), order


def test_a_few_required_properties_come_in_any_order_however_many_objects_there_are() -> None:
    one = {**_required(A), "required": ["a0", "a1"]}
    schema = {"type": "array", "prefixItems": [{**one, "description": str(n)} for n in range(40)]}
    grammar = compile_schema(schema, property_order="any")
    assert accepts(grammar, json.dumps([{"a1": 1, "a0": 1}] * 40))
    assert not accepts(grammar, json.dumps([{"a1": 1}] * 40))


@pytest.mark.parametrize("count", [8, 9, 40])
def test_a_listed_object_of_many_properties_is_exact_in_any_order_or_in_its_own(count: int) -> None:
    value = dict.fromkeys((f"p{number}" for number in range(count)), 1)
    grammar = compile_schema({"properties": {"a": {"const": value}}}, property_order="any")
    assert grammar.exact
    backwards = dict(reversed(value.items()))
    assert accepts(grammar, json.dumps({"a": value}))
    assert accepts(grammar, json.dumps({"a": backwards})) == (count == 8)
    del value["p1"]
    assert not accepts(grammar, json.dumps({"a": value}))


@pytest.mark.parametrize("count", [100, 300])
def test_many_properties_take_every_order(count: int) -> None:
    schema = {"properties": {f"p{number}": {"const": 1} for number in range(count)}, "type": "object"}
    grammar = compile_schema(schema, property_order="any")
    assert [finding.pointer for finding in grammar.report if finding.kind == "unenforced"] == ["/properties"]
    assert accepts(grammar, '{"p1": 1, "p2": 1}')
    assert accepts(grammar, '{"p2": 1, "p1": 1}')
    assert len(grammar.rules.productions) < 30  # and not one for each set of properties


def test_what_orders_cost_is_shared_by_all_objects() -> None:
    """The first ones are exact, and the last ones still take every order."""
    one = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(EXACT)}}
    schema = {"type": "array", "prefixItems": [{**one, "description": str(n)} for n in range(20)]}
    grammar = compile_schema(schema, property_order="any")
    findings = [finding.pointer for finding in grammar.report if finding.kind == "unenforced"]
    assert 0 < len(findings) < 20
    assert accepts(grammar, json.dumps([{"p5": 1, "p0": 1}] * 20))


@st.composite
def _choices(draw: st.DrawFn) -> dict[str, Any]:
    """Objects of several shapes: each condition that a property is present requires or forbids another."""
    names = NAMES[:7]
    conditions = []
    for _ in range(draw(st.integers(2, 4))):
        one, other = draw(st.permutations(names))[:2]
        then = draw(st.sampled_from([{"required": [other]}, {"properties": {other: {"const": 1}}}]))
        conditions.append({"if": {"required": [one]}, "then": then})
    properties = {name: {"type": "integer"} for name in names}
    is_closed = draw(st.booleans())
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": not is_closed,
        "allOf": conditions,
    }


@given(_choices(), st.lists(st.sampled_from([*NAMES[:7], "zz"]), unique=True, max_size=6), st.integers(0, 2))
def test_several_shapes_take_every_order_and_are_accepted_exactly_if_they_are_valid(
    schema: Any, names: list[str], number: int
) -> None:
    value = {name: number if name == names[0] else 1 for name in names}
    grammar = compile_schema(schema, property_order="any")
    assert accepts(grammar, json.dumps(value, ensure_ascii=False)) == is_valid(schema, value)


def test_shapes_that_take_too_much_work_together_are_left_open() -> None:
    shapes = [
        {"type": "object", "properties": {f"p{at}": {"type": "integer"}}, "required": [f"p{at}"]}
        for at in range(9)
    ]
    with SchemaCaches(max_work=4000).use():
        grammar = compile_schema({"anyOf": shapes})
    assert "type" in {one.keyword for one in grammar.report if one.kind == "unenforced"}
    assert accepts(grammar, '{"p8": 1}')


def test_the_shapes_of_a_recursive_object_are_one_automaton() -> None:
    """32 shapes, each a stack of the engine, would multiply where objects nest; they count properties."""
    names = [f"p{number}" for number in range(10)]
    schema = {
        "type": "object",
        "properties": {name: {"$ref": "#"} for name in names},
        "allOf": [
            {"if": {"required": [one]}, "then": {"required": [other]}}
            for one, other in zip(names[:5], names[5:], strict=True)
        ],
    }
    grammar = compile_schema(schema)
    value: Any = {}
    for _ in range(4):
        value = {"p5": {}, "p8": value, "p3": {}, "p0": {}}
    assert accepts(grammar, json.dumps(value))
    value["p8"]["p8"].pop("p5")
    assert not accepts(grammar, json.dumps(value))
    assert grammar.exact
    assert not accepts(grammar, '{"p5": {}, "p5": {}}')
