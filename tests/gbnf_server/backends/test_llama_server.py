"""A llama-server over HTTP: the real one for all that it can be made to do, a scripted one for the rest."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.prompt import Message
from gbnf_server import llama_server_build
from gbnf_server.backends import llama_server as module
from gbnf_server.backends.answers import read_completion, unpack
from gbnf_server.backends.base import Backend, Completion
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.errors import (
    BackendError,
    BackendUnreachable,
    ContextOverflow,
    GrammarRefused,
    ServerError,
)
from gbnf_server.llama_server_run import RunningServer
from support.models import make_model
from support.server import CONTEXT, PROPS, Reply, completion, require_llama_server, scripted
from support.wires import odd

ASK: list[Message] = [{"role": "system", "content": "Plan."}, {"role": "user", "content": "hello"}]
CALL = 'root ::= "{\\"name\\": \\"" ("find" | "write") "\\"}"'
LONG = "root ::= a{100}\na ::= b{100}\nb ::= [xy]{20}"  # 200,000 characters


@pytest.fixture(scope="module")
def backend(llama_server: RunningServer) -> Iterator[LlamaServer]:
    with LlamaServer(llama_server.url) as client:
        yield client


def _client(url: str, **options: Any) -> LlamaServer:
    """A client that does not wait long."""
    return LlamaServer(url, **{"retries": 2, "backoff": 0.001, "patience": 0.01, **options})


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Completion]:
    """Both drivers, as one function of client and options."""

    def call(client: LlamaServer, messages: list[Message] = ASK, **options: Any) -> Completion:
        options.setdefault("grammar", CALL)
        if request.param == "sync":
            return client.complete(messages, **options)
        return asyncio.run(client.acomplete(messages, **options))

    return call


# The real server.


def test_it_is_a_backend(backend: LlamaServer) -> None:
    typed: Backend = backend
    assert typed.context_length == CONTEXT
    assert typed.prompt_style == "full"
    assert typed.name.startswith("llama-server at http://127.0.0.1:")


@settings(max_examples=30)
@given(
    words=st.lists(st.sampled_from(["a", "hello", "è", "日本", "<"]), min_size=1, max_size=4, unique=True),
    temperature=st.sampled_from([0.0, 1.5]),
    seed=st.integers(0, 2**31),
    max_tokens=st.integers(1, 30),
)
def test_what_it_says_is_in_the_language(
    backend: LlamaServer, words: list[str], temperature: float, seed: int, max_tokens: int
) -> None:
    grammar = "root ::= (" + " | ".join(f'"{word}"' for word in words) + "){1,3}"
    answer = backend.complete(ASK, grammar=grammar, temperature=temperature, seed=seed, max_tokens=max_tokens)
    assert answer.grammar_violation is None
    if answer.finish == "stop":
        assert any(answer.text.startswith(word) for word in words)
    else:
        assert answer.completion_tokens == max_tokens


def test_both_backends_say_the_same(backend: LlamaServer, tiny_model: Path) -> None:
    grammar = 'root ::= "{" [a-zè]{1,40} "}"'
    with InProcess(tiny_model, threads=1) as local:
        for word in ("hello", "è", "<x>", "a longer question"):
            messages: list[Message] = [ASK[0], {"role": "user", "content": word}]
            here, there = (model.complete(messages, grammar=grammar) for model in (local, backend))
            assert (here.text, here.finish, here.prompt_tokens) == (
                there.text,
                there.finish,
                there.prompt_tokens,
            )


def test_counts_and_times(backend: LlamaServer, ask: Callable[..., Completion]) -> None:
    ask(backend)
    answer = ask(backend)
    assert answer.finish == "stop"
    assert 0 < answer.cached_tokens < answer.prompt_tokens
    assert answer.completion_tokens > 5
    assert answer.prompt_s > 0
    assert answer.completion_s > 0


def test_a_cut_answer_says_so(backend: LlamaServer, ask: Callable[..., Completion]) -> None:
    answer = ask(backend, max_tokens=3)
    assert (answer.finish, answer.grammar_violation) == ("length", None)
    assert '{"name": "write"}'.startswith(answer.text)


def test_the_end_of_the_context_cuts(backend: LlamaServer) -> None:
    answer = backend.complete(ASK, grammar=LONG, max_tokens=9999)
    assert (answer.finish, answer.grammar_violation) == ("length", None)
    assert set(answer.text) <= set("xy")


def test_messages_longer_than_the_context_are_refused(
    backend: LlamaServer, ask: Callable[..., Completion]
) -> None:
    with pytest.raises(ContextOverflow) as refused:
        ask(backend, [{"role": "user", "content": "x" * 2 * CONTEXT}])
    assert refused.value.available == CONTEXT
    assert (refused.value.needed or 0) > 2 * CONTEXT


def test_a_bad_grammar_is_refused_before_it_is_sent(backend: LlamaServer) -> None:
    with pytest.raises(GrammarRefused, match="ends before it begins"):
        backend.complete(ASK, grammar='root ::= "a"{3,2}')


def test_a_grammar_that_the_server_refuses(
    backend: LlamaServer, ask: Callable[..., Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "guard", lambda _: None)
    with pytest.raises(GrammarRefused, match="failed to parse grammar"):
        ask(backend, grammar="root ::= x")
    monkeypatch.undo()
    assert ask(backend).finish == "stop"


def test_a_dead_end_on_the_server(
    backend: LlamaServer, ask: Callable[..., Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "guard", lambda _: None)
    with pytest.raises(ServerError, match="Unexpected empty grammar stack") as failed:
        ask(backend, grammar='root ::= "a" [\\x00]')
    assert failed.value.status == 500
    monkeypatch.undo()
    assert ask(backend).finish == "stop"


class _Mangling(httpx.HTTPTransport):
    """Sends the grammar as an object instead of a string."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content or b"null")
        if body and "grammar" in body:
            body["grammar"] = {"text": body["grammar"]}
            request = httpx.Request(request.method, request.url, json=body)
        return super().handle_request(request)


