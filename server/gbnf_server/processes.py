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
