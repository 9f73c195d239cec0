"""JSON over HTTP with one server: requests, patience with it, and whole answers or their lines as they come.

Broken connections are tried again; a server that is still loading (HTTP 503), or says when to come back
(HTTP 429 with Retry-After), is waited for. The control flow is written once, as generators that yield what to
do next (`Send`, `Wait`); a sync and an async driver do it. Invariants:

- Every error of httpx is translated here.
- An answer whose first line was given to somebody is never asked for twice.
- One request, with all that is tried again, takes no longer than its deadline, the pauses between tries
  excepted; and no answer takes more memory than its request allows (`network.Budget`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeAlias, TypeVar

import httpx

from gbnf_server.backends.http_transport import AsyncTransport, Deadline, RequestBudget, Transport, proxy_of
from gbnf_server.backends.wire import LineDecoder, join_all_surrogates, parse_error_body, read
from gbnf_server.errors import BackendError, BackendUnreachable
from gbnf_server.llama_server import api_keys

Method = Literal["GET", "POST"]
OnLine: TypeAlias = Callable[[str], None]
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Send:
    """A request to make; its response is the reply, or an httpx.RequestError thrown in.

    `on_line` gets each line of a successful answer as it comes. `tokens`: how many the answer may have.
    """

    method: Method
    path: str
    deadline: Deadline
    body: dict[str, Any] | None = None
    on_line: OnLine | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Let so many seconds pass."""

    seconds: float


Flow: TypeAlias = Generator[Send | Wait, httpx.Response | None, _Result]
"""What to do with a server, step by step, and what comes of it."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait, in seconds: for a whole answer, for a connection, for a server that loads or is busy.

    `timeout` bounds a request with all that is tried again, from the connection to the answer's last byte,
    however steadily something comes. Broken connections are tried `retries` times again, after `backoff`
    seconds, twice that, and so on.
    """

    timeout: float = 600.0
    connect_timeout: float = 5.0
    retries: int = 3
    backoff: float = 0.25
    loading_timeout: float = 60.0


