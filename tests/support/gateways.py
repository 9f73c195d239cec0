"""A gateway for tests of the server around the engine: an API and an engine that tests control.

The engine is no language model: it says what a test lets it say, at the moment when the test does, so that
each state of a request can be reached. The real engine and APIs have tests of their own.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

import httpx
from starlette.types import ASGIApp

from gbnf.tool_formats import TextDelta
from gbnf_server.backends.base import Backend, Usage
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.answers import Enforcement, Finished, ReplyEvent, Started
from gbnf_server.gateway.api import Api, Reply
from gbnf_server.gateway.app import create_app
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.gateway.gateway import Answers, Gateway
from gbnf_server.gateway.serving import GatewayServer
from gbnf_server.web.access import Access
from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import Limits
from support.backends import FakeBackend

PATH = "/v1/chat/completions"
P = ParamSpec("P")


def in_event_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test that is a coroutine, in an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class PlainReply(Reply):
    """Writes each text as one line."""

    keep_alive = "…\n"

    def __init__(self, request: ChatRequest) -> None:
        super().__init__(request)
        self.texts = list[str]()

    def feed(self, event: ReplyEvent) -> str:
        text = event.text if isinstance(event, TextDelta) else type(event).__name__
        self.texts.append(text)
        return f"{text}\n" if self.request.stream else ""

    def fail(self, error: HttpError) -> str:
        return f"error {error.status} {error.code}\n"

    def headers(self) -> dict[str, str]:
        return {"x-plain": "yes"}

    def body(self) -> dict[str, Any]:
        return {"texts": self.texts}


class PlainApi(Api):
    """The smallest API: `{"messages": …, "stream": true}`."""

    path = PATH

    def parse(self, body: Mapping[str, Any], *_: Any, **__: Any) -> PlainReply:
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
            raise HttpError(400, "messages must be a list of objects.", "invalid_request", "messages")
        request = ChatRequest(
            str(body.get("model", "")),
            tuple(
                {"role": each.get("role", "user"), "content": each.get("content", "")} for each in messages
            ),
            stream=body.get("stream") is True,
        )
        return PlainReply(request)

    def error(self, error: HttpError) -> dict[str, Any]:
        return {"error": {"message": error.message, "code": error.code, "param": error.param}}


@dataclass
class ScriptedEngine(Answers):
    """Answers with `texts`, each after one permission of `allowed`, or all at once if `allowed` is None.

    `running`, `ended` and `cancelled` count answers; `seen` has the last messages.
    """

    texts: tuple[str, ...] = ("one", "two")
    allowed: asyncio.Semaphore | None = None
    error: Exception | None = None
    running: int = 0
    ended: int = 0
    cancelled: int = 0
    seen: list[str] = field(default_factory=list)

    def allow(self, texts: int) -> None:
        """Give the permission for so many more texts."""
        assert self.allowed is not None
        for _ in range(texts):
            self.allowed.release()

    async def answer(
        self,
        request: ChatRequest,
        backend: Backend,
    ) -> AsyncGenerator[ReplyEvent, None]:
        self.running += 1
        self.seen.append(request.messages[-1]["content"])
        try:
            for index, text in enumerate(self.texts):
                if self.allowed is not None:
                    await self.allowed.acquire()
                if index == 0:
                    yield Started(0, Enforcement())
                yield TextDelta(text)
            if self.error is not None:
                raise self.error
            yield Finished("stop", Usage(3, 2, 1), Enforcement())
            self.ended += 1
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.running -= 1


def make_gateway(
    engine: Answers, *, limits: Limits | None = None, places: int = 1, **options: Any
) -> Gateway:
    """A gateway in front of an engine."""
    upstreams = Upstreams([Upstream(FakeBackend(), places)])
    return Gateway(engine, upstreams, model="stub", apis=[PlainApi()], limits=limits, **options)


def request(stream: bool = False, text: str = "hello", **fields: Any) -> dict[str, Any]:
    """The body of a request."""
    return {"messages": [{"role": "user", "content": text}], "stream": stream, **fields}


@asynccontextmanager
async def client_of(
    gateway: Gateway, access: Access | None = None
) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client of the real application, in this event loop."""
    app: ASGIApp = create_app(gateway, access or Access())
    async with AsyncExitStack() as stack:
        gateway.start()
        stack.push_async_callback(gateway.close)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        yield await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")
        )


def samples(gateway: Gateway) -> dict[str, float]:
    """The metrics, by name and labels as Prometheus writes them."""
    lines = gateway.metrics.text().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"}


@dataclass
class Connection:
    """A client that writes and reads bytes itself."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send_head(self, *headers: str, method: str = "POST", path: str = PATH) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
        self.writer.write("\r\n".join(lines).encode())

    def send(self, body: dict[str, Any] | bytes, *headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_head(f"Content-Length: {len(content)}", *headers)
        self.writer.write(content)

    async def read_until(self, end: str) -> str:
        return (await self.reader.readuntil(end.encode())).decode()

    async def status(self) -> int:
        """The status of the next response, whose head is read."""
        head = await self.read_until("\r\n\r\n")
        return int(head.split(" ")[1])

    def reset(self) -> None:
        """Close the connection as a client does that is killed."""
        self.writer.transport.abort()

    async def close(self) -> None:
        self.reset()
        with suppress(OSError):
            await self.writer.wait_closed()


@dataclass
class Served:
    """A real server, and its clients."""

    port: int
    clients: list[Connection] = field(default_factory=list)

    async def connect(self) -> Connection:
        """A new client."""
        client = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client


class _Server(GatewayServer):
    async def main_loop(self) -> None:
        """Ask more often than uvicorn whether to end, which asks ten times a second."""
        while not await self.on_tick(0):  # noqa: ASYNC110  # as uvicorn does
            await asyncio.sleep(0.005)


@asynccontextmanager
async def served(gateway: Gateway, access: Access | None = None) -> AsyncGenerator[Served, None]:
    """A real server, in this event loop."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = _Server(gateway, access or Access())
        task = asyncio.create_task(server.serve(sockets=[listening]))
        place = Served(listening.getsockname()[1])
        try:
            await until(lambda: server.started)
            yield place
        finally:
            for client in place.clients:
                await client.close()
            server.should_exit = True
            await task


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop run until the condition is true; the test's own time limit ends what never is."""
    while not condition():  # noqa: ASYNC110  # what changes is no event
        await asyncio.sleep(0.005)
