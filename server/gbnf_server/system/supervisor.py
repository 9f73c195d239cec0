"""Processes between this one and its children: each outlives one child, and ends the rest.

Linux gives a process whose parent has ended to the nearest ancestor that asks for it (PR_SET_CHILD_SUBREAPER,
prctl(2)), which is the supervisor: so a grandchild in a session of its own is still found when the child
ends, however it ends. macOS has nothing similar: there, a grandchild is found only while its parent runs, and
an executor still runs when it has sent its result.

Invariants:

- A supervisor ends when the other end of its connection closes, even because its process was killed; all its
  descendants have ended then. If the supervisor is killed, Linux kills the child.
- It signals only processes that it has not reaped, and their descendants as psutil identifies them.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from gbnf_server.system.processes import has_exited, kill_descendants

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 3.0
_STEP_S = 0.01
_LINUX = sys.platform == "linux"
_BOOT = (
    "import sys; sys.path[:] = sys.argv[3].split(chr(10)); "
    "from gbnf_server.system.supervisor import main; main(*sys.argv[1:3], sys.argv[4:])"
)


def supervised(command: Sequence[str], connection: int, grace_period: float) -> list[str]:
    """Return the command line of the supervisor of a command; arguments as of `continue_supervised`.

    It exits as the command does: with its status, with 128 + n if signal n has ended it, or with 127 if the
    program does not exist.
    """
    # -I: variables for the command's Python are not for the supervisor
    python, path = (sys.executable, "-I", "-c", _BOOT), "\n".join(sys.path)
    return [*python, str(connection), str(grace_period), path, *command]


def main(descriptor: str, grace_period: str, command: list[str]) -> NoReturn:
    """Run a command until it ends, or the other end of its connection closes; that may be standard input."""
    connection = int(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)

    def close_streams() -> None:
        for stream in {0, 1, 2} - {connection}:  # so that the command's pipes end with the command
            os.dup2(nothing, stream)

    continue_supervised(connection, close_streams, grace_period=float(grace_period))
    os.dup2(nothing, connection, inheritable=connection == 0)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)  # Python, and shells, ignore some, which is inherited
    try:
        os.execvp(command[0], command)  # noqa: S606  # the user's command
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def continue_supervised(
    connection: int, close_streams: Callable[[], object], *, grace_period: float = 0.0
) -> None:
    """Return in a new child process, in a session of its own; this one becomes its supervisor.

    `close_streams`: closes the child's streams in the supervisor. If the other end of `connection` closes
    first, the child gets SIGTERM and up to `grace_period` s before it is killed. It is sent the child's
    status, an exit code or a signal's negative number, as a line of digits.
    """
    os.set_inheritable(connection, False)
    if _LINUX:  # elsewhere, neither are orphans adopted nor does the child end with this process
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    supervisor, child = os.getpid(), os.fork()
    if child:
        close_streams()
        _supervise(child, connection, grace_period)
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # it was killed before
            os._exit(1)
    os.setsid()


def _supervise(child: int, connection: int, grace_period: float) -> NoReturn:
    """Wait for the child or the connection to end, then end everything, and exit."""
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, no byte is written
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while not has_exited(child):
        ready, _, _ = select.select([woken, connection], [], [])
        if connection in ready:
            end = time.monotonic() + grace_period
            if grace_period:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child, signal.SIGTERM)
            while time.monotonic() < end and not has_exited(child):
                time.sleep(_STEP_S)
            break
        os.read(woken, 4096)
        _reap_orphans(child)
    status = _end(child, connection)
    os._exit(status if status >= 0 else 128 - status)


def _end(child: int, connection: int) -> int:
    if not _LINUX:  # once it has ended, its grandchildren can no longer be found
        kill_descendants(os.getpid(), grace_period=_PATIENCE_S)
    for kill in (os.kill, os.killpg):  # it leads a process group, unless it has only just started
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(OSError):  # it is closed, or is a pipe
        os.write(connection, b"%d\n" % status)
    end = time.monotonic() + _PATIENCE_S
    while _has_children() and time.monotonic() < end:
        kill_descendants(os.getpid(), grace_period=_PATIENCE_S)
    return status


def _reap_orphans(child: int) -> None:
    """Reap the processes that ended before the child, up to it: there may be many."""
    if _LINUX:
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == child:
                return
            os.waitpid(ended.si_pid, 0)


def _has_children() -> bool:
    """Reap the processes that have ended; return whether others remain."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False
