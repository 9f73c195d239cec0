"""Answers in pieces: together they are the answer, whatever wire and server they come by."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool
from gbnf.dialects import call_schema
from gbnf.prompts.messages import Message
from gbnf.protocols.protocol import AnswerFormat
from gbnf.tools import FINAL_ANSWER
from gbnf_server.backends.answer import Answered, AnswerPiece, Asked, answer
from gbnf_server.backends.base import Backend, Completion, Request
from gbnf_server.backends.http_backend import ChatStream, CompletionStream, EventStream, OllamaStream
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible, ServerKind
from gbnf_server.backends.reasoning import (
    KNOWN_REASONING_TAGS,
    ReasoningSplitter,
    reasoning_grammar,
    reasoning_message,
)
from gbnf_server.backends.wire import LineDecoder, join_surrogates, read_object
from gbnf_server.llama import server_build as build
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.system.errors import (
    BackendError,
    BackendUnreachableError,
    MalformedTextError,
    ServerResponseError,
)
from gbnf_server.system.event_loop import shared_loop
from support.backends import CALL, QUICK
from support.models import TEMPLATE, make_model
from support.server import Reply, Script, completion, require_llama_server, scripted
from support.wires import ANY_TEXT, BROKEN, SIZES, cut, odd

ASK: list[Message] = [{"role": "user", "content": "hello"}]
GBNF = compile_pool([FINAL_ANSWER])
SCHEMA = call_schema([FINAL_ANSWER])


def ask(backend: Backend, **options: Any) -> tuple[Completion, list[str]]:
    """Return the answer, and the pieces that came."""
    *found, end = shared_loop().iterate(answer(backend, Asked(Request(ASK, **options))))
    assert isinstance(end, Answered)
    return end.completion, [piece.text for piece in found if isinstance(piece, AnswerPiece) and piece.text]


# The wires.


def dumps(value: Any) -> str:
    """JSON as servers write it: of what is no ASCII, only lone halves of surrogate pairs are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def sse(*events: Any, done: bool = True) -> Reply:
    lines = [f"data: {dumps(event)}\n\n" for event in events]
    return Reply(200, "".join(lines) + ("data: [DONE]\n\n" if done else ""))


def llama_events(*pieces: str, **last: Any) -> Reply:
    """`/completion` with `stream`, as llama-server's README gives it: the last object has no content."""
    final = completion("", **last).body
    parts = [{"content": piece, "tokens": [1], "stop": False, "index": 0} for piece in pieces]
    return sse(*parts, {**final, "stop": True}, done=False)


