"""Ending child processes together with all that they have started, and naming how they ended."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress


def signal_name(number: int) -> str:
    """Return the name of a signal: `SIGSEGV`, `SIGRTMIN+3`; `signal 99` for a number without one."""
    with suppress(ValueError):
        return signal.Signals(number).name
    # signal(7) names the realtime signals by their distance from the first; macOS has none
    first, last = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", 0)
    return f"SIGRTMIN+{number - first}" if first < number < last else f"signal {number}"


def kill_group(process: subprocess.Popen[str] | subprocess.Popen[bytes], *, patience: float = 2.0) -> None:
    """End a process that leads its own session, and its children: politely, by force after `patience` s."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP}
)
"""Signals that a program brings on itself. Others come from a person, another program, or want of memory."""


def ending_signal(status: int) -> int | None:
    """Return the signal that a process died of, None if it ended by itself.

    Its status is then below 0, or above 128 behind a shell or a keeper.
    """
    number = -status if status < 0 else status - 128
    return number if number > 0 else None


def ending(status: int) -> str:
    """Say how a process ended: "was killed by SIGSEGV", "ended with status 1"."""
    number = ending_signal(status)
    return f"ended with status {status}" if number is None else f"was killed by {signal_name(number)}"
