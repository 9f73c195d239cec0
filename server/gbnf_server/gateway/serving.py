"""Run the application with uvicorn: signals drain it.

At SIGTERM or Ctrl-C, new requests get 503 while running answers end, for at most `Limits.drain_s` seconds; a
second signal ends them at once. A call of a library that does not return cannot keep the process alive.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from gbnf_server.gateway.app import create_app
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.gateway.proxying import PassThrough
from gbnf_server.web.access import Access
from gbnf_server.web.http_server import server_config
from gbnf_server.web.logs import log

_GRACE_S = 5.0
"""To end, after the running answers have ended."""


def end_process_after(seconds: float, status: int) -> None:
    """End this process after so many seconds, whatever its threads do, unless it ends by then."""

    def end() -> None:
        log("forced_exit", status=status, reason="a call did not return")
        os._exit(status)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


class GatewayServer(uvicorn.Server):
    """uvicorn's server, with another end. Use it once.

    `passed`: see `create_app`. `end_process`: called at a signal with the seconds until the process should
    have ended, and its status.
    """

    def __init__(
        self,
        gateway: Gateway,
        access: Access,
        passed: PassThrough | None = None,
        end_process: Callable[[float, int], object] = lambda _seconds, _status: None,
    ) -> None:
        super().__init__(server_config(create_app(gateway, access, passed=passed)))
        self._gateway, self._end_process = gateway, end_process
        self._drains_until: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; at the second signal, end."""
        drain_s = self._gateway.limits.drain_s
        if self._gateway.is_draining:
            self.should_exit, drain_s = True, 0.0
        self._end_process(drain_s + _GRACE_S, 128 + sig)
        self._gateway.is_draining = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end, as uvicorn asks ten times a second."""
        if self._gateway.is_draining:
            now = time.monotonic()
            self._drains_until = self._drains_until or now + self._gateway.limits.drain_s
            if not self._gateway.open_requests or now > self._drains_until:
                self.should_exit = True
        return await super().on_tick(counter)