def chat_events(*pieces: str, finish: str = "stop", key: str = "content") -> Reply:
    """`chat.completion.chunk` objects as OpenAI's reference gives them, the usage in the last."""

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {"id": "1", "object": "chat.completion.chunk", "choices": [choice], "usage": None}

    usage = {"prompt_tokens": 26, "completion_tokens": 12, "total_tokens": 38}
    return sse(
        chunk({"role": "assistant", "content": ""}),
        *(chunk({key: piece}) for piece in pieces),
        chunk({}, finish),
        {"id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage},
    )


def ollama_events(*pieces: str, **last: Any) -> Reply:
    """`/api/chat` with `stream`, as Ollama's openapi.yaml gives it: one object a line."""
    parts = [
        {"model": "m", "message": {"role": "assistant", "content": piece}, "done": False} for piece in pieces
    ]
    end = {
        "model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop",
        "prompt_eval_count": 26, "prompt_eval_duration": 5_000_000, "eval_count": 12,
        "eval_duration": 3_000_000, **last,
    }  # fmt: skip
    return Reply(200, "".join(dumps(each) + "\n" for each in [*parts, end]))


def at(path: str, reply: Any) -> Any:
    models = Reply(200, {"data": [{"id": "m", "max_model_len": 4096}]})
    answers: dict[str, list[Any]] = {path: [reply], "v1/models": [models]}
    return scripted(**answers)


def llama(script: Script) -> LlamaServer:
    return LlamaServer(script.url, retry_policy=QUICK)


def vllm(script: Script) -> OpenAICompatible:
    return OpenAICompatible(script.url, "vllm", retry_policy=QUICK)


def ollama(script: Script) -> Ollama:
    return Ollama("m", script.url, retry_policy=QUICK)


@dataclass(frozen=True)
class Wire:
    """A server, and a backend of it."""

    make: Callable[[Script], Any]
    path: str
    events: Callable[..., Reply]
    grammar: AnswerFormat

    @contextmanager
    def serve(self, reply: Reply) -> Iterator[Any]:
        with at(self.path, reply) as script, self.make(script) as backend:
            yield backend


WIRES = {
    "llama-server": Wire(llama, "completion", llama_events, GBNF),
    "chat": Wire(vllm, "v1/chat/completions", chat_events, GBNF),
    "ollama": Wire(ollama, "api/chat", ollama_events, SCHEMA),
}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


PIECES = [CALL[:3], CALL[3:20], CALL[20:]]


def test_each_piece_comes_and_the_whole_is_read_as_ever(wire: Wire) -> None:
    with at(wire.path, wire.events(*PIECES)) as script, wire.make(script) as backend:
        answer, pieces = ask(backend, grammar=wire.grammar)
        asked = script.asked[-1][1]
    assert pieces == PIECES
    assert (answer.text, answer.finish_reason, answer.grammar_violation) == (CALL, "stop", None)
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.completion_tokens > 0
    assert asked["stream"] is True


def test_unconstrained_text_is_streamed_without_its_reasoning(wire: Wire) -> None:
    with wire.serve(wire.events("<th", "ink>so", "</think>", "\n\nthen", " more")) as backend:
        answer, pieces = ask(backend, grammar=None)
    assert (answer.reasoning, answer.text, pieces) == ("so", "then more", ["then", " more"])


@pytest.mark.parametrize("body", ["data: {\n\n", "data: x", "<html>"])
def test_what_is_no_event_is_an_error(wire: Wire, body: str) -> None:
    with wire.serve(Reply(200, body)) as backend, pytest.raises(BackendError) as raised:
        ask(backend, grammar=wire.grammar)
    assert not raised.value.is_retryable


READERS: list[Any] = [
    pytest.param(CompletionStream, llama_events, id="llama-server"),
    pytest.param(ChatStream, chat_events, id="chat"),
    pytest.param(OllamaStream, ollama_events, id="ollama"),
]


@pytest.mark.parametrize(("reader", "events"), READERS)
@given(data=st.data())
def test_an_answer_that_is_cut_has_no_end_wherever_that_is(reader: Any, events: Any, data: Any) -> None:
    """A server that is stopped ends its response in order: the request may be sent again."""
    body = str(events(*PIECES).body)
    # what comes after the reason for the end tells counts only
    end = body.rfind("{", 0, body.rfind('"stop"')) if events is not chat_events else body.rfind('{"index')
    lines = constrained(reader, [])
    for line in body[: data.draw(st.integers(0, end))].split("\n"):
        lines.feed(line)

    def read_end() -> None:
        lines.end()
        read_object(httpx.Response(200), lines.last)

    with pytest.raises(BackendUnreachableError):
        read_end()


def ended(lines: EventStream) -> str:
    """End the parser, and return the text of the answer."""
    lines.end()
    return "".join(lines._texts["content"])


def constrained(reader: type[EventStream], said: list[str], most: int | None = None) -> EventStream:
    """A parser of an answer with a grammar, whose pieces go into a list."""
    return reader(ReasoningSplitter(lambda piece: said.append(piece.text), constrained=True), most)


@pytest.mark.parametrize(("reader", "events"), READERS)
@given(pieces=st.lists(BROKEN | ANY_TEXT), sizes=SIZES, end=st.sampled_from(["\n", "\r\n"]))
def test_text_arrives_complete_whatever_it_contains_and_however_its_bytes_are_split(
    reader: Any, events: Any, pieces: list[str], sizes: list[int], end: str
) -> None:
    said: list[str] = []
    lines = constrained(reader, said)
    decoder = LineDecoder()

    def read() -> str:
        for chunk in cut(str(events(*pieces).body).replace("\n", end).encode(), sizes):
            for line in decoder.feed(chunk):
                lines.feed(line)
        for line in decoder.end():
            lines.feed(line)
        return ended(lines)

    try:
        expected = join_surrogates("".join(pieces))
    except MalformedTextError:
        with pytest.raises(MalformedTextError):
            read()
        "".join(said).encode()
    else:
        assert read() == "".join(said) == expected


def whole_of(events: Any, text: str) -> Any:
    """The answer of the same server to a request for no stream."""
    if events is chat_events:
        message = {"role": "assistant", "content": text}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}
    if events is llama_events:
        return {**completion(text).body, "stop": True}
    return json.loads(str(ollama_events(message={"role": "assistant", "content": text}).body))


