"""Chat servers, each with the grammar in its own way: by published schemas, and on a real llama-server.

A real vLLM, SGLang or LM Studio has not run here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from gbnf import compile_pool
from gbnf.dialects import call_schema, xgrammar_text
from gbnf.prompts.messages import Message
from gbnf.protocols.call_protocols import ServerCalls
from gbnf.protocols.protocol import AnswerFormat, UnreadableCallError
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.backends.base import Backend, Request
from gbnf_server.backends.http_backend import ChatStream
from gbnf_server.backends.openai_compatible import OpenAICompatible, ServerKind
from gbnf_server.backends.reasoning import ReasoningSplitter
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.planner import Planner
from gbnf_server.planner.events import RunFinished, TextWritten, ToolCalled
from gbnf_server.system.errors import (
    BackendError,
    BackendUnreachableError,
    ContextOverflowError,
    GrammarRefusedError,
    ServerResponseError,
)
from support.backends import ASK, CALL, QUICK, SEEN, Ask, PlayedSession, ask_fixture
from support.executors import world
from support.server import Reply, scripted
from support.wires import closed, odd, told

GBNF = compile_pool([FINAL_ANSWER])
SCHEMA = call_schema([FINAL_ANSWER])
SERVERS: tuple[ServerKind, ...] = ("vllm", "sglang", "lm_studio", "plain")
GRAMMARS: dict[ServerKind, AnswerFormat | None] = {
    "vllm": GBNF, "sglang": GBNF, "lm_studio": SCHEMA, "plain": None,
}  # fmt: skip

# OpenAI's ChatCompletionRequestUserMessageContentPart
_PARTS = {
    "type": "array",
    "minItems": 1,
    "items": {
        "oneOf": [
            closed(["type", "text"], type={"const": "text"}, text={"type": "string"}),
            closed(
                ["type", "image_url"],
                type={"const": "image_url"},
                image_url=closed(["url"], url={"type": "string", "pattern": "^data:image/[a-z]+;base64,"}),
            ),
        ]
    },
}
_MESSAGE = closed(
    ["role", "content"],
    role={"enum": ["system", "user", "assistant"]},
    content={"oneOf": [{"type": "string"}, _PARTS]},
)
_COMMON = {
    "model": {"type": "string"},
    "messages": {"type": "array", "items": _MESSAGE},
    "max_tokens": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "seed": {"type": "integer"},
    "stream": {"type": "boolean"},
    "stream_options": closed([], include_usage={"type": "boolean"}),
}
_SAMPLING = {
    "top_k": {"type": "integer", "minimum": -1},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
    "chat_template_kwargs": {"type": "object"},
}
_OWN: dict[ServerKind, dict[str, Any]] = {
    # vLLM's "Structured Outputs": one of json, regex, choice, grammar, json_object, structural_tag
    "vllm": _SAMPLING | {"structured_outputs": closed(["grammar"], grammar={"type": "string"})},
    # SGLang's ChatCompletionRequest: `ebnf: Optional[str]`
    "sglang": _SAMPLING | {"ebnf": {"type": "string"}},
    # OpenAI's ResponseFormatJSONSchema, which LM Studio's "Structured Output" takes
    "lm_studio": {
        "response_format": closed(
            ["type", "json_schema"],
            type={"const": "json_schema"},
            json_schema=closed(
                ["name", "schema"],
                name={"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
                strict={"type": "boolean"},
                schema={"type": "object"},
            ),
        )
    },
    "plain": {},
}


def request_schema(server: ServerKind) -> dict[str, Any]:
    """What the server takes, closed, so that a field that it doesn't know is found."""
    return closed(["model", "messages"], **_COMMON, **_OWN[server])


def chat(content: str | None = CALL, finish_reason: str = "stop", **message: Any) -> Reply:
    """A chat.completion as OpenAI's reference gives it."""
    usage = {
        "prompt_tokens": 26,
        "completion_tokens": 12,
        "total_tokens": 38,
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    said = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish_reason, "logprobs": None}
    return Reply(200, {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})


def models(*ids: str, **fields: Any) -> Reply:
    return Reply(200, {"object": "list", "data": [{"id": one, "object": "model", **fields} for one in ids]})


