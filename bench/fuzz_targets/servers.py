"""Answers of servers over HTTP, in each wire format, whole and streamed."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import Target
from gbnf.errors import GbnfError
from gbnf.manifests import Executor
from gbnf_server.backends.base import Backend
from gbnf_server.backends.exchange import Patience
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.executors import Context, ScriptedPerson, Workspace
from gbnf_server.planner import Planner, Run
from support.wires import JSON, odd

_CALL = '{"name": "ping", "arguments": {"word": "a"}}'
_ANSWER = '{"name": "final_answer", "arguments": {"message": "done"}}'
_TEXTS_SAID = st.sampled_from(
    [_ANSWER, _ANSWER, _CALL[:-1], "Hello.", "", "<think>a</think>", "\ud83d", "\0"]
)
_TIMINGS = {"cache_n": 2, "prompt_ms": 5.0, "predicted_ms": 7.0}
_STOP = {"stop": True, "stop_type": "eos", "tokens_evaluated": 9, "tokens_predicted": 3, "timings": _TIMINGS}
_USAGE = {"prompt_tokens": 9, "completion_tokens": 3}
_WIRES = ["llama_server", "ollama", "vllm", "vllm_old", "sglang", "lm_studio", "plain"]


def _body(wire: str, said: str) -> dict[str, Any]:
    """A whole answer, as a server sends it without a stream."""
    if wire == "llama_server":
        return {"content": said, **_STOP}
    message = {"role": "assistant", "content": said}
    if wire == "ollama":
        counts = {"prompt_eval_count": 9, "eval_count": 3, "eval_duration": 10**9}
        return {"message": message, "done": True, "done_reason": "stop", **counts}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": _USAGE}


def _pieces(wire: str, said: str) -> list[Any]:
    """The objects of a streamed answer."""
    half = len(said) // 2
    parts = [said[:half], said[half:]]
    if wire == "llama_server":
        return [*({"content": part, "stop": False} for part in parts), {"content": "", **_STOP}]
    if wire == "ollama":
        last = {"message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 3}
        return [*({"message": {"content": part}, "done": False} for part in parts), last]
    deltas = [{"choices": [{"delta": {"content": part}, "finish_reason": None}]} for part in parts]
    return [*deltas, {"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": _USAGE}]


@st.composite
def _replies(draw: st.DrawFn, wire: str, good: Any, *, stream: bool = False) -> dict[str, Any]:
    """One HTTP response: status, headers, body, and how long it says to be. At most two of them are odd."""
    odds = draw(st.lists(st.sampled_from(["status", "headers", "length", "body", "bytes"]), max_size=2))
    value, statuses = good, [200]
    if "body" in odds:
        value = draw(odd(good) | JSON)
    if "status" in odds:
        statuses = [200, 204, 206, 301, 400, 401, 404, 413, 429, 500, 503, 599, 999]
        said = draw(st.sampled_from(["context size exceeded", "grammar", "no such model", ""]) | st.text())
        value = draw(st.sampled_from([value, {"error": {"message": said}}, {"error": said}, {"error": 5}]))
    if stream and isinstance(value, list):
        start, end = (b"", b"\n") if wire == "ollama" else (b"data: ", b"\n\n")
        events = [start + json.dumps(each).encode() + end for each in value]
        body = b"".join(events) + (b"" if wire == "ollama" else b"data: [DONE]\n\n")
    else:
        body = json.dumps(value).encode()
    if "bytes" in odds:
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(body)))
            body = body[:at] + draw(st.binary(max_size=4)) + body[at + draw(st.integers(0, 30)) :]
    lengths = [0, -1, 1, 10**6, "chunked", "broken chunks"]
    return {
        "status": draw(st.sampled_from(statuses)),
        "headers": draw(st.lists(_HEADERS, max_size=2)) if "headers" in odds else [],
        "body": body,
        "length": draw(st.sampled_from(lengths)) if "length" in odds else None,
    }


_HEADERS = st.sampled_from(
    [
        b"Retry-After: 1", b"Retry-After: " + b"9" * 400, b"Retry-After: -1", b"Retry-After: \xff",
        b"Retry-After: Sat, 01 Jan " + b"9" * 20 + b" 00:00:00 GMT", b"Retry-After: x, 1 y 2 z",
        b"Content-Type: text/event-stream", b"Content-Type: application/json; charset=undefined",
        b"Content-Type: text/html; charset=zlib_codec", b"Content-Type: text/plain; charset=punycode",
        b"Content-Type: text/plain; charset=utf-7", b"Content-Type: a; charset=\xff",
        b"Content-Encoding: gzip",
        b"Content-Encoding: deflate", b"Content-Encoding: identity, x", b"Set-Cookie: a=\xe9; Path=/",
        b"Set-Cookie: =", b"Location: /", b"Location: http://[", b"Connection: upgrade",
        b"X: " + b"a" * 70_000,
        b"Content-Encoding: br", b"Content-Encoding: zstd", b"no colon", b"",
    ]
) | st.binary(max_size=12)  # fmt: skip


@st.composite
def _server_cases(draw: st.DrawFn) -> dict[str, Any]:
    wire, stream = draw(st.sampled_from(_WIRES)), draw(st.booleans())
    said = draw(_TEXTS_SAID)
    good = _pieces(wire, said) if stream else _body(wire, said)
    answers = draw(st.lists(_replies(wire, good, stream=stream), min_size=1, max_size=3))
    others: dict[str, Any] = {}
    if wire == "llama_server" and draw(st.integers(0, 3)) == 0:
        others = draw(
            st.fixed_dictionaries(
                {}, optional={path: _replies(wire, _FACTS[path]) for path in ("/props", "/apply-template")}
            )
        )
    elif wire not in {"llama_server", "ollama"} and draw(st.integers(0, 3)) == 0:
        others = {"/v1/models": draw(_replies(wire, _FACTS["/v1/models"]))}
    grammar, driver = draw(st.booleans()), draw(st.sampled_from(["sync", "async"]))
    return {
        "wire": wire,
        "stream": stream,
        "driver": driver,
        "grammar": grammar,
        "answers": answers,
        "others": others,
    }


_FACTS: dict[str, Any] = {
    "/props": {"default_generation_settings": {"n_ctx": 4096}, "chat_template": "", "model_alias": "m"},
    "/apply-template": {"prompt": "system user tool"},
    "/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]},
}


def check_server(case: Mapping[str, Any]) -> str:
    """Whatever a server sends, a run ends with an outcome, and its record is JSON of whole characters."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(_serving(case["answers"], case["others"]))
        try:
            backend: Any = stack.enter_context(_backend(case["wire"], url))
            planner = Planner(
                [_PING],
                backend,
                context=Context(Workspace(folder), ScriptedPerson(), turn="t", settings={}, tool="t"),
                max_steps=2,
                max_blocked=2,
                max_tokens=32,
                grammar=case["grammar"],
            )
        except GbnfError:
            return "no planner"
        run = _run(planner, case)
    assert run.outcome in ("answered", "salvaged", "blocked", "exhausted", "failed"), run.outcome
    json.dumps(run.to_json(), ensure_ascii=False).encode()
    return run.outcome


