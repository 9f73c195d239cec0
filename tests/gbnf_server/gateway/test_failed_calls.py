"""Calls that failed before: found in a request's messages, reported in the answer, excluded if asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.protocols.call_protocols import NativeCalls
from gbnf_server.backends.in_process import InProcess
from gbnf_server.gateway.anthropic_messages import Messages
from gbnf_server.gateway.chat import (
    INVALID_ARGUMENTS,
    ChatRequest,
    Sampling,
    ToolChoice,
    call_key,
    excluded_calls,
    failed_calls,
    succeeded_calls,
)
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.openai_chat import ChatCompletions
from gbnf_server.gateway.openai_responses import Responses
from support.deltas import calls
from support.gateway_answers import USER, answer, compile_all, end, function
from support.oracle import engine
from support.tool_formats import FAMILIES, Family

ON = call_key("light", {"on": True})
LIGHT = function("light", ["on"], on={"type": "boolean"})
STOP = function("stop")


def turn(name: str, arguments: dict[str, Any], result: str, call_id: str = "a") -> list[Any]:
    """A call and its result."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": result, "tool_call_id": call_id, "name": name},
    ]


@pytest.fixture(scope="module")
def backend(tiny_model: Path) -> Iterator[InProcess]:
    with InProcess(tiny_model, threads=1) as loaded:
        yield loaded


FAILURES = [
    "Error: offline",
    "error",
    "Traceback (most recent call last):\n  …",
    "ValueError: no such lamp",
    '{"error": {"code": 5}}',
    '{"isError": true, "content": []}',
    '{"success": false}',
    '{"status": "failed"}',
]
SUCCESSES = [
    "",
    "done",
    "no errors found",
    "[]",
    '{"error": null, "state": "on"}',
    '{"errors": []}',
    '{"status": {"code": 200}}',
    "terrors",
]


@pytest.mark.parametrize("result", FAILURES)
def test_failures_are_recognized(result: str) -> None:
    messages = [USER, *turn("light", {"on": True}, result), *turn("light", {"on": True}, result, "b")]
    assert failed_calls(messages) == {ON: 2}


@pytest.mark.parametrize("result", SUCCESSES)
def test_successes_are_none(result: str) -> None:
    assert not failed_calls([USER, *turn("light", {"on": True}, result)])


def test_after_a_success_a_call_may_be_tried_again() -> None:
    failed = turn("light", {"on": True}, "Error: offline")
    assert not failed_calls([USER, *failed, *turn("stop", {}, "done", "b")])
    repeated = [*turn("stop", {}, "done", "b"), *failed]  # what succeeded before changes nothing more
    assert failed_calls([USER, *repeated, *repeated, *repeated]) == {ON: 3}


def test_arguments_are_equal_in_any_order() -> None:
    first, second = turn("move", {"x": 1, "y": 2}, "Error"), turn("move", {"y": 2, "x": 1}, "Error", "b")
    assert list(failed_calls([USER, *first, *second]).values()) == [2]


def test_the_last_short_failures_are_excluded() -> None:
    long = {"text": "x" * 500}
    made: list[dict[str, Any]] = [{"x": 1.0}, long, *({"x": number} for number in range(2, 12)), {"x": 1}]
    messages = [message for arguments in made for message in turn("move", arguments, "Error")]
    excluded = {json.loads(arguments)["x"] for _, arguments in excluded_calls(messages, 1)}
    assert excluded == {1, *range(5, 12)}
    assert excluded_calls(messages, 2) == (call_key("move", {"x": 1}),)