def served(*replies: Reply | Callable[[], None], listed: Reply | None = None) -> Any:
    listing: list[Any] = [listed or models("m", max_model_len=4096)]
    answers: dict[str, list[Any]] = {"v1/chat/completions": list(replies), "v1/models": listing}
    return scripted(**answers)


def client(url: str, server: ServerKind = "vllm", **options: Any) -> OpenAICompatible:
    return OpenAICompatible(url, server, **{"retry_policy": QUICK, **options})


ask = ask_fixture(lambda backend: GRAMMARS[backend.server])


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("", "v1"),
        ("v1", "v1"),
        ("llm", "llm/v1"),
        ("v2/v1", "v2/v1"),
        ("v100", "v100/v1"),
        ("v3small", "v3small/v1"),
        ("api/paas/v4", "api/paas/v4"),
        ("v1beta/openai", "v1beta/openai"),
    ],
)
def test_the_version_of_an_api_may_be_in_its_url(given: str, root: str) -> None:
    path = f"{root}/chat/completions"
    answers: dict[str, Any] = {path: [chat()], f"{root}/models": [Reply(200, {"data": [{"id": "m"}]})]}
    with (
        scripted(**answers) as script,
        OpenAICompatible(f"{script.url}/{given}/", "plain", retry_policy=QUICK) as backend,
    ):
        backend.complete(Request(ASK))
    assert [path for path, _ in script.asked if path != f"/{root}/models"] == [f"/{path}"]


@pytest.mark.parametrize("server", SERVERS)
def test_the_request_is_as_published(server: ServerKind, ask: Ask) -> None:
    messages: list[Message] = [
        *ASK,
        {"role": "assistant", "content": CALL},
        {"role": "tool", "content": '{"step": 1, "error": "no"}'},
    ]
    with served(chat()) as script, client(script.url + "/v1", server) as backend:
        ask(backend, messages, max_tokens=7, temperature=0.5, seed=3)
        ask(backend, messages, grammar=None)
        ask(backend, [SEEN, *messages])
        asked = [body for path, body in script.asked if path == "/v1/chat/completions"]
    for body in asked:
        Draft202012Validator(request_schema(server)).validate(body)
        assert body["model"] == "m"
        assert body["messages"][-1] == {"role": "user", "content": "Error in step 1: no"}
    assert (asked[0]["max_tokens"], asked[0]["temperature"], asked[0]["seed"]) == (7, 0.5, 3)
    ways: dict[ServerKind, dict[str, Any]] = {
        "vllm": {"structured_outputs": {"grammar": xgrammar_text(GBNF)}},
        "sglang": {"ebnf": xgrammar_text(GBNF)},
        "lm_studio": {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "call", "strict": True, "schema": SCHEMA},
            }
        },
        "plain": {},
    }
    fields = ways[server]
    assert {key: asked[0][key] for key in fields} == fields
    assert not fields.keys() & asked[1].keys()


def test_an_answer_with_its_counts(ask: Ask) -> None:
    with served(chat()) as script, client(script.url) as backend:
        typed: Backend = backend
        assert (typed.context_length(), typed.info().takes_images) == (4096, True)
        answer = ask(backend)
    assert (answer.text, answer.finish_reason, answer.grammar_violation) == (CALL, "stop", None)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.cached_tokens) == (
        26,
        12,
        16,
    )


@pytest.mark.parametrize("reason", ["length", "content_filter", "abort", "tool_calls"])
def test_an_answer_that_did_not_end_by_itself_is_truncated(reason: str) -> None:
    with served(chat('{"name": "fi', reason)) as script, client(script.url) as backend:
        answer = backend.complete(Request(ASK, grammar=GBNF))
    assert (answer.finish_reason, answer.grammar_violation) == ("length", None)


@pytest.mark.parametrize("server", ["vllm", "sglang", "lm_studio"])
def test_a_server_that_ignored_the_field_is_found_out(server: ServerKind) -> None:
    with served(chat("Sure!"), chat(None)) as script, client(script.url, server) as backend:
        for _ in range(2):
            assert backend.complete(Request(ASK, grammar=GRAMMARS[server])).grammar_violation is not None


