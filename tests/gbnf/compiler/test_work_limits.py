"""What hostile schemas may do: nothing but compile, with a report, or raise this project's errors.

The work of a compilation is counted, so these tests count it too and never ask how long it took.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf.calls.repair import repair_call
from gbnf.calls.validation import validate_call
from gbnf.compiler import lowering
from gbnf.compiler.schema import compile_schema
from gbnf.errors import GbnfError
from gbnf.schema_caches import SchemaCaches
from gbnf.tools import Tool
from gbnf.work_limits import WorkLimitError, limit_nesting, limit_work, limit_work_share, spend, work_cache
from support.effort import scaled
from support.hostile_schemas import hostile_schemas, small_hostile_schemas
from support.oracle import accepts, engine
from support.schemas import SCHEMAS, SHALLOW
from support.values import JSON_VALUES, canonical, is_valid, values_near


def _chain(length: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    for number in range(length):
        following = {"$ref": f"#/$defs/{number + 1}"}
        definitions[str(number)] = {"oneOf": [following, {"not": following}]}
    definitions[str(length)] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    return {"$defs": definitions, "$ref": "#/$defs/0"}


@given(hostile_schemas() | small_hostile_schemas())
@settings(max_examples=scaled(30), deadline=None)
def test_a_hostile_manifest_loads_or_raises_an_error_of_ours(schema: Any) -> None:
    args = {"type": "object", "properties": {"x": schema}}
    with suppress(GbnfError):
        Tool.from_mapping({"name": "t", "args": args})


@given(hostile_schemas() | small_hostile_schemas())
@settings(max_examples=scaled(60), deadline=None)
def test_a_hostile_schema_compiles_or_raises_an_error_of_ours_whatever_is_cached(schema: Any) -> None:
    try:
        first = compile_schema(schema)
    except GbnfError as error:
        with pytest.raises(type(error)):
            compile_schema(schema)
    else:
        assert str(first).startswith("root ::=")
        second = compile_schema(schema)
        assert (second, second.report) == (first, first.report)


_DENIED = st.lists(SHALLOW, min_size=2, max_size=3).map(lambda some: {"not": {"oneOf": some}})


@given(st.data(), st.integers(0, 12))
@settings(max_examples=scaled(150), deadline=None)
def test_no_valid_value_is_refused_however_little_work_is_allowed(data: st.DataObject, size: int) -> None:
    schema = data.draw(SCHEMAS | _DENIED)
    value = canonical(data.draw(values_near(schema) | JSON_VALUES))
    assume(is_valid(schema, value))
    with SchemaCaches(max_work=60 * 2**size).use():
        grammar = compile_schema(schema)
    assert accepts(grammar, json.dumps(value, ensure_ascii=False)), (schema, value, str(grammar))


@pytest.mark.slow
@pytest.mark.parametrize("length", [11, 60])
def test_a_chain_of_complements_takes_no_more_than_the_bound(length: int) -> None:
    grammar = compile_schema(_chain(length))
    assert not grammar.exact


@pytest.mark.parametrize("count", [200, 2000])
@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", ""])
def test_a_long_tuple_is_enforced(count: int, draft: str) -> None:
    keyword = "items" if draft else "prefixItems"
    declared = {"$schema": draft, "additionalItems": False} if draft else {"items": False}
    schema = {**declared, "type": "array", keyword: [{"const": index} for index in range(count)]}
    grammar = compile_schema(schema)
    assert grammar.exact
    whole = list(range(count))
    texts = [json.dumps(whole), json.dumps(whole[:77]), json.dumps([*whole, 1]), json.dumps([0, 2])]
    assert [one.complete for one in engine().match_many(grammar, texts)] == [True, True, False, False]


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [1], "not": {"$ref": "#"}},
        {"enum": ["a"], "anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}},
    ],
)
def test_a_value_beside_a_schema_without_end_is_kept(schema: dict[str, Any]) -> None:
    grammar = compile_schema(schema)
    assert not grammar.exact


def test_pointers_in_a_deep_schema_are_computed_without_visiting_every_ancestor_each_time() -> None:
    def calls(depth: int) -> int:
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(depth):
            schema = {"allOf": [schema]}
        count = 0

        def counted(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal count
            count += event in {"call", "c_call"}

        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            grammar = compile_schema({"allOf": [{"not": {"const": "a"}}, schema]})
        finally:
            sys.setprofile(before)
        assert grammar.exact
        return count

    assert calls(1600) < 3 * calls(800)


@pytest.mark.parametrize("order", ["any", "declared"])
def test_what_is_beyond_the_most_rules_is_left_open(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "MAX_RULES", 20)
    items = [{"enum": [{"a": number, "b": 0}, number]} for number in range(40)]
    grammar = compile_schema({"type": "array", "prefixItems": items}, property_order=order)
    assert "/prefixItems/39" in {finding.pointer for finding in grammar.report}
    assert accepts(grammar, json.dumps([*range(39), "any value"]))
    assert not accepts(grammar, json.dumps(["any value", *range(1, 40)]))


def test_a_call_is_judged_and_repaired_with_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("repair.repairing", "validation.validator"):
        monkeypatch.setattr(f"gbnf.calls.{module}.MAX_VALIDATION_WORK", 300_000)
    properties = {"x": {"$ref": "#/$defs/0"}, "y": {"type": "integer"}}
    args = {"type": "object", "$defs": _chain(40)["$defs"], "properties": properties}
    tool = Tool.from_mapping({"name": "bomb", "args": args})
    call = {"name": "bomb", "arguments": {"x": {"a": 1}, "y": "3"}}
    assert not validate_call(call, [tool])
    repair_call(call, [tool])


def test_work_is_counted_alike_whether_cached_or_not() -> None:
    @work_cache(maxsize=8)
    def expensive(value: int) -> int:
        spend(60)
        return value

    for _ in range(2):
        with limit_work(100):
            expensive(1)
            expensive(1)
            with pytest.raises(WorkLimitError):
                expensive(2)


def test_an_exhausted_share_leaves_the_rest_of_the_work() -> None:
    with limit_work(100):
        with pytest.raises(WorkLimitError), limit_work_share(4):
            spend(26)
        spend(74)
        with pytest.raises(WorkLimitError):
            spend(1)


def test_nesting_is_bounded() -> None:
    with limit_work(), limit_nesting(1), pytest.raises(WorkLimitError), limit_nesting(1):
        pass
