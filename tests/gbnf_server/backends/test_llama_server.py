"""A llama-server over HTTP: the real one, for all that it can be made to do."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.grammar.ir import Literal, Ref, Rules, char_class, seq
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Backend, Request
from gbnf_server.backends.http_client import HttpClient, Method
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.llama import server_build as build
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.system.errors import (
    BackendUnreachableError,
    ContextOverflowError,
    GrammarRefusedError,
    ServerResponseError,
)
from support.backends import ASK, Ask, acomplete, ask_fixture, prompt_tokens
from support.effort import scaled
from support.llama_client import CALL, hasty
from support.models import make_model
from support.server import CONTEXT, PROPS, Reply, completion, rare_port, require_llama_server, scripted

LONG = Grammar.parse("root ::= a{100}\na ::= b{100}\nb ::= [xy]{20}")  # 200,000 characters


@pytest.fixture(scope="module")
def backend(llama_server: LlamaServerProcess) -> Iterator[LlamaServer]:
    with LlamaServer(llama_server.url) as client:
        yield client


ask = ask_fixture(lambda _: CALL)


def test_it_is_a_backend(backend: LlamaServer) -> None:
    typed: Backend = backend
    assert typed.context_length() == CONTEXT
    assert typed.info().traits.prompt_style == "full"
    assert typed.name.startswith("llama-server at http://127.0.0.1:")


@settings(max_examples=scaled(30))
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.booleans())
def test_the_tokens_of_a_prompt_are_counted_as_they_are_evaluated(
    backend: LlamaServer, text: str, constrained: bool
) -> None:
    request = Request(
        [{"role": "user", "content": text}],
        Grammar.parse('root ::= "a"') if constrained else None,
        max_tokens=1,
    )
    assert asyncio.run(backend.count_tokens(request)) == backend.complete(request).usage.prompt_tokens


@settings(max_examples=scaled(30))
@given(
    words=st.lists(st.sampled_from(["a", "hello", "è", "日本", "<"]), min_size=1, max_size=4, unique=True),
    temperature=st.sampled_from([0.0, 1.5]),
    seed=st.integers(0, 2**31),
    max_tokens=st.integers(1, 30),
)
def test_answers_are_in_the_language(
    backend: LlamaServer, words: list[str], temperature: float, seed: int, max_tokens: int
) -> None:
    grammar = Grammar.parse("root ::= (" + " | ".join(f'"{word}"' for word in words) + "){1,3}")
    answer = backend.complete(
        Request(ASK, grammar=grammar, temperature=temperature, seed=seed, max_tokens=max_tokens)
    )
    assert answer.grammar_violation is None
    if answer.finish_reason == "stop":
        assert any(answer.text.startswith(word) for word in words)
    else:
        assert answer.usage.completion_tokens == max_tokens


def test_both_backends_say_the_same(backend: LlamaServer, tiny_model: Path) -> None:
    grammar = Grammar.parse('root ::= "{" [a-zè]{1,40} "}"')
    with InProcess(tiny_model, threads=1) as local:
        for word in ("hello", "è", "<x>", "a longer question"):
            messages: list[Message] = [ASK[0], {"role": "user", "content": word}]
            here, there = (model.complete(Request(messages, grammar=grammar)) for model in (local, backend))
            assert (here.text, here.finish_reason, here.usage.prompt_tokens) == (
                there.text,
                there.finish_reason,
                there.usage.prompt_tokens,
            )


def test_counts_and_times(backend: LlamaServer, ask: Ask) -> None:
    ask(backend)
    answer = ask(backend)
    assert answer.finish_reason == "stop"
    assert 0 < answer.usage.cached_tokens < answer.usage.prompt_tokens
    assert answer.usage.completion_tokens > 5
    assert answer.timings.prompt_s > 0
    assert answer.timings.completion_s > 0


def test_a_truncated_answer_is_reported(backend: LlamaServer, ask: Ask) -> None:
    answer = ask(backend, max_tokens=3)
    assert (answer.finish_reason, answer.grammar_violation) == ("length", None)
    assert '{"name": "write"}'.startswith(answer.text)


def test_the_end_of_the_context_truncates(backend: LlamaServer) -> None:
    answer = backend.complete(Request(ASK, grammar=LONG, max_tokens=9999))
    assert (answer.finish_reason, answer.grammar_violation) == ("length", None)
    assert set(answer.text) <= set("xy")


def test_messages_longer_than_the_context_are_counted_and_refused(backend: LlamaServer, ask: Ask) -> None:
    long: list[Message] = [{"role": "user", "content": "x" * 2 * CONTEXT}]
    assert asyncio.run(backend.count_tokens(Request(long))) > 2 * CONTEXT
    with pytest.raises(ContextOverflowError) as refused:
        ask(backend, long)
    assert refused.value.available == CONTEXT
    assert (refused.value.needed or 0) > 2 * CONTEXT


@pytest.mark.slow
def test_token_terminals(backend: LlamaServer) -> None:
    """Their texts are in the answer; a token that the vocabulary lacks is named."""
    texts = Grammar.parse('root ::= "a" <|start|> !<|start|>{2} <|start|> "b"')
    answer = backend.complete(Request(ASK, texts, max_tokens=20, temperature=1.0))
    assert texts.match(answer.text).complete
    assert answer.text.count("<|start|>") == 2
    with pytest.raises(GrammarRefusedError, match=r"has no token <think>: it spells this in \d tokens"):
        backend.complete(Request(ASK, Grammar.parse("root ::= !<think>"), max_tokens=20))


def test_a_grammar_that_the_server_refuses(backend: LlamaServer, ask: Ask) -> None:
    with pytest.raises(GrammarRefusedError, match="refers to x"):
        ask(backend, grammar=Grammar(Rules({"root": Ref("x")})))
    assert ask(backend).finish_reason == "stop"


def test_a_dead_end_on_the_server(backend: LlamaServer, ask: Ask) -> None:
    with pytest.raises(ServerResponseError, match="Unexpected empty grammar stack") as failed:
        ask(backend, grammar=Grammar(Rules({"root": seq(Literal("a"), char_class("\0"))})))
    assert failed.value.status == 500
    assert ask(backend).finish_reason == "stop"


def _mangled(client: HttpClient, method: Method, path: str, content: bytes | None) -> httpx.Request:
    """A request that has the grammar as an object instead of a string."""
    body = json.loads(content or b"null")
    if body and "grammar" in body:
        body["grammar"] = {"text": body["grammar"]}
        content = json.dumps(body).encode()
    return _request(client, method, path, content)


_request = HttpClient.request


def test_a_real_server_that_ignores_the_grammar_is_found_out(
    llama_server: LlamaServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama-server takes a grammar that is no string for none at all, and says nothing."""
    monkeypatch.setattr(HttpClient, "request", _mangled)
    with LlamaServer(llama_server.url) as client:
        answer = client.complete(Request(ASK, grammar=CALL, max_tokens=20))
    assert ", expected " in (answer.grammar_violation or "")


