"""JSON over HTTP with one server: requests with retries, and responses as a whole or line by line.

Retries broken connections, and servers that are loading (HTTP 503) or busy (HTTP 429 with Retry-After). The
control flow is written once, as generators that yield the next step (`Send`, `Wait`), with a blocking and an
async driver. Invariants:

- Every error of httpx is translated here.
- A request is not repeated once `on_line` got a line of its response.
- A request with all its retries, but without the pauses between them, takes no longer than its deadline; and
  no response takes more memory than its request allows (`RequestBudget`).
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import inf
from typing import Any, Literal, TypeAlias, TypeVar

import httpx

from gbnf_server.backends.http_transport import AsyncTransport, Deadline, RequestBudget, Transport, proxy_of
from gbnf_server.backends.wire import LineDecoder, join_all_surrogates, parse_error_body, read
from gbnf_server.llama.api_keys import find as find_saved_key
from gbnf_server.system.addresses import is_loopback
from gbnf_server.system.errors import AnswerTimeout, BackendError, BackendUnreachable

Method = Literal["GET", "POST"]
OnLine: TypeAlias = Callable[[str], None]
_Result = TypeVar("_Result")
find_api_key = find_saved_key
"""Return the API key of a llama-server that this user started, by its URL; None without one."""


@dataclass(frozen=True, slots=True)
class Send:
    """A request to send; its response is the reply, or an httpx.RequestError is thrown in.

    `on_line` gets each line of a successful response as it arrives, until `is_enough`. `tokens`: the limit of
    the answer.
    """

    method: Method
    path: str
    deadline: Deadline
    body: dict[str, Any] | None = None
    on_line: OnLine | None = None
    tokens: int = 0
    is_enough: Callable[[], bool] = bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait so many seconds."""

    seconds: float