def test_reasoning_is_returned_separately() -> None:
    replies = [chat("b", reasoning_content="a"), chat("b", reasoning="a"), chat("<think>a</think>b")]
    with served(*replies) as script, client(script.url, "plain") as backend:
        for _ in replies:
            answer = backend.complete(Request(ASK, grammar=None))
            assert (answer.reasoning, answer.text) == ("a", "b")


def test_the_model_and_its_context() -> None:
    with served(chat(), listed=models("a", "b", *map(str, range(3000)))) as script:
        named = client(script.url, model="b", context_length=100)
        assert (named.complete(Request(ASK, grammar=None)).text, named.context_length()) == (CALL, 100)
        assert [path for path, _ in script.asked] == ["/v1/chat/completions"]
        with pytest.raises(BackendError, match="Set context_length"):
            client(script.url).context_length()
        with pytest.raises(BackendError, match="no model c"):
            client(script.url, model="c").context_length()
    for listed, problem in ((models(), "lists no model"), (Reply(200, {"data": 5}), "returned 5")):
        with served(listed=listed) as script, pytest.raises(BackendError, match=problem):
            client(script.url).complete(Request(ASK))


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (
            Reply(400, {"error": {"message": "This model's maximum context length is 4096 tokens. You …"}}),
            ContextOverflowError,
            "4096",
        ),
        (
            Reply(400, {"message": "The input (9 tokens) is longer than the model's context length (8)."}),
            ContextOverflowError,
            "context",
        ),
        (
            Reply(400, {"error": {"message": "Invalid grammar specification."}}),
            GrammarRefusedError,
            "Invalid",
        ),
        (Reply(422, {"detail": "response_format: no such type"}), GrammarRefusedError, "no such type"),
        (Reply(401, {"error": "Unauthorized"}), ServerResponseError, "401: Unauthorized"),
        (Reply(200, {"choices": []}), BackendError, "too early"),
        (Reply(200, {"choices": [{"message": {"content": 5}}]}), BackendError, "sent 5 instead"),
    ],
)
def test_errors(ask: Ask, reply: Reply, kind: type[Exception], said: str) -> None:
    with served(reply) as script, client(script.url) as backend, pytest.raises(kind, match=said):
        ask(backend)


PARTS = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    ("content", "usage", "counts"),
    [
        (PARTS, [1], (0, 0, 0)),
        ("ab", {"prompt_tokens": "many", "completion_tokens": 3, "prompt_tokens_details": [1]}, (0, 3, 0)),
        ("ab", {"prompt_tokens": 7.0, "prompt_tokens_details": {"cached_tokens": None}}, (7, 0, 0)),
    ],
)
def test_what_is_not_essential_may_be_odd(
    content: Any, usage: Any, counts: tuple[int, ...], ask: Ask
) -> None:
    choice = {"message": {"content": content}, "finish_reason": "stop"}
    with served(Reply(200, {"choices": [choice], "usage": usage})) as script, client(script.url) as backend:
        answer = ask(backend, grammar=None)
    assert answer.text == "ab"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.cached_tokens) == counts


@given(answer=odd(chat("a\ud83d", reasoning="\ude00").body))
def test_any_answer_is_parsed_or_a_backend_error(answer: Any) -> None:
    with client("http://127.0.0.1:9", model="m") as backend:
        try:
            read = backend._read(httpx.Response(200), told(ChatStream, answer), Request(()))
        except BackendError as error:
            str(error).encode()
        else:
            read.text.encode()
            read.reasoning.encode()
            assert min(read.usage.prompt_tokens, read.usage.completion_tokens, read.usage.cached_tokens) >= 0


