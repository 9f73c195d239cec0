"""Run child processes, kill them together with their descendants, and describe how they ended.

Invariant: no signal is sent to a process id that the system may have reused. A child keeps its id until it is
reaped, so a child is signalled only before it is waited for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_STEP_S = 0.01


def signal_name(number: int) -> str:
    """Return the name of a signal: `SIGSEGV`, `SIGRTMIN+3`; `signal 99` for an unknown number."""
    with suppress(ValueError):
        return signal.Signals(number).name
    # signal(7) names the realtime signals by their distance from the first; macOS has none
    first, last = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", 0)
    return f"SIGRTMIN+{number - first}" if first < number < last else f"signal {number}"


CRASH_SIGNALS = frozenset(
    {signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP}
)
"""Signals of a fault in the program. Others come from a person, another program, or lack of memory."""


def exit_signal(status: int) -> int | None:
    """Return the signal that killed a process, None for none.

    The status is -n for signal n, or 128 + n if a shell or a supervisor reports it.
    """
    if status < 0:
        return -status
    return status - 128 if status - 128 in signal.valid_signals() else None


def describe_exit(status: int) -> str:
    """Describe how a process ended: "was killed by SIGSEGV", "ended with status 1"."""
    number = exit_signal(status)
    return f"ended with status {status}" if number is None else f"was killed by {signal_name(number)}"


def pip_command() -> list[str]:
    """Return the command of pip, which runs as a tool of uv where this Python has none."""
    return [sys.executable, "-m", "pip"] if find_spec("pip") else ["uv", "tool", "run", "pip"]


def run_program(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program without input; return its status and output. Raises OSError and TimeoutExpired."""
    return subprocess.run(  # noqa: S603  # the caller's command
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
    )


def has_exited(pid: int) -> bool:
    """Return whether a child of this process has ended, without reaping it.

    Raises ChildProcessError if it is not a child, or was reaped.
    """
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    import psutil  # noqa: PLC0415  # macOS has no waitid before Python 3.13

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.ZombieProcess:
        return True
    except psutil.NoSuchProcess:
        raise ChildProcessError(f"{pid} is not a child process") from None


def kill_group(
    process: subprocess.Popen[str] | subprocess.Popen[bytes], *, grace_period: float = 2.0
) -> None:
    """End a session leader and its process group with SIGTERM, and after `grace_period` s with SIGKILL.

    Does nothing if the process was reaped: its id may be reused.
    """
    if process.returncode is not None:
        return
    # PermissionError: macOS raises it for a group without running processes
    with suppress(ProcessLookupError, PermissionError, ChildProcessError):
        os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + grace_period
        while not has_exited(process.pid) and time.monotonic() < end:
            time.sleep(_STEP_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_descendants(pid: int, *, grace_period: float = 5.0) -> None:
    """Kill all descendants of a process, until none runs or `grace_period` s have passed.

    psutil compares a process's start time before it sends a signal.
    """
    import psutil  # noqa: PLC0415  # importing it takes longer than most executors run, and few leave processes

    end = time.monotonic() + grace_period
    while True:
        try:
            running = [process for process in psutil.Process(pid).children(recursive=True) if _runs(process)]
        except psutil.NoSuchProcess:
            return
        if not running or time.monotonic() > end:
            return
        for process in running:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(_STEP_S)


def memory_of_descendants(pid: int, limit: int) -> int:
    """Return the memory of all descendants of a process, in bytes.

    Shared memory is counted once if the sum of all resident memory is above `limit`.
    """
    import psutil  # noqa: PLC0415  # as above

    resident, own = 0, 0
    with suppress(psutil.NoSuchProcess):
        running = psutil.Process(pid).children(recursive=True)
        for process in running:
            with suppress(psutil.Error):
                resident += process.memory_info().rss
        if resident <= limit:
            return resident
        for process in running:
            with suppress(psutil.Error):
                full = process.memory_full_info()
                own += getattr(full, "pss", full.uss)
    return own


def _runs(process: psutil.Process) -> bool:
    import psutil  # noqa: PLC0415  # as above

    with suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
