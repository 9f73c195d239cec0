"""What other processes do, as Linux's /proc tells it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except (FileNotFoundError, ProcessLookupError):  # the second one: it ended between open and read
        return False


def children(pid: int) -> list[int]:
    """The processes that any of its threads has started; none where it has ended."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            found += map(int, (thread / "children").read_text().split())
    return found


def commands() -> list[bytes]:
    """The command lines of all processes, their words parted by NUL."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # as above; another user's
            found.append(path.read_bytes())
    return found


def wait_until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Until the condition holds.

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
