"""What every protocol keeps: a call that it writes is read, and what its grammar allows is valid."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf import Grammar, compile_pool
from gbnf.calls.validation import validate_call
from gbnf.compiler.layout import Whitespace
from gbnf.dialects import call_schema, schema_violation
from gbnf.errors import GbnfError
from gbnf.protocols.call_protocols import (
    MAX_REASONING_LENGTH,
    CallsInText,
    JsonCalls,
    NativeCalls,
    SchemaCalls,
    ServerCalls,
    pop_reasoning,
    server_calls_text,
    with_reasoning_grammar,
    with_reasoning_schema,
)
from gbnf.protocols.protocol import CallProtocol, Offered, UnreadableCallError
from gbnf.testing import calls, derivations
from gbnf.tool_formats import CallStarted, TextDelta
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_bench.mixed_calls import compile_name_and_arguments
from support.effort import scaled
from support.grammars import unreachable_rules
from support.oracle import engine
from support.pools import BUNDLED
from support.schemas import SCHEMAS
from support.tool_formats import FAMILIES, Family

TOOLS = tuple(tool for tool in BUNDLED if tool.name in {"find_files", "get_now", "write_files"})


def call_text(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


NOW = call_text("get_now")
ANSWER = call_text("final_answer", message="done")
PROTOCOLS: dict[str, CallProtocol] = {
    "json": JsonCalls(),
    "json with reasoning": JsonCalls(reasoning_field=True),
    "schema": SchemaCalls(),
    "text": CallsInText(),
    "lines": CallsInText(lines=True),
    "server": ServerCalls(),
    "clamped": SchemaCalls(reasoning_field=True, clamp=True),
    **{
        f"native {family.name}": NativeCalls(family.form) for family in FAMILIES[::4]
    },  # each is tested by itself
}


@cache
def constraint_of(name: str) -> Grammar | Mapping[str, Any] | None:
    return PROTOCOLS[name].constraint(Offered(TOOLS))


def nested(level: int, wrong_at: int | None = None) -> dict[str, Any]:
    """Objects in objects, `level` of them inside the first; the one at `wrong_at` has no "x"."""
    if wrong_at == 0:
        return {"y": 0}
    return {"x": "a" if level == 0 else nested(level - 1, None if wrong_at is None else wrong_at - 1)}


def nested_schema(level: int) -> dict[str, Any]:
    inner = {"type": "string"} if level == 0 else nested_schema(level - 1)
    return {"type": "object", "properties": {"x": inner}, "required": ["x"]}


def _json_call(arguments: dict[str, Any]) -> str:
    return call_text("deep", **arguments)


def _reasoned_call(arguments: dict[str, Any]) -> str:
    return json.dumps({"thought": "so", "name": "deep", "arguments": arguments})


def _native_call(family: Family, arguments: dict[str, Any]) -> str:
    return family.write([("deep", arguments)])


_BY_FORMAT: dict[str, tuple[CallProtocol, Callable[[dict[str, Any]], str]]] = {
    "json": (JsonCalls(), _json_call),
    "json with reasoning": (JsonCalls(reasoning_field=True), _reasoned_call),
    "json in an answer": (JsonCalls(answers_by_call=False), _json_call),
    **{
        f"native {family.name}": (NativeCalls(family.form), partial(_native_call, family))
        for family in FAMILIES
    },
}


@pytest.mark.parametrize("name", _BY_FORMAT)
@pytest.mark.parametrize("answer", [False, True])
@settings(max_examples=scaled(12))
@given(level=st.integers(0, 6), depth=st.integers(0, 7))
def test_objects_are_constrained_down_to_the_depth(name: str, answer: bool, level: int, depth: int) -> None:
    protocol, write = _BY_FORMAT[name]
    tools = (Tool("deep", args=nested_schema(level)),)
    offered = Offered(tools, answer, other_calls=False, max_depth=depth)
    grammar = protocol.constraint(offered)
    assert isinstance(grammar, Grammar)
    texts = [write(nested(level)), *(write(nested(level, wrong_at)) for wrong_at in range(level + 1))]
    valid, *verdicts = [verdict.complete for verdict in engine().match_many(grammar, texts)]
    assert valid
    assert verdicts == [wrong_at > depth for wrong_at in range(level + 1)]
    reasons = {finding.reason for finding in grammar.report if finding.kind == "unenforced"}
    assert reasons == ({f"nested deeper than max_depth={depth}"} if level > depth else set())


@pytest.mark.parametrize("name", _BY_FORMAT)
@settings(max_examples=scaled(15))
@given(
    bundled=st.lists(st.sampled_from(BUNDLED), unique=True, max_size=6),
    schemas=st.lists(SCHEMAS, max_size=2),
    offered=st.builds(
        Offered,
        tools=st.just(()),
        answer=st.booleans(),
        parallel=st.booleans(),
        steps=st.sampled_from([(), (1, 3)]),
        ask_user=st.booleans(),
        property_order=st.sampled_from(["any", "declared"]),
        other_calls=st.booleans(),
        max_depth=st.sampled_from([0, 4]),
    ),
)
def test_a_grammar_has_only_rules_that_its_root_reaches(
    name: str, bundled: list[Tool], schemas: list[Any], offered: Offered
) -> None:
    drawn = [
        Tool(f"drawn_{number}", args={"type": "object", "properties": {"value": schema, "b": {}}})
        for number, schema in enumerate(schemas)
    ]
    try:
        grammar = _BY_FORMAT[name][0].constraint(replace(offered, tools=(*bundled, *drawn)))
    except GbnfError:
        assume(condition=False)  # there is no call
    assert not unreachable_rules(str(grammar))


def is_valid(call: Any, tools: tuple[Tool, ...]) -> bool:
    return validate_call(call, tools).ok


@pytest.mark.parametrize("name", PROTOCOLS)
@settings(max_examples=scaled(20))
@given(data=st.data())
def test_what_the_grammar_allows_is_read_as_a_valid_call_or_an_answer(name: str, data: st.DataObject) -> None:
    protocol, constraint = PROTOCOLS[name], constraint_of(name)
    assert (constraint is not None) == protocol.is_constrained
    if not isinstance(constraint, Grammar):
        return
    found = protocol.read(data.draw(derivations(constraint, size=60)), (*TOOLS, FINAL_ANSWER))
    _, call = pop_reasoning(found.call)
    assert is_valid(call, (*TOOLS, FINAL_ANSWER))
    assert all(repair.startswith("wrapper: the call is in the text") for repair in found.repairs)


@pytest.mark.parametrize("name", PROTOCOLS)
@settings(max_examples=scaled(30))
@given(call=calls(TOOLS))
def test_a_call_is_read_as_it_is_shown_in_the_conversation(name: str, call: Any) -> None:
    protocol = PROTOCOLS[name]
    message = protocol.call_message(call, 3)
    if protocol.declares_tools:
        [shown] = message["tool_calls"]
        assert {key: shown["function"][key] for key in ("name", "arguments")} == call
        assert protocol.outcome_message("x", call["name"], 3)["tool_call_id"] == shown["id"]
        if isinstance(protocol, ServerCalls):
            written = server_calls_text([(call["name"], json.dumps(call["arguments"]))])
            assert protocol.read(written, TOOLS).call == call
        return
    found = protocol.read(message["content"], TOOLS)
    assert found.call == call
    if isinstance(protocol, SchemaCalls) and not protocol.reasoning_field:
        constraint = constraint_of(name)
        assert constraint is not None
        assert not isinstance(constraint, Grammar)
        assert schema_violation(constraint, message["content"]) is None


@pytest.mark.parametrize("name", PROTOCOLS)
def test_an_answer_may_be_excluded(name: str) -> None:
    protocol = PROTOCOLS[name]
    text = protocol.call_message({"name": FINAL_ANSWER.name, "arguments": {"message": "so"}}, 1)["content"]
    for answer in (True, False):
        constraint = protocol.constraint(Offered(TOOLS, answer))
        if isinstance(constraint, Grammar) and not isinstance(protocol, JsonCalls):
            assert answer or not constraint.match(text).complete
    assert protocol.answers_by_call == (not protocol.declares_tools)


@pytest.mark.parametrize("name", ["final_answer", "ask_user", "find_tools", "final_answer_", "thought"])
@pytest.mark.parametrize(
    "protocol",
    [
        JsonCalls(answers_by_call=False),
        JsonCalls(answers_by_call=False, also_final_answer=True),
        SchemaCalls(),
        CallsInText(),
        NativeCalls(FAMILIES[0].form),
    ],
    ids=repr,
)
@pytest.mark.parametrize("answer", [True, False])
def test_a_tool_of_a_client_is_called_whatever_its_name(
    protocol: CallProtocol, name: str, answer: bool
) -> None:
    message = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    offered = Offered(
        tuple(Tool(each, args=message) for each in dict.fromkeys((name, "final_answer"))), answer
    )
    constraint = protocol.constraint(offered)
    for tool in offered.tools:
        written = json.dumps({"name": tool.name, "arguments": {"message": "so"}})
        if isinstance(constraint, Mapping):
            assert schema_violation(constraint, written) is None
        reader = protocol.reader(offered)
        deltas = [*reader.feed(written), *reader.close()]
        assert [each.name for each in deltas if isinstance(each, CallStarted)] == [tool.name]
        assert not [each for each in deltas if isinstance(each, TextDelta)]


@pytest.mark.parametrize("name", PROTOCOLS)
@settings(max_examples=scaled(30))
@given(text=st.text(max_size=40) | st.text('\x1e{}",:[]1', max_size=9))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    protocol = PROTOCOLS[name]
    with suppress(UnreadableCallError):
        protocol.read(text, TOOLS, truncated=False)
    shown = protocol.refused_messages(text, None, "wrong", 2)
    assert (shown[0]["role"], shown[1]["content"]) == ("assistant", "wrong")


def test_a_protocol_is_a_value() -> None:
    for protocol in PROTOCOLS.values():
        assert {protocol: 1}[protocol] == 1


@pytest.mark.parametrize("compiler", [compile_pool, compile_name_and_arguments])
@pytest.mark.parametrize(
    "written", [NOW, ANSWER, call_text("create_dirs", paths=["a"]), call_text("find_files")]
)
def test_a_grammar_with_a_reasoning_field_accepts_the_same_calls_after_it(
    compiler: Any, written: str
) -> None:
    grammar = compiler(BUNDLED, final_answer=True)
    with_field = with_reasoning_grammar(grammar)
    text = f'{{"thought": "it is é", {written.removeprefix("{")}'
    assert engine().match(with_field, text).complete == engine().match(grammar, written).complete
    assert not engine().match(with_field, written).accepted


def test_a_reasoning_field_is_bounded_and_not_empty() -> None:
    grammar = with_reasoning_grammar(compile_pool(BUNDLED))
    for length in (0, 1, MAX_REASONING_LENGTH, MAX_REASONING_LENGTH + 1):
        text = f'{{"thought": "{"a" * length}", {NOW.removeprefix("{")}'
        assert engine().match(grammar, text).complete == (1 <= length <= MAX_REASONING_LENGTH)


@pytest.mark.parametrize("whitespace", get_args(Whitespace))
def test_reasoning_precedes_a_call_in_every_layout(whitespace: Whitespace) -> None:
    grammar = with_reasoning_grammar(compile_pool(BUNDLED, whitespace=whitespace))
    separators = (",", ":") if whitespace == "compact" else (", ", ": ")
    rest = json.dumps(json.loads(NOW), separators=separators)
    assert engine().match(grammar, f'{{"thought": "so", {rest.removeprefix("{")}').complete


@given(st.lists(st.sampled_from(BUNDLED), unique=True, min_size=1), st.booleans())
def test_every_pool_accepts_reasoning(tools: list[Tool], union: bool) -> None:
    compiled = (compile_pool if union else compile_name_and_arguments)(tools, final_answer=True)
    engine().check(with_reasoning_grammar(compiled))


@pytest.mark.parametrize("tools", [BUNDLED, BUNDLED[:1]])
def test_a_schema_requires_the_reasoning_field_first(tools: tuple[Tool, ...]) -> None:
    plain = call_schema(tools, steps=(1,))
    schema = with_reasoning_schema(plain)
    branch = schema["anyOf"][0] if "anyOf" in schema else schema
    assert list(branch["properties"]) == ["thought", "name", "arguments"]
    written = {"name": "compute", "arguments": {"expression": "1+1"}}
    for value in (written, {**written, "name": "nothing"}):
        judged = Draft202012Validator(schema).is_valid({"thought": "so", **value})
        assert judged == Draft202012Validator(plain).is_valid(value)
    assert not Draft202012Validator(schema).is_valid(written)
