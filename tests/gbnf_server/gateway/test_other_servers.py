"""Servers that take JSON Schemas, or nothing at all, behind the engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.gateway.chat import ChatRequest, FunctionTool, GbnfText, JsonObject, JsonSchema, ToolChoice
from gbnf_server.gateway.engine import Engine
from gbnf_server.web.errors import HttpError
from support.deltas import calls, text
from support.gateway_answers import PLACE, TOOLS, USER, answer, end
from support.server import Reply, scripted

GO = '{"name": "go", "arguments": {"place": {"lat": 2}}}'
MODELS = Reply(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})


def ask(**given: Any) -> ChatRequest:
    return ChatRequest(**{"model": "m", "messages": (USER,), "tools": TOOLS, **given})


def chunks(written: str, finish: str = "stop") -> Reply:
    """A stream of a chat server, in pieces of three characters."""
    pieces = [written[at : at + 3] for at in range(0, len(written), 3)]
    events: list[Any] = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    events.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    events.append({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    return Reply(200, "".join(f"data: {json.dumps(event)}\n\n" for event in [*events]) + "data: [DONE]\n\n")


def asked_plainly(request: ChatRequest, *written: Reply, retries: int = 0) -> tuple[Any, list[Any]]:
    """The events of an answer of a server without grammars, and the bodies that it got."""
    engine = Engine(retries=retries)
    try:
        answers: dict[str, Any] = {"v1/chat/completions": list(written), "v1/models": [MODELS]}
        with scripted(**answers) as server, OpenAICompatible(server.url, "plain") as backend:
            events = answer(request, backend, engine)
            return events, [body for path, body in server.asked if path == "/v1/chat/completions"]
    finally:
        engine.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("written", "said"),
    [(GO, ""), (f"Sure.\n```json\n{GO}\n```", "Sure."), (f"<tool_call>\n{GO}\n</tool_call>", "")],
)
def test_calls_are_read_from_the_text_of_a_plain_server(written: str, said: str, stream: bool) -> None:
    events, [body] = asked_plainly(ask(stream=stream), chunks(written))
    assert calls(events) == [("go", '{"place": {"lat": 2}}')]
    assert text(events).strip() == said
    finished = end(events)
    assert (finished.reason, finished.usage.prompt_tokens) == ("tool_calls", 7)
    enforcement = finished.enforcement
    assert not enforcement.exact
    assert not enforcement.verified
    assert (enforcement.grammar_hash, enforcement.invalid) == (None, ())
    assert "go" in body["messages"][0]["content"]
    assert not body.keys() & {"tools", "response_format", "grammar"}


def test_text_and_calls_that_count_without_an_end_are_truncated_and_reported() -> None:
    lines = "".join(f'{{"temp_c": {each}, "city": "Rome"}}\n' for each in range(1000))
    files = '{"name": "go", "arguments": {"place": "' + "".join(f"file{each}.txt, " for each in range(1000))
    for written, repeated in (("It was: " + lines, "temp_c"), (files, ".txt")):
        events, _ = asked_plainly(ask(stream=True), chunks(written))
        finished = end(events)
        assert (finished.reason, calls(events)) == ("length", [])
        assert len(text(events)) < len(written) / 2
        assert repeated in finished.enforcement.repeated * 2


def test_text_of_a_plain_server_is_text() -> None:
    events, _ = asked_plainly(ask(stream=True), chunks("It is {nice} today."))
    assert (text(events), calls(events), end(events).reason) == ("It is {nice} today.", [], "stop")


def test_arguments_of_a_plain_server_are_validated_and_asked_for_again() -> None:
    wrong = GO.replace("2", '"two"')
    events, _ = asked_plainly(ask(), chunks(wrong))
    assert "lat" in end(events).enforcement.invalid[0]
    events, bodies = asked_plainly(ask(), chunks(wrong), chunks(GO), retries=1)
    assert (end(events).enforcement.invalid, end(events).enforcement.retries, len(bodies)) == ((), 1, 2)


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolChoice("required"), "No."),
        (ToolChoice("required", ("stop",)), GO),
        (ToolChoice("auto"), '<tool_call>{"name": "delete_all", "arguments": {}}</tool_call>'),
        (ToolChoice("auto"), '{"name": "go", "arguments": {"place": }}'),
        (ToolChoice("required"), '{"name": "delete_all", "arguments": {}}'),
    ],
)
def test_a_plain_server_that_calls_no_tool_of_the_request_is_a_502(choice: ToolChoice, written: str) -> None:
    with pytest.raises(HttpError) as caught:
        asked_plainly(ask(tool_choice=choice), chunks(written))
    assert (caught.value.status, caught.value.code) == (502, "upstream_ignored_grammar")


def test_a_truncated_call_of_a_plain_server_is_left_out() -> None:
    events, _ = asked_plainly(ask(tool_choice=ToolChoice("required")), chunks(GO[:-4], "length"))
    assert (calls(events), end(events).reason) == ([], "length")


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"output": JsonObject(), "tools": ()}, "response_format"),
        ({"output": JsonSchema(PLACE)}, "response_format"),
        ({"output": GbnfText('root ::= "a"'), "tools": ()}, "grammar"),
        ({"tools": (FunctionTool("go", "", PLACE, strict=True),)}, "tools"),
    ],
)
def test_what_a_plain_server_cannot_enforce_is_a_400(given: Any, param: str) -> None:
    with pytest.raises(HttpError) as caught:
        asked_plainly(ask(**given))
    assert (caught.value.status, caught.value.code) == (400, "unsupported_by_backend")
    assert (caught.value.param or "").startswith(param)


@pytest.mark.parametrize("choice", [ToolChoice("auto"), ToolChoice("required")])
def test_a_whole_request_to_lm_studio(choice: ToolChoice) -> None:
    answers: dict[str, Any] = {"v1/chat/completions": [chunks(GO)], "v1/models": [MODELS]}
    with scripted(**answers) as server, OpenAICompatible(server.url, "lm_studio") as backend:
        events = answer(ask(tool_choice=choice), backend)
        [body] = [body for path, body in server.asked if path == "/v1/chat/completions"]
    schema = body["response_format"]["json_schema"]["schema"]
    assert Draft202012Validator(schema).is_valid(json.loads(GO))
    assert calls(events) == [("go", '{"place": {"lat": 2}}')]
    assert end(events).reason == "tool_calls"


def test_a_whole_request_to_ollama() -> None:
    final = {"done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 9}
    written = '{"name": "final_answer", "arguments": {"message": "hi"}}'
    lines = [{"message": {"content": written}, "done": False}, {"message": {"content": ""}, **final}]
    reply = Reply(200, "\n".join(map(json.dumps, lines)))
    answers: dict[str, Any] = {"api/chat": [reply]}
    with scripted(**answers) as server, Ollama("m", server.url) as backend:
        events = answer(ask(), backend)
        [(_, body)] = server.asked
    assert Draft202012Validator(body["format"]).is_valid(json.loads(GO))
    assert Draft202012Validator(body["format"]).is_valid(json.loads(written))
    assert (text(events), calls(events), end(events).reason) == ("hi", [], "stop")