@pytest.mark.parametrize("form", ["data: {}\n\n", "{}", "{}\n", "\ufeff{}", "lines"])
def test_a_response_that_is_not_streamed_is_accepted(wire: Wire, form: str) -> None:
    whole = whole_of(wire.events, CALL)
    body = json.dumps(whole, indent=2) if form == "lines" else form.replace("{}", json.dumps(whole))
    with wire.serve(Reply(200, body)) as backend:
        answer, pieces = ask(backend, grammar=wire.grammar)
    assert (answer.text, pieces, answer.finish_reason, answer.grammar_violation) == (
        CALL,
        [CALL],
        "stop",
        None,
    )


def test_a_whole_message_after_its_pieces_is_not_repeated() -> None:
    said: list[str] = []
    lines = constrained(ChatStream, said)
    stream = [*str(chat_events(*PIECES).body).split("\n"), dumps(whole_of(chat_events, CALL))]
    for line in stream:
        lines.feed(line)
    assert ended(lines) == "".join(said) == CALL


@pytest.mark.parametrize(("reader", "events"), READERS)
@pytest.mark.parametrize("noise", ["", " \r", ": a comment", "event: message", "id: 1", "retry: 9", "data:"])
def test_lines_without_data_say_nothing(reader: Any, events: Any, noise: str) -> None:
    said: list[str] = []
    lines = constrained(reader, said)
    for line in str(events(*PIECES).body).split("\n"):
        lines.feed(line)
        lines.feed(noise)
    assert ended(lines) == "".join(said) == CALL


@pytest.mark.parametrize(
    "line",
    ['data: {"content": "b', "data: [1]", "<html>", 'error: {"code": 500}'],
)
def test_a_line_that_cannot_be_read_is_an_error(wire: Wire, line: str) -> None:
    first, rest = str(wire.events(*PIECES).body).split("\n", 1)
    reply = Reply(200, f"{first}\n{line}\n{rest}")
    with wire.serve(reply) as backend, pytest.raises(BackendError, match="not a JSON object"):
        ask(backend, grammar=None)


@pytest.mark.parametrize("depth", [99, 100])
def test_an_event_of_any_depth_is_parsed_or_a_backend_error(wire: Wire, depth: int) -> None:
    body = wire.events(CALL).body.rstrip()
    end = body.rindex("}")
    body = f'{body[:end]}, "usage": {"[" * depth}{"]" * depth}{body[end:]}\n'
    with wire.serve(Reply(200, body)) as backend:
        if depth == 100:
            with pytest.raises(BackendError, match="not a JSON object"):
                ask(backend, grammar=wire.grammar)
        else:
            assert ask(backend, grammar=wire.grammar)[0].text == CALL


@pytest.mark.parametrize(("reader", "events"), READERS)
@given(data=st.data())
def test_any_event_is_parsed_or_a_backend_error(reader: Any, events: Any, data: st.DataObject) -> None:
    said: list[str] = []
    lines = constrained(reader, said)
    body = str(events(CALL).body)
    try:
        for line in data.draw(st.sampled_from([body, dumps(whole_of(events, CALL))])).split("\n"):
            prefix, brace, rest = line.partition("{")
            lines.feed(prefix + json.dumps(data.draw(odd(json.loads(brace + rest)))) if brace else line)
        text = ended(lines)
    except BackendError:
        return
    "".join(said).encode()
    assert text == "".join(said)