def test_a_real_server_that_ignores_the_grammar_is_found_out(llama_server: RunningServer) -> None:
    """llama-server takes a grammar that is no string for none at all, and says nothing."""
    with LlamaServer(llama_server.url) as client:
        client._exchange.client = httpx.Client(base_url=llama_server.url, transport=_Mangling())
        answer = client.complete(ASK, grammar=CALL, max_tokens=20)
    assert "where the grammar expects" in (answer.grammar_violation or "")


def test_without_a_grammar_nothing_is_judged(backend: LlamaServer, ask: Callable[..., Completion]) -> None:
    answer = ask(backend, grammar=None, max_tokens=10)
    assert answer.completion_tokens == 10
    assert answer.grammar_violation is None


def test_one_client_serves_several_event_loops_and_threads(backend: LlamaServer) -> None:
    expected = backend.complete(ASK, grammar=CALL).text
    said: list[str] = []

    def loop() -> None:
        said.extend(asyncio.run(backend.acomplete(ASK, grammar=CALL)).text for _ in range(3))

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [expected] * 9


def test_keys(tiny_model: Path, ask: Callable[..., Completion]) -> None:
    require_llama_server()
    with llama_server_build.start(tiny_model, threads=1, api_key="sesame") as server:
        with _client(server.url) as nobody, pytest.raises(ServerError, match="Invalid API Key") as refused:
            ask(nobody)
        assert refused.value.status == 401
        with _client(server.url, api_key="sesame") as known:
            assert ask(known).finish == "stop"


def test_another_path_is_not_found(llama_server: RunningServer) -> None:
    with _client(llama_server.url + "/elsewhere") as client, pytest.raises(ServerError) as missing:
        client.complete(ASK, grammar=CALL)
    assert missing.value.status == 404


def test_a_server_that_goes_and_comes_back_with_another_model(tmp_path: Path, tiny_model: Path) -> None:
    require_llama_server()
    demo = make_model(tmp_path / "demo.gguf", name="gbnf-planner-demo", context=256)
    with llama_server_build.start(tiny_model, threads=1) as first:
        client = _client(first.url)
        assert client.prompt_style == "full"
        assert client.complete(ASK, grammar=CALL).finish == "stop"
    with pytest.raises(BackendUnreachable, match="no llama-server answers"):
        client.complete(ASK, grammar=CALL)
    port = httpx.URL(first.url).port or 0
    with llama_server_build.start(demo, threads=1, port=port), client:
        assert client.complete(ASK, grammar=CALL).finish == "stop"
        assert (client.prompt_style, client.context_length) == ("minimal", 256)


