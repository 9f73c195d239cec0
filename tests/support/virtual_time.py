"""An event loop whose time is virtual: when nothing else is left to do, the next timer's time has come.

A timer may come before data that another thread is about to write: what ends in time is found, not what is
early.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from gbnf_server.backends import http_backend, http_client

_Value = TypeVar("_Value")
_LOOPBACK_S = 0.001
"""Real seconds in which what was written on this machine can be read."""


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait in virtual time. `timeout`: in seconds."""
        ready = super().select(0 if timeout is None or timeout > 0 else timeout)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        ready = super().select(None if timeout is None else _LOOPBACK_S)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class VirtualTime(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._timed = _Selector()
        super().__init__(self._timed)

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._timed.now


def run_in_virtual_time(main: Callable[[], Coroutine[Any, Any, _Value]]) -> tuple[_Value, float]:
    """Run a coroutine in a loop of its own; return its value, and the virtual seconds that it took.

    The deadlines of the HTTP client are in virtual time, too.
    """
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=VirtualTime) as runner:
        for module in (http_backend, http_client):
            patch.setattr(module, "monotonic", runner.get_loop().time)
        value = runner.run(main())
        return value, runner.get_loop().time()
