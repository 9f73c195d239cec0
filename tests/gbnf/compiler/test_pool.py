"""compile_pool over the bundled manifests and awkward pools, judged by llama.cpp's engine and jsonschema."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf import compile_pool, compile_schema, validate_call
from gbnf.compiler.pool import compile_tool
from gbnf.errors import GbnfError, GrammarError, InvalidArgumentError, PoolError, SchemaError
from gbnf.grammar.emit import emit
from gbnf.grammar.ir import references
from gbnf.schema_caches import SchemaCaches
from gbnf.surrogates import has_surrogate
from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool
from gbnf_bench.mixed_calls import compile_name_and_arguments
from support.effort import scaled
from support.oracle import engine
from support.pools import BUNDLED
from support.random_texts import generate
from support.schemas import SCHEMAS
from support.values import canonical, in_declared_order, values_near

STEPS = st.sampled_from([(), (1,), (1, 3)])


def tool(name: str, **args: Any) -> Tool:
    return Tool(name=name, args={"type": "object", **args})


def accepts(grammar: Any, call: Any, **layout: Any) -> bool:
    return engine().match(grammar, json.dumps(call, ensure_ascii=False, **layout)).complete


def derived_call(grammar: Any, seed: int) -> Any:
    return json.loads(generate(grammar.rules, random.Random(seed)))


SEEDS = st.integers(0, 2**32)
POOLS = st.lists(st.sampled_from(BUNDLED), unique=True, min_size=1)


@given(POOLS, STEPS, SEEDS)
def test_a_derived_call_is_valid_where_the_report_says_so(pool: Any, steps: Any, seed: int) -> None:
    grammar = compile_pool(pool, steps=steps, final_answer=True)
    call = derived_call(grammar, seed)
    verdict = validate_call(call, (*pool, FINAL_ANSWER), steps=steps)
    reported = any(
        finding.tool == call["name"] and finding.kind == "unenforced" for finding in grammar.report
    )
    assert verdict.ok or reported, verdict.errors
    assert accepts(grammar, call)
    assert accepts(grammar, call, separators=(",", ":"))


@given(POOLS, SEEDS)
def test_one_tools_name_with_anothers_arguments_is_refused(pool: Any, seed: int) -> None:
    grammar = compile_pool(pool, final_answer=True)
    call = derived_call(grammar, seed)
    for other in (*pool, FINAL_ANSWER):
        mixed = {"name": other.name, "arguments": call["arguments"]}
        if not validate_call(mixed, (*pool, FINAL_ANSWER)).ok:
            explained = [
                finding for finding in grammar.report if finding.tool == other.name and not grammar.exact
            ]
            assert not accepts(grammar, mixed) or explained


#: More digits than a float has: Python then compares another number than the one that is written.
_TOO_MANY_DIGITS = re.compile(r"[\d.]{17}")


def of_value(schema: Any) -> Tool:
    return tool("t", properties={"v": schema}, required=["v"])


@given(SCHEMAS, st.integers(0, 2**32))
def test_a_derived_value_is_valid_where_the_grammar_is_exact(schema: Any, seed: int) -> None:
    try:
        grammar = compile_pool([of_value(schema)])
    except GbnfError:
        assume(condition=False)
    assume(grammar.exact)
    text = generate(grammar.rules, random.Random(seed))
    call = json.loads(text)
    assume("Infinity" not in json.dumps(call) and not _TOO_MANY_DIGITS.search(text))
    verdict = validate_call(call, [of_value(schema)])
    assert verdict.ok, (call, verdict.errors)


@given(st.data())
def test_a_valid_value_in_declared_order_is_accepted(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    value = canonical(data.draw(values_near(schema)))
    call = {"name": "t", "arguments": {"v": value}}
    assume(in_declared_order(schema, value) and validate_call(call, [of_value(schema)]).ok)
    assert accepts(compile_pool([of_value(schema)]), call)


@settings(max_examples=scaled(40))
@given(POOLS, STEPS)
def test_linking_equals_compiling_whole(pool: Any, steps: Any) -> None:
    linked = str(compile_pool(pool, steps=steps, ask_user=True))
    with SchemaCaches().use():
        assert str(compile_pool(pool, steps=steps, ask_user=True)) == linked
    engine().check(linked)


NAMES = st.text(st.sampled_from('ab._"\\\n\x7fé日😀'), max_size=6) | st.text(max_size=4)
WHITESPACE = st.sampled_from(["default", "compact", "spaced", "free"])


@pytest.mark.slow
@given(st.lists(NAMES, unique=True, min_size=1, max_size=12), STEPS, WHITESPACE)
def test_the_text_is_that_of_the_rules(names: Any, steps: Any, whitespace: Any) -> None:
    assume(not any(has_surrogate(name) for name in names))
    grammar = compile_pool([tool(name) for name in names], steps=steps, whitespace=whitespace)
    assert emit(grammar.rules) == str(grammar)
    assert [*grammar.rules.productions] == [line.split(" ")[0] for line in str(grammar).splitlines()]


def test_the_text_is_that_of_the_rules_where_names_share_many_prefixes() -> None:
    grammar = compile_pool([tool("a" * length) for length in reversed(range(60))])
    assert emit(grammar.rules) == str(grammar)
    engine().check(str(grammar))


def test_a_linked_grammar_is_pickled_with_its_rules() -> None:
    grammar = compile_pool(BUNDLED)
    copied = pickle.loads(pickle.dumps(grammar))
    assert str(copied) == str(grammar)
    assert copied.rules == grammar.rules


def test_a_name_with_a_surrogate_is_an_error() -> None:
    with pytest.raises(GrammarError, match="rule root: a surrogate"):
        compile_pool([tool("a"), tool("\ud800")])


@pytest.mark.slow
@given(
    st.lists(SCHEMAS, min_size=1, max_size=3),
    st.lists(st.sampled_from(["a_b", "aB", "a.b", "json", "a"]), unique=True, min_size=3, max_size=3),
)
def test_rule_names_are_unique_whatever_the_tools_are_called(schemas: Any, names: Any) -> None:
    pool = [
        tool(name, properties={"value": schema, "b": {}})
        for name, schema in zip(names, schemas, strict=False)
    ]
    try:
        grammar = compile_pool(pool)
    except SchemaError:
        assume(condition=False)
    lines = [line.split(" ::= ")[0] for line in str(grammar).splitlines()]
    assert len(lines) == len(set(lines)) == len(grammar.rules.productions)
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]*", name) for name in lines)
    used = {name for expr in grammar.rules.productions.values() for name in references(expr)}
    assert set(lines) - used == {"root"}
    engine().check(str(grammar))


def test_names_are_readable() -> None:
    names = set(compile_pool(BUNDLED, final_answer=True).rules.productions)
    assert {"argsGetInputs", "getInputsDialogItem", "argsFindFiles", "argsFinalAnswer"} <= names
    alike = tool("t", properties={name: {"enum": [name, 1]} for name in ("b", "B", "a1", "a 1")})
    assert {"tB", "tB2", "tA1", "tA1x2"} <= set(compile_pool([alike]).rules.productions)


@pytest.mark.parametrize(
    ("args", "accepted", "refused"),
    [
        pytest.param({}, [{}], [{"a": 1}], id="no arguments declared: none taken"),
        pytest.param(
            {"properties": {"a": {"type": "integer"}}},
            [{}, {"a": 1}],
            [{"b": 1}, {"a": "1"}],
            id="silence on additional properties closes",
        ),
        pytest.param(
            {"properties": {"a": {"type": "object"}}},
            [{"a": {"x": 1}}, {"a": {}}],
            [{"a": []}],
            id="a free-form object stays free",
        ),
        pytest.param(
            {"properties": {"a": {}, "b": {}, "c": {}}, "requires_one_of": [["a", "b"], ["b", "c"]]},
            [{"b": 1}, {"a": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}],
            [{}, {"a": 1}, {"c": 1}],
            id="of each list at least one",
        ),
        pytest.param(
            {"properties": {"a": {"runtime_resolved": True}, "b": {}}, "required": ["a"]},
            [{}, {"b": 1}],
            [{"a": 1}],
            id="what the runtime fills in is not offered",
        ),
        pytest.param(
            {
                "properties": {"a": {}, "r": {"runtime_resolved": True}},
                "additionalProperties": {"type": "string"},
            },
            [{"a": 1, "b": "x"}],
            [{"r": "x"}, {"b": 1}],
            id="what the runtime fills in is no additional argument",
        ),
        pytest.param(
            {"properties": {"o": {"properties": {"a": {}}, "unevaluatedProperties": {"type": "string"}}}},
            [{"o": {"a": 1, "b": "x"}}],
            [{"o": {"b": 1}}],
            id="unevaluated properties are spoken of",
        ),
        pytest.param(
            {"properties": {"o": {"properties": {"a": {}}, "enum": [{"a": 1}, {"a": 1, "b": 2}]}}},
            [{"o": {"a": 1}}],
            [{"o": {"a": 1, "b": 2}}],
            id="listed objects are closed too",
        ),
        pytest.param(
            {"properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"]}},
            [{}, {"b": 1}, {"a": 1, "b": 1}],
            [{"a": 1}],
            id="dependencies, as up to draft 7",
        ),
        pytest.param(
            {"properties": {"l": {"contains": {"properties": {"kind": {"const": 1}}, "required": ["kind"]}}}},
            [{"l": [{"kind": 1, "x": 1}]}, {"l": [{"kind": 1, "x": {"y": 2}}, 3]}],
            [{"l": [{"x": 1}]}, {"l": []}],
            id="what is to be contained stays open",
        ),
        pytest.param(
            {
                "if": {"properties": {"k": {"const": "a"}}, "required": ["k"]},
                "then": {"properties": {"v": {"type": "integer"}}},
            },
            [{"k": "a", "v": 1}, {"k": "a"}, {}],
            [{"k": "b"}, {"v": 1}, {"k": "a", "v": "x"}, {"k": "a", "z": 1}],
            id="a condition declares where it holds, and closes nothing",
        ),
        pytest.param(
            {"properties": {"o": {"if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["k"]}}}},
            [{"o": {"k": 1, "z": 1}}, {"o": {"k": 2, "z": 1}}],
            [{"o": {"z": 1}}],
            id="a condition by itself leaves an object open",
        ),
        pytest.param(
            {"properties": {"o": {"dependentSchemas": {"a": {"properties": {"k": {}}}}}}},
            [{"o": {}}],
            [{"o": {"b": 1}}],
            id="what depends on a property closes an object",
        ),
        pytest.param(
            {
                "properties": {"a": {"$ref": "#/definitions/s", "maxLength": 1}},
                "definitions": {"s": {"type": "string"}},
                "$schema": "http://json-schema.org/draft-07/schema#",
            },
            [{"a": "x"}],
            [{"a": "xy"}, {"a": 1}],
            id="tools are read as 2020-12",
        ),
    ],
)
def test_languages(args: Any, accepted: list[Any], refused: list[Any]) -> None:
    pool = [tool("t", **args)]
    grammar = compile_pool(pool)
    for arguments in accepted:
        assert accepts(grammar, {"name": "t", "arguments": arguments}), arguments
        assert validate_call({"name": "t", "arguments": arguments}, pool).ok, arguments
    for arguments in refused:
        assert not accepts(grammar, {"name": "t", "arguments": arguments}), arguments
        assert not validate_call({"name": "t", "arguments": arguments}, pool).ok, arguments


def test_step_references_are_offered_only_for_steps_that_exist() -> None:
    pool = [
        tool("t", properties={"paths": {"type": "array"}, "from_step": {"type": "integer", "fills": "paths"}})
    ]
    call = {"name": "t", "arguments": {"from_step": 3}}
    assert not accepts(compile_pool(pool), call)
    assert not accepts(compile_pool(pool, steps=(1, 2)), call)
    assert accepts(compile_pool(pool, steps=(1, 3)), call)


def test_a_tool_that_needs_a_step_is_not_offered_before_there_is_one() -> None:
    needy = tool("t", properties={"from_step": {"type": "integer"}}, required=["from_step"])
    assert '\\"t\\"' not in str(compile_pool([needy], final_answer=True))
    assert accepts(compile_pool([needy], steps=(2,)), {"name": "t", "arguments": {"from_step": 2}})
    with pytest.raises(PoolError, match="before an earlier step"):
        compile_pool([needy])


@pytest.mark.parametrize(
    ("pool", "problem"), [((), "empty"), ((tool("a"), tool("a", properties={"x": {}})), "'a'")]
)
def test_a_pool_without_a_grammar_is_an_error(pool: Any, problem: str) -> None:
    with pytest.raises(PoolError, match=problem):
        compile_pool(pool)


def test_the_built_in_tools_join_on_request() -> None:
    call = {"name": FINAL_ANSWER.name, "arguments": {"message": "done"}}
    question = {"name": ASK_USER.name, "arguments": {"question": "which?", "options": ["a", "b"]}}
    plain, full = compile_pool([tool("t")]), compile_pool([tool("t")], final_answer=True, ask_user=True)
    assert not accepts(plain, call)
    assert not accepts(plain, question)
    assert accepts(full, call)
    assert accepts(full, question)


def test_without_the_union_names_and_arguments_mix() -> None:
    pool = [tool("a", properties={"x": {}}, required=["x"]), tool("b", properties={"y": {}}, required=["y"])]
    mixed = {"name": "a", "arguments": {"y": 1}}
    assert not accepts(compile_pool(pool), mixed)
    assert accepts(compile_name_and_arguments(pool), mixed)


def test_depth_is_capped_and_reported() -> None:
    args: dict[str, Any] = {"type": "string"}
    for _ in range(6):
        args = {"type": "object", "properties": {"x": args}, "required": ["x"]}
    pool = [Tool(name="deep", args=args)]
    grammar = compile_pool(pool)
    assert [(f.tool, f.pointer, f.kind) for f in grammar.report if f.kind == "unenforced"] == [
        ("deep", "/properties/x" * 5 + "/properties", "unenforced")
    ]
    assert not grammar.exact
    assert "jsonObject" in grammar.rules.productions


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"type": "array", "items": {"type": "object"}}, "/properties/x/items", "properties"),
        ({"description": "anything"}, "/properties/x", "type"),
        ({"type": "array"}, "/properties/x", "items"),
        ({"type": "object"}, "/properties/x", "properties"),
        ({"type": "object", "additionalProperties": True}, "/properties/x", "properties"),
    ],
)
def test_a_subschema_that_constrains_nothing_is_a_finding(schema: Any, pointer: str, keyword: str) -> None:
    report = compile_pool([tool("t", properties={"x": schema})]).report
    assert [(f.pointer, f.keyword, f.kind) for f in report] == [(pointer, keyword, "free_form")]


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "free"])
def test_layouts(whitespace: Any) -> None:
    grammar = compile_pool(
        [tool("t", properties={"a": {"type": "array", "items": {"type": "null"}}})], whitespace=whitespace
    )
    call = {"name": "t", "arguments": {"a": [None, None]}}
    assert accepts(grammar, call, separators=(",", ":")) == (whitespace != "spaced")
    assert accepts(grammar, call) == (whitespace != "compact")
    assert accepts(grammar, call, indent=2) == (whitespace == "free")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"whitespace": "wide"}, "whitespace='wide' is none of default, compact, spaced, free"),
        ({"property_order": "Any"}, "property_order='Any' is none of declared, any"),
        ({"max_depth": -1}, "max_depth=-1 is below 0"),
    ],
)
def test_an_unknown_option_is_an_error(options: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidArgumentError, match=error):
        compile_pool([tool("t")], **options)
    with pytest.raises(InvalidArgumentError, match=error):
        compile_schema({}, **options)


def test_each_tool_is_compiled_once_where_names_are_the_same_in_camel_case() -> None:
    tools = [Tool("a" + "_" * number + "b", "") for number in range(1, 41)]
    caches = SchemaCaches()
    with caches.use():
        grammar = compile_pool(tools)
    assert caches.results[compile_tool].cache_info().misses == len(tools)
    assert len({name for name in grammar.rules.productions if name.startswith("argsAB")}) == len(tools)


def test_a_tool_that_cannot_be_called_is_left_out_unless_strict() -> None:
    impossible = {"type": "object", "properties": {"a": False}, "required": ["a"]}
    tools = [Tool("good", args={"type": "object"}), Tool("bad", args=impossible)]
    for grammar in (compile_pool(tools), compile_name_and_arguments(tools)):
        assert [finding.tool for finding in grammar.report if finding.kind == "left_out"] == ["bad"]
    for pool, strict in ((tools, True), (tools[1:], False)):
        with pytest.raises(SchemaError, match="no arguments satisfy the schema of 'bad'"):
            compile_pool(pool, strict=strict)


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize(
    ("groups", "bounds"),
    [
        ([["x", "y"]], {}),
        ([["x", "y"]], {"maxProperties": 2}),
        ([["x", "y"], ["a", "y"]], {"minProperties": 2}),
        ([["a"], ["x", "y"], ["y", "z"]], {}),
    ],
)
def test_one_of_each_group_is_required_beside_any_other_property(
    order: Any, groups: list[list[str]], bounds: dict[str, int]
) -> None:
    args = {
        "type": "object",
        "properties": {name: {"const": 1} for name in "axyz"},
        "requires_one_of": groups,
        **bounds,
    }
    grammar = compile_pool([Tool("t", args=args)], property_order=order)
    assert grammar.exact
    for count in range(5):
        for names in itertools.combinations("axyz", count):
            valid = (
                all(set(names) & set(group) for group in groups)
                and bounds.get("minProperties", 0) <= count <= bounds.get("maxProperties", 4)
            )  # fmt: skip
            text = json.dumps({"name": "t", "arguments": dict.fromkeys(names, 1)})
            assert grammar.match(text).complete == valid, names