@pytest.mark.parametrize("no_repeat", [None, 1, 2])
def test_a_call_that_failed_before_is_reported_or_excluded(backend: InProcess, no_repeat: int | None) -> None:
    messages = (USER, *turn("light", {"on": True}, "Error: offline"))
    made = set()
    used = Engine(no_repeat=no_repeat)
    for seed in range(12):
        request = ChatRequest(
            "m",
            messages,
            (LIGHT,),
            ToolChoice("required"),
            parallel=False,
            sampling=Sampling(temperature=2.0, seed=seed),
        )
        events = answer(request, backend, used)
        ((name, arguments),) = calls(events)
        key = call_key(name, json.loads(arguments))
        made.add(key)
        enforcement = end(events).enforcement
        assert enforcement.failed_before == (("light",) if key == ON else ())
        assert enforcement.as_json()["failed_before"] == list(enforcement.failed_before)
    used.close()
    assert (ON in made) == (no_repeat != 1)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_no_format_has_the_excluded_call(family: Family) -> None:
    request = ChatRequest("m", (USER,), (LIGHT, STOP), ToolChoice("required"), parallel=False, excluded=(ON,))
    (compiled,) = compile_all([request], family.form)
    assert isinstance(compiled.protocol, NativeCalls)
    grammar = compiled.grammar
    assert grammar is not None

    def allows(arguments: dict[str, Any]) -> bool:
        return engine().match(grammar, family.write([("light", arguments)])).complete

    assert (allows({"on": True}), allows({"on": False})) == (False, True)


def test_a_tool_without_other_calls_is_left_out() -> None:
    request = ChatRequest(
        "m", (USER,), (LIGHT, STOP), ToolChoice("required"), excluded=(call_key("stop", {}),)
    )
    (compiled,) = compile_all([request])
    assert [tool.name for tool in compiled.tools] == ["light"]
    only = ChatRequest("m", (USER,), (STOP,), ToolChoice("required"), excluded=(call_key("stop", {}),))
    assert compile_all([only])[0].tools


@given(
    st.sampled_from(["", '{"on": true}'])
    | st.text(max_size=20)
    | st.sampled_from(['{"on": ', "[1]", '"\\ud83d', '{"a":' * 700 + "1" + "}" * 700, "null", '{"a": NaN}']),
    st.sampled_from(["error: offline", "not executed: invalid arguments"]),
)
def test_a_conversation_goes_on_whatever_the_arguments_of_its_calls(arguments: str, result: str) -> None:
    called = {"name": "light", "arguments": arguments}
    items = [
        {"type": "function_call", "call_id": "a", **called},
        {"type": "function_call_output", "call_id": "a", "output": result},
    ]
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": called}]},
        {"role": "tool", "tool_call_id": "a", "content": result},
    ]
    of_chat = ChatCompletions().parse({"messages": [USER, *messages, USER]}).request.messages
    body = {"model": "m", "input": [USER, *items, USER], "store": False}
    assert of_chat == Responses().parse(body).request.messages
    (call,) = of_chat[1]["tool_calls"]
    made = call["function"]["arguments"]
    if INVALID_ARGUMENTS not in made:
        assert made == (json.loads(arguments) if arguments.strip() else {})
        assert len([*failed_calls(of_chat), *succeeded_calls(of_chat)]) == 1
    else:
        assert made == {INVALID_ARGUMENTS: arguments}
        assert not [*failed_calls(of_chat), *succeeded_calls(of_chat)]


@pytest.mark.parametrize("given", ['{"on": true}', "tru", ["a"], 3, None, {"on": True}, {}])
def test_arguments_of_any_json_type_are_those_of_their_text(given: Any) -> None:
    text = given if isinstance(given, str) else json.dumps({} if given is None else given)
    used = {"type": "tool_use", "id": "a", "name": "light", "input": given}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
    turns = [USER, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    body = {"model": "m", "max_tokens": 9, "messages": turns}
    called = [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "light", "arguments": each}}]}
        for each in (given, text)
    ]
    done = {"role": "tool", "tool_call_id": "a", "content": "done"}
    made = [ChatCompletions().parse({"messages": [USER, each, done]}).request.messages[1] for each in called]
    made.append(Messages().parse(body).request.messages[1])
    assert [each["tool_calls"][0]["function"] for each in made] == [made[1]["tool_calls"][0]["function"]] * 3


def test_a_truncated_call_is_no_failure_of_the_next(backend: InProcess) -> None:
    made = turn("light", {INVALID_ARGUMENTS: '{"on": tr'}, "error: not executed")
    request = ChatRequest("m", (USER, *made, USER), tools=(LIGHT,), tool_choice=ToolChoice("required"))
    events = answer(request, backend, Engine(no_repeat=1))
    assert end(events).enforcement.failed_before == ()
