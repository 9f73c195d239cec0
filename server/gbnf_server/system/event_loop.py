"""Daemon threads: an event loop for callers that block, and blocking work for event loops."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import aclosing, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_CLOSE_S = 30.0
"""How long an interrupted caller waits for what it has cancelled, and `close` for the thread."""


def run_in_thread(work: Callable[[], _Value]) -> Future[_Value]:
    """Start blocking work in a daemon thread: the program ends without waiting for it.

    That no thread can be started is an error of the work: callers give back what they took when it is done.
    """
    done: Future[_Value] = Future()
    done.set_running_or_notify_cancel()  # so that a waiting task that is cancelled does not cancel it

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001  # it is raised again where the result is awaited
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

    def start(self, work: Coroutine[Any, Any, _Value]) -> Future[_Value]:
        """Start a coroutine. Its future is done once it has ended, and cancelling that cancels it."""
        return _RunningCoroutine(work, self.loop)

    def run(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Return what a coroutine returns; if the caller is interrupted, cancel it, and wait for its end."""
        with self._running(work) as started:
            return started.result()

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

        with self._running(pass_on()) as started:
            while (item := arrived.get()) is not None:
                yield item[0]
            started.result()

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_S)

    @contextmanager
    def _running(self, work: Coroutine[Any, Any, _Value]) -> Iterator[Future[_Value]]:
        """Give the future of a coroutine; after an error, cancel it, and wait for its end.

        Not for ever: it may hang in a library.
        """
        started = self.start(work)
        try:
            yield started
        except BaseException:
            started.cancel()
            wait([started], _CLOSE_S)
            raise

    def _run(self) -> None:
        with self._runner:  # it cancels what still runs
            self.loop.run_forever()


class _RunningCoroutine(Future[_Value]):
    """What a coroutine in another thread returns or raises. `cancel` only cancels the coroutine."""

    def __init__(self, work: Coroutine[Any, Any, _Value], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._work, self._loop = work, loop
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start)

    def cancel(self) -> bool:
        """Cancel the coroutine, whose end is then the end of this."""
        if not self.done():
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        return not self.done()

    def _start(self) -> None:
        self._task = self._loop.create_task(self._settle())
        self._task.add_done_callback(self._end)

    async def _settle(self) -> None:
        try:
            value = await self._work
        except BaseException as error:  # noqa: BLE001  # it is raised again where the result is awaited
            self.set_exception(error)
        else:
            self.set_result(value)

    def _end(self, _task: asyncio.Task[None]) -> None:
        if not self.done():  # it was cancelled before its first step
            self._work.close()
            self.set_exception(asyncio.CancelledError())


_shared: tuple[int, BackgroundLoop] | None = None
_lock = threading.Lock()


def shared_loop() -> BackgroundLoop:
    """Return the loop of this process for all blocking calls; a forked process has one of its own."""
    global _shared  # noqa: PLW0603  # one for the process
    with _lock:
        if _shared is None or _shared[0] != os.getpid():
            _shared = os.getpid(), BackgroundLoop("gbnf")
        return _shared[1]