class HttpClient:
    """A server at an address, `called` by name in messages. Nothing is sent before it is asked to.

    `advice` says how to start such a server. `on_broken` is called whenever a connection broke: another
    server, or another model, may come up there.
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
        """Raises BackendUnreachable where the URL is no address, BackendError where the key can't be sent."""
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise BackendError(
                f"the API key for {server_name} can't be sent: a header takes printable ASCII only"
            )
        try:
            address = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise BackendUnreachable(f"{url!r} is no address of a server: {error}") from None
        if address.scheme not in {"http", "https"} or not address.host:
            raise BackendUnreachable(
                f"{url!r} is no address of a server. Give one like http://127.0.0.1:8080."
            )
        self.url, self._server_name, self._retry_policy = str(address), server_name, retry_policy
        self._hint, self._on_broken = hint or f"Start {server_name} there", on_broken
        self._options: dict[str, Any] = {
            "base_url": self.url,
            # no answer is decompressed: a small one can become larger than the memory
            "headers": {"Accept-Encoding": "identity"},
            "timeout": httpx.Timeout(retry_policy.timeout, connect=retry_policy.connect_timeout),
        }
        if api_key:
            self._options["headers"]["Authorization"] = f"Bearer {api_key}"
        else:
            self._options["auth"] = _with_kept_key
        # made once, since it takes 20 ms; plain HTTP needs none
        self._verify = ssl.create_default_context() if address.scheme == "https" else None
        # no proxy reaches this machine's own loopback
        self._proxy = None if _is_loopback(address.host) else proxy_of(address)
        self.client = httpx.Client(transport=Transport(self._verify, self._proxy), **self._options)

    def request(
        self,
        method: Method,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        on_line: OnLine | None = None,
        tokens: int = 0,
    ) -> Flow[httpx.Response]:
        """Make a request, again where that may help; `tokens` is how many the answer may have.

        Raises BackendUnreachable, or BackendError where the answer is larger than such an answer can be.
        """
        broken, waited, pause = 0, 0.0, self._retry_policy.backoff
        deadline = Deadline(self._retry_policy.timeout)
        begun = False

        def heard(line: str) -> None:
            nonlocal begun
            begun = True
            assert on_line is not None
            on_line(line)

        while True:
            asked: float | None = None
            try:
                response = yield Send(method, path, deadline, body, heard if on_line else None, tokens)
            except httpx.RequestError as error:
                self._on_broken()
                broken += 1
                if begun or broken > self._retry_policy.retries or not _is_retryable(error):
                    raise BackendUnreachable(self._explain(error)) from error
            else:
                assert response is not None
                asked = _retry_after(response)
                busy = response.status_code == httpx.codes.TOO_MANY_REQUESTS and asked is not None
                loading = response.status_code == httpx.codes.SERVICE_UNAVAILABLE
                left = self._retry_policy.loading_timeout - waited
                if not (loading or busy) or left <= 0 or (asked or 0) > left:
                    return response
            seconds = max(pause, asked or 0)
            yield Wait(seconds)
            deadline.extend(seconds)
            waited += seconds
            pause = min(2 * pause, 5.0)

    def drive(self, flow: Flow[_Result]) -> _Result:
        """Do what the flow says, blocking. Raises BackendError after `close`."""
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

    async def adrive(self, flow: Flow[_Result]) -> _Result:
        """As `drive`; cancelling it closes the connection, at which servers stop generating."""
        self._check_open()
        transport = AsyncTransport(self._verify, self._proxy)  # one is bound to its event loop
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

    def close(self) -> None:
        self.client.close()

    def _check_open(self) -> None:
        if self.client.is_closed:
            raise BackendError(f"{self._server_name} at {self.url} has been closed. Make a new one.")

    def _send(self, step: Send) -> httpx.Response:
        options, budget = _request_options(step)
        with budget, self.client.stream(step.method, step.path, **options) as response:
            received = _ResponseReader(response, step.on_line)
            for chunk in response.iter_raw():
                if not received.feed(chunk):
                    break
            return received.end()

    def _explain(self, error: httpx.RequestError) -> str:
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return (
                    f"no {self._server_name} answers at {self.url} ({error or 'time-out'}). "
                    f"{self._hint}, or check the address."
                )
            case httpx.TimeoutException():
                return (
                    f"{self._server_name} at {self.url} gave no answer within {self._retry_policy.timeout:g} s, "
                    "the time for all of it. Allow fewer tokens, or a longer time-out."
                )
            case _:
                return (
                    f"the connection to {self._server_name} at {self.url} broke "
                    f"({error or type(error).__name__}). It may have been stopped: its log says more."
                )


async def _asend(client: httpx.AsyncClient, step: Send) -> httpx.Response:
    options, budget = _request_options(step)
    with budget:
        async with client.stream(step.method, step.path, **options) as response:
            received = _ResponseReader(response, step.on_line)
            async for chunk in response.aiter_raw():
                if not received.feed(chunk):
                    break
            return received.end()


_MOST = 4 * 1024 * 1024
"""Bytes of any answer, beside what it repeats of the request and its tokens: lists of models, templates."""
_REPEATED = 4
"""How often a server may say a request again: llama-server does so with the prompt and the grammar."""
_MOST_PER_TOKEN = 4096
"""Bytes of one token in a stream, with all that chat servers send beside each."""
_MOST_OF_ERROR = 64 * 1024
_LONGEST_RETRY_AFTER = 64


