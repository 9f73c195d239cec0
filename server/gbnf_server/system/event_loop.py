"""Daemon threads: an event loop for callers that block, and blocking work for event loops."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import Any, NoReturn, TypeVar

_Value = TypeVar("_Value")
_CLOSE_S = 30.0
"""How long an interrupted caller waits for what it has cancelled, and `close` for the thread."""


async def _outcome(work: Coroutine[Any, Any, _Value]) -> Callable[[], _Value]:
    """Return what returns or raises what the coroutine did: asyncio logs an error that nobody awaits."""
    try:
        value = await work
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised where the outcome is called
        return partial(_raise, error)
    return lambda: value


def _raise(error: BaseException) -> NoReturn:
    raise error


def run_in_thread(work: Callable[[], _Value]) -> Future[_Value]:
    """Start blocking work in a daemon thread: the program ends without waiting for it.

    That no thread can be started is an error of the work: callers give back what they took when it is done.
    """
    done: Future[_Value] = Future()
    done.set_running_or_notify_cancel()  # so that a waiting task that is cancelled does not cancel it

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
            done.set_exception(error)
        else:
            done.set_result(value)

    try:
        threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    except (RuntimeError, MemoryError) as error:
        done.set_exception(error)
    return done


class _DaemonThreads(ThreadPoolExecutor):  # asyncio accepts no other class as its default
    """Runs each call in a daemon thread of its own: before it exits, Python waits for those of a pool."""

    def submit(self, work: Callable[..., _Value], /, *args: Any, **keywords: Any) -> Future[_Value]:
        return run_in_thread(partial(work, *args, **keywords))


class BackgroundLoop:
    """Runs coroutines in a daemon thread: a program that forgets to close it still ends.

    So it does while a call in `asyncio.to_thread` waits, for a server that does not answer, say.
    """

    def __init__(self, name: str) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.loop = self._runner.get_loop()
        self.loop.set_default_executor(_DaemonThreads())
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Return what a coroutine returns; if the caller is interrupted, cancel it, and wait for its end."""
        started = _Started(self.loop, work)
        try:
            started.ended.wait()
        except BaseException:
            started.cancel()
            raise
        value: _Value = started.outcome()
        return value

    def iterate(self, values: AsyncGenerator[_Value, None]) -> Generator[_Value, None, None]:
        """Yield what an asynchronous generator yields; closing this closes it, and waits for its end."""
        arrived: queue.SimpleQueue[tuple[_Value] | None] = queue.SimpleQueue()

        async def pass_on() -> None:
            try:
                async with aclosing(values):
                    async for value in values:
                        arrived.put((value,))
            finally:
                arrived.put(None)

        started = _Started(self.loop, pass_on())
        try:
            while (found := arrived.get()) is not None:
                yield found[0]
        except BaseException:
            started.cancel()
            raise
        started.ended.wait()
        started.outcome()

    async def await_here(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """As `run`, for the event loop of the caller."""
        outcome = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_outcome(work), self.loop))
        return outcome()

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        with self._runner:  # it cancels what still runs
            self.loop.run_forever()


class _Started:
    """A coroutine that runs in the loop of another thread. `ended` is set when it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        self.ended = threading.Event()
        self.outcome: Callable[[], Any] = partial(_raise, asyncio.CancelledError())
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        loop.call_soon_threadsafe(self._start, work)

    def cancel(self) -> None:
        """Cancel the coroutine, and wait for its end, but not for ever: it may hang in a library."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        self.ended.wait(_CLOSE_S)

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = self._loop.create_task(_outcome(work))
        self._task.add_done_callback(partial(self._end, work))

    def _end(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[Any]) -> None:
        work.close()  # it may have been cancelled before its first step
        if not task.cancelled() and task.exception() is None:
            self.outcome = task.result()
        self.ended.set()


_shared: tuple[int, BackgroundLoop] | None = None
_lock = threading.Lock()


def shared_loop() -> BackgroundLoop:
    """Return the loop of this process for all blocking calls; a forked process has one of its own."""
    global _shared  # noqa: PLW0603 - one for the process
    with _lock:
        if _shared is None or _shared[0] != os.getpid():
            _shared = os.getpid(), BackgroundLoop("gbnf")
        return _shared[1]
