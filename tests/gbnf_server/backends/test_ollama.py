"""Ollama's wire format, checked by its published schema on a local server. No real Ollama has run here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf import Grammar
from gbnf.dialects import call_schema
from gbnf.prompts.messages import Message
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.backends.base import Backend, Request
from gbnf_server.backends.http_backend import OllamaStream
from gbnf_server.backends.ollama import Ollama
from gbnf_server.planner import Planner
from gbnf_server.system.errors import (
    BackendError,
    BackendUnreachableError,
    ContextOverflowError,
    GrammarRefusedError,
    ServerResponseError,
)
from support.backends import ASK, CALL, QUICK, SEEN, Ask, ask_fixture
from support.executors import world
from support.server import Reply, scripted
from support.wires import closed, odd, told

SCHEMA = call_schema([FINAL_ANSWER])

# ChatRequest of Ollama's docs/openapi.yaml, with `truncate` and `shift`, which its issue tracker tells of;
# closed, so that a field that Ollama doesn't know is found.
REQUEST = closed(
    ["model", "messages", "options"],
    model={"type": "string"},
    messages={
        "type": "array",
        "items": closed(
            ["role", "content"],
            role={"enum": ["system", "user", "assistant", "tool"]},
            content={"type": "string"},
            images={"type": "array", "items": {"type": "string", "contentEncoding": "base64"}},
        ),
    },
    format={"oneOf": [{"const": "json"}, {"type": "object"}]},
    **{key: {"type": "boolean"} for key in ("stream", "think", "truncate", "shift")},
    options=closed(
        ["num_ctx"],
        **{key: {"type": "integer"} for key in ("num_ctx", "num_predict", "seed", "top_k")},
        **{key: {"type": "number"} for key in ("temperature", "top_p", "min_p", "repeat_penalty")},
    ),
)


def chat(content: str = CALL, **fields: Any) -> Reply:
    """An answer of /api/chat as Ollama gives it."""
    return Reply(
        200,
        {
            "model": "m",
            "created_at": "2026-11-21T10:00:00Z",
            "message": {"role": "assistant", "content": content},
            "done": True,
            "done_reason": "stop",
            "total_duration": 9_000_000,
            "load_duration": 1_000_000,
            "prompt_eval_count": 26,
            "prompt_eval_duration": 5_000_000,
            "eval_count": 12,
            "eval_duration": 3_000_000,
            **fields,
        },
    )


def served(*replies: Reply | Callable[[], None]) -> Any:
    return scripted(**{"api/chat": list(replies)})


def client(url: str, **options: Any) -> Ollama:
    return Ollama("m", url, **{"retry_policy": QUICK, **options})


ask = ask_fixture(lambda _: SCHEMA)


def test_the_request_is_as_published_and_always_has_num_ctx(ask: Ask) -> None:
    messages: list[Message] = [
        *ASK,
        {"role": "assistant", "content": CALL},
        {"role": "tool", "content": '{"step": 1, "result": {"entries": ["a"]}}'},
    ]
    with served(chat()) as server, client(server.url, context_length=2048) as backend:
        for grammar in (SCHEMA, None):
            ask(backend, messages, grammar=grammar, max_tokens=7, temperature=0.5, seed=3)
        ask(backend, [SEEN])
        Draft202012Validator(REQUEST).validate(server.asked.pop()[1])
        for path, body in server.asked:
            assert path == "/api/chat"
            Draft202012Validator(REQUEST).validate(body)
            assert body["options"]["num_ctx"] == 2048
            assert (body["options"]["num_predict"], body["options"]["seed"]) == (7, 3)
            assert (body["truncate"], body["shift"], body["stream"]) == (False, False, True)
            assert body["messages"][-1]["content"].startswith("Result of step 1")
        assert server.asked[0][1]["format"] == SCHEMA
        assert "format" not in server.asked[1][1]


def test_results_of_tools_go_as_such_where_that_is_wanted() -> None:
    result: Message = {"role": "tool", "content": '{"step": 1, "result": {}}'}
    with served(chat()) as server, client(server.url, tool_role=True) as backend:
        backend.complete(Request([*ASK, result], grammar=None))
        assert server.asked[0][1]["messages"][-1] == result


def test_an_answer_with_its_counts(ask: Ask) -> None:
    with served(chat()) as server, client(server.url) as backend:
        typed: Backend = backend
        assert (typed.context_length(), typed.info().traits.prompt_style) == (8192, "full")
        answer = ask(backend)
    assert (answer.text, answer.finish_reason, answer.grammar_violation) == (CALL, "stop", None)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.cached_tokens) == (
        26,
        12,
        0,
    )
    assert (answer.timings.prompt_s, answer.timings.completion_s) == (0.005, 0.003)


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({"done_reason": "stop"}, "stop"),
        ({"done_reason": "length"}, "length"),
        ({"done_reason": "load"}, "length"),
    ],
)
def test_a_truncated_answer_is_reported(fields: dict[str, Any], finish: str) -> None:
    with served(chat('{"name": "fi', **fields)) as server, client(server.url) as backend:
        answer = backend.complete(Request(ASK, grammar=SCHEMA))
    assert answer.finish_reason == finish
    assert (answer.grammar_violation is None) == (finish == "length")


def test_an_answer_that_ignored_the_schema_is_found_out() -> None:
    with served(chat("Sure!"), chat('{"name": "x", "arguments": {}}')) as server:
        backend = client(server.url)
        assert "not a JSON" in str(backend.complete(Request(ASK, grammar=SCHEMA)).grammar_violation)
        assert "$.name" in str(backend.complete(Request(ASK, grammar=SCHEMA)).grammar_violation)
        backend.close()


def test_reasoning_is_returned_separately() -> None:
    thinking: dict[str, Any] = {"message": {"role": "assistant", "content": "yes", "thinking": "hm"}}
    with served(chat(**thinking), chat("<think>hm</think>yes")) as server, client(server.url) as backend:
        for _ in range(2):
            answer = backend.complete(Request(ASK, grammar=None))
            assert (answer.reasoning, answer.text) == ("hm", "yes")


# A truncated prompt.


@pytest.mark.parametrize(
    ("size", "counted", "was_cut"),
    [
        (1000, 250, False),
        (6000, 1500, False),
        (6000, 2047, True),  # full but for one: no space for an answer
        (12000, 1026, True),  # half the context and two, which newer servers keep of what is too long
        (12000, 1040, True),  # the most that they keep
        (6000, 0, False),  # the server reported nothing
        (2048, 300, False),  # no more bytes than tokens: it was whole, however few they are
    ],
)
def test_a_truncated_prompt_is_detected(ask: Ask, size: int, counted: int, was_cut: bool) -> None:
    messages: list[Message] = [{"role": "user", "content": "x" * size}]
    reply = chat(prompt_eval_count=counted)
    with served(reply) as server, client(server.url, context_length=2048) as backend:
        if was_cut:
            with pytest.raises(ContextOverflowError, match="2048"):
                ask(backend, messages)
        else:
            assert ask(backend, messages).text == CALL


@given(tokens=st.integers(1, 8191), bytes_per_token=st.floats(1, 60))
def test_a_complete_prompt_is_never_taken_for_a_truncated_one(tokens: int, bytes_per_token: float) -> None:
    assume(bytes_per_token < 6 or not 4096 <= tokens <= 4112)  # the tokens that truncation leaves, and few
    messages: list[Message] = [{"role": "user", "content": "x" * int(tokens * bytes_per_token)}]
    with Ollama("m", context_length=8193) as backend:
        backend._check_whole({"prompt_eval_count": tokens}, messages)


@given(
    context=st.integers(1024, 32_768),
    over=st.integers(1, 10_000),
    bytes_per_token=st.floats(3.2, 12),
    keep=st.integers(0, 25),
)
def test_a_truncated_prompt_is_never_taken_for_a_complete_one(
    context: int, over: int, bytes_per_token: float, keep: int
) -> None:
    """What `contextShiftPromptLimit` of Ollama's llm/llama_server.go leaves, and the runners before it."""
    size = int((context + over) * bytes_per_token)
    with Ollama("m", context_length=context) as backend:
        for left in (context, context - 1, context - (context - keep) // 2):
            with pytest.raises(ContextOverflowError):
                backend._check_whole({"prompt_eval_count": left}, [{"role": "user", "content": "x" * size}])


# Odd answers.


@given(answer=odd(chat("a\ud83d").body))
def test_any_answer_is_parsed_or_a_backend_error(answer: Any) -> None:
    with Ollama("m") as backend:
        try:
            body = backend._body(Request(ASK))
            read = backend._read(httpx.Response(200), told(OllamaStream, answer), body=body)
        except BackendError as error:
            str(error).encode()
        else:
            assert min(read.usage.prompt_tokens, read.usage.completion_tokens) >= 0


@pytest.mark.parametrize(
    "odd_fields",
    [
        {"message": {"content": ["a", {"type": "text", "text": "b"}]}},
        {"message": {"content": "ab"}, "prompt_eval_count": None, "eval_count": "12", "eval_duration": []},
        {"message": {"content": "ab", "thinking": 5}},
    ],
)
def test_what_is_not_essential_may_be_odd(odd_fields: dict[str, Any], ask: Ask) -> None:
    with served(chat(**odd_fields)) as server, client(server.url) as backend:
        assert ask(backend, grammar=None).text == "ab"


# Errors.


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (Reply(404, {"error": "model 'm' not found"}), ServerResponseError, "ollama pull m"),
        (Reply(400, {"error": "the prompt exceeds the context length"}), ContextOverflowError, "8192"),
        (Reply(400, {"error": "invalid format: failed to parse grammar"}), GrammarRefusedError, "grammar"),
        (Reply(500, {"error": "Failed to parse Grammar"}), GrammarRefusedError, "parse"),
        (Reply(500, {"error": "llama runner has terminated"}), ServerResponseError, "500"),
        (Reply(200, "[]"), BackendError, "not a JSON object"),
        (Reply(200, {"message": {"content": 5}, "done": True}), BackendError, "sent 5 instead"),
        (Reply(200, {"message": {"content": "a"}, "done": False}), BackendError, "too early"),
    ],
)
def test_errors(ask: Ask, reply: Reply, kind: type[Exception], said: str) -> None:
    with served(reply) as server, client(server.url) as backend, pytest.raises(kind, match=said):
        ask(backend)


def test_gbnf_is_refused_before_anything_is_sent() -> None:
    with served(chat()) as server, client(server.url) as backend:
        with pytest.raises(GrammarRefusedError, match="not GBNF"):
            backend.complete(Request(ASK, grammar=Grammar.parse('root ::= "a"')))
        assert server.asked == []


def test_an_address_without_a_server_is_an_error(ask: Ask) -> None:
    with (
        client("http://127.0.0.1:9") as backend,
        pytest.raises(BackendUnreachableError, match="no Ollama answers"),
    ):
        ask(backend)
    with pytest.raises(ValueError, match="context"):
        Ollama("m", context_length=0)


# In the planner.

TOOL = Tool("look", args={"type": "object", "properties": {"at": {"type": "string"}}})


def test_the_planner_sends_a_schema_of_the_step(tmp_path: Path) -> None:
    with served(chat()) as server, client(server.url) as backend:
        run = Planner([TOOL], backend, context=world(tmp_path)).run("look")
        assert (run.outcome, run.answer) == ("answered", "hi")
        assert server.asked[0][1]["format"] == call_schema([TOOL], final_answer=True)