Flow: TypeAlias = Generator[Send | Wait, httpx.Response | None, _Result]
"""The steps of an exchange with a server; returns its result."""


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
    """A client of the server at `url`. `server_name` and `hint`, how to start one, are for error messages.

    `on_broken` is called when a connection broke: another server, or another model, may replace it.
    """

    def __init__(
        self,
        url: str,
        *,
        server_name: str,
        api_key: str | None,
        retry_policy: RetryPolicy,
        hint: str = "",
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        """Raise BackendUnreachable if the URL is invalid, BackendError if the key cannot be sent."""
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise BackendError(
                f"the API key for {server_name} cannot be sent: a header takes printable ASCII only"
            )
        try:
            address = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise BackendUnreachable(f"{url!r} is not the URL of a server: {error}") from None
        if address.scheme not in {"http", "https"} or not address.host:
            raise BackendUnreachable(
                f"{url!r} is not the URL of a server. Use one like http://127.0.0.1:8080."
            )
        self.url, self._server_name, self._retry_policy = str(address), server_name, retry_policy
        self._hint, self._on_broken = hint or f"Start {server_name} there", on_broken
        self._options: dict[str, Any] = {
            "base_url": self.url,
            # compressed responses are refused: a small one may expand beyond the memory
            "headers": {"Accept-Encoding": "identity"},
            "timeout": httpx.Timeout(retry_policy.timeout, connect=retry_policy.connect_timeout),
        }
        if api_key:
            self._options["headers"]["Authorization"] = f"Bearer {api_key}"
        else:
            self._options["auth"] = _with_saved_key
        # created once, since it takes 20 ms; plain HTTP needs none
        self._verify = ssl.create_default_context() if address.scheme == "https" else None
        # a proxy cannot reach this machine's loopback interface
        self._proxy = None if is_loopback(address.host) else proxy_of(address)
        self.client = httpx.Client(transport=Transport(self._verify, self._proxy), **self._options)

    def request(
        self,
        method: Method,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        on_line: OnLine | None = None,
        tokens: int = 0,
        is_enough: Callable[[], bool] = bool,
        timeout: float | None = None,
    ) -> Flow[httpx.Response]:
        """Send a request, with retries; see `Send`. `timeout`: a shorter one, in seconds.

        Raises BackendUnreachable, of which AnswerTimeout is a kind, or BackendError if the response is larger
        than it may be.
        """
        broken, waited, pause = 0, 0.0, self._retry_policy.backoff
        timeout = min(timeout or inf, self._retry_policy.timeout)
        deadline = Deadline(timeout)
        has_begun = False

        def receive(line: str) -> None:
            nonlocal has_begun
            has_begun = True
            assert on_line is not None
            on_line(line)

        while True:
            retry_after: float | None = None
            try:
                response = yield Send(
                    method, path, deadline, body, receive if on_line else None, tokens, is_enough
                )
            except httpx.RequestError as error:
                self._on_broken()
                broken += 1
                if has_begun or broken > self._retry_policy.retries or not _is_retryable(error):
                    late = isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout)
                    kind = AnswerTimeout if late else BackendUnreachable
                    raise kind(self._explain(error, timeout)) from error
            else:
                assert response is not None
                retry_after = _retry_after(response)
                busy = response.status_code == httpx.codes.TOO_MANY_REQUESTS and retry_after is not None
                loading = response.status_code == httpx.codes.SERVICE_UNAVAILABLE
                left = min(self._retry_policy.loading_timeout, timeout) - waited
                if not (loading or busy) or left <= 0 or (retry_after or 0) > left:
                    return response
            seconds = max(pause, retry_after or 0)
            yield Wait(seconds)
            deadline.extend(seconds)
            waited += seconds
            pause = min(2 * pause, 5.0)

    def drive(self, flow: Flow[_Result]) -> _Result:
        """Run a flow, blocking. Raises BackendError after `close`."""
        self._check_open()
        try:
            step = next(flow)
            while True:
                reply = None
                try:
                    match step:
                        case Send():
                            reply = self._send(step)
                        case Wait(seconds):
                            time.sleep(seconds)
                except httpx.RequestError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as done:
            result: _Result = done.value
            return result
        finally:
            flow.close()

    async def adrive(self, flow: Flow[_Result]) -> _Result:
        """Run a flow; cancelling closes the connection, which makes servers stop generating."""
        self._check_open()
        transport = AsyncTransport(self._verify, self._proxy)  # bound to this event loop
        async with httpx.AsyncClient(transport=transport, **self._options) as client:
            try:
                step = next(flow)
                while True:
                    reply = None
                    try:
                        match step:
                            case Send():
                                reply = await _asend(client, step)
                            case Wait(seconds):
                                await asyncio.sleep(seconds)
                    except httpx.RequestError as error:
                        step = flow.throw(error)
                    else:
                        step = flow.send(reply)
            except StopIteration as done:
                result: _Result = done.value
                return result
            finally:
                flow.close()

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.client.close()

    def _check_open(self) -> None:
        if self.client.is_closed:
            raise BackendError(
                f"the client of {self._server_name} at {self.url} is closed. Create a new one."
            )

    def _send(self, step: Send) -> httpx.Response:
        options, budget = _request_options(step)
        with budget, self.client.stream(step.method, step.path, **options) as response:
            received = _ResponseReader(response, step)
            for chunk in response.iter_raw():
                if not received.feed(chunk):
                    break
            return received.end()

    def _explain(self, error: httpx.RequestError, timeout: float) -> str:
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


async def _asend(client: httpx.AsyncClient, step: Send) -> httpx.Response:
    options, budget = _request_options(step)
    with budget:
        async with client.stream(step.method, step.path, **options) as response:
            received = _ResponseReader(response, step)
            async for chunk in response.aiter_raw():
                if not received.feed(chunk):
                    break
            return received.end()


_MOST = 4 * 1024 * 1024
"""Bytes of any response, besides what it repeats of the request and its tokens: model lists, templates."""
_REPEATED = 4
"""How often a server may repeat a request: llama-server does so with the prompt and the grammar."""
_MOST_PER_TOKEN = 4096
"""Bytes of one token in a stream, with all that chat servers send along."""
_MOST_OF_ERROR = 64 * 1024
_LONGEST_RETRY_AFTER = 64