def test_another_model_that_comes_up_between_two_calls_is_noticed(ask: Callable[..., Completion]) -> None:
    other = {
        "default_generation_settings": {"n_ctx": 77},
        "model_path": "models/other.gguf",
        "chat_template": "<think>",
    }
    answers: dict[str, Any] = {
        "props": [Reply(200, PROPS), Reply(200, PROPS), Reply(200, other)],
        "completion": [completion('{"name": "find"}')],
    }
    with scripted(**answers) as script, _client(script.url) as client:
        ask(client)
        learning = len(script.asked)
        ask(client)
        assert [path for path, _ in script.asked[learning:]] == ["/props", "/apply-template", "/completion"]
        assert (client.context_length, client.markers) == (CONTEXT, None)
        ask(client)
        assert (client.context_length, client.model_name) == (77, "other.gguf")
        assert client.markers is not None


def test_a_server_that_dies_while_it_answers(tmp_path: Path) -> None:
    require_llama_server()
    model = make_model(tmp_path / "long.gguf", context=200_000)
    with llama_server_build.start(model, threads=1, context_length=200_000) as server:
        client = _client(server.url)
        client.complete(ASK, grammar=CALL)

        def end_it() -> None:
            try:
                while not any(slot["is_processing"] for slot in httpx.get(f"{server.url}/slots").json()):
                    pass
            finally:
                server.stop()

        thread = threading.Thread(target=end_it)
        thread.start()
        with client, pytest.raises(BackendError):
            client.complete(ASK, grammar=LONG, max_tokens=190_000)
        thread.join()


def test_roles_that_the_template_lacks(tmp_path: Path) -> None:
    """Results are told by the user; a missing system role llama-server makes up for by itself."""
    require_llama_server()
    refusing = "{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
    template = "{% for m in messages %}" + refusing + "[{{ m.content }}]{% endfor %}"
    messages: list[Message] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "c"},
        {"role": "tool", "content": '{"step": 1, "result": {"n": 1}}'},
    ]
    with (
        llama_server_build.start(make_model(tmp_path / "m.gguf", template=template), threads=1) as server,
        _client(server.url) as client,
        InProcess(tmp_path / "m.gguf", threads=1) as local,
    ):
        there = client.complete(messages, grammar=CALL)
        assert local._template.render(messages) == '[q][c][Result of step 1: {"n": 1}]'
        assert there.prompt_tokens == len(local._tokens(messages, constrained=True))
        assert there.text == local.complete(messages, grammar=CALL).text


# The scripted server: what it is asked, and faults.


def test_what_is_sent() -> None:
    with scripted(completion=[completion('{"name": "find"}')]) as script, _client(script.url) as client:
        client.complete(ASK, grammar=CALL, max_tokens=7, temperature=0.5, seed=3)
        body = next(body for path, body in script.asked if path == "/completion")
    assert body == {
        "prompt": json.dumps(ASK),
        "grammar": CALL,
        "n_predict": 7,
        "temperature": 0.5,
        "seed": 3,
        "samplers": ["temperature"],
        "cache_prompt": True,
    }
    template = next(body for path, body in script.asked if path == "/apply-template")
    assert template["chat_template_kwargs"] == {"enable_thinking": False}
    assert not any("tools" in (body or {}) for _, body in script.asked)


def test_the_next_prompt_alone_is_evaluated_anew_where_prompts_are_forgotten() -> None:
    said = completion('{"name": "find"}')
    with scripted(completion=[said, said, said]) as script, _client(script.url) as client:
        client.complete(ASK, grammar=CALL)
        client.forget_prompts()
        client.complete(ASK, grammar=CALL)
        client.complete(ASK, grammar=CALL)
        reused = [body["cache_prompt"] for path, body in script.asked if path == "/completion"]
    assert reused == [True, False, True]