@pytest.mark.parametrize(("reader", "events"), READERS)
def test_the_connection_is_closed_if_a_server_continues_after_the_last_token(
    reader: Any, events: Any
) -> None:
    """A piece is a token or a part of one, so that many short pieces are no more than few tokens."""
    said: list[str] = []

    def read(pieces: list[str]) -> str:
        said.clear()
        lines = constrained(reader, said, 10)
        for line in str(events(*pieces).body).split("\n"):
            lines.feed(line)
        return ended(lines)

    with pytest.raises(BackendError, match="after 10 tokens"):
        read(["word "] * 1000)
    assert len("".join(said)) <= 10 * 16
    for pieces in (["a"] * 100, ["a" * 300] * 10):
        assert read(pieces) == "".join(said) == "".join(pieces)


def test_the_backend_says_how_many_tokens_there_may_be(wire: Wire) -> None:
    with (
        wire.serve(wire.events(*["word "] * 1000)) as backend,
        pytest.raises(BackendError, match="after 10 tokens"),
    ):
        ask(backend, grammar=None, max_tokens=10)


DEAD = {"error": {"code": 500, "message": "dead end"}}


@pytest.mark.parametrize(
    ("server", "error"),
    [
        ("llama-server", sse({"content": "{", "stop": False}, DEAD)),
        ("chat", sse(DEAD)),
        ("ollama", Reply(200, '{"error": "dead end"}\n')),
        ("llama-server", Reply(500, DEAD)),
    ],
)
def test_errors_in_a_stream_are_the_servers_words(server: str, error: Reply) -> None:
    wire = WIRES[server]
    with wire.serve(error) as backend, pytest.raises(ServerResponseError, match="dead end"):
        ask(backend, grammar=wire.grammar)


def test_a_connection_that_breaks_before_the_first_piece_is_tried_again() -> None:
    turns: list[Any] = [lambda: None, llama_events(*PIECES)]
    with scripted(completion=turns) as script, llama(script) as backend:
        assert ask(backend, grammar=GBNF)[1] == PIECES
    with (
        scripted(completion=[lambda: None]) as script,
        llama(script) as backend,
        pytest.raises(BackendUnreachableError),
    ):
        ask(backend, grammar=GBNF)


# The answer within the reasoning.


@pytest.mark.parametrize("wire", [WIRES["chat"], WIRES["ollama"]], ids=["chat", "ollama"])
def test_an_answer_that_the_server_took_for_reasoning_is_recovered(wire: Wire) -> None:
    if wire.events is chat_events:
        stream = chat_events(*PIECES, key="reasoning_content")
        choice = {"message": {"content": None, "reasoning_content": CALL}, "finish_reason": "stop"}
        whole = Reply(200, {"choices": [choice]})
    else:
        stream = ollama_events(message={"role": "assistant", "content": "", "thinking": CALL})
        whole = Reply(200, json.loads(str(stream.body)))
    for reply in (stream, whole):
        with wire.serve(reply) as backend:
            answer, pieces = ask(backend, grammar=wire.grammar) if reply is stream else (None, [CALL])
            answer = answer or backend.complete(Request(ASK, grammar=wire.grammar))
        assert (answer.text, answer.reclaimed, answer.grammar_violation) == (CALL, True, None)
        assert "".join(pieces) == CALL


def test_reasoning_outside_the_grammar_is_no_answer() -> None:
    stream = chat_events("I wonder", key="reasoning_content")
    with at("v1/chat/completions", stream) as script, vllm(script) as backend:
        answer, pieces = ask(backend, grammar=GBNF)
    assert (answer.text, answer.reasoning, answer.reclaimed, pieces) == ("", "I wonder", False, [])
    assert answer.grammar_violation is not None


# The real server.


