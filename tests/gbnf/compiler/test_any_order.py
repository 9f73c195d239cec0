"""Properties in any order: what is accepted is valid, and what declared order accepts is among it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.compiler.any_order import MAX_SPLIT, PROPERTIES_PER_BLOCK
from gbnf.compiler.objects import MAX_ANY_ORDER
from gbnf.compiler.schema import compile_schema
from support.oracle import engine
from support.random_texts import generate
from support.schemas import DRAFTS, spelled
from support.values import is_valid

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


def accepts(grammar: Any, text: str) -> bool:
    return engine().match(grammar, text).complete


@given(_objects(), st.integers(0, 2**32))
def test_declared_order_is_one_of_the_orders(schema: Any, seed: int) -> None:
    text = generate(compile_schema(schema).rules, random.Random(seed))
    assert accepts(compile_schema(schema, property_order="any"), text)


@given(_objects(), st.integers(0, 2**32))
def test_every_declared_property_comes_once_at_most(schema: Any, seed: int) -> None:
    grammar = compile_schema(schema, property_order="any")
    text = generate(grammar.rules, random.Random(seed))
    pairs = json.loads(text, object_pairs_hook=list)
    declared = [key for key, _ in pairs if key in schema["properties"]]
    assert len(declared) == len(set(declared))
    assert accepts(grammar, text)
    if grammar.exact:
        assert is_valid(schema, dict(pairs)), (text, str(grammar))


@given(_objects(6), st.data())
def test_a_small_object_takes_every_order(schema: Any, data: st.DataObject) -> None:
    names = data.draw(st.permutations(list(schema["properties"])))
    value = {name: 1 for name in names if name in schema.get("required", ()) or data.draw(st.booleans())}
    grammar = compile_schema(schema, property_order="any")
    assert all(finding.kind != "declared_order" for finding in grammar.report)
    assert accepts(grammar, json.dumps(value, ensure_ascii=False)) == is_valid(schema, value)


def test_eight_properties_are_still_few() -> None:
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in NAMES[:MAX_ANY_ORDER]}}
    grammar = compile_schema(schema, property_order="any")
    assert all(finding.kind != "declared_order" for finding in grammar.report)
    for order in ([1, 3, 0, 2], [7, 2, 5, 0, 3, 1, 6, 4], [2, 0, 3]):
        assert accepts(grammar, json.dumps({NAMES[place]: 1 for place in order}, ensure_ascii=False))


@given(st.integers(MAX_ANY_ORDER + 1, MAX_SPLIT + 2 * PROPERTIES_PER_BLOCK), st.data())
def test_a_larger_object_accepts_the_orders_of_splitting(count: int, data: st.DataObject) -> None:
    places = list(range(count))
    required = data.draw(st.sets(st.sampled_from(places), max_size=3))
    some = data.draw(st.sets(st.sampled_from(places), max_size=6) | st.just(set(places)))
    order = data.draw(_orders(sorted(some | required)))
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in NAMES[:count]},
        "required": [NAMES[place] for place in required],
        **data.draw(st.sampled_from([{}, {"additionalProperties": False}])),
    }
    grammar = compile_schema(schema, property_order="any")
    assert [finding.kind for finding in grammar.report if finding.keyword == "properties"] == [
        "declared_order"
    ]
    text = json.dumps({NAMES[place]: 1 for place in order}, ensure_ascii=False)
    assert accepts(grammar, text) == _splits(order, count if count <= MAX_SPLIT else PROPERTIES_PER_BLOCK)
    for place in required:
        without = {NAMES[other]: 1 for other in order if other != place}
        assert not accepts(grammar, json.dumps(without, ensure_ascii=False))


@st.composite
def _orders(draw: st.DrawFn, places: list[int]) -> list[int]:
    """Some order: often nearly declared order, or with two parts of it swapped."""
    cut = draw(st.integers(0, len(places)))
    order = draw(st.permutations(places) | st.just(places) | st.just([*places[cut:], *places[:cut]]))
    if order:
        moved = order.pop(draw(st.integers(0, len(order) - 1)))
        order.insert(draw(st.integers(0, len(order))), moved)
    return order


def _splits(order: list[int], block: int, *, last: bool = True) -> bool:
    """Whether each place comes before all lower ones and then all higher ones, or the other way round.

    Naive: it looks at the whole order. But for the `last` part, lower places keep the order of their blocks.
    """
    if not order:
        return True
    first, rest = order[0], order[1:]
    lower, higher = [at for at in rest if at < first], [at for at in rest if at > first]
    if rest not in (lower + higher, higher + lower):
        return False
    if not last:
        return _splits(lower, block, last=False) and _splits(higher, block, last=False)
    blocks = sorted({at // block for at in lower})
    by_block = [[at for at in lower if at // block == number] for number in blocks]
    in_blocks = lower == [at for one in by_block for at in one] and all(
        _splits(one, block, last=False) for one in by_block
    )
    return in_blocks and _splits(higher, block)


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
    assert accepts(compile_schema(schema), json.dumps(shuffled, ensure_ascii=False)) == (
        list(shuffled) == list(value)
    )


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


@pytest.mark.parametrize("count", [9, 40])
def test_a_larger_listed_object_keeps_its_order_and_is_reported(count: int) -> None:
    value = dict.fromkeys((f"p{number}" for number in range(count)), 1)
    grammar = compile_schema({"properties": {"a": {"const": value}}}, property_order="any")
    kinds = [(finding.pointer, finding.kind) for finding in grammar.report]
    assert ("/properties/a", "declared_order") in kinds
    backwards = dict(reversed(value.items()))
    assert accepts(grammar, json.dumps({"a": value}))
    assert not accepts(grammar, json.dumps({"a": backwards}))


@pytest.mark.parametrize("count", [100, 300])
def test_too_many_properties_keep_the_declared_order(count: int) -> None:
    schema = {"properties": {f"p{number}": {"const": 1} for number in range(count)}, "type": "object"}
    grammar = compile_schema(schema, property_order="any")
    assert [finding.pointer for finding in grammar.report if finding.kind == "declared_order"] == [""]
    assert accepts(grammar, '{"p1": 1, "p2": 1}')
    assert not accepts(grammar, '{"p2": 1, "p1": 1}')


def test_what_orders_cost_is_shared_by_all_objects() -> None:
    """Each takes a share of what is left, so the first ones are free, and the last ones still hold."""
    one = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(8)}}
    schema = {"type": "array", "prefixItems": [{**one, "description": str(n)} for n in range(20)]}
    grammar = compile_schema(schema, property_order="any")
    findings = [finding.pointer for finding in grammar.report if finding.kind == "declared_order"]
    assert 0 < len(findings) < 20
    assert accepts(grammar, json.dumps([{"p7": 1, "p0": 1}] * 20))
