"""Requests to a server: one deadline, a most of received bytes, and connections that are kept."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler
from time import sleep
from typing import Any

import httpcore
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.backends import http_client
from gbnf_server.backends.base import Request
from gbnf_server.backends.http_client import HttpClient, RetryPolicy, proxy_of
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.system.errors import BackendError, BackendUnreachableError
from support.backends import acomplete
from support.effort import scaled
from support.server import serving

_HEAD = b"HTTP/1.1 200 OK\r\n"
_PART = 1 << 16
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


def receive(monkeypatch: pytest.MonkeyPatch, data: bytes, part: int) -> httpx.Response:
    """The response of a server that sends these bytes, in parts."""
    network = httpcore.AsyncMockBackend([data[at : at + part] for at in range(0, len(data), part)])
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", network.connect_tcp)

    async def got() -> httpx.Response:
        client = HttpClient(
            "http://127.0.0.1:9", server_name="it", api_key=None, retry_policy=RetryPolicy(retries=0)
        )
        async with client.session() as session:
            return await session.request("GET", "/")

    return asyncio.run(got())


@settings(max_examples=scaled(40))
@given(part=st.integers(1, 50), body=st.binary(max_size=100), hints=st.integers(0, 20))
def test_what_a_server_sends_comes_however_it_is_split(part: int, body: bytes, hints: int) -> None:
    head = _HEAD + b"Set-Cookie: a=b\r\nContent-Length: %d\r\n\r\n" % len(body)
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = receive(monkeypatch, _INTERIM * hints + head + body, part)
    assert (found.status_code, found.content) == (200, body)
    assert "set-cookie" not in found.headers


@pytest.mark.parametrize(
    "data",
    [
        _INTERIM * 20_000,
        _HEAD + b"Content-Length: 99999999\r\n\r\n" + b" " * (http_client._MOST + _PART),
        _HEAD
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + (b"400\r\n" + b" " * 1024 + b"\r\n") * (http_client._MOST // 1024 + 64),
    ],
    ids=["interim responses", "body", "chunks"],
)
def test_all_received_bytes_are_counted(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    with pytest.raises(BackendError, match="more bytes"):
        receive(monkeypatch, data, _PART)


def test_the_bytes_of_a_body_are_those_after_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b" " * http_client._MOST
    head = _INTERIM * 5000 + _HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    assert receive(monkeypatch, head + body, len(head)).content == body


def test_what_is_tried_again_shares_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    sent: list[Any] = [httpcore.ReadError("reset"), httpcore.Response(503), httpcore.ReadError("reset")]
    replies = iter(sent)
    left = []

    async def within(deadline: float, awaited: Any) -> Any:
        if deadline <= now:
            awaited.close()
            raise TimeoutError
        return await awaited

    async def handle(*_: object) -> httpcore.Response:
        nonlocal now
        left.append(1010.0 + sum(paused) - now)
        now += 3
        reply: httpcore.Response | Exception = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def pause(seconds: float) -> None:
        nonlocal now
        paused.append(seconds)
        now += seconds

    paused: list[float] = []
    monkeypatch.setattr(http_client, "monotonic", lambda: now)
    monkeypatch.setattr(http_client, "_within", within)
    monkeypatch.setattr(http_client, "sleep", pause)
    monkeypatch.setattr(httpcore.AsyncConnectionPool, "handle_async_request", handle)
    with pytest.raises(BackendUnreachableError, match="within 10 s"):
        asyncio.run(ask(RetryPolicy(timeout=10, retries=9, loading_timeout=60)))
    assert left == pytest.approx([10, 7, 4, 1])


def test_nothing_is_awaited_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "monotonic", lambda: 1000.0)
    done = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    asyncio.run(http_client._within(1100.0, work()))
    with pytest.raises(TimeoutError):
        asyncio.run(http_client._within(1000.0, work()))
    with pytest.raises(TimeoutError):
        asyncio.run(http_client._within(1000.01, asyncio.sleep(60)))
    assert done == [1]


async def ask(policy: RetryPolicy, requests: int = 1) -> None:
    client = HttpClient("http://127.0.0.1:9", server_name="it", api_key=None, retry_policy=policy)
    async with client.session() as session:
        for _ in range(requests):
            await session.request("GET", "/")


def test_the_requests_of_a_session_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = []

    async def connect(*_: object, **__: object) -> httpcore.AsyncNetworkStream:
        connected.append(httpcore.AsyncMockStream([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"] * 3))
        return connected[-1]

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    asyncio.run(ask(RetryPolicy(), 3))
    assert len(connected) == 1


def test_a_bug_below_is_a_broken_protocol() -> None:
    with pytest.raises(httpx.RemoteProtocolError, match="ValueError: digits"), http_client._translated():
        raise ValueError("digits")
    for name in ("ConnectError", "ReadTimeout", "LocalProtocolError", "ProxyError", "UnsupportedProtocol"):
        with pytest.raises(getattr(httpx, name)), http_client._translated():
            raise getattr(httpcore, name)("as if")
    with pytest.raises(httpx.ReadTimeout), http_client._translated():
        raise TimeoutError
    with pytest.raises(BackendError, match="ours"), http_client._translated():
        raise BackendError("ours")


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"http_proxy": "http://u:p@proxy:3128"}, "http://proxy:3128"),
        ({"HTTP_PROXY": "proxy:3128"}, "http://proxy:3128"),
        ({"all_proxy": "http://proxy:1"}, "http://proxy:1"),
        ({"https_proxy": "http://proxy:1"}, None),
        ({"http_proxy": "http://proxy:1", "no_proxy": "example.org"}, None),
    ],
)
def test_the_environment_names_the_proxy(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], proxy: str | None
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = proxy_of(httpx.URL("http://example.org:8080/a"))
    assert (None if found is None else str(found.url)) == proxy
    if "u:p@" in "".join(variables.values()):
        assert found is not None
        assert found.raw_auth == (b"u", b"p")


class Keeping(BaseHTTPRequestHandler):
    """A server that keeps connections, and counts them."""

    protocol_version = "HTTP/1.1"
    opened = closed = 0

    def setup(self) -> None:
        type(self).opened += 1
        super().setup()

    def finish(self) -> None:
        super().finish()
        type(self).closed += 1

    def do_GET(self) -> None:
        self._send("application/json", b'{"data": [{"id": "m", "max_model_len": 99}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        said = {"choices": [{"delta": {"content": "yes"}, "finish_reason": "stop"}]}
        self._send("text/event-stream", f"data: {json.dumps(said)}\n\ndata: [DONE]\n\n".encode())

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("way", ["sync", "async"])
def test_calls_of_an_event_loop_share_a_connection_until_its_end(way: str) -> None:
    class Kept(Keeping):
        opened = closed = 0

    def wait_until_closed(count: int) -> None:
        for _ in range(500):
            if Kept.closed == count:
                return
            sleep(0.01)
        raise AssertionError(f"{Kept.closed} of {Kept.opened} connections are closed")

    request = Request([{"role": "user", "content": "Is it?"}])
    with serving(Kept) as url:
        with OpenAICompatible(url, "vllm") as client:

            async def converse() -> None:
                for _ in range(4):
                    assert (await acomplete(client, request)).text == "yes"
                assert (Kept.opened, Kept.closed) == (1, 0)

            if way == "async":
                asyncio.run(converse())
                wait_until_closed(1)
                Kept.opened = Kept.closed = 0
                asyncio.run(converse())
            else:
                for _ in range(4):
                    assert client.complete(request).text == "yes"
                assert (Kept.opened, Kept.closed) == (1, 0)
        wait_until_closed(1)
        assert not client._http._sessions


def test_a_connection_that_the_server_has_closed_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending(Keeping):
        opened = closed = 0

        def do_POST(self) -> None:
            super().do_POST()
            self.close_connection = True

    paused: list[float] = []
    monkeypatch.setattr(http_client, "sleep", paused.append)
    with serving(Ending) as url, OpenAICompatible(url, "vllm") as client:
        for count in range(1, 4):
            assert client.complete(Request([{"role": "user", "content": "Is it?"}])).text == "yes"
            while Ending.closed < count:
                sleep(0.001)
    assert Ending.opened == 3
    assert not paused
