"""The process between the runner and an executor's process: it outlives the executor, and ends the rest.

Linux gives a process whose parent has ended to the nearest ancestor that asks for it (PR_SET_CHILD_SUBREAPER,
prctl(2)), which is this one: so a grandchild in a session of its own is still found when the executor ends,
however it ends. macOS has nothing similar: there, a grandchild is found only while its parent runs, and an
executor still runs when it has sent its result.

Invariants:

- It ends when the runner ends or closes its end of the connection; all its descendants have ended then.
- It signals only processes that it has not reaped, and their descendants as psutil identifies them.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from gbnf_server.system.processes import has_exited, kill_descendants

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 3.0
_STEP_S = 0.01
_LINUX = sys.platform == "linux"


def continue_supervised(
    connection: int, close_streams: Callable[[], object], *, grace_period: float = 0.0
) -> None:
    """Return in a new child process, in a session of its own; this one becomes its supervisor.

    `close_streams`: closes the child's streams in the supervisor. `connection`: the one with the runner. If
    the runner ends first, the child gets SIGTERM and up to `grace_period` s before it is killed. The runner
    is sent the child's status, an exit code or a signal's negative number, as a line of digits.
    """
    os.set_inheritable(connection, False)
    if _LINUX:  # elsewhere, neither are orphans adopted nor does the child end with this process
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    executor = os.fork()
    if executor:
        close_streams()
        _supervise(executor, connection, grace_period)
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()


def _supervise(executor: int, connection: int, grace_period: float) -> NoReturn:
    """Wait for the executor or the runner to end, then end everything, and exit."""
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, no byte is written
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while not has_exited(executor):
        ready, _, _ = select.select([woken, connection], [], [])
        if connection in ready:
            _terminate(executor, grace_period)
            break
        os.read(woken, 4096)
        _reap_orphans(executor)
    _end(executor, connection)
    os._exit(0)


def _terminate(executor: int, grace_period: float) -> None:
    end = time.monotonic() + grace_period
    if grace_period:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(executor, signal.SIGTERM)
    while time.monotonic() < end and not has_exited(executor):
        time.sleep(_STEP_S)


def _end(executor: int, connection: int) -> None:
    if not _LINUX:  # once it has ended, its grandchildren can no longer be found
        kill_descendants(os.getpid(), grace_period=_PATIENCE_S)
    for kill in (os.kill, os.killpg):  # it leads a process group, unless it has only just started
        with suppress(ProcessLookupError, PermissionError):
            kill(executor, signal.SIGKILL)
    _, status = os.waitpid(executor, 0)
    with suppress(OSError):  # the runner has ended, or has closed the connection
        os.write(connection, b"%d\n" % os.waitstatus_to_exitcode(status))
    end = time.monotonic() + _PATIENCE_S
    while _has_children() and time.monotonic() < end:
        kill_descendants(os.getpid(), grace_period=_PATIENCE_S)


def _reap_orphans(executor: int) -> None:
    """Reap the processes that ended before the executor, up to it: there may be many."""
    if _LINUX:
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == executor:
                return
            os.waitpid(ended.si_pid, 0)


def _has_children() -> bool:
    """Reap the processes that have ended; return whether others remain."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False