def test_a_models_markers_are_kept_in_a_free_answer() -> None:
    """llama-server leaves special tokens out of its text unless it is told which to keep."""
    harmony = "<|channel|>analysis<|message|>"
    props = Reply(200, {**PROPS, "chat_template": harmony})
    said = f"{harmony}so<|end|><|start|>assistant<|channel|>final<|message|>then"
    with scripted(props=[props], completion=[completion(said)]) as script, _client(script.url) as client:
        answer = client.complete(ASK, grammar=None)
        kept = script.asked[-1][1]["preserved_tokens"]
    assert (answer.reasoning, answer.text) == ("so", "then")
    assert kept == ["<|channel|>", "<|message|>", "<|end|>", "<|start|>"]


def test_without_a_grammar_none_is_sent() -> None:
    with scripted(completion=[completion("hi")]) as script, _client(script.url) as client:
        assert client.complete(ASK, grammar=None).text == "hi"
        assert all("grammar" not in (body or {}) for _, body in script.asked)


def test_what_is_read(ask: Callable[..., Completion]) -> None:
    with scripted(completion=[completion('{"name": "find"}')]) as script, _client(script.url) as client:
        assert ask(client) == Completion(
            text='{"name": "find"}',
            finish="stop",
            prompt_tokens=9,
            completion_tokens=3,
            cached_tokens=2,
            prompt_s=0.005,
            completion_s=0.007,
        )


@pytest.mark.parametrize(
    ("reply", "finish", "violates"),
    [
        (completion("Sure! Here you are"), "stop", True),
        (completion('{"name": "find"'), "stop", True),
        (completion('{"name": "find"', "limit"), "length", False),
        (completion('{"name": "fi\ufffd', "limit"), "length", False),
        (completion("Sure", "limit"), "length", True),
        (completion('{"name": "find"}', truncated=True), "length", False),
        (completion('{"name": "find"}', "word"), "stop", False),
        (completion('{"name": "find"}', "none"), "length", False),
        (completion(""), "stop", True),
    ],
)
def test_answers_are_replayed(
    ask: Callable[..., Completion], reply: Reply, finish: str, violates: bool
) -> None:
    with scripted(completion=[reply]) as script, _client(script.url) as client:
        answer = ask(client)
    assert answer.finish == finish
    assert (answer.grammar_violation is not None) == violates


@given(answer=odd(completion("a\ud83d").body))
def test_whatever_stands_in_an_answer_is_read_or_a_fault_of_the_backend(answer: Any) -> None:
    try:
        read = read_completion(unpack(httpx.Response(200, content=json.dumps(answer))), None)
    except BackendError as error:
        str(error).encode()
    else:
        read.text.encode()
        assert min(read.prompt_tokens, read.completion_tokens, read.cached_tokens) >= 0
        assert min(read.prompt_s, read.completion_s) >= 0


@given(props=odd({**PROPS, "modalities": {"vision": True}, "model_path": "a/b\ud83d", "chat_template": ""}))
def test_whatever_a_server_says_of_itself_is_read_or_a_fault_of_the_backend(props: Any) -> None:
    with _client("http://127.0.0.1:9") as client:
        flow = client._learn()
        next(flow)
        try:
            flow.send(httpx.Response(200, content=json.dumps(props)))
            for _ in range(20):
                flow.send(httpx.Response(200, json={"prompt": "<user>hello<assistant>"}))
        except StopIteration as learnt:
            learnt.value.model.encode()
        except BackendError as error:
            str(error).encode()


def test_thoughts_are_parted_from_a_free_answer(ask: Callable[..., Completion]) -> None:
    with scripted(completion=[completion("<think>so</think>then")]) as script, _client(script.url) as client:
        answer = ask(client, grammar=None)
    assert (answer.reasoning, answer.text) == ("so", "then")


def test_thoughts_that_the_template_opens_are_closed_under_a_grammar() -> None:
    prompt = Reply(200, {"prompt": "7c1f-system 7c1f-tool <think>\n"})
    with (
        scripted(apply_template=[prompt], completion=[completion('{"name": "find"}')]) as script,
        _client(script.url) as client,
    ):
        client.complete(ASK, grammar=CALL)
        client.complete(ASK, grammar=None)
        prompts = [body["prompt"] for path, body in script.asked if path == "/completion"]
    assert prompts == ["7c1f-system 7c1f-tool <think>\n\n</think>\n\n", "7c1f-system 7c1f-tool <think>\n"]


