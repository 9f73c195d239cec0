"""An answer as a stream of server-sent events, kept alive while nothing of it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from gbnf_server.web.bodies import ClientLeftError
from gbnf_server.web.responses import EVENT_STREAM, Response

Pause: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits so many seconds."""

COMMENT = ": keep-alive\n\n"
"""An event without a type or data, which clients ignore."""

_KEEP_ALIVE_S = 10.0
"""How long a stream may be silent: proxies and clients close one after about 30 seconds."""


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
                await self._response.begin(200, {**EVENT_STREAM, **self._headers()})
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
