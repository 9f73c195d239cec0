"""Run the application with uvicorn: signals drain it.

At SIGTERM or Ctrl-C, new requests get 503 while running answers end, for at most `Limits.drain_s` seconds; a
second signal ends them at once.
"""

from __future__ import annotations

import socket
import time
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from gbnf_server.gateway.gateway import Gateway
from gbnf_server.web.http_server import server_config


class GatewayServer(uvicorn.Server):
    """uvicorn's server, with another end. Use it once."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        super().__init__(server_config(app))
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


def serve(app: ASGIApp, gateway: Gateway, listening: socket.socket) -> None:
    """Serve until a signal. Call it in the main thread."""
    GatewayServer(app, gateway).run(sockets=[listening])