LOADING = Reply(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})


def _hang_up() -> None:
    """Close the connection without a word."""


@pytest.mark.parametrize("bumps", [[LOADING], [LOADING] * 3, [_hang_up], [_hang_up, LOADING, _hang_up]])
def test_what_passes_is_waited_for(ask: Callable[..., Completion], bumps: list[Any]) -> None:
    with (
        scripted(
            props=[*bumps, Reply(200, PROPS)], completion=[*bumps, completion('{"name": "find"}')]
        ) as script,
        _client(script.url, patience=5.0) as client,
    ):
        assert ask(client).finish == "stop"


def test_a_server_that_loads_for_ever(ask: Callable[..., Completion]) -> None:
    with scripted(props=[LOADING]) as script, _client(script.url) as client:
        with pytest.raises(ServerError, match="503: Loading model"):
            ask(client)
        assert len(script.asked) > 1


@pytest.mark.parametrize("said", ["0", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_server_that_is_busy_says_when_to_come_back(ask: Callable[..., Completion], said: str) -> None:
    busy = Reply(429, {"error": {"message": "slow down"}}, {"retry-after": said})
    with scripted(completion=[busy, busy, completion('{"name": "find"}')]) as script:
        with _client(script.url, patience=5.0) as client:
            assert ask(client).finish == "stop"
        assert [path for path, _ in script.asked].count("/completion") == 3


@pytest.mark.parametrize("headers", [{}, {"retry-after": "3600"}, {"retry-after": "soon"}])
def test_a_server_that_is_busy_for_long_is_not_waited_for(
    ask: Callable[..., Completion], headers: dict[str, str]
) -> None:
    busy = Reply(429, {"error": {"message": "slow down"}}, headers)
    with scripted(completion=[busy]) as script, _client(script.url, patience=5.0) as client:
        with pytest.raises(ServerError, match="429: slow down"):
            ask(client)
        assert [path for path, _ in script.asked].count("/completion") == 1


def test_a_key_that_no_header_takes_is_refused() -> None:
    with pytest.raises(BackendError, match="API key"):
        LlamaServer("http://127.0.0.1:9", api_key="cl\xe9")


def test_a_server_that_always_hangs_up(ask: Callable[..., Completion]) -> None:
    with scripted(completion=[_hang_up]) as script, _client(script.url) as client:
        with pytest.raises(BackendUnreachable, match="broke"):
            ask(client)
        assert [path for path, _ in script.asked].count("/completion") == 3


def test_a_server_that_never_answers(ask: Callable[..., Completion]) -> None:
    release = threading.Event()
    with scripted(completion=[release.wait]) as script, _client(script.url, timeout=0.2) as client:  # type: ignore[list-item]  # what it returns is dropped
        with pytest.raises(BackendUnreachable, match=r"no answer within 0\.2 s"):
            ask(client)
        release.set()
        assert [path for path, _ in script.asked].count("/completion") == 1  # it may still be at work on it


def _error(status: int, message: str, kind: str = "server_error", **fields: Any) -> Reply:
    return Reply(status, {"error": {"code": status, "message": message, "type": kind, **fields}})


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        (_error(400, "Failed to parse grammar"), GrammarRefused, "Failed to parse grammar"),
        (_error(400, "no such field"), ServerError, "HTTP 400: no such field"),
        (_error(401, "Invalid API Key"), ServerError, "HTTP 401: Invalid API Key"),
        (_error(404, "File Not Found"), ServerError, "HTTP 404"),
        (_error(500, "Unexpected empty grammar stack"), ServerError, "Unexpected empty grammar stack"),
        (_error(200, "out of memory"), ServerError, "HTTP 200: out of memory"),
        (Reply(200, {"error": "plain words"}), ServerError, "plain words"),
        (Reply(500, "<html>proxy</html>"), ServerError, "HTTP 500: <html>proxy</html>"),
        (Reply(502, ""), ServerError, "HTTP 502: Bad Gateway"),
        (Reply(302, ""), ServerError, "HTTP 302"),
        (Reply(200, "not JSON"), ServerError, "no JSON object but 'not JSON'"),
        (Reply(200, [1]), ServerError, "no JSON object"),
        (Reply(200, {}), BackendError, "no text"),
        (Reply(200, {"content": "x"}), BackendError, "why it ended"),
        (Reply(200, {"content": "x", "stop_type": []}), BackendError, "why it ended"),
        (Reply(200, "[" * 200_000), ServerError, "no JSON object"),
        (
            _error(400, "too long", "exceed_context_size_error", n_prompt_tokens=900, n_ctx=512),
            ContextOverflow,
            "(900 tokens)",
        ),
        (_error(400, "too long", "exceed_context_size_error"), ContextOverflow, "the messages do not fit"),
    ],
)
def test_faults(ask: Callable[..., Completion], reply: Reply, kind: type[BackendError], told: str) -> None:
    with (
        scripted(completion=[reply, completion('{"name": "find"}')]) as script,
        _client(script.url) as client,
    ):
        with pytest.raises(BackendError) as failed:
            ask(client)
        assert type(failed.value) is kind
        assert told in str(failed.value)
        assert ask(client).finish == "stop"  # the client stays usable


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"props": [Reply(200, {})]}, "the context's length"),
        (
            {"props": [Reply(200, {"default_generation_settings": {"n_ctx": math.inf}})]},
            "the context's length",
        ),
        ({"props": [Reply(200, {"default_generation_settings": [1]})]}, "the context's length"),
        ({"apply_template": [Reply(200, {})]}, "without a prompt"),
        ({"apply_template": [_error(500, "no filter named 'x'")]}, "no filter named 'x'"),
        ({"apply_template": [_error(401, "Invalid API Key")]}, "HTTP 401"),
    ],
)
def test_something_that_is_no_llama_server(answers: dict[str, list[Any]], told: str) -> None:
    with (
        scripted(**answers) as script,
        _client(script.url) as client,
        pytest.raises(BackendError, match=told),
    ):
        client.complete(ASK, grammar=CALL)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://here", "http://", "nonsense", "http://[::1"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(BackendUnreachable, match="no address"):
        LlamaServer(url)