TOOL_CALLS = [
    {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "\ud83d'}},
    {"index": 0, "id": "b", "function": {"name": "look", "arguments": {"at": "\ude00"}}},
]


@given(answer=odd(chat(None, "tool_calls", tool_calls=TOOL_CALLS).body))
def test_any_calls_are_parsed_or_a_backend_error(answer: Any) -> None:
    stream = ChatStream(ReasoningSplitter(lambda _: None), reads_calls=True)
    with suppress(BackendError):
        stream.feed(json.dumps(answer))
        stream.end()
        text = stream.calls_text()
        text.encode()
        with suppress(UnreadableCallError):
            ServerCalls().read(text, ())


def test_a_length_that_the_server_does_not_tell_is_asked_for_once() -> None:
    answers: dict[str, list[Any]] = {"v1/models": [Reply(200, {"data": [{"id": "m"}]})]}
    with scripted(**answers) as script:
        with OpenAICompatible(script.url, "plain") as client:
            for _ in range(3):
                assert asyncio.run(client.facts()) == (client.info(), None)
        assert len(script.asked) == 1


@given(listing=odd(models("m", "n", max_model_len=4096).body))
def test_any_list_of_models_is_parsed_or_a_backend_error(listing: Any) -> None:
    with client("http://127.0.0.1:9") as backend:
        session: Any = PlayedSession(httpx.Response(200, content=json.dumps(listing)))
        with suppress(BackendError):
            asyncio.run(backend._fetch_model(session))
        backend.name.encode()
        assert isinstance(backend._context_length, int | None)


def test_what_the_server_cannot_take_is_refused_before_anything_is_sent() -> None:
    with served(chat()) as script:
        with pytest.raises(GrammarRefusedError, match="call format text"):
            client(script.url, "plain", model="m").complete(Request(ASK, GBNF))
        with pytest.raises(GrammarRefusedError, match="not GBNF"):
            client(script.url, "lm_studio", model="m").complete(Request(ASK, GBNF))
        with pytest.raises(GrammarRefusedError, match="dict"):
            client(script.url, "vllm", model="m").complete(Request(ASK, SCHEMA))
        assert script.asked == []
    with pytest.raises(ValueError, match="lm_studio"):
        OpenAICompatible("http://127.0.0.1:1", "other")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(BackendUnreachableError, match="no vllm answers"):
        client("http://127.0.0.1:9").complete(Request(ASK))


# In the planner.

TOOL = Tool("look", args={"type": "object", "properties": {"at": {"type": "string"}}})


@pytest.mark.parametrize("streams", [False, True])
def test_half_a_surrogate_pair_is_refused_and_ends_no_run(streams: bool, tmp_path: Path) -> None:
    broken = '{"name": "look", "arguments": {"at": "a\ud83d"}}'
    with served(chat(broken), chat("\ude00 hm"), chat()) as script, client(script.url) as backend:
        planner = Planner([TOOL], backend, context=world(tmp_path))
        events = list(planner.stream("look", text=streams))
        said = [message["content"] for _, body in script.asked if body for message in body["messages"]]
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    assert finished.run.outcome == "answered"
    assert [step.refusal for step in finished.run.steps] == ["unparsed", "unparsed", None]
    assert not any(isinstance(event, ToolCalled) for event in events)
    assert sum("surrogate pair" in str(text) for text in said) == 1 + 2
    pieces = "".join(event.text for event in events if isinstance(event, TextWritten))
    assert "\ufffd" not in pieces


# The real llama-server, which takes LM Studio's `response_format` too.


@pytest.fixture(scope="module")
def real(llama_server: LlamaServerProcess) -> str:
    return llama_server.url


def test_a_real_server_keeps_to_the_schema(real: str, ask: Ask) -> None:
    """The model says nonsense, so only the schema can have made calls of it."""
    pool = [
        Tool("count", args={"type": "object", "required": ["to"], "properties": {"to": {"enum": [1, 2]}}}),
        Tool("look", args={"type": "object", "properties": {"deep": {"type": "boolean"}}}),
    ]
    schema = call_schema(pool)
    with client(real, "lm_studio", context_length=512) as backend:
        for seed in range(4):
            answer = ask(backend, grammar=schema, max_tokens=200, temperature=1.5, seed=seed)
            assert (answer.finish_reason, answer.grammar_violation) == ("stop", None)
            assert answer.usage.prompt_tokens > 0
        cut = ask(backend, grammar=schema, max_tokens=3)
        assert (cut.finish_reason, cut.usage.completion_tokens) == ("length", 3)


def test_a_real_server_that_is_asked_for_too_much(real: str) -> None:
    long: list[Message] = [{"role": "user", "content": "hello " * 2000}]
    with client(real, "plain") as backend:
        with pytest.raises(ContextOverflowError):
            backend.complete(Request(long, grammar=None))
        assert backend.complete(Request(ASK, grammar=None, max_tokens=4)).finish_reason == "length"
