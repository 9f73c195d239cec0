"""Answers of servers over HTTP, in each wire format, whole and streamed."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import Target
from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf_server.backends.base import Backend
from gbnf_server.backends.http_client import RetryPolicy
from gbnf_server.backends.openai_compatible import OpenAICompatible, ServerKind
from gbnf_server.planner import Planner, PlannerOptions
from support.executors import world
from support.hostile_server import WAYS, WIRES, Mode, Peer, Wire, hostile, planned
from support.wires import JSON, odd

_CALL = '{"name": "ping", "arguments": {"word": "a"}}'
ANSWER = '{"name": "final_answer", "arguments": {"message": "done"}}'
_TEXTS_SAID = st.sampled_from([ANSWER, ANSWER, _CALL[:-1], "Hello.", "", "<think>a</think>", "\ud83d", "\0"])
_FACTS: dict[str, Any] = {
    "/props": {"default_generation_settings": {"n_ctx": 4096}, "chat_template": "", "model_alias": "m"},
    "/apply-template": {"prompt": "system user tool"},
    "/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]},
}


def _chat_client(server: ServerKind, url: str, retry_policy: RetryPolicy) -> Backend:
    return OpenAICompatible(url, server, retry_policy=retry_policy)


_CHAT_SERVERS: list[ServerKind] = ["vllm", "sglang", "lm_studio", "plain"]
SERVED: dict[str, Wire] = {
    "llama-server": WIRES["llama-server"],
    "ollama": WIRES["ollama"],
    **{name: replace(WIRES["chat"], client=partial(_chat_client, name)) for name in _CHAT_SERVERS},
}


@st.composite
def _replies(draw: st.DrawFn, wire: Wire, good: Any) -> dict[str, Any]:
    """One HTTP response: status, headers, body, and how long it says to be. At most two of them are odd.

    `good` is the value of a good answer, a list for the events of a streamed one.
    """
    odds = draw(st.lists(st.sampled_from(["status", "headers", "length", "body", "bytes"]), max_size=2))
    value, statuses = good, [200]
    if "body" in odds:
        value = draw(odd(good) | JSON)
    if "status" in odds:
        statuses = [200, 204, 206, 301, 400, 401, 404, 413, 429, 500, 503, 599, 999]
        error = draw(st.sampled_from(["context size exceeded", "grammar", "no such model", ""]) | st.text())
        value = draw(st.sampled_from([value, {"error": {"message": error}}, {"error": error}, {"error": 5}]))
    if isinstance(good, list) and isinstance(value, list):
        body = ("".join(map(wire.framed, value)) + wire.tail).encode()
    else:
        body = json.dumps(value).encode()
    if "bytes" in odds:
        for _ in range(draw(st.integers(1, 3))):
            position = draw(st.integers(0, len(body)))
            body = body[:position] + draw(st.binary(max_size=4)) + body[position + draw(st.integers(0, 30)) :]
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
        b"Content-Encoding: gzip", b"Content-Encoding: deflate", b"Content-Encoding: identity, x",
        b"Set-Cookie: a=\xe9; Path=/", b"Set-Cookie: =", b"Location: /", b"Location: http://[",
        b"Connection: upgrade", b"X: " + b"a" * 70_000, b"Content-Encoding: br",
        b"Content-Encoding: zstd", b"no colon", b"",
    ]
) | st.binary(max_size=12)  # fmt: skip


@st.composite
def _server_cases(draw: st.DrawFn) -> dict[str, Any]:
    name, way = draw(st.sampled_from(list(SERVED))), draw(st.sampled_from(WAYS))
    wire, text = SERVED[name], draw(_TEXTS_SAID)
    half = len(text) // 2
    good = wire.events([text[:half], text[half:]]) if way in ("events", "stream") else wire.whole(text)
    answers = draw(st.lists(_replies(wire, good), min_size=1, max_size=3))
    others: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        optional = {path: _replies(wire, _FACTS[path]) for path in wire.others}
        others = draw(st.fixed_dictionaries({}, optional=optional))
    return {
        "wire": name,
        "way": way,
        "grammar": draw(st.booleans()),
        "answers": answers,
        "others": others,
    }


_HASTY = RetryPolicy(timeout=2.0, connect_timeout=2.0, retries=1, backoff=0.001, loading_timeout=0.01)
_PING = Tool(
    "ping",
    descriptions={"en": "Ping."},
    args={"type": "object", "properties": {"word": {"const": "never drawn"}}, "required": ["word"]},
)


def check_server(case: Mapping[str, Any]) -> str:
    """Whatever a server sends, a run ends with an outcome, and its record is JSON of whole characters."""
    wire = SERVED[case["wire"]]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(hostile(_mode(case["answers"], case["others"]), wire))
        try:
            backend = stack.enter_context(wire.client(server.url, _HASTY))
            planner = Planner(
                [_PING],
                backend,
                PlannerOptions(
                    max_steps=2,
                    max_blocked=2,
                    max_tokens=32,
                    call_format="json" if case["grammar"] else "text",
                ),
                context=world(folder),
            )
        except GbnfError:
            return "no planner"
        run = planned(planner, "ping", case["way"])
    assert run.outcome in ("answered", "salvaged", "blocked", "exhausted", "failed"), run.outcome
    json.dumps(run.to_json(), ensure_ascii=False).encode()
    return run.outcome


def _mode(answers: list[Any], others: Mapping[str, Any]) -> Mode:
    """One connection for each request: the answers in turn, the last one for ever."""
    turns = iter(answers)

    def act(peer: Peer) -> None:
        if peer.path == peer.server.wire.path:
            peer.send(_raw(next(turns, answers[-1])))
        elif peer.path in others:
            peer.send(_raw(others[peer.path]))
        else:
            peer.answer(peer.good(), "Connection: close")
        peer.connection.shutdown(socket.SHUT_WR)

    return Mode("fuzzed", act, everywhere=True)


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
