"""What is sent to a client: the parts of a response, and how long the client may take to receive them.

An answer may be a stream of server-sent events, which is kept alive while nothing of it comes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

from starlette.types import Message, Send

from gbnf_server.web.bodies import ClientLeftError
from gbnf_server.web.errors import HttpError

ABORT = "gbnf.abort"
"""The key of the request's state for a function that closes the connection without sending what is left."""

_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}

Pause: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits so many seconds."""

COMMENT = ": keep-alive\n\n"
"""An event without a type or data, which clients ignore."""

_KEEP_ALIVE_S = 10.0
"""How long a stream may be silent: proxies and clients close one after about 30 seconds."""


class Response:
    """The response to one request, sent in parts.

    `status`: None until it begins; `is_complete`: whether all of it was sent. Raises ClientLeftError in place
    of sending if the client takes nothing for `send_s` seconds, and closes the connection with `abort`.
    """

    def __init__(
        self, send: Send, headers: Mapping[str, str], send_s: float, abort: Callable[[], None] | None
    ) -> None:
        self._send, self._headers, self._send_s, self._abort = send, headers, send_s, abort
        self.status: int | None = None
        self.is_complete = False

    async def send(self, message: Message) -> None:
        """Send an ASGI message, with the headers of every response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *_raw(self._headers)]}
        try:
            async with asyncio.timeout(self._send_s):
                await self._send(message)
        except TimeoutError:
            if self._abort is not None:
                self._abort()
            raise ClientLeftError from None
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.is_complete = True

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers."""
        await self.send({"type": "http.response.start", "status": status, "headers": _raw(headers)})

    async def write(self, text: str) -> None:
        """Send a piece of the body."""
        await self.send({"type": "http.response.body", "body": _bytes(text), "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        """Send the last piece of the body."""
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def send_json(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a JSON value as the whole body."""
        body = _bytes(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self.begin(status, fields)
        await self.end(body)

    async def send_error(self, error: HttpError, shape: Callable[[HttpError], dict[str, Any]]) -> None:
        """Send an error in the shape of an API."""
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        if error.status == 401:
            headers["www-authenticate"] = "Bearer"
        await self.send_json(shape(error), error.status, headers)


class EventSender:
    """Sends events as the body of a response, whose first sends the head. `headers`: more of those."""

    def __init__(self, response: Response, headers: Callable[[], Mapping[str, str]]) -> None:
        self._response, self._headers = response, headers
        self._lock = asyncio.Lock()  # two tasks write
        self._is_silent = True

    async def write(self, text: str) -> None:
        """Send events."""
        self._is_silent = False
        async with self._lock:
            if self._response.status is None:
                await self._response.begin(200, {**_EVENT_STREAM, **self._headers()})
            await self._response.write(text)

    @asynccontextmanager
    async def kept_alive(self, sign: str, pause: Pause) -> AsyncGenerator[None, None]:
        """Send `sign` in the block whenever nothing else was sent during a pause."""

        async def keep_alive() -> None:
            with suppress(ClientLeftError):  # who waits for the answer learns it, too
                while True:
                    self._is_silent = True
                    await pause(_KEEP_ALIVE_S)
                    if self._is_silent:
                        await self.write(sign)

        keeping = asyncio.create_task(keep_alive())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a lone surrogate of a model is no UTF-8


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers as ASGI has them; what no header can contain is replaced."""
    return [(name.encode("latin-1"), _header_value(value)) for name, value in headers.items()]


def _header_value(value: str) -> bytes:
    printable = "".join(character if " " <= character <= "~" else "?" for character in value)
    return printable.strip().encode("ascii")
