"""JSON over HTTP with one server: what is common to backends whose server renders the prompt itself.

`Exchange` sends a body and gives the response; broken connections are tried again, a server that is still
loading (HTTP 503) is waited for. What must stay true: every error of httpx is translated here. The control
flow is written once, as a generator; a sync and an async driver do what it yields.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import httpx

from gbnf_server.errors import BackendError, BackendUnreachable

Method = Literal["GET", "POST"]
_Request: TypeAlias = tuple[Method, str, dict[str, Any] | None]
_Flow: TypeAlias = Generator[_Request | float, httpx.Response | None, httpx.Response]
"""Yields a request, whose response is the reply, or a pause in seconds."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds: for one answer, for a connection, for a server that is loading.

    Broken connections are tried `retries` times again, after `backoff` seconds, twice that, and so on.
    """

    timeout: float = 600.0
    connect_timeout: float = 5.0
    retries: int = 3
    backoff: float = 0.25
    loading: float = 60.0


class Exchange:
    """A server at an address, `called` by name in messages. Nothing is sent before it is asked to."""

    def __init__(self, url: str, *, called: str, api_key: str | None, patience: Patience) -> None:
        """Raises BackendUnreachable where the URL is no address."""
        try:
            address = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise BackendUnreachable(f"{url!r} is no address of a server: {error}") from None
        if address.scheme not in {"http", "https"} or not address.host:
            raise BackendUnreachable(
                f"{url!r} is no address of a server. Give one like http://127.0.0.1:8000."
            )
        self.url, self._called, self._patience = str(address), called, patience
        self._options: dict[str, Any] = {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
            "timeout": httpx.Timeout(patience.timeout, connect=patience.connect_timeout),
            "verify": ssl.create_default_context() if address.scheme == "https" else False,
            "trust_env": not _is_loopback(address.host),  # no proxy reaches this machine's own loopback
        }
        self._client = httpx.Client(**self._options)

    def send(self, method: Method, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """Make a request. Raises BackendUnreachable, or BackendError after `close`."""
        self._check_open()
        flow = self._flow(method, path, body)
        try:
            step = next(flow)
            while True:
                reply = None
                try:
                    if isinstance(step, float):
                        time.sleep(step)
                    else:
                        reply = self._client.request(step[0], step[1], json=step[2])
                except httpx.RequestError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as done:
            response: httpx.Response = done.value
            return response

    async def asend(self, method: Method, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """As `send`; cancelling it closes the connection, at which servers stop generating."""
        self._check_open()
        flow = self._flow(method, path, body)
        async with httpx.AsyncClient(**self._options) as client:  # one is bound to its event loop
            try:
                step = next(flow)
                while True:
                    reply = None
                    try:
                        if isinstance(step, float):
                            await asyncio.sleep(step)
                        else:
                            reply = await client.request(step[0], step[1], json=step[2])
                    except httpx.RequestError as error:
                        step = flow.throw(error)
                    else:
                        step = flow.send(reply)
            except StopIteration as done:
                response: httpx.Response = done.value
                return response

    def close(self) -> None:
        self._client.close()

    def _check_open(self) -> None:
        if self._client.is_closed:
            raise BackendError(f"{self._called} at {self.url} has been closed. Make a new one.")

    def _flow(self, method: Method, path: str, body: dict[str, Any] | None) -> _Flow:
        broken, waited, pause = 0, 0.0, self._patience.backoff
        while True:
            try:
                response = yield method, path, body
            except httpx.RequestError as error:
                broken += 1
                if broken > self._patience.retries or not _may_pass(error):
                    raise BackendUnreachable(self._explain(error)) from error
            else:
                assert response is not None
                loading = response.status_code == httpx.codes.SERVICE_UNAVAILABLE
                if not loading or waited >= self._patience.loading:
                    return response
            yield float(pause)
            waited += pause
            pause = min(2 * pause, 5.0)

    def _explain(self, error: httpx.RequestError) -> str:
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return (
                    f"no server answers at {self.url} ({error or 'time-out'}). "
                    f"Start {self._called} there, or check the address."
                )
            case httpx.TimeoutException():
                return (
                    f"{self._called} at {self.url} gave no answer within {self._patience.timeout:g} s. "
                    "Allow fewer tokens, or a longer time-out."
                )
            case _:
                return (
                    f"the connection to {self._called} at {self.url} broke "
                    f"({error or type(error).__name__}). It may have been stopped: its log says more."
                )


def _may_pass(error: httpx.RequestError) -> bool:
    """Tell whether trying again may help: not where the server is at work on the first try still."""
    if isinstance(error, httpx.TimeoutException):
        return isinstance(error, httpx.ConnectTimeout)
    return isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_json(response: httpx.Response) -> tuple[dict[str, Any], str]:
    """The JSON object of a response, {} where it has none, and the error that it tells of, "" where none.

    Servers write errors as {"error": "…"}, {"error": {"message": "…"}}, {"message": "…"} or plain text.
    """
    try:
        value = response.json()
    except ValueError:
        value = None
    answer = value if isinstance(value, dict) else {}
    error = answer.get("error")
    if response.is_success and error is None and answer:
        return answer, ""
    if error is None and not response.is_success:
        error = answer.get("message") or answer.get("detail")
    if isinstance(error, dict):
        error = error.get("message") or error
    return {}, str(error or response.text[:200] or response.reason_phrase or "an empty answer")


def speaks_of_context(message: str) -> bool:
    """Whether an error says that the messages are too long for the model."""
    said = message.lower()
    return "context" in said and any(
        word in said for word in ("length", "window", "size", "exceed", "overflow", "longer", "too long")
    )