def _request_options(step: Send) -> tuple[dict[str, Any], RequestBudget]:
    """Return httpx's arguments for a step, and its budget."""
    if step.body is None:
        return {}, RequestBudget(step.deadline, _MOST)
    content = json.dumps(step.body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    size = _MOST + _REPEATED * len(content) + _MOST_PER_TOKEN * step.tokens
    headers = {"Content-Type": "application/json"}
    return {"content": content, "headers": headers}, RequestBudget(step.deadline, size)


class _ResponseReader:
    """Collects the body of a response as it arrives, or passes on its lines.

    Raises BackendError if a successful response is compressed.
    """

    def __init__(self, response: httpx.Response, step: Send) -> None:
        self._response, self._is_enough, self._body = response, step.is_enough, bytearray()
        self._coding = response.headers.get("content-encoding", "identity").strip().lower() or "identity"
        if response.is_success and self._coding != "identity":
            raise BackendError(
                f"the server compressed its answer ({self._coding[:40]!r}), against the request. "
                "Disable compression for it, or for the proxy in front of it."
            )
        self._lines = LineDecoder(step.on_line) if response.is_success and step.on_line else None

    def feed(self, chunk: bytes) -> bool:
        """Add a piece; return whether to read on. Of an error, the beginning is enough."""
        if self._lines is not None:
            self._lines.feed(chunk)
            return not self._is_enough()
        if self._coding == "identity":
            self._body += chunk
        return self._response.is_success or len(self._body) < _MOST_OF_ERROR

    def end(self) -> httpx.Response:
        """Return the complete response, with the headers that are read later."""
        if self._lines is not None and not self._is_enough():
            self._lines.end()
        headers = [
            (name, value) for name, value in self._response.headers.raw if name.lower() == b"retry-after"
        ]
        return httpx.Response(self._response.status_code, headers=headers, content=bytes(self._body))


def _is_retryable(error: httpx.RequestError) -> bool:
    """Return whether a retry may help: not while the server is still working on the first request."""
    if isinstance(error, httpx.TimeoutException):
        return isinstance(error, httpx.ConnectTimeout)
    return isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)


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


def _with_saved_key(request: httpx.Request) -> httpx.Request:
    """Add the API key of a llama-server that this user started.

    It is looked up for each request, since another server may have taken the address.
    """
    if key := find_api_key(str(request.url)):
        request.headers["Authorization"] = f"Bearer {key}"
    return request


def value_of(response: httpx.Response, streamed: dict[str, Any] | None) -> Any:
    """Return the JSON value of a response, None for invalid JSON. Raises MalformedText.

    `streamed`: the object that the lines of a successful streamed response add up to.
    """
    if not response.is_success:
        return parse_error_body(response.content)
    return read(response.content) if streamed is None else join_all_surrogates(streamed)


def parse_response(
    response: httpx.Response, streamed: dict[str, Any] | None = None
) -> tuple[dict[str, Any], str]:
    """Return the JSON object of a response, {} for none, and its error, "" for none.

    Servers send errors as {"error": "…"}, {"error": {"message": "…"}}, {"message": "…"} or plain text.
    `streamed` is as for `value_of`. Raises MalformedText.
    """
    if response.is_success and streamed == {}:
        return {}, "the answer ended too early"
    value = value_of(response, streamed)
    answer = value if isinstance(value, dict) else {}
    error = _error_message(answer)
    if response.is_success and not error and answer:
        return answer, ""
    if not error and not response.is_success:
        error = str(answer.get("message") or answer.get("detail") or "")
    return {}, error or response.text[:200] or response.reason_phrase or "an empty answer"


def _error_message(answer: dict[str, Any]) -> str:
    """Return the error in a JSON object of a server, "" for none."""
    error = answer.get("error")
    if isinstance(error, dict):
        error = error.get("message") or error
    return "" if error is None else str(error) or "an error without a message"


def is_context_overflow(message: str) -> bool:
    """Return whether an error means that the messages are too long for the model."""
    text = message.lower()
    return "context" in text and any(
        word in text for word in ("length", "window", "size", "exceed", "overflow", "longer", "too long")
    )
