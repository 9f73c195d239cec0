"""Blocking callers get what coroutines return, yield or raise, and nothing runs on after they have left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextvars import ContextVar

import pytest

from gbnf_server.system.event_loop import BackgroundLoop, shared_loop

NAME: ContextVar[str] = ContextVar("NAME", default="")


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("test")
    yield loop
    loop.close()


async def count(to: int, ended: list[str], error: Exception | None = None) -> AsyncGenerator[int, None]:
    try:
        for number in range(to):
            await asyncio.sleep(0)
            yield number
        if error is not None:
            raise error
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise
    finally:
        ended.append("closed")


def test_a_result_an_error_and_a_cancellation_reach_the_caller(loop: BackgroundLoop) -> None:
    async def returns() -> str:
        return NAME.get()

    async def raises(error: BaseException) -> None:
        raise error

    NAME.set("of the caller")
    assert loop.run(returns()) == "of the caller"
    for kind in (ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError):
        with pytest.raises(kind):
            loop.run(raises(kind()))
    assert loop.run(returns()) == "of the caller"


def test_an_interrupted_caller_leaves_nothing_that_runs(
    loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("closed")

    waits = threading.Condition.wait
    interrupts = iter([True])

    def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
        if timeout is None and next(interrupts, False):
            raise KeyboardInterrupt
        return waits(condition, timeout)

    monkeypatch.setattr(threading.Condition, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        loop.run(hang())
    assert ended in ([], ["closed"])  # it may have been cancelled before its first step
    assert loop.run(asyncio.sleep(0, "free")) == "free"


def test_values_come_in_order_and_an_error_after_them(loop: BackgroundLoop) -> None:
    ended: list[str] = []
    assert list(loop.iterate(count(5, ended))) == [0, 1, 2, 3, 4]
    found: list[int] = []
    with pytest.raises(ValueError, match="at the end"):
        found.extend(loop.iterate(count(5, ended, ValueError("at the end"))))
    assert found == [0, 1, 2, 3, 4]
    assert ended == ["closed", "closed"]


def test_closing_early_closes_the_generator(loop: BackgroundLoop) -> None:
    ended: list[str] = []
    values = loop.iterate(count(10**9, ended))
    assert next(values) == 0
    values.close()
    assert ended[-1] == "closed"


def test_what_is_started_is_cancelled_and_done_once_it_has_ended(loop: BackgroundLoop) -> None:
    begun, ended = threading.Event(), []

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("closed")

    assert loop.start(asyncio.sleep(0, "found")).result() == "found"
    started = loop.start(hang())
    begun.wait()
    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        started.result()
    assert ended == ["closed"]


def test_closing_ends_what_still_runs() -> None:
    loop = BackgroundLoop("short")
    ended: list[str] = []

    async def forever() -> AsyncGenerator[str, None]:
        try:
            await asyncio.Event().wait()
            yield ""
        finally:
            ended.append("closed")

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            list(loop.iterate(forever()))

    thread = threading.Thread(target=run)
    thread.start()
    while not asyncio.all_tasks(loop.loop):
        pass
    loop.close()
    thread.join()
    assert ended in ([], ["closed"])


def test_closing_ends_what_has_not_begun() -> None:
    loop, blocks, go = BackgroundLoop("short"), threading.Event(), threading.Event()

    def block() -> None:
        blocks.set()
        go.wait()

    loop.loop.call_soon_threadsafe(block)
    blocks.wait()
    started = loop.start(asyncio.sleep(60))
    loop.loop.call_soon_threadsafe(loop.loop.stop)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        started.result(20)
    loop._thread.join()
    started.cancel()  # of what has ended


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_a_loop_of_its_own() -> None:
    assert shared_loop() is shared_loop()
    assert shared_loop().run(asyncio.sleep(0, 1)) == 1
    child = os.fork()
    if child == 0:
        try:
            os._exit(shared_loop().run(asyncio.sleep(0, 7)))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


HANGING = """
import asyncio, threading
from gbnf_server.system.event_loop import shared_loop

started = threading.Event()

def hang():
    started.set()
    threading.Event().wait()

asyncio.run_coroutine_threadsafe(asyncio.to_thread(hang), shared_loop().loop)
started.wait()
"""


def test_a_program_ends_though_a_blocking_call_does_not() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_closing_does_not_wait_for_a_blocking_call() -> None:
    loop = BackgroundLoop("test")
    started, go = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        go.wait()

    asyncio.run_coroutine_threadsafe(asyncio.to_thread(hang), loop.loop)
    started.wait()
    loop.close()
    assert not loop._thread.is_alive()
    go.set()
