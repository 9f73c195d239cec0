"""The fields of a request, on a model in this process and a real llama-server that runs the same one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.errors import ToolFormatError
from gbnf.prompts.descriptions import declare_tool
from gbnf.tools import Tool
from gbnf_server.backends.base import MAX_LOGPROBS, Backend, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.backends.prompts import TemplateRoles, adapt_messages
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.llama.token_values import Truncation
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    ConversationRefusedError,
    RequestNotSupportedError,
)
from support.backends import ASK, streamed
from support.effort import scaled
from support.server import Reply, completion, scripted

WORDS = Grammar.parse('root ::= word ("," word){0,40} "."\nword ::= [a-e]{1,4}')
FREE = Request(ASK, max_tokens=40, temperature=1.0, seed=3)
NEVER = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def here(tiny_model: Path) -> Iterator[InProcess]:
    with InProcess(tiny_model, threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def there(llama_server: LlamaServerProcess) -> Iterator[LlamaServer]:
    with LlamaServer(llama_server.url) as client:
        yield client


@pytest.fixture(params=["here", "there"])
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("kind", ["here", "llama-server", "vllm", "ollama"])
@pytest.mark.parametrize("seconds", [0.0, 1e-9])
def test_no_time_is_no_answer(here: InProcess, kind: str, seconds: float) -> None:
    answers: dict[str, list[Any]] = {"v1/models": [Reply(200, {"data": [{"id": "m"}]})]}
    with scripted(completion=[completion("a")], **answers) as script:
        backends: dict[str, Any] = {
            "here": here,
            "llama-server": LlamaServer(script.url),
            "vllm": OpenAICompatible(script.url, "vllm"),
            "ollama": Ollama("m", script.url),
        }
        with pytest.raises(AnswerTimeoutError, match="did not finish"):
            backends[kind].complete(replace(FREE, timeout_s=seconds))
        assert not script.asked


@settings(max_examples=scaled(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stop=st.lists(st.text("abcde,", min_size=1, max_size=3), max_size=3), seed=st.integers(0, 2**31))
def test_the_text_ends_at_the_stop_string_that_is_complete_first(
    here: InProcess, stop: list[str], seed: int
) -> None:
    asked = replace(FREE, grammar=WORDS, seed=seed, max_tokens=200)
    whole = here.complete(asked).text
    ends = [end for end in range(len(whole) + 1) if whole[:end].endswith(tuple(stop))]
    answer, pieces, _ = streamed(here, replace(asked, stop=stop))
    assert answer.text == "".join(pieces)
    if ends:
        assert answer.stop_string is not None
        assert answer.text + answer.stop_string == whole[: ends[0]]
        assert answer.finish_reason == "stop"
    else:
        assert (answer.text, answer.stop_string) == (whole, None)


def test_a_stop_string_ends_the_answer_of_a_server(there: LlamaServer) -> None:
    asked = replace(FREE, grammar=WORDS)
    whole = there.complete(asked).text
    stop = whole[3:5]
    answer, pieces, _ = streamed(there, replace(asked, stop=[stop]))
    assert answer.text == "".join(pieces) == whole[: whole.index(stop)]
    assert (answer.finish_reason, answer.stop_string, answer.grammar_violation) == ("stop", stop, None)


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}])
def test_truncation_to_one_token_is_greedy(backend: Backend, fields: dict[str, Any]) -> None:
    greedy, asked = replace(FREE, temperature=0.0), replace(FREE, truncation=Truncation(**fields))
    assert backend.complete(asked).text == backend.complete(greedy).text


@pytest.mark.parametrize("count", [0, 3])
def test_logprobs_are_those_of_the_tokens(backend: Backend, count: int) -> None:
    answer, _, _ = streamed(backend, replace(FREE, logprobs=count, grammar=WORDS, temperature=0.0))
    assert b"".join(each.token for each in answer.logprobs).decode() == answer.text
    for each in answer.logprobs:
        assert each.logprob <= 0
        assert len(each.top) == count
        assert [logprob for _, logprob in each.top] == sorted((p for _, p in each.top), reverse=True)
        assert sum(math.exp(logprob) for _, logprob in each.top) <= 1 + 1e-6
    assert backend.complete(FREE).logprobs == ()


def test_both_backends_compute_the_same_logprobs(here: InProcess, there: LlamaServer) -> None:
    """Nearly: two builds of llama.cpp, a compiled and a prebuilt one, round in other places."""
    request = replace(FREE, logprobs=5, grammar=WORDS, temperature=0.0)
    for one, other in zip(here.complete(request).logprobs, there.complete(request).logprobs, strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, abs=0.01)
        assert [p for _, p in one.top] == pytest.approx([p for _, p in other.top], abs=0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"stop": [""]},
        {"stop": "text"},
        {"logprobs": MAX_LOGPROBS + 1},
        {"logprobs": -1},
    ],
)
def test_a_request_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Request(ASK, **wrong)


SCHEMA = {"type": "object"}
TOOL = {"type": "function", "function": {"name": "ping", "parameters": SCHEMA}}


@pytest.mark.parametrize(
    ("make", "fields", "named"),
    [
        (lambda: Ollama("m", NEVER), {"tools": [TOOL]}, "tools"),
        (lambda: Ollama("m", NEVER), {"logprobs": 1}, "logprobs"),
        (lambda: Ollama("m", NEVER), {"grammar": SCHEMA, "stop": ["x"]}, "stop"),
        (lambda: OpenAICompatible(NEVER, "vllm", model="m"), {"tools": [TOOL]}, "tools"),
        (lambda: OpenAICompatible(NEVER, "plain", model="m"), {"tools": [TOOL]}, "tools"),
        (
            lambda: OpenAICompatible(NEVER, "sglang", model="m"),
            {"grammar": WORDS, "reasoning": True},
            "reasoning",
        ),
        (lambda: OpenAICompatible(NEVER, "lm_studio", model="m"), {"grammar": SCHEMA, "stop": ["x"]}, "stop"),
    ],
)
def test_what_a_backend_does_not_support_is_an_error_before_any_request(
    make: Any, fields: dict[str, Any], named: str
) -> None:
    with make() as backend, pytest.raises(RequestNotSupportedError, match=named):
        backend.complete(Request(ASK, **fields))


def test_control_tokens_are_escaped_in_all_texts_of_a_message() -> None:
    end = "<|im_end|>"
    call = {"id": end, "type": "function", "function": {"name": end, "arguments": {end: [end, {"a": end}]}}}
    messages = [
        {"role": "assistant", "content": end, "tool_calls": [call], "reasoning_content": end},
        {"role": "tool", "content": end, "tool_call_id": end, "name": end},
    ]
    adapted = adapt_messages(messages, TemplateRoles(system=True, tool=True))  # type: ignore[arg-type]
    assert end not in str(adapted)
    assert str(adapted).count("im_end") == str(messages).count("im_end")


CHAT = (
    "{% if tools %}[TOOLS]{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PING = Tool(name="ping", descriptions={"en": "Ping."}, args={"type": "object", "properties": {}})
CALLED = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(("server", "key"), [("vllm", "structured_outputs"), ("sglang", "ebnf")])
@pytest.mark.parametrize("streams", [False, True])
def test_a_rendered_prompt_is_completed_where_the_template_is_given(
    server: Any, key: str, streams: bool
) -> None:
    choice = {"text": CALLED, "finish_reason": "stop"}
    reply = Reply(200, {"choices": [choice]})
    if streams:
        pieces = [
            {"choices": [{"text": piece, "finish_reason": None}]} for piece in (CALLED[:20], CALLED[20:])
        ]
        events = [*pieces, {"choices": [{"text": "", "finish_reason": "stop"}]}]
        reply = Reply(200, "".join(f"data: {json.dumps(event)}\n\n" for event in events))
    replies: dict[str, list[Any]] = {"v1/completions": [reply]}
    with scripted(**replies) as script:
        with OpenAICompatible(script.url, server, model="m", chat_template=CHAT) as backend:
            tool_format = backend.info().traits.tool_format
            assert tool_format is not None
            grammar = tool_format.grammar([PING], tool_choice="required")
            request = Request(ASK, grammar, tools=[declare_tool(PING)], truncation=Truncation(5))
            answer = backend.complete(request)
        [(path, body)] = script.asked
    assert (path, answer.text, answer.grammar_violation) == ("/v1/completions", CALLED, None)
    assert body["prompt"].startswith("[TOOLS]")
    assert "ping" in body["prompt"]
    assert body["prompt"].endswith("<|assistant|>")
    assert (body["skip_special_tokens"], body["top_k"]) == (False, 5)
    assert key in body
    assert "messages" not in body


def test_a_conversation_that_the_chat_template_refuses_is_not_sent() -> None:
    picky = CHAT + "{% if 'bad' in messages[-1].content %}{{ raise_exception('bad word') }}{% endif %}"
    request = Request([{"role": "user", "content": "bad"}], tools=[declare_tool(PING)])
    refused = pytest.raises(ConversationRefusedError, match="bad word")
    with OpenAICompatible(NEVER, "vllm", model="m", chat_template=picky) as backend, refused:
        backend.complete(request)


def test_a_chat_template_without_tools_is_refused() -> None:
    with pytest.raises(ToolFormatError):
        OpenAICompatible(NEVER, "vllm", model="m", chat_template="{{ messages[0].content }}")
    with pytest.raises(ValueError, match="takes no grammar"):
        OpenAICompatible(NEVER, "plain", model="m", chat_template=CHAT)
