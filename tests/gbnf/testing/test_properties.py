"""What users get for their own tests: the strategies keep their word, and the laws catch planted faults."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool, compile_schema, validate_call
from gbnf.testing import (
    LawBrokenError,
    NearMiss,
    NoExampleError,
    assert_complete,
    assert_sound,
    calls,
    derivations,
    near_misses,
    values,
)
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_bench.mixed_calls import compile_name_and_arguments
from support.effort import scaled
from support.oracle import engine
from support.pools import BUNDLED
from support.values import is_valid

STEPS = st.sampled_from([(), (1,), (1, 3)])
TRIP = Tool(
    name="book_trip",
    args={
        "type": "object",
        "required": ["city", "days"],
        "requires_one_of": [["train", "plane"]],
        "properties": {
            "city": {"type": "string", "pattern": "^[A-Z][a-z]+$", "maxLength": 12},
            "days": {"type": "integer", "minimum": 1, "maximum": 30},
            "train": {"enum": ["fast", "slow"]},
            "plane": {"type": "boolean"},
            "start": {"type": "string", "format": "date"},
            "stops": {
                "type": "array",
                "items": {"type": "string", "minLength": 2},
                "minItems": 1,
                "maxItems": 3,
            },
        },
    },
)
"""A tool with a constraint of nearly every kind."""


def replaced(tools: Any, old: str, new: str, **options: Any) -> Grammar:
    """The grammar of a pool with a change to its text."""
    text = str(compile_pool(tools, **options))
    assert old in text, text
    return Grammar.parse(text.replace(old, new))


# derivations


@cache
def pool_grammar(pool: tuple[Tool, ...], steps: tuple[int, ...]) -> Grammar:
    return compile_pool(pool, steps=steps)


@settings(max_examples=scaled(40))
@given(st.data(), STEPS)
def test_derivations_are_in_the_language(data: st.DataObject, steps: Any) -> None:
    grammar = pool_grammar(BUNDLED, steps)
    text = data.draw(derivations(grammar))
    assert grammar.match(text).complete
    assert engine().match(grammar, text).complete


def smallest(strategy: Any, condition: Any) -> Any:
    return find(strategy, condition, settings=settings(database=None, max_examples=2000))


def some(strategy: Any, condition: Any) -> Any:
    """The first that comes, not shrunk."""
    once = settings(database=None, max_examples=2000, phases=[Phase.generate])
    return find(strategy, condition, settings=once)


@pytest.mark.slow
def test_derivations_shrink_to_what_matters() -> None:
    rules = Grammar.parse('root ::= item ("," item)*\nitem ::= [a-z] | "(" root ")"')
    assert smallest(derivations(rules), lambda _: True) == "a"
    assert smallest(derivations(rules), lambda text: "(" in text) == "(a)"
    assert smallest(derivations(rules), lambda text: "(" not in text and text.count(",") == 2) == "a,a,a"


def test_derivations_end_and_reach_upper_bounds() -> None:
    rules = Grammar.parse('root ::= "x" | "(" root root root ")"')
    assert len(smallest(derivations(rules, size=30), lambda text: len(text) > 10)) < 100
    counted = Grammar.parse('root ::= "a"{2,30}')
    assert smallest(derivations(counted), lambda text: len(text) == 30) == "a" * 30


def test_a_grammar_without_finite_texts_has_no_derivations() -> None:
    with pytest.raises(ValueError, match="no finite text"):
        derivations(Grammar.parse('root ::= "a" root'))


# calls, values and near misses

POOL = (*BUNDLED, TRIP)


@cache
def of_pool(strategy: Any, steps: tuple[int, ...]) -> Any:
    return strategy(POOL, steps=steps)


@settings(max_examples=scaled(30))
@given(st.data(), STEPS)
def test_calls_are_valid(data: st.DataObject, steps: Any) -> None:
    call = data.draw(of_pool(calls, steps))
    assert validate_call(call, POOL, steps=steps).ok
    assert pool_grammar(POOL, steps).match(json.dumps(call, ensure_ascii=False)).complete


@pytest.mark.slow
@pytest.mark.parametrize("name", [tool.name for tool in BUNDLED])
def test_every_tool_is_called_and_every_argument_given(name: str) -> None:
    [tool] = (one for one in BUNDLED if one.name == name)
    missing = {*tool.model_args().get("properties", {})}

    def are_all_given(call: Any) -> bool:
        missing.difference_update(call["arguments"])
        return not missing

    some(calls([tool], steps=(1,)), are_all_given)


@pytest.mark.slow
@given(st.data(), STEPS)
def test_near_misses_are_invalid(data: st.DataObject, steps: Any) -> None:
    miss = data.draw(of_pool(near_misses, steps))
    assert not validate_call(miss.value, POOL, steps=steps).ok


KINDS: dict[str, Any] = {
    "missing": lambda call: "city" not in call.get("arguments", {}),
    "extra": lambda call: "unexpected" in call["arguments"],
    "type": lambda call: "train" not in str(call) or "arguments" in call,
    "enum": lambda call: call["arguments"]["train"] not in ("fast", "slow"),
    "bound": lambda call: not 1 <= call["arguments"]["days"] <= 30,
    "length": lambda call: (
        len(call["arguments"]["city"]) > 12 or min(map(len, call["arguments"]["stops"])) < 2
    ),
    "pattern": lambda call: "city" in call["arguments"],
    "format": lambda call: "start" in call["arguments"],
    "items": lambda call: len(call["arguments"]["stops"]) in (0, 4),
    "none_of_group": lambda call: not {"train", "plane"} & call["arguments"].keys(),
    "other_arguments": lambda call: "city" not in call["arguments"],
    "unknown_tool": lambda call: call["name"] == "book_trip_x",
}


@pytest.mark.slow
def test_each_kind_of_near_miss_comes_and_says_what_it_is() -> None:
    unseen = dict(KINDS)

    def are_all_seen(miss: NearMiss) -> bool:
        if miss.value["name"].startswith("book") and (shows := unseen.pop(miss.broken, None)):
            assert shows(miss.value), miss
            assert miss.pointer.startswith("/arguments") or miss.broken == "unknown_tool", miss
        return not unseen

    some(near_misses((TRIP, FINAL_ANSWER)), are_all_seen)


@pytest.mark.slow
def test_step_references_have_near_misses_of_their_own() -> None:
    [read] = (one for one in BUNDLED if one.name == "read_files")
    miss = some(near_misses([read], steps=(1, 3)), lambda miss: miss.broken == "unknown_step")
    assert miss.value["arguments"]["from_step"] == 4
    miss = some(near_misses([read]), lambda miss: miss.broken == "not_offered")
    assert miss.pointer == "/arguments/from_step"


SCHEMAS = [
    {"type": "object", "properties": {"a": {"multipleOf": 0.5}, "b": {"$ref": "#/$defs/b"}},
     "required": ["b"],
     "$defs": {"b": {"anyOf": [{"const": 1}, {"type": "array", "items": {"type": "null"}, "minItems": 1}]}}},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "maxItems": 3},
    {"type": ["integer", "string"], "minimum": 5, "maxLength": 2},
    {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]},
               {"type": "object", "maxProperties": 2}]},
    {"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["x"]},
     "type": "object", "properties": {"k": {"type": "integer"}, "x": {"type": "boolean"}},
     "additionalProperties": False},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
def test_values_of_schemas_are_valid_and_their_near_misses_are_not(schema: Any) -> None:
    @settings(max_examples=scaled(30))
    @given(values(schema), near_misses(schema))
    def law(value: Any, miss: NearMiss) -> None:
        assert is_valid(schema, value)
        assert not is_valid(schema, miss.value)

    law()


LAYOUTS = (("default", "compact"), ("spaced", "free"))


@pytest.mark.parametrize(
    ("schema", "whitespace"),
    [(schema, layout) for number, schema in enumerate(SCHEMAS) for layout in LAYOUTS[number % 2]],
)
def test_the_laws_hold_of_schemas(schema: Any, whitespace: Any) -> None:
    grammar = compile_schema(schema, whitespace=whitespace)
    assert_sound(grammar, schema, examples=scaled(25))
    assert_complete(grammar, schema, whitespace=whitespace, examples=scaled(25))


# the laws


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(), (1, 3)])
def test_the_bundled_tools_satisfy_the_properties(steps: Any) -> None:
    grammar = compile_pool(POOL, steps=steps, final_answer=True)
    pool = (*POOL, FINAL_ANSWER)

    def accepts(text: str) -> bool:
        return engine().match(grammar, text).complete

    assert_sound(grammar, pool, steps=steps, accepts=accepts, examples=scaled(20))
    assert_complete(grammar, pool, steps=steps, accepts=accepts, examples=scaled(20))


@pytest.mark.slow
def test_the_laws_hold_in_any_order() -> None:
    grammar = compile_pool([TRIP], property_order="any")
    assert_sound(grammar, [TRIP], examples=scaled(50))
    assert_complete(grammar, [TRIP], property_order="any", examples=scaled(50))
    with pytest.raises(LawBrokenError, match="not complete"):
        assert_complete(compile_pool([TRIP], property_order="declared"), [TRIP], property_order="any")


def test_a_loosened_rule_is_found_unsound_and_shrunk_the_same_by_the_same_seed() -> None:
    planted = replaced([TRIP], "fast", "vast")
    texts = set()
    for _ in range(2):
        with pytest.raises(LawBrokenError) as caught:
            assert_sound(planted, [TRIP], examples=300, seed=5)
        found = caught.value.counterexample
        assert (found.law, found.engine) == ("sound", "accepted")
        assert found.value["arguments"] == {"city": "Aa", "days": 1, "train": "vast"}
        assert any("train" in error for error in found.errors)
        texts.add(found.text)
    assert len(texts) == 1


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", ["train", "start", "stops"])
def test_a_grammar_that_misses_an_optional_property_is_found_incomplete(forgotten: str) -> None:
    properties = {name: schema for name, schema in TRIP.args["properties"].items() if name != forgotten}
    groups = [["plane"]] if forgotten == "train" else TRIP.args["requires_one_of"]
    narrow = Tool(name="book_trip", args={**TRIP.args, "properties": properties, "requires_one_of": groups})
    with pytest.raises(LawBrokenError) as caught:
        assert_complete(compile_pool([narrow]), [TRIP], examples=300)
    found = caught.value.counterexample
    assert (found.law, found.engine, found.errors) == ("complete", "refused", ())
    assert forgotten in found.value["arguments"]
    assert len(found.value["arguments"]) <= 4, "the smallest call has the required ones and this one"


def test_a_missing_union_is_found_by_calls_with_anothers_arguments() -> None:
    pool = [TRIP, FINAL_ANSWER]
    with pytest.raises(LawBrokenError, match="not sound"):
        assert_sound(compile_name_and_arguments(pool), pool, examples=300)


def test_texts_that_are_no_json_are_found() -> None:
    with pytest.raises(LawBrokenError, match="not JSON"):
        assert_sound(Grammar.parse('root ::= "{}" | "{,}"'), {"type": "object"})


@pytest.mark.slow
def test_what_the_report_explains_is_no_fault() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    grammar = compile_schema(schema)
    assert_sound(grammar, schema)
    with pytest.raises(LawBrokenError, match="non-unique"):
        assert_sound(Grammar(grammar.rules), schema, examples=300)


def test_an_oracle_that_refuses_a_derived_text_is_reported() -> None:
    with pytest.raises(LawBrokenError, match="refuses its own derivation"):
        assert_sound(compile_pool([TRIP]), [TRIP], accepts=lambda _: False)


@pytest.mark.slow
def test_a_law_without_examples_is_an_error() -> None:
    schema = {"type": "string", "not": {"type": "string"}}
    with pytest.raises(NoExampleError, match="no valid value"):
        assert_complete(Grammar.parse('root ::= "1"'), schema)


def test_no_tool_that_can_be_called_is_an_error() -> None:
    properties = {"a": {"type": "string"}, "from_step": {"type": "integer", "fills": "a"}}
    needs_step = Tool("t", args={"type": "object", "required": ["from_step"], "properties": properties})
    with pytest.raises(ValueError, match="no tool can be called"):
        calls([needs_step])


def test_a_strategy_over_many_tools_is_shown_by_their_names() -> None:
    """Hypothesis warns of strategies that are shown in more than 30 kB, and prints them where a law fails."""
    shown = repr(near_misses(BUNDLED))
    assert len(shown) < 1000
    assert all(tool.name in shown for tool in BUNDLED)