_PING = Executor(
    "ping",
    descriptions={"en": "Ping."},
    args={"type": "object", "properties": {"word": {"const": "never drawn"}}, "required": ["word"]},
)


def _run(planner: Planner, case: Mapping[str, Any]) -> Run:
    if case["driver"] == "sync" and not case["stream"]:
        return planner.run("ping")
    if case["driver"] == "async" and not case["stream"]:
        return asyncio.run(planner.arun("ping"))

    async def last() -> Any:
        return [event async for event in planner.stream("ping")][-1]

    event: Any = (
        asyncio.run(last()) if case["driver"] == "async" else [*planner.events("ping", text=True)][-1]
    )
    run: Run = event.run
    return run


def _backend(wire: str, url: str) -> Backend:
    hasty = Patience(timeout=2.0, connect_timeout=2.0, retries=1, backoff=0.001, loading=0.01)
    if wire == "llama_server":
        return LlamaServer(url, timeout=2.0, connect_timeout=2.0, retries=1, backoff=0.001, patience=0.01)
    if wire == "ollama":
        return Ollama("m", url, patience=hasty)
    return OpenAICompatible(url, wire, patience=hasty)  # type: ignore[arg-type]  # the others are its servers


@contextmanager
def _serving(answers: list[Any], others: Mapping[str, Any]) -> Iterator[str]:
    """Serve on loopback, one connection for each request: the answers in turn, the last one for ever."""
    listening = socket.create_server(("127.0.0.1", 0))
    turns = iter([*answers[:-1], *itertools.repeat(answers[-1], 50)])

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(2)
                path = _asked(connection)
                if path in _FACTS:
                    good = {"status": 200, "headers": [], "body": json.dumps(_FACTS[path]).encode()}
                    reply = others.get(path, {**good, "length": None})
                else:
                    reply = next(turns, answers[-1])
                connection.sendall(_raw(reply))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _asked(connection: socket.socket) -> str:
    """The path of a request, all of which is read."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536) or b"\r\n\r\n"
    head, _, body = got.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    left = int(found[1]) - len(body) if found else 0
    while left > 0:
        left -= len(connection.recv(65536)) or left
    return head.split(b" ")[1].decode() if head.count(b" ") else ""


def _raw(reply: Mapping[str, Any]) -> bytes:
    body, length = reply["body"], reply["length"]
    headers = [b"HTTP/1.1 %d OK" % reply["status"], *reply["headers"], b"Connection: close"]
    if length in {"chunked", "broken chunks"}:
        headers.append(b"Transfer-Encoding: chunked")
        size = len(body) + (length != "chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body)
    else:
        headers.append(b"Content-Length: %d" % (len(body) if length is None else len(body) + length))
    return b"\r\n".join([*headers, b"", body])


SERVER = Target("server", _server_cases(), check_server)
