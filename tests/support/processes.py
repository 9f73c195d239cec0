"""What other processes do, as Linux's /proc tells it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except (FileNotFoundError, ProcessLookupError):  # the second one: it ended between open and read
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


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