@pytest.mark.parametrize(("server", "grammar"), [("plain", None), ("lm_studio", SCHEMA)])
def test_a_real_chat_server_streams_what_it_answers(
    llama_server: LlamaServerProcess, server: ServerKind, grammar: AnswerFormat | None
) -> None:
    with OpenAICompatible(llama_server.url, server, context_length=512) as backend:
        answer, pieces = ask(backend, grammar=grammar, max_tokens=12)
    assert "".join(pieces) == answer.text
    assert len(pieces) > 1
    assert answer.usage.completion_tokens <= 12
    assert answer.usage.prompt_tokens > 0


def test_a_real_server_continues_reasoning_that_was_begun(tmp_path: Any) -> None:
    require_llama_server()
    template = TEMPLATE + "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    path = make_model(tmp_path / "m.gguf", template=template)
    with (
        build.start(path, threads=1) as running,
        LlamaServer(running.url) as there,
        InProcess(path, threads=1) as here,
    ):
        assert (
            there.info().traits.reasoning_tags == here.info().traits.reasoning_tags == KNOWN_REASONING_TAGS[0]
        )
        for begin in (reasoning_message(""), reasoning_message("so", closed=True)):
            asked: list[Message] = [*ASK, begin]
            grammar = Grammar.parse('root ::= "{" [a-z]{1,9} "}"')
            answers = [
                each.complete(Request(asked, grammar=grammar, max_tokens=20)) for each in (here, there)
            ]
            assert answers[0].usage.prompt_tokens == answers[1].usage.prompt_tokens
            assert answers[0].text == answers[1].text
        free = there.complete(Request(ASK, grammar=None, max_tokens=3))
        assert free.usage.completion_tokens <= 3
        thought = there.complete(
            Request([*ASK, reasoning_message("")], grammar=reasoning_grammar("</think>"), max_tokens=9)
        )
        assert thought.usage.completion_tokens <= 9


@pytest.mark.slow
def test_text_that_repeats_without_an_end_is_truncated(wire: Wire) -> None:
    """The rest of the answer is not read."""
    begin = '{"name": "final_answer", "arguments": {"message": "'
    text = begin + "github." * 20_000
    with wire.serve(wire.events(*cut(text, [7]))) as backend:
        answer, pieces = ask(backend, grammar=wire.grammar, max_tokens=100_000)
    assert "".join(pieces) == answer.text
    assert text.startswith(answer.text)
    assert 512 < len(answer.text) < len(text) / 2
    assert (answer.finish_reason, answer.grammar_violation) == ("length", None)
    assert (answer.shortened_at, len(answer.repeated)) == (len(answer.text), len("github."))
    assert answer.usage.completion_tokens > 0 or wire.make is vllm  # the usage comes with the end


def test_a_counter_without_an_end_is_truncated(wire: Wire) -> None:
    text = "".join(f"abs(-{each}) == {each}, " for each in range(5000))
    with wire.serve(wire.events(*cut(text, [4]))) as backend:
        answer, _ = ask(backend, grammar=None, max_tokens=100_000)
    assert text.startswith(answer.text)
    assert 2560 < len(answer.text) < 5000
    assert answer.finish_reason == "length"
    assert re.sub(r"\d+", "0", answer.repeated) in "abs(-0) == 0, " * 2


def test_reasoning_that_repeats_without_an_end_is_truncated() -> None:
    pieces = ["so I look again. "] * 1000
    with at("v1/chat/completions", chat_events(*pieces, key="reasoning_content")) as script:
        answer, _ = ask(vllm(script), grammar=None, max_tokens=100_000)
    assert (answer.text, answer.finish_reason) == ("", "length")
    assert 512 <= len(answer.reasoning) < 600
    assert answer.repeated in pieces[0] * 2


def test_text_that_ends_may_repeat(wire: Wire) -> None:
    text = "github." * 100
    with wire.serve(wire.events(text)) as backend:
        answer, _ = ask(backend, grammar=None)
    assert (answer.text, answer.finish_reason, answer.repeated) == (text, "stop", "")
