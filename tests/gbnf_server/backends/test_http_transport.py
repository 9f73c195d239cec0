"""One budget bounds all that a request does on its connections, by a clock that the tests set."""

# ruff: noqa: ARG002, ASYNC109 - the connections here have the signatures of httpcore's

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpcore
import httpx
import pytest

from gbnf_server.backends import http_transport as network
from gbnf_server.backends.http_client import Flow, HttpClient, RetryPolicy, Send, Wait
from gbnf_server.backends.http_transport import Deadline, RequestBudget
from gbnf_server.system.errors import BackendError, BackendUnreachable


class Clock:
    """The time, which passes where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(network, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Slow(httpcore.NetworkStream):
    """A connection on which every operation takes three seconds; it keeps what each was allowed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.allowed: list[float | None] = []
        self.written: list[bytes] = []

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._pass(timeout)
        return b"a" * 10

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._pass(timeout)
        self.written.append(buffer)

    def start_tls(self, ssl_context: Any, server_hostname: Any = None, timeout: float | None = None) -> Slow:
        self._pass(timeout)
        return self

    def _pass(self, timeout: float | None) -> None:
        self.allowed.append(timeout)
        self.clock.now += 3


class AsyncSlow(httpcore.AsyncNetworkStream):
    def __init__(self, slow: Slow) -> None:
        self.slow = slow

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.slow.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.slow.write(buffer, timeout)

    async def start_tls(
        self, ssl_context: Any, server_hostname: Any = None, timeout: float | None = None
    ) -> AsyncSlow:
        self.slow.start_tls(ssl_context, server_hostname, timeout)
        return self


Operation = Callable[[], Any]


def operations(slow: Slow, kind: str, name: str) -> Operation:
    """One operation on a bounded connection, as a function."""
    arguments: dict[str, tuple[Any, ...]] = {"read": (9,), "write": (b"x",), "start_tls": (None, "host")}
    if kind == "sync":
        return lambda: getattr(network._Stream(slow), name)(*arguments[name], timeout=8.0)
    return lambda: asyncio.run(
        getattr(network._AsyncStream(AsyncSlow(slow)), name)(*arguments[name], timeout=8.0)
    )


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("read", httpcore.ReadTimeout),
        ("write", httpcore.WriteTimeout),
        ("start_tls", httpcore.ConnectTimeout),
    ],
)
def test_each_operation_gets_what_is_left(clock: Clock, kind: str, name: str, error: type[Exception]) -> None:
    slow = Slow(clock)
    operate = operations(slow, kind, name)
    with RequestBudget(Deadline(10), 1000):
        for _ in range(4):
            operate()
        with pytest.raises(error):
            operate()
    assert slow.allowed == [8, 7, 4, 1]


def test_a_long_request_is_written_in_pieces_each_with_what_is_left(clock: Clock) -> None:
    slow = Slow(clock)
    with RequestBudget(Deadline(10), 1000), pytest.raises(httpcore.WriteTimeout):
        network._Stream(slow).write(b"x" * 10**6, timeout=None)
    assert slow.allowed == [10, 7, 4, 1]
    slow, text = Slow(clock), bytes(range(256)) * 50
    with RequestBudget(Deadline(100), 1000):
        network._Stream(slow).write(text, timeout=None)
    assert b"".join(slow.written) == text


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_received_bytes_are_counted_headers_included(clock: Clock, kind: str) -> None:
    slow = Slow(clock)
    read = operations(slow, kind, "read")
    with RequestBudget(Deadline(1e9), 25) as budget:
        read()
        budget.end_headers()
        read()
        read()
        with pytest.raises(BackendError, match="more than 35 bytes"):
            read()
    with RequestBudget(Deadline(1e9), 10**9) as budget:
        budget.receive(b"a" * network._MOST_HEADERS)
        with pytest.raises(BackendError, match="bytes"):
            read()
    with RequestBudget(Deadline(1e9), 25):  # another request has its own
        read()


def test_what_is_tried_again_shares_one_deadline(clock: Clock) -> None:
    exchange = HttpClient(
        "http://127.0.0.1:9",
        server_name="it",
        api_key=None,
        retry_policy=RetryPolicy(timeout=10, retries=9, loading_timeout=60),
    )
    flow: Flow[httpx.Response] = exchange.request("GET", "/")
    step = next(flow)
    left = []
    for reply in (httpx.ReadError("reset"), httpx.Response(503), httpx.ReadError("reset")):
        assert isinstance(step, Send)
        left.append(step.deadline.left())
        clock.now += 3
        step = flow.throw(reply) if isinstance(reply, Exception) else flow.send(reply)
        assert isinstance(step, Wait)
        clock.now += step.seconds
        step = flow.send(None)
    assert isinstance(step, Send)
    assert [*left, step.deadline.left()] == pytest.approx([10, 7, 4, 1])
    with pytest.raises(BackendUnreachable, match="within 10 s"):
        flow.throw(httpx.ReadTimeout("no time is left"))


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
    found = network.proxy_of(httpx.URL("http://example.org:8080/a"))
    assert (None if found is None else str(found.url)) == proxy
    if "u:p@" in "".join(variables.values()):
        core = network._for_core(found)
        assert core is not None
        assert core.auth == (b"u", b"p")
