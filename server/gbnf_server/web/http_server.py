"""How uvicorn serves an application of this project: connections that stall are closed."""

from __future__ import annotations

import asyncio

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gbnf_server.web.responses import ABORT

_HEAD_S = 30.0
"""For a client to send the head of a request."""
_LAST_BYTES_S = 1


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
        timeout_graceful_shutdown=_LAST_BYTES_S,
    )


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
