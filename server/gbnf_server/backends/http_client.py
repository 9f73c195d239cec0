"""JSON over HTTP with one server: requests with retries, and responses as a whole or line by line.

Retries broken connections, and servers that are loading (HTTP 503) or busy (HTTP 429 with Retry-After).
Invariants:

- Every error of the libraries is translated here, also that of a bug in them: it ends a request, not a run.
- A request is not repeated once a line of its response has arrived.
- A request with all its retries takes no longer than its own limit, or, without the pauses between them, than
  the client's; and no response takes more memory than its request allows. All received bytes are counted,
  headers and interim responses included.
- A connection is kept between exchanges only where the end of its event loop, or `close`, closes it.

httpcore is used without a client of httpx: no cookie is stored, no body is decompressed, and no text is
decoded by a charset of the server.
"""

from __future__ import annotations

import json
import re
import ssl
from asyncio import AbstractEventLoop, get_running_loop, run_coroutine_threadsafe, sleep, to_thread
from asyncio import timeout as time_limit
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import accumulate
from time import monotonic
from typing import Any, Final, Literal, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from gbnf.prompts.messages import Image
from gbnf_server.backends.wire import LineDecoder
from gbnf_server.llama.api_keys import find as find_api_key
from gbnf_server.llama.api_keys import fits_header
from gbnf_server.system.addresses import is_loopback
from gbnf_server.system.errors import AnswerTimeoutError, BackendError, BackendUnreachableError