def _request_options(step: Send) -> tuple[dict[str, Any], RequestBudget]:
    """What httpx sends for a step, and the budget for it."""
    if step.body is None:
        return {}, RequestBudget(step.deadline, _MOST)
    content = json.dumps(step.body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    size = _MOST + _REPEATED * len(content) + _MOST_PER_TOKEN * step.tokens
    headers = {"Content-Type": "application/json"}
    return {"content": content, "headers": headers}, RequestBudget(step.deadline, size)


class _ResponseReader:
    """Collects the body of a response as it comes, or hands its lines on.

    Raises BackendError if a successful response is compressed.
    """

    def __init__(self, response: httpx.Response, on_line: OnLine | None) -> None:
        self._response, self._body = response, bytearray()
        self._coding = response.headers.get("content-encoding", "identity").strip().lower() or "identity"
        if response.is_success and self._coding != "identity":
            raise BackendError(
                f"the server compressed its answer ({self._coding[:40]!r}), though it was asked not to. "
                "Turn compression off for it, or for the proxy before it."
            )
        self._lines = LineDecoder(on_line) if response.is_success and on_line is not None else None

    def feed(self, chunk: bytes) -> bool:
        """Take a piece; return whether more is wanted. Of an error, the beginning is enough."""
        if self._lines is not None:
            self._lines.feed(chunk)
            return True
        if self._coding == "identity":
            self._body += chunk
        return self._response.is_success or len(self._body) < _MOST_OF_ERROR

    def end(self) -> httpx.Response:
        """Return a response that is complete, with the headers that are read later."""
        if self._lines is not None:
            self._lines.end()
        headers = [
            (name, value) for name, value in self._response.headers.raw if name.lower() == b"retry-after"
        ]
        return httpx.Response(self._response.status_code, headers=headers, content=bytes(self._body))


def _is_retryable(error: httpx.RequestError) -> bool:
    """Tell whether trying again may help: not where the server is at work on the first try still."""
    if isinstance(error, httpx.TimeoutException):
        return isinstance(error, httpx.ConnectTimeout)
    return isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)


def _retry_after(response: httpx.Response) -> float | None:
    """The seconds that a server asks to wait for, by number or date (RFC 9110, 10.2.3); None where none."""
    said = response.headers.get("retry-after", "").strip()
    if len(said) > _LONGEST_RETRY_AFTER:
        return None
    if said.isascii() and said.isdecimal():
        return float(said)
    try:
        when = parsedate_to_datetime(said)
        return max((when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # of a year of 20 digits, for one
        return None


def _with_kept_key(request: httpx.Request) -> httpx.Request:
    """Send the key of a llama-server of ours.

    It is looked up for each request, since another server may have taken the address.
    """
    if key := api_keys.find(str(request.url)):
        request.headers["Authorization"] = f"Bearer {key}"
    return request


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def value_of(response: httpx.Response, streamed: dict[str, Any] | None) -> Any:
    """Return the JSON value of a response, None for invalid JSON. Raises MalformedText.

    `streamed` is the object that a successful answer's lines were put together to.
    """
    if not response.is_success:
        return parse_error_body(response.content)
    return read(response.content) if streamed is None else join_all_surrogates(streamed)


def parse_response(
    response: httpx.Response, streamed: dict[str, Any] | None = None
) -> tuple[dict[str, Any], str]:
    """The JSON object of a response, {} where it has none, and the error that it tells of, "" where none.

    Servers write errors as {"error": "…"}, {"error": {"message": "…"}}, {"message": "…"} or plain text.
    `streamed` is as for `value_of`. Raises MalformedText.
    """
    if response.is_success and streamed == {}:
        return {}, "the answer stopped before its end"
    value = value_of(response, streamed)
    answer = value if isinstance(value, dict) else {}
    error = error_message(answer)
    if response.is_success and not error and answer:
        return answer, ""
    if not error and not response.is_success:
        error = str(answer.get("message") or answer.get("detail") or "")
    return {}, error or response.text[:200] or response.reason_phrase or "an empty answer"


def error_message(answer: dict[str, Any]) -> str:
    """The error that a JSON object of a server tells of, "" where it is an answer."""
    error = answer.get("error")
    if isinstance(error, dict):
        error = error.get("message") or error
    return "" if error is None else str(error) or "an error without a word"


def is_context_overflow(message: str) -> bool:
    """Whether an error says that the messages are too long for the model."""
    said = message.lower()
    return "context" in said and any(
        word in said for word in ("length", "window", "size", "exceed", "overflow", "longer", "too long")
    )