def test_a_host_that_does_not_exist(ask: Callable[..., Completion]) -> None:
    with (
        _client("http://nowhere.invalid:9") as client,
        pytest.raises(BackendUnreachable, match=r"nowhere\.invalid"),
    ):
        ask(client)


def _kinds(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


@pytest.mark.parametrize("kind", sorted(set(_kinds(httpx.RequestError)), key=str))
def test_every_error_of_httpx_is_translated(kind: type[httpx.RequestError]) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise kind("as if")

    with _client("http://127.0.0.1:9") as client:
        client._exchange.client = httpx.Client(base_url=client.url, transport=httpx.MockTransport(fail))
        with pytest.raises(BackendUnreachable, match=r"127\.0\.0\.1:9"):
            client.complete(ASK, grammar=CALL)


def test_no_proxy_stands_before_loopback(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Completion]
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with scripted(completion=[completion('{"name": "find"}')]) as script, _client(script.url) as client:
        assert ask(client).finish == "stop"


def test_a_closed_client_says_so(ask: Callable[..., Completion]) -> None:
    client = _client("http://127.0.0.1:9")
    client.close()
    client.close()
    with pytest.raises(BackendError, match="has been closed"):
        ask(client)


def test_the_demonstration_model_is_known_by_its_template() -> None:
    props = {**PROPS, "chat_template": "{#- gbnf-planner-demo #}{{ messages }}"}
    with scripted(props=[Reply(200, props)]) as script, _client(script.url) as client:
        assert client.prompt_style == "minimal"
    with scripted(props=[Reply(200, props)]) as script, _client(script.url, prompt_style="full") as client:
        assert client.prompt_style == "full"
        assert script.asked == []


def test_cancelling_closes_the_connection() -> None:
    release = threading.Event()

    async def cancelled(client: LlamaServer, reached: threading.Event) -> None:
        task = asyncio.create_task(client.acomplete(ASK, grammar=CALL))
        await asyncio.to_thread(reached.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    reached = threading.Event()

    def hold() -> None:
        reached.set()
        release.wait()

    with scripted(completion=[hold]) as script, _client(script.url) as client:
        asyncio.run(cancelled(client, reached))
        release.set()