def test_one_client_serves_several_event_loops_and_threads(backend: LlamaServer) -> None:
    expected = backend.complete(Request(ASK, grammar=CALL)).text
    said: list[str] = []

    def loop() -> None:
        said.extend(asyncio.run(acomplete(backend, Request(ASK, grammar=CALL))).text for _ in range(3))

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [expected] * 9


def test_keys(tiny_model: Path, ask: Ask) -> None:
    require_llama_server()
    with build.start(tiny_model, threads=1, api_key="sesame") as server:
        with (
            hasty(server.url) as nobody,
            pytest.raises(ServerResponseError, match="Invalid API Key") as refused,
        ):
            ask(nobody)
        assert refused.value.status == 401
        with hasty(server.url, api_key="sesame") as known:
            assert ask(known).finish_reason == "stop"


@pytest.mark.slow
def test_a_server_that_goes_and_comes_back_with_another_model(tmp_path: Path, tiny_model: Path) -> None:
    require_llama_server()
    demo = make_model(tmp_path / "demo.gguf", name="gbnf-planner-demo", context=256)
    port = rare_port()
    with build.start(tiny_model, threads=1, port=port) as first:
        client = hasty(first.url)
        assert client.info().traits.prompt_style == "full"
        assert client.complete(Request(ASK, grammar=CALL)).finish_reason == "stop"
    with pytest.raises(BackendUnreachableError, match="no llama-server answers"):
        client.complete(Request(ASK, grammar=CALL))
    with build.start(demo, threads=1, port=port), client:
        assert client.complete(Request(ASK, grammar=CALL)).finish_reason == "stop"
        assert (client.info().traits.prompt_style, client.context_length()) == ("minimal", 256)


def test_another_model_that_comes_up_between_two_calls_is_noticed(ask: Ask) -> None:
    other = {
        "default_generation_settings": {"n_ctx": 77},
        "model_path": "models/other.gguf",
        "chat_template": "<think>",
    }
    answers: dict[str, Any] = {
        "props": [Reply(200, PROPS), Reply(200, PROPS), Reply(200, other)],
        "completion": [completion('{"name": "find"}')],
    }
    with scripted(**answers) as script, hasty(script.url) as client:
        ask(client)
        learning = len(script.asked)
        ask(client)
        assert [path for path, _ in script.asked[learning:]] == ["/props", "/apply-template", "/completion"]
        ask(client)
        assert (client.context_length(), client.info().name) == (77, "other.gguf")
        assert client.info().traits.reasoning_tags is not None


def test_what_is_known_is_that_of_the_present_model() -> None:
    """What a request is compiled for is asked before it is sent: it must not be the last model's."""
    other = {**PROPS, "chat_template": "<think>"}
    answers: dict[str, Any] = {"props": [Reply(200, PROPS), Reply(200, other)]}
    with scripted(**answers) as script, hasty(script.url) as client:
        assert client.info().traits.reasoning_tags is None
        assert client.info().traits.reasoning_tags is not None


def test_roles_that_the_template_lacks(tmp_path: Path) -> None:
    """Results are user messages; llama-server handles a missing system role by itself."""
    require_llama_server()
    refusing = "{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
    template = "{% for m in messages %}" + refusing + "[{{ m.content }}]{% endfor %}"
    messages: list[Message] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "c"},
        {"role": "tool", "content": '{"step": 1, "result": {"n": 1}}'},
    ]
    with (
        build.start(make_model(tmp_path / "m.gguf", template=template), threads=1) as server,
        hasty(server.url) as client,
        InProcess(tmp_path / "m.gguf", threads=1) as local,
    ):
        there = client.complete(Request(messages, grammar=CALL))
        assert local._template.prompt(Request(messages)) == '[q][c][Result of step 1: {"n": 1}]'
        assert there.usage.prompt_tokens == len(prompt_tokens(local, messages, constrained=True))
        assert there.text == local.complete(Request(messages, grammar=CALL)).text
