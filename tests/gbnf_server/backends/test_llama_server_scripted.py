"""A llama-server over HTTP, scripted: what it is asked, and faults that the real one hasn't."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from typing import Any

import httpx
import pytest
from hypothesis import given

from gbnf import Grammar
from gbnf_server.backends.base import Completion, Request, Timings, Usage
from gbnf_server.backends.http_backend import CompletionStream
from gbnf_server.backends.llama_server import LlamaServer, _read_completion
from gbnf_server.system.errors import (
    BackendError,
    BackendUnreachableError,
    ContextOverflowError,
    GrammarRefusedError,
    ServerResponseError,
)
from support.backends import ASK, Ask, PlayedSession, acomplete, ask_fixture
from support.llama_client import CALL, hasty
from support.processes import limits_s
from support.server import PROPS, Reply, completion, scripted
from support.wires import odd, told

ask = ask_fixture(lambda _: CALL)


def test_what_is_sent() -> None:
    with scripted(completion=[completion('{"name": "find"}')]) as script, hasty(script.url) as client:
        client.complete(Request(ASK, grammar=CALL, max_tokens=7, temperature=0.5, seed=3))
        body = next(body for path, body in script.asked if path == "/completion")
    assert body == {
        "prompt": json.dumps(ASK),
        "grammar": str(CALL),
        "n_predict": 7,
        "temperature": 0.5,
        "seed": 3,
        "samplers": ["temperature"],
        "cache_prompt": True,
        "stream": True,
    }
    template = next(body for path, body in script.asked if path == "/apply-template")
    assert template["chat_template_kwargs"] == {"enable_thinking": False}
    assert not any("tools" in (body or {}) for _, body in script.asked)


def test_the_next_prompt_alone_is_evaluated_anew_where_prompts_are_forgotten() -> None:
    said = completion('{"name": "find"}')
    with scripted(completion=[said, said, said]) as script, hasty(script.url) as client:
        client.complete(Request(ASK, grammar=CALL))
        client.clear_prompt_cache()
        client.complete(Request(ASK, grammar=CALL))
        client.complete(Request(ASK, grammar=CALL))
        reused = [body["cache_prompt"] for path, body in script.asked if path == "/completion"]
    assert reused == [True, False, True]


def test_the_tokens_of_a_terminal_are_asked_for_once() -> None:
    grammar = Grammar.parse("root ::= <|end|> | <|other|>")
    with scripted(completion=[completion("<|end|>")], tokenize=[Reply(200, {"tokens": [3]})]) as script:
        with hasty(script.url) as client:
            for _ in range(3):
                client.complete(Request(ASK, grammar=grammar))
        sent = [sorted(body["preserved_tokens"]) for path, body in script.asked if path == "/completion"]
        assert sent == [["<|end|>", "<|other|>"]] * 3
        assert [path for path, _ in script.asked].count("/tokenize") == 2


def test_a_models_markers_are_kept_in_a_free_answer() -> None:
    """llama-server omits special tokens from its text unless the request lists which to keep."""
    harmony = "<|channel|>analysis<|message|>"
    props = Reply(200, {**PROPS, "chat_template": harmony})
    said = f"{harmony}so<|end|><|start|>assistant<|channel|>final<|message|>then"
    with scripted(props=[props], completion=[completion(said)]) as script, hasty(script.url) as client:
        answer = client.complete(Request(ASK, grammar=None))
        sent = script.asked[-1][1]
    assert (answer.reasoning, answer.text) == ("so", "then")
    assert sent["preserved_tokens"] == ["<|channel|>", "<|message|>", "<|end|>", "<|start|>"]
    assert "grammar" not in sent


def test_what_is_read(ask: Ask) -> None:
    with scripted(completion=[completion('{"name": "find"}')]) as script, hasty(script.url) as client:
        assert ask(client) == Completion(
            text='{"name": "find"}',
            finish_reason="stop",
            usage=Usage(9, 3, 2),
            timings=Timings(0.005, 0.007),
            context_length=512,
        )


@pytest.mark.parametrize(
    ("reply", "finish", "violates"),
    [
        (completion("Sure! Here you are"), "stop", True),
        (completion('{"name": "find"'), "stop", True),
        (completion('{"name": "fi\ufffd', "limit"), "length", False),
        (completion("Sure", "limit"), "stop", True),
        (completion('{"name": "find"}', truncated=True), "length", False),
        (completion('{"name": "find"}', "word"), "stop", False),
        (completion('{"name": "find"}', "none"), "length", False),
        (completion(""), "stop", True),
    ],
)
def test_answers_are_replayed(ask: Ask, reply: Reply, finish: str, violates: bool) -> None:
    with scripted(completion=[reply]) as script, hasty(script.url) as client:
        answer = ask(client)
    assert answer.finish_reason == finish
    assert (answer.grammar_violation is not None) == violates


@given(answer=odd(completion("a\ud83d").body))
def test_any_answer_is_parsed_or_a_backend_error(answer: Any) -> None:
    try:
        read = _read_completion(httpx.Response(200), told(CompletionStream, answer), 9)
    except BackendError as error:
        str(error).encode()
    else:
        assert min(read.usage.prompt_tokens, read.usage.completion_tokens, read.usage.cached_tokens) >= 0
        assert min(read.timings.prompt_s, read.timings.completion_s) >= 0


@given(props=odd({**PROPS, "modalities": {"vision": True}, "model_path": "a/b\ud83d", "chat_template": ""}))
def test_any_properties_are_parsed_or_a_backend_error(props: Any) -> None:
    with hasty("http://127.0.0.1:9") as client:
        rendered = httpx.Response(200, json={"prompt": "<user>hello<assistant>"})
        session: Any = PlayedSession(httpx.Response(200, content=json.dumps(props)), *[rendered] * 20)
        try:
            asyncio.run(client._fetch_properties(session)).info.name.encode()
        except BackendError as error:
            str(error).encode()


def test_reasoning_that_the_template_opens_is_closed_under_a_grammar() -> None:
    prompt = Reply(200, {"prompt": "7c1f-system 7c1f-tool <think>\n"})
    with (
        scripted(apply_template=[prompt], completion=[completion('{"name": "find"}')]) as script,
        hasty(script.url) as client,
    ):
        client.complete(Request(ASK, grammar=CALL))
        client.complete(Request(ASK, grammar=None))
        client.complete(Request(ASK, grammar=CALL, reasoning=True))
        prompts = [body["prompt"] for path, body in script.asked if path == "/completion"]
    opened = "7c1f-system 7c1f-tool <think>\n"
    assert prompts == [f"{opened}\n</think>\n\n", opened, opened]


LOADING = Reply(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})


def _hang_up() -> None:
    """Close the connection without a word."""


@pytest.mark.parametrize("bumps", [[LOADING] * 3, [_hang_up, LOADING, _hang_up]])
def test_what_passes_is_waited_for(ask: Ask, bumps: list[Any]) -> None:
    with (
        scripted(
            props=[*bumps, Reply(200, PROPS)], completion=[*bumps, completion('{"name": "find"}')]
        ) as script,
        hasty(script.url, loading_timeout=5.0) as client,
    ):
        assert ask(client).finish_reason == "stop"


def test_a_server_that_loads_for_ever(ask: Ask) -> None:
    with scripted(props=[LOADING]) as script, hasty(script.url) as client:
        with pytest.raises(ServerResponseError, match="503: Loading model"):
            ask(client)
        assert len(script.asked) > 1


@pytest.mark.parametrize("said", ["0", *(f"Wed, 21 Oct 2015 07:28:00 {zone}" for zone in ("GMT", "-0000"))])
def test_a_server_that_is_busy_says_when_to_come_back(ask: Ask, said: str) -> None:
    busy = Reply(429, {"error": {"message": "slow down"}}, {"retry-after": said})
    with scripted(completion=[busy, busy, completion('{"name": "find"}')]) as script:
        with hasty(script.url, loading_timeout=5.0) as client:
            assert ask(client).finish_reason == "stop"
        assert [path for path, _ in script.asked].count("/completion") == 3


@pytest.mark.parametrize("headers", [{}, {"retry-after": "3600"}, {"retry-after": "soon"}])
def test_a_server_that_is_busy_for_long_is_not_waited_for(ask: Ask, headers: dict[str, str]) -> None:
    busy = Reply(429, {"error": {"message": "slow down"}}, headers)
    with scripted(completion=[busy]) as script, hasty(script.url, loading_timeout=5.0) as client:
        with pytest.raises(ServerResponseError, match="429: slow down"):
            ask(client)
        assert [path for path, _ in script.asked].count("/completion") == 1


def test_a_key_that_no_header_takes_is_refused() -> None:
    with pytest.raises(BackendError, match="API key"):
        LlamaServer("http://127.0.0.1:9", api_key="cl\xe9")


def test_a_server_that_always_hangs_up(ask: Ask) -> None:
    with scripted(completion=[_hang_up]) as script, hasty(script.url) as client:
        with pytest.raises(BackendUnreachableError, match="broke"):
            ask(client)
        assert [path for path, _ in script.asked].count("/completion") == 3


def test_a_server_that_never_answers(ask: Ask) -> None:
    for timeout in limits_s(0.2):
        release = threading.Event()
        with scripted(completion=[release.wait]) as script, hasty(script.url, timeout=timeout) as client:  # type: ignore[list-item]  # what it returns is dropped
            with pytest.raises(
                BackendUnreachableError, match=re.escape(f"did not finish its answer within {timeout:g} s")
            ):
                ask(client)
            release.set()
            asked = [path for path, _ in script.asked].count("/completion")
        if asked:
            break  # else even /props, which comes before it, took too long
    assert asked == 1  # it may still be at work on it


def _error(status: int, message: str, kind: str = "server_error", **fields: Any) -> Reply:
    return Reply(status, {"error": {"code": status, "message": message, "type": kind, **fields}})


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        (_error(400, "Failed to parse grammar"), GrammarRefusedError, "Failed to parse grammar"),
        (_error(400, "no such field"), ServerResponseError, "HTTP 400: no such field"),
        (_error(401, "Invalid API Key"), ServerResponseError, "HTTP 401: Invalid API Key"),
        (
            _error(500, "Unexpected empty grammar stack"),
            ServerResponseError,
            "Unexpected empty grammar stack",
        ),
        (_error(200, "out of memory"), ServerResponseError, "out of memory"),
        (Reply(200, {"error": "plain words"}), ServerResponseError, "plain words"),
        (Reply(500, "<html>proxy</html>"), ServerResponseError, "HTTP 500: <html>proxy</html>"),
        (Reply(502, ""), ServerResponseError, "HTTP 502: Bad Gateway"),
        (Reply(200, "not JSON"), BackendError, "'not JSON' in its answer"),
        (Reply(200, [1]), BackendError, "not a JSON object"),
        (Reply(200, {}), BackendUnreachableError, "too early"),
        (Reply(200, {"content": "{", "stop": True, "stop_type": []}), BackendError, "no reason for its end"),
        (
            _error(400, "too long", "exceed_context_size_error", n_prompt_tokens=900, n_ctx=512),
            ContextOverflowError,
            "(900 tokens)",
        ),
        (
            _error(400, "too long", "exceed_context_size_error"),
            ContextOverflowError,
            "the messages do not fit",
        ),
    ],
)
def test_faults(ask: Ask, reply: Reply, kind: type[BackendError], told: str) -> None:
    with scripted(completion=[reply, completion('{"name": "find"}')]) as script, hasty(script.url) as client:
        with pytest.raises(BackendError) as failed:
            ask(client)
        assert type(failed.value) is kind
        assert told in str(failed.value)
        assert ask(client).finish_reason == "stop"  # the client stays usable


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"props": [Reply(200, {})]}, "no context length"),
        ({"props": [Reply(200, {"default_generation_settings": {"n_ctx": math.inf}})]}, "no context length"),
        ({"props": [Reply(200, {"default_generation_settings": [1]})]}, "no context length"),
        ({"apply_template": [Reply(200, {})]}, "returned no prompt"),
        ({"apply_template": [_error(500, "no filter named 'x'")]}, "no filter named 'x'"),
        ({"apply_template": [_error(401, "Invalid API Key")]}, "HTTP 401"),
    ],
)
def test_something_that_is_no_llama_server(answers: dict[str, list[Any]], told: str) -> None:
    with scripted(**answers) as script, hasty(script.url) as client, pytest.raises(BackendError, match=told):
        client.complete(Request(ASK, grammar=CALL))


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://here", "http://", "http://[::1"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(BackendUnreachableError, match="not the URL"):
        LlamaServer(url)


def test_a_host_that_does_not_exist(ask: Ask) -> None:
    with (
        hasty("http://nowhere.invalid:9") as client,
        pytest.raises(BackendUnreachableError, match=r"nowhere\.invalid"),
    ):
        ask(client)


def test_no_proxy_is_used_for_loopback(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with scripted(completion=[completion('{"name": "find"}')]) as script, hasty(script.url) as client:
        assert ask(client).finish_reason == "stop"


def test_a_closed_client_says_so(ask: Ask) -> None:
    client = hasty("http://127.0.0.1:9")
    client.close()
    client.close()
    with pytest.raises(BackendError, match="is closed"):
        ask(client)


def test_the_demonstration_model_is_known_by_its_template() -> None:
    props = {**PROPS, "chat_template": "{#- gbnf-planner-demo #}{{ messages }}"}
    with scripted(props=[Reply(200, props)]) as script, hasty(script.url) as client:
        assert client.info().traits.prompt_style == "minimal"
    with scripted(props=[Reply(200, props)]) as script, hasty(script.url, prompt_style="full") as client:
        assert client.info().traits.prompt_style == "full"


def test_cancelling_closes_the_connection() -> None:
    reached, closed = threading.Event(), threading.Event()

    def hold() -> None:
        assert script.connection is not None
        reached.set()
        if script.connection.recv(1) == b"":
            closed.set()

    async def cancelled(client: LlamaServer) -> None:
        task = asyncio.create_task(acomplete(client, Request(ASK, grammar=CALL)))
        await asyncio.to_thread(reached.wait)
        assert not closed.is_set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(closed.wait, 30)  # before the client itself is closed

    with scripted(completion=[hold]) as script, hasty(script.url) as client:
        asyncio.run(cancelled(client))
