"""Run the application with uvicorn: signals drain it, and connections that stall are closed.

At SIGTERM or Ctrl-C, new requests get 503 while running answers end, for at most `Limits.drain_s` seconds; a
second signal ends them at once.
"""

from __future__ import annotations

import asyncio
import socket
import time
from types import FrameType

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gbnf_server.gateway.gateway import Gateway
from gbnf_server.gateway.responses import ABORT

_HEAD_S = 30.0
"""For a client to send the head of a request."""
_LAST_BYTES_S = 1


class GatewayServer(uvicorn.Server):
    """uvicorn's server, with another end. Use it once."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_LAST_BYTES_S,
            )
        )
        self._gateway = gateway
        self._drains_until: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; at the second signal, end."""
        del sig, frame
        if self._gateway.is_draining:
            self.should_exit = True
        self._gateway.is_draining = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end, as uvicorn asks ten times a second."""
        if self._gateway.is_draining:
            now = time.monotonic()
            self._drains_until = self._drains_until or now + self._gateway.limits.drain_s
            if not self._gateway.open_requests or now > self._drains_until:
                self.should_exit = True
        return await super().on_tick(counter)


class _Protocol(H11Protocol):
    """A connection that is closed if the head of a request takes too long, and that a request can abort."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.app_state = {**self.app_state, ABORT: transport.abort}
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def _watch_head(self) -> None:
        """Start the time limit if no request is being answered, stop it otherwise."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._head is None:
            self._head = self.loop.call_later(_HEAD_S, self.transport.abort)

    def _unwatch(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


def serve(app: ASGIApp, gateway: Gateway, listening: socket.socket) -> None:
    """Serve until a signal. Call it in the main thread."""
    GatewayServer(app, gateway).run(sockets=[listening])
