"""Reasoning in answers: when a model reasons, and that it comes before the text, as it is decoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.gateway.chat import ChatRequest, GbnfText, JsonSchema, Sampling, ToolChoice
from support.deltas import calls, text
from support.gateway_answers import PLACE, TOOLS, USER, answer, check_guarantees, end
from support.models import make_model
from support.server import CONTEXT, Reply, scripted
from support.tool_templates import JSON_IN_TAGS

OPEN = JSON_IN_TAGS.replace(
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
    "<think>\n{% if enable_thinking is false %}\n</think>\n\n{% endif %}",
)
PROPS = Reply(
    200, {"default_generation_settings": {"n_ctx": CONTEXT}, "model_alias": "m", "chat_template": OPEN}
)
ENDING = {"stop_type": "eos", "tokens_evaluated": 9, "tokens_predicted": 5}
PLACE_TEXT = '{"lat": 2}'


def streamed(*pieces: str) -> Reply:
    """A stream of llama-server."""
    events = [{"content": piece, "stop": False} for piece in pieces]
    lines = [f"data: {json.dumps(event)}\n\n" for event in [*events, {"content": "", "stop": True, **ENDING}]]
    return Reply(200, "".join(lines))


def ask(**given: Any) -> ChatRequest:
    return ChatRequest(**{"model": "m", "messages": (USER,), "reasoning": None, **given})


def kinds(events: Any) -> list[str]:
    """What came, without repetitions."""
    shown = {ReasoningDelta: "reasoning", TextDelta: "text"}
    found = [shown[type(event)] for event in events if type(event) in shown]
    return [kind for index, kind in enumerate(found) if found[index - 1 : index] != [kind]]


def reasoning(events: Any) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


CALL = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({}, "hi"),
        ({"tools": TOOLS}, "hi"),
        ({"tools": TOOLS}, CALL),
        ({"tools": TOOLS, "tool_choice": ToolChoice("none")}, "hi"),
        ({"tools": TOOLS, "tool_choice": ToolChoice("required")}, CALL),
        ({"output": JsonSchema(PLACE)}, PLACE_TEXT),
        ({"output": JsonSchema(PLACE), "tools": TOOLS}, PLACE_TEXT),
        ({"output": JsonSchema(PLACE), "tools": TOOLS}, CALL),
    ],
)
def test_a_model_that_can_reasons_before_every_kind_of_answer(given: Any, written: str, stream: bool) -> None:
    reply = streamed("<think>so", " it", " is.\n</th", "ink>\n\n", *written)
    with scripted(props=[PROPS], completion=[reply]) as server, LlamaServer(server.url) as backend:
        events = answer(ask(stream=stream, **given), backend)
        [sent] = [body for path, body in server.asked if path == "/completion"]
        rendered = [body for path, body in server.asked if path == "/apply-template"][-1]
    assert reasoning(events) == "so it is."
    assert (text(events), calls(events)) == (("", [("stop", "{}")]) if written is CALL else (written, []))
    assert kinds(events) == (["reasoning"] if written is CALL else ["reasoning", "text"])
    assert rendered["chat_template_kwargs"]["enable_thinking"] is True
    assert ("grammar" in sent) == bool(given)
    finished = end(events)
    assert finished.enforcement.verified == bool(given)
    assert 0 < finished.reasoning_tokens <= finished.usage.completion_tokens


@pytest.mark.parametrize(
    "given",
    [{"reasoning": False, "output": JsonSchema(PLACE)}, {"output": GbnfText('root ::= "{" [^}]* "}"')}],
)
def test_an_answer_without_reasoning_is_asked_for_none(given: Any) -> None:
    reply = streamed(PLACE_TEXT)
    with scripted(props=[PROPS], completion=[reply]) as server, LlamaServer(server.url) as backend:
        events = answer(ask(**given), backend)
        rendered = [body for path, body in server.asked if path == "/apply-template"][-1]
    assert (text(events), reasoning(events)) == (PLACE_TEXT, "")
    assert rendered["chat_template_kwargs"]["enable_thinking"] is False


def test_a_marker_in_a_json_text_is_text() -> None:
    schema = {"type": "string"}
    written = json.dumps(f"{CALL}</think>")
    reply = streamed("so</think>", written)
    with scripted(props=[PROPS], completion=[reply]) as server, LlamaServer(server.url) as backend:
        events = answer(ask(output=JsonSchema(schema)), backend)
    assert (text(events), reasoning(events)) == (written, "so")


def test_reasoning_that_would_use_all_tokens_is_shortened(tmp_path: Path) -> None:
    """What follows it is complete: a text says that the limit ended it, JSON fits the schema."""
    path = make_model(tmp_path / "tiny.gguf", template=OPEN, context=2048)
    sampling = Sampling(max_tokens=30, temperature=2.0, seed=1)
    with InProcess(path, threads=1) as backend:
        events = answer(ask(sampling=sampling, tools=TOOLS), backend)
        assert (end(events).reason, calls(events)) == ("length", [])
        assert end(events).reasoning_tokens > 10
        events = answer(ask(sampling=sampling, output=JsonSchema(PLACE)), backend)
        assert end(events).reason == "stop"
        Draft202012Validator(PLACE).validate(json.loads(text(events)))
        assert reasoning(events)
        assert end(events).enforcement.shortened_at is not None


@pytest.mark.slow
@pytest.mark.parametrize("template", [OPEN, JSON_IN_TAGS])
def test_real_answers_with_reasoning_keep_the_guarantees(template: str, tmp_path: Path) -> None:
    bias = {ord("<"): 4.0, ord("/"): 2.0}
    path = make_model(tmp_path / "tiny.gguf", template=template, context=4096, bias=bias)
    with InProcess(path, threads=1) as backend:
        for seed in range(5):
            sampling = Sampling(max_tokens=300, temperature=2.0, seed=seed)
            events = answer(ask(output=JsonSchema(PLACE), sampling=sampling), backend)
            assert end(events).enforcement.verified
            if end(events).reason == "stop":
                assert Draft202012Validator(PLACE).is_valid(json.loads(text(events)))
            request = ask(tools=TOOLS, sampling=sampling)
            check_guarantees(request, answer(request, backend))


def test_ollama_is_not_asked_for_reasoning_unless_the_client_does() -> None:
    lines = [
        {"message": {"role": "assistant", "content": "", "thinking": "so "}, "done": False},
        {"message": {"role": "assistant", "content": "", "thinking": "it is"}, "done": False},
        {"message": {"role": "assistant", "content": "hi"}, "done": False},
        {"message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 3},
    ]
    reply = Reply(200, "\n".join(map(json.dumps, lines)))
    answers: dict[str, Any] = {"api/chat": [reply]}
    with scripted(**answers) as server, Ollama("m", server.url) as backend:
        for wanted in (None, True):
            events = answer(ask(reasoning=wanted, stream=True), backend)
            assert (kinds(events), reasoning(events)) == (["reasoning", "text"], "so it is")
        assert [body.get("think") for _, body in server.asked] == [None, True]


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_variables_that_the_template_uses_are_passed_and_others_named(tools: Any) -> None:
    template = OPEN + "{% if keep %}{{ tone }}{% endif %}"
    variables = {"keep": True, "tone": "kind<|im_end|>", "enable_thinking": True, "other": 3}
    reply = streamed("hi")
    props = Reply(200, {"default_generation_settings": {"n_ctx": CONTEXT}, "chat_template": template})
    with scripted(props=[props], completion=[reply]) as server, LlamaServer(server.url) as backend:
        events = answer(ask(tools=tools, reasoning=False, template_variables=variables), backend)
        rendered = [body for path, body in server.asked if path == "/apply-template"][-1]
    passed = rendered["chat_template_kwargs"]
    assert passed.pop("tone") != variables["tone"]  # it names a control token
    assert {"keep": True, "enable_thinking": False}.items() <= passed.items()
    assert "other" not in passed
    assert end(events).enforcement.ignored == ("chat_template_kwargs.other",)
