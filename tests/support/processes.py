"""What other processes do, and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def children(pid: int) -> list[int]:
    """The processes that a process has started and not reaped; none where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def commands() -> list[str]:
    """The command lines of all processes."""
    return [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]


def wait_until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Wait until the condition is true.

    Raises:
        TimeoutError: It did not within `limit_s`, which is shorter than what the tests' processes sleep.
    """
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not come true within {limit_s} s")
        time.sleep(0.01)


def limits_s(first: float) -> Iterator[float]:
    """Time limits for a test of a limit that strikes: the first, and longer ones for a slow machine.

    Where a limit may strike before what is tested has begun, the test tries the next.
    """
    return iter((first, 5 * first, 25 * first))
