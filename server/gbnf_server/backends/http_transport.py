"""Transports for httpx, over httpcore, that limit the time and the bytes of each request as a whole.

The timeouts of httpx limit single operations, so that a server which sends a byte now and then is never timed
out. Here every operation gets the rest of the request's time, and all received bytes are counted, headers and
interim responses included. Only the headers in `_READ` are passed on: no cookie is stored, no body is
decompressed, and no text is decoded by a charset of the server. Invariant: whatever a server sends, only an
`httpx.RequestError` or a `BackendError` is raised.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import httpcore
import httpx

from gbnf_server.system.errors import BackendError

_READ = frozenset({b"retry-after", b"content-encoding"})
_MOST_HEADERS = 256 * 1024
"""Bytes until the end of the headers, interim responses included; h11 accepts 100 KiB per response."""
_CONNECTIONS: dict[str, Any] = {
    "max_connections": 100,
    "max_keepalive_connections": 20,
    "keepalive_expiry": 4.0,  # a second before llama-server and uvicorn close a connection
}


class RequestBudget:
    """The limits of one request: until `deadline` (`monotonic`), the headers and `size` bytes of a body."""

    def __init__(self, deadline: float, size: int) -> None:
        self._deadline, self._size = deadline, size
        self._received, self._limit = 0, _MOST_HEADERS

    def seconds(self, timeout: float | None, error: type[httpcore.TimeoutException]) -> float:
        """Return how long an operation may take. Raises `error` if no time is left."""
        left = self._deadline - monotonic()
        if left <= 0:
            raise error("no time is left")
        return left if timeout is None else min(timeout, left)

    def receive(self, data: bytes) -> bytes:
        """Count received bytes. Raises BackendError above the limit."""
        self._received += len(data)
        if self._received > self._limit:
            raise BackendError(
                f"the server sent more than {self._limit} bytes, too many for an answer to this request. "
                "Check which server answers there."
            )
        return data

    def end_headers(self) -> None:
        """Set the limit for the body."""
        self._limit = self._received + self._size


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream, transport: Transport) -> None:
        self._stream, self._transport = stream, transport

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's
        budget = self._transport.budget
        seconds = budget.seconds(timeout, httpcore.ReadTimeout)
        return budget.receive(await self._stream.read(max_bytes, seconds))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's
        await self._stream.write(buffer, self._transport.budget.seconds(timeout, httpcore.WriteTimeout))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> httpcore.AsyncNetworkStream:
        seconds = self._transport.budget.seconds(timeout, httpcore.ConnectTimeout)
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, seconds), self._transport)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.AnyIOBackend):
    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self._transport = transport

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        seconds = self._transport.budget.seconds(timeout, httpcore.ConnectTimeout)
        stream = await super().connect_tcp(host, port, seconds, local_address, socket_options)
        return _Stream(stream, self._transport)


class Transport(httpx.AsyncBaseTransport):
    """Connections to a server, through `proxy` if given, for one request at a time of one event loop.

    `budget`: that of the request in progress.
    """

    budget: RequestBudget

    def __init__(self, verify: ssl.SSLContext | None, proxy: httpx.Proxy | None) -> None:
        through = None if proxy is None else httpcore.Proxy(str(proxy.url), auth=proxy.raw_auth)
        self._pool = httpcore.AsyncConnectionPool(
            verify, through, network_backend=_Backend(self), **_CONNECTIONS
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request within the `budget`."""
        with _translated():
            answer = await self._pool.handle_async_request(_core_request(request))
        self.budget.end_headers()
        assert isinstance(answer.stream, AsyncIterable)
        headers = [(name, value) for name, value in answer.headers if name.lower() in _READ]
        return httpx.Response(answer.status, headers=headers, stream=_Body(answer.stream))

    @property
    def connection(self) -> object | None:
        """The connection that the next request will use, None if that will open one."""
        open_ones = (each for each in self._pool.connections if not (each.is_closed() or each.has_expired()))
        return next(open_ones, None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for chunk in self._stream:
                yield chunk

    async def aclose(self) -> None:
        with _translated():
            await self._stream.aclose()  # type: ignore[attr-defined]  # a stream of httpcore's has it


def _core_request(request: httpx.Request) -> httpcore.Request:
    url = httpcore.URL(
        scheme=request.url.raw_scheme,
        host=request.url.raw_host,
        port=request.url.port,
        target=request.url.raw_path,
    )
    return httpcore.Request(
        request.method,
        url,
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


@contextmanager
def _translated() -> Iterator[None]:
    """Translate the libraries' exceptions to httpx's errors of the same name, or to a protocol error.

    This includes their bugs: a server that triggers one ends a request, not a run.
    """
    try:
        yield
    except (BackendError, httpx.RequestError):
        raise
    except Exception as error:
        kind = getattr(httpx, type(error).__name__, None)
        if isinstance(kind, type) and issubclass(kind, httpx.RequestError):
            raise kind(str(error)) from error
        raise httpx.RemoteProtocolError(f"{type(error).__name__}: {error}") from error
