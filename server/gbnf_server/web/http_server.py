"""Listen on a port, and serve an application with uvicorn: connections that stall are closed."""

from __future__ import annotations

import asyncio
import socket

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gbnf_server.system.errors import SetupError
from gbnf_server.web.responses import ABORT

_HEAD_S = 30.0
"""For a client to send the head of a request."""
KEEP_ALIVE_S = 25
"""For which an idle connection stays open: longer than clients keep one (httpx 5, Node 4). Otherwise one may
send a request on a connection that is being closed."""
_LAST_BYTES_S = 1
_INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
_FIRST_ASK_S, _ASK_S = 0.05, 1.0
"""Between the interim responses to a client that has closed its side."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: any. Raises SetupError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
        # Connections inherit it. Otherwise the body of an answer may wait 40 ms for the receipt of its head.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        reason = error.strerror or str(error)
        raise SetupError(
            f"{host} port {port} cannot be used: {reason}. Choose another port; 0 is any."
        ) from None


def url_of(host: str, listening: socket.socket) -> str:
    """Return the URL of a server on a socket."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"


def server_config(app: ASGIApp) -> uvicorn.Config:
    """Return the configuration: HTTP only, no log, no header that names the server."""
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LAST_BYTES_S,
    )


class _Protocol(H11Protocol):
    """A connection that is closed if the head of a request takes too long, and that a request can abort.

    A client that closes its side before the answer begins may still read the answer, or have left: only
    sending something tells.
    """

    _head: asyncio.TimerHandle | None = None
    _asking: asyncio.TimerHandle | None = None

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
        if self._asking is not None:
            self._asking.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's: whether it stays open for sending
        super().eof_received()
        if self.cycle is None or self.cycle.response_started or self.conn.their_state is not h11.DONE:
            return False
        self.cycle.keep_alive = False
        self._ask(_FIRST_ASK_S)
        return True

    def _ask(self, pause: float) -> None:
        """Send an interim response (RFC 9110, 15.2), which the system of a client that has left refuses."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_started and not self.transport.is_closing():
            self.transport.write(_INTERIM)
            self._asking = self.loop.call_later(pause, self._ask, _ASK_S)

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
