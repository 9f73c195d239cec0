"""One budget bounds all that a request does on its connections, by a clock that the tests set."""

# ruff: noqa: ARG002, ASYNC109 - the connections here have the signatures of httpcore's

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from math import inf
from time import sleep
from types import SimpleNamespace
from typing import Any

import httpcore
import httpx
import pytest

from gbnf_server.backends import http_client
from gbnf_server.backends import http_transport as network
from gbnf_server.backends.base import Request
from gbnf_server.backends.http_client import HttpClient, RetryPolicy, proxy_of
from gbnf_server.backends.http_transport import RequestBudget, Transport
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.system.errors import BackendError, BackendUnreachableError
from support.backends import acomplete
from support.server import serving


class Clock:
    """The time, which passes where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (network, http_client):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Slow(httpcore.AsyncNetworkStream):
    """A connection on which every operation takes three seconds; it keeps what each was allowed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.allowed: list[float | None] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._pass(timeout)
        return b"a" * 10

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._pass(timeout)

    async def start_tls(
        self, ssl_context: Any, server_hostname: Any = None, timeout: float | None = None
    ) -> Slow:
        self._pass(timeout)
        return self

    def _pass(self, timeout: float | None) -> None:
        self.allowed.append(timeout)
        self.clock.now += 3


Operation = Callable[[], Any]


def operation(slow: Slow, budget: RequestBudget, name: str) -> Operation:
    """One operation on a bounded connection, as a function."""
    arguments: dict[str, tuple[Any, ...]] = {"read": (9,), "write": (b"x",), "start_tls": (None, "host")}
    transport: Any = SimpleNamespace(budget=budget)
    return lambda: asyncio.run(getattr(network._Stream(slow, transport), name)(*arguments[name], timeout=8.0))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("read", httpcore.ReadTimeout),
        ("write", httpcore.WriteTimeout),
        ("start_tls", httpcore.ConnectTimeout),
    ],
)
def test_each_operation_gets_what_is_left(clock: Clock, name: str, error: type[Exception]) -> None:
    slow = Slow(clock)
    operate = operation(slow, RequestBudget(clock.now + 10, 1000), name)
    for _ in range(4):
        operate()
    with pytest.raises(error):
        operate()
    assert slow.allowed == [8, 7, 4, 1]


def test_received_bytes_are_counted_headers_included(clock: Clock) -> None:
    slow = Slow(clock)
    budget = RequestBudget(inf, 25)
    read = operation(slow, budget, "read")
    read()
    budget.end_headers()
    read()
    read()
    with pytest.raises(BackendError, match="more than 35 bytes"):
        read()
    budget = RequestBudget(inf, 10**9)
    budget.receive(b"a" * network._MOST_HEADERS)
    with pytest.raises(BackendError, match="bytes"):
        operation(slow, budget, "read")()


def test_what_is_tried_again_shares_one_deadline(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = iter(
        [
            httpx.ReadError("reset"),
            httpx.Response(503, stream=httpx.ByteStream(b"")),
            httpx.ReadError("reset"),
        ]
    )
    left = []

    async def handle(self: Transport, _: httpx.Request) -> Any:
        left.append(self.budget.seconds(None, httpcore.ReadTimeout))
        clock.now += 3
        reply: Any = next(replies, httpx.ReadTimeout("no time is left"))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(Transport, "handle_async_request", handle)
    monkeypatch.setattr(http_client, "sleep", sleep)
    with pytest.raises(BackendUnreachableError, match="within 10 s"):
        asyncio.run(ask(RetryPolicy(timeout=10, retries=9, loading_timeout=60)))
    assert left == pytest.approx([10, 7, 4, 1])


async def ask(policy: RetryPolicy, requests: int = 1) -> None:
    client = HttpClient("http://127.0.0.1:9", server_name="it", api_key=None, retry_policy=policy)
    async with client.session() as session:
        for _ in range(requests):
            await session.request("GET", "/")


def test_the_requests_of_a_session_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = []

    async def connect(*_: object) -> httpcore.AsyncNetworkStream:
        connected.append(httpcore.AsyncMockStream([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"] * 3))
        return connected[-1]

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    asyncio.run(ask(RetryPolicy(), 3))
    assert len(connected) == 1


def test_a_bug_below_is_a_broken_protocol() -> None:
    with pytest.raises(httpx.RemoteProtocolError, match="ValueError: digits"), network._translated():
        raise ValueError("digits")
    for name in ("ConnectError", "ReadTimeout", "LocalProtocolError", "ProxyError", "UnsupportedProtocol"):
        with pytest.raises(getattr(httpx, name)), network._translated():
            raise getattr(httpcore, name)("as if")
    with pytest.raises(BackendError, match="ours"), network._translated():
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
        assert not client._http._kept


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
