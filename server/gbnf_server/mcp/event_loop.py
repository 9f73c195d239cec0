"""An event loop in a background thread, so that sessions live between blocking calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn, TypeVar

_Value = TypeVar("_Value")
_CLOSE_S = 30.0


async def _outcome(work: Coroutine[Any, Any, _Value]) -> Callable[[], _Value]:
    """Return what returns or raises what the coroutine did: asyncio logs an error that nobody awaits."""
    try:
        value = await work
    except Exception as error:  # noqa: BLE001 - it is raised where the outcome is called
        return partial(_raise, error)
    return lambda: value


def _raise(error: Exception) -> NoReturn:
    raise error


class BackgroundLoop:
    """Runs coroutines in a daemon thread: a program that forgets to close it still ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mcp", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Return what a coroutine returns; cancel it if the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(_outcome(work), self.loop)
        try:
            outcome = future.result()
        except BaseException:
            future.cancel()
            raise
        return outcome()

    async def await_here(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """As `run`, for the event loop of the caller."""
        outcome = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_outcome(work), self.loop))
        return outcome()

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