Method = Literal["GET", "POST"]
_Value = TypeVar("_Value")
_VERSION: Final = re.compile(r"/v\d{1,2}(?:(?:alpha|beta)\d*)?(?:/openai)?$")
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_LARGE, _SMALL = 256 * 1024, 32  # bytes: what is written in a millisecond, and a number with its key


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Timeouts and retries of one request, in seconds.

    `timeout`: for the request with its retries, from the connection to the last byte of the response. Broken
    connections are retried `retries` times, after `backoff` seconds, twice that, and so on.
    `loading_timeout`: how long to wait for a server that is loading its model or is busy.
    """

    timeout: float = 600.0
    connect_timeout: float = 5.0
    retries: int = 3
    backoff: float = 0.25
    loading_timeout: float = 60.0


class HttpClient:
    """A client of the server at `url`, for any number of threads and event loops.

    A version of the API at the end of a URL, as in `/api/paas/v4`, takes the place of `/v1` in paths.
    `server_name` and `hint`, how to start one, are for error messages.
    `on_broken` is called when a connection broke: another server, or another model, may replace it.
    `closes_streams`: whether the server closes a connection after a streamed response, unannounced.
    """

    def __init__(
        self,
        url: str,
        *,
        server_name: str,
        api_key: str | None,
        retry_policy: RetryPolicy | None = None,
        hint: str = "",
        on_broken: Callable[[], None] = lambda: None,
        closes_streams: bool = False,
    ) -> None:
        """Raise BackendUnreachableError if the URL is invalid, BackendError if the key cannot be sent."""
        if api_key and not fits_header(api_key):
            raise BackendError(
                f"the API key for {server_name} cannot be sent: a header takes printable ASCII only"
            )
        try:
            address = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise BackendUnreachableError(f"{url!r} is not the URL of a server: {error}") from None
        if address.scheme not in {"http", "https"} or not address.host:
            raise BackendUnreachableError(
                f"{url!r} is not the URL of a server. Use one like http://127.0.0.1:8080."
            )
        self.url, self._server_name = str(address), server_name
        self._has_version = _VERSION.search(address.path) is not None
        self.retry_policy = retry_policy or RetryPolicy()
        self._hint, self.on_broken = hint or f"Start {server_name} there", on_broken
        self.closes_streams = closes_streams
        # compressed responses are refused: a small one may expand beyond the memory
        self._headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "gbnf-toolkit"}
        self.api_key = api_key
        # created once, since it takes 20 ms; plain HTTP needs none
        self._verify = ssl.create_default_context() if address.scheme == "https" else None
        self._proxy = proxy_of(address)
        self._is_closed = False
        self._sessions: dict[AbstractEventLoop, tuple[list[HttpSession], AsyncGenerator[Any, None]]] = {}

    @asynccontextmanager
    async def session(self) -> AsyncIterator[HttpSession]:
        """Give a connection for one exchange, in this event loop. Raises BackendError after `close`.

        An exchange that ends in the midst of a response closes it, which makes servers stop generating.
        """
        if self._is_closed:
            raise BackendError(
                f"the client of {self._server_name} at {self.url} is closed. Create a new one."
            )
        loop = get_running_loop()
        if loop not in self._sessions:
            keeping = self._keep(loop)
            self._sessions[loop] = await anext(keeping), keeping
        sessions, _ = self._sessions[loop]
        session = next((other for other in sessions if not other.is_watched), None)
        if session is None:
            session = HttpSession(self, self._verify, self._proxy)
        else:
            sessions.remove(session)
        try:
            yield session
        finally:
            if session.connection is None or len(sessions) >= _MOST_KEPT or loop not in self._sessions:
                await session.close()
            else:
                sessions.append(session)

    async def _keep(self, loop: AbstractEventLoop) -> AsyncGenerator[list[HttpSession], None]:
        """Yield the sessions between exchanges, and close them: an event loop ends its generators."""
        sessions: list[HttpSession] = []
        try:
            yield sessions
        finally:
            del self._sessions[loop]
            for session in sessions:
                await session.close()

    def close(self) -> None:
        """Allow no further exchange, and close what is kept. Idempotent."""
        self._is_closed = True
        for loop, (_, keeping) in list(self._sessions.items()):
            with suppress(RuntimeError):  # the loop is closed
                run_coroutine_threadsafe(_closed(keeping), loop)

    def request(self, method: Method, path: str, content: bytes | None) -> httpx.Request:
        """Return a request, with the API key."""
        headers = dict(self._headers)
        if content is not None:
            headers["Content-Type"] = "application/json"
        # looked up for each request, since another server may have taken the address
        if key := self.api_key or find_api_key(self.url):
            headers["Authorization"] = f"Bearer {key}"
        path = path.removeprefix("/v1") if self._has_version else path
        return httpx.Request(method, f"{self.url}{path}", headers=headers, content=content)

    def explain(self, error: httpx.RequestError, timeout: float) -> str:
        """Return what an error means, and what to do."""
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return (
                    f"no {self._server_name} answers at {self.url} ({error or 'timeout'}). "
                    f"{self._hint}, or check the address."
                )
            case httpx.TimeoutException():
                return (
                    f"{self._server_name} at {self.url} did not finish its answer within "
                    f"{timeout:g} s. Allow fewer tokens, or a longer timeout."
                )
            case _:
                return (
                    f"the connection to {self._server_name} at {self.url} broke "
                    f"({error or type(error).__name__}). It may have been stopped: see its log."
                )


class HttpSession:
    """A connection: several requests, one after another. `is_watched`: it is kept, but not used again."""

    def __init__(self, owner: HttpClient, verify: ssl.SSLContext | None, proxy: httpx.Proxy | None) -> None:
        through = None if proxy is None else httpcore.Proxy(str(proxy.url), auth=proxy.raw_auth)
        network = _CountingNetwork(self._receive)
        self._pool = httpcore.AsyncConnectionPool(
            verify, through, keepalive_expiry=_KEPT_S, network_backend=network
        )
        self._owner = owner
        self._bytes_left = 0  # that may be received
        self.is_watched = False

    @property
    def connection(self) -> object | None:
        """What identifies the open connection, None if there is none. May be asked in any thread."""
        open_ones = (conn for conn in self._pool.connections if not (conn.is_closed() or conn.has_expired()))
        return next(open_ones, None)

    async def close(self) -> None:
        """Close the connection."""
        await self._pool.aclose()

    def _receive(self, data: bytes) -> bytes:
        """Count received bytes. Raises BackendError if they are too many."""
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise BackendError(
                "the server sent more bytes than any answer to this request has. Check which server answers "
                "there."
            )
        return data

    async def request(self, method: Method, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """Return a response; for errors see `lines`."""
        async with aclosing(self.lines(method, path, body, by_line=False)) as received:
            *_, answer = [item async for item in received]
        assert isinstance(answer, httpx.Response)
        return answer

    async def lines(
        self,
        method: Method,
        path: str,
        body: dict[str, Any] | None,
        *,
        tokens: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109  # of all attempts
        by_line: bool = True,
    ) -> AsyncGenerator[str | httpx.Response, None]:
        """Yield each line of a response as it arrives, and last the response; of an error only that.

        `tokens`: the limit of the answer. `timeout`: seconds after which it has to end, pauses included; None
        for those of the client, without pauses.
        Raises BackendUnreachableError, of which AnswerTimeoutError is a kind, or BackendError if the response
        is larger than it may be.
        """
        policy = self._owner.retry_policy
        broken, waited, pause = 0, 0.0, policy.backoff
        has_limit = timeout is not None
        timeout = policy.timeout if timeout is None else min(timeout, policy.timeout)
        deadline = monotonic() + timeout
        content = None if body is None else await run_beside(partial(_encoded, body), body)
        has_begun = False
        while True:
            response = None
            try:
                async with aclosing(self._send(method, path, content, tokens, deadline, by_line)) as received:
                    async for item in received:
                        if isinstance(item, httpx.Response):
                            response = item
                        else:
                            has_begun = True
                            yield item
            except httpx.RequestError as error:
                self._owner.on_broken()
                broken += 1
                is_late = has_limit and monotonic() + pause >= deadline
                if has_begun or broken > policy.retries or is_late or not _is_retryable(error):
                    late = isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout)
                    kind = AnswerTimeoutError if late else BackendUnreachableError
                    raise kind(self._owner.explain(error, timeout)) from error
                retry_after = None
            else:
                assert response is not None
                retry_after = _retry_after(response)
                busy = response.status_code == httpx.codes.TOO_MANY_REQUESTS and retry_after is not None
                loading = response.status_code == httpx.codes.SERVICE_UNAVAILABLE
                seconds_left = min(policy.loading_timeout, timeout) - waited
                if has_limit:
                    seconds_left = min(seconds_left, deadline - monotonic() - pause)
                if not (loading or busy) or seconds_left <= 0 or (retry_after or 0) > seconds_left:
                    yield response
                    return
            seconds = max(pause, retry_after or 0)
            await sleep(seconds)
            deadline += 0 if has_limit else seconds
            waited += seconds
            pause = min(2 * pause, 5.0)

    async def _send(
        self, method: Method, path: str, content: bytes | None, tokens: int, deadline: float, by_line: bool
    ) -> AsyncGenerator[str | httpx.Response, None]:
        """Send a request once, and yield what comes. Raises BackendError if it is compressed or too long."""
        size = _MOST
        if content is not None:
            size += _REPEATED * len(content) + _MOST_PER_TOKEN * tokens
        request = self._owner.request(method, path, content)
        # less than what is left, so that a server that does not answer at all is told apart from a late one
        connect_s = min(self._owner.retry_policy.connect_timeout, 0.95 * max(deadline - monotonic(), 0.0))
        self._bytes_left = _MOST_OF_HEADERS
        with _translated():
            async with AsyncExitStack() as stack:
                sent = self._pool.stream(
                    method,
                    str(request.url),
                    headers=request.headers.raw,
                    content=request.content or None,
                    extensions={"timeout": {"connect": connect_s}},
                )
                answer = await _within(deadline, stack.enter_async_context(sent))
                self._bytes_left = size
                headers = [(name, value) for name, value in answer.headers if name.lower() in _READ]
                response = httpx.Response(answer.status, headers=headers)
                coding = response.headers.get("content-encoding", "").strip().lower() or "identity"
                if response.is_success and coding != "identity":
                    raise BackendError(
                        f"the server compressed its answer ({coding[:40]!r}), against the request. "
                        "Disable compression for it, or for the proxy in front of it."
                    )
                lines = LineDecoder() if response.is_success and by_line else None
                content_read = bytearray()
                chunks = answer.aiter_stream()
                while (chunk := await _within(deadline, anext(chunks, None))) is not None:
                    if lines is not None:
                        for line in lines.feed(chunk):
                            yield line
                        continue
                    if coding == "identity":
                        content_read += chunk
                    if not response.is_success and len(content_read) >= _MOST_OF_ERROR:
                        break  # of an error, the beginning is enough
                for line in lines.end() if lines is not None else ():
                    yield line
            if lines is not None and self._owner.closes_streams:
                await self.close()
        yield httpx.Response(response.status_code, headers=response.headers, content=bytes(content_read))


async def run_beside(work: Callable[[], _Value], read: Any) -> _Value:
    """Return what `work` makes of messages or of JSON, `read`: of large ones in a thread."""
    # a small one is sooner done than handed to a thread and back
    return await to_thread(work) if _is_large(read) else work()


def _is_large(value: Any) -> bool:
    return any(size > _LARGE for size in accumulate(_sizes(value)))


def _sizes(value: Any) -> Iterator[int]:
    """Yield about how many bytes each part of a value takes."""
    yield _SMALL
    match value:
        case str():
            yield len(value)
        case Image():
            yield len(value.data)
        case Mapping():
            for member in value.values():
                yield from _sizes(member)
        case list() | tuple():
            for member in value:
                yield from _sizes(member)


def _encoded(body: Mapping[str, Any]) -> bytes:
    # as one piece, a large body would stop all threads until it is complete
    pieces = _JSON.iterencode(body) if _is_large(body) else [_JSON.encode(body)]
    content = bytearray()
    for piece in pieces:
        content += piece.encode()
    return bytes(content)


class _CountingNetwork(httpcore.AnyIOBackend):
    """Connections whose received bytes are counted by `receive`."""

    def __init__(self, receive: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._receive = receive

    async def connect_tcp(self, *args: Any, **options: Any) -> Any:
        return _CountingStream(await super().connect_tcp(*args, **options), self._receive)


class _CountingStream:
    def __init__(self, stream: httpcore.AsyncNetworkStream, receive: Callable[[bytes], bytes]) -> None:
        self._stream, self._receive = stream, receive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, *args: Any, **options: Any) -> bytes:
        return self._receive(await self._stream.read(*args, **options))

    async def start_tls(self, *args: Any, **options: Any) -> Any:
        return _CountingStream(await self._stream.start_tls(*args, **options), self._receive)


async def _within(deadline: float, awaited: Awaitable[_Value]) -> _Value:
    """Await what has to come before a `deadline` (`monotonic`). Raises TimeoutError."""
    async with time_limit(deadline - monotonic()):
        return await awaited


@contextmanager
def _translated() -> Iterator[None]:
    """Translate the libraries' exceptions to httpx's errors of the same name, or to a protocol error."""
    try:
        yield
    except (BackendError, httpx.RequestError):
        raise
    except TimeoutError:
        raise httpx.ReadTimeout("no time is left") from None
    except Exception as error:
        kind = getattr(httpx, type(error).__name__, None)
        if isinstance(kind, type) and issubclass(kind, httpx.RequestError):
            raise kind(str(error)) from error
        raise httpx.RemoteProtocolError(f"{type(error).__name__}: {error}") from error


_MOST = 4 * 1024 * 1024
"""Bytes of any response, besides what it repeats of the request and its tokens: model lists, templates."""
_REPEATED = 4
"""How often a server may repeat a request: llama-server does so with the prompt and the grammar."""
_MOST_PER_TOKEN = 4096
"""Bytes of one token in a stream, with all that chat servers send along."""
_MOST_OF_ERROR = 64 * 1024
_MOST_OF_HEADERS = 256 * 1024
"""Bytes until the end of the headers, interim responses included; h11 accepts 100 KiB per response."""
_READ = frozenset({b"retry-after", b"content-encoding"})
_KEPT_S = 4.0  # a second before llama-server and uvicorn close a connection
_MOST_KEPT = 4
"""Connections of an event loop between exchanges: each takes one of a llama-server's threads."""
_LONGEST_RETRY_AFTER = 64


def _is_retryable(error: httpx.RequestError) -> bool:
    """Return whether a retry may help: not while the server is still working on the first request."""
    if isinstance(error, httpx.TimeoutException):
        return isinstance(error, httpx.ConnectTimeout)
    return isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)


def proxy_of(address: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy that the environment sets for an address, None for none."""
    if is_loopback(address.host) or proxy_bypass(address.host):  # a proxy cannot reach the first
        return None
    named = getproxies()
    proxy = named.get(address.scheme) or named.get("all")
    return httpx.Proxy(proxy if "://" in proxy else f"http://{proxy}") if proxy else None


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date (RFC 9110, 10.2.3); None for none."""
    text = response.headers.get("retry-after", "").strip()
    if len(text) > _LONGEST_RETRY_AFTER:
        return None
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        when = parsedate_to_datetime(text)
        return max((when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # for a year of 20 digits, for example
        return None


async def _closed(generator: AsyncGenerator[Any, None]) -> None:
    await generator.aclose()
