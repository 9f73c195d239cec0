"""Fork servers: since starting Python takes longer than most calls, an executor's process is forked.

A fork server is a new Python process that has imported what every executor needs (`child_process`). For each
call it forks a process, the supervisor of that call, which forks the executor's.

Invariants:

- A fork server runs no code of an executor, and gets nothing of a call but descriptors: the arguments, the
  environment and the credentials of a call go to its executor only.
- The import path, the variables that matter when a process starts, and what the kernel passes on to children
  are those of the call; where they differ, another fork server is started. Calls of the same one share the
  seed of `hash`, and addresses.
- A fork server that was killed, stopped or limited is replaced; a running call does not need it.
- It ends with this process, however that ends. A process that is forked from this one starts its own.
- Where forking without exec is unsafe (macOS), a fork server becomes the supervisor of one call.
"""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

INHERITED_VARIABLES = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)
"""Environment variables for every executor, besides ``LC_*`` and `PATH_VARIABLES`."""

PATH_VARIABLES = frozenset(
    {"PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONTZPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
    | {"DYLD_FALLBACK_LIBRARY_PATH"}
)
"""Environment variables that every executor gets, without what lies in the workspace: Python and the system
load code from there."""

_READ_AT_START = ("PYTHON", "LD_", "DYLD_", "LC_", "GLIBC_", "MALLOC_", "OPENSSL_")
_INHERITED = re.compile(
    rb"^(?:Umask|Uid|Gid|Groups|Sig(?:Blk|Ign)|Cap\w+|NoNewPrivs|Seccomp|Mems_allowed):.*", re.MULTILINE
)
_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from gbnf_server.executors.child_process import main; main(*map(int, sys.argv[1:3]))"
)
_ResourceLimits: TypeAlias = tuple[bytes, tuple[int, ...], int]

_MAX_SERVERS = 4
_PATIENCE_S = 5.0  # for an answer, if there was one before


class ForkServer:
    """A fork server, which ends with this object. `output`: where it prints why it cannot start."""

    def __init__(self, path: Sequence[str], environment: Mapping[str, str], output: int) -> None:
        self._requests, theirs = socket.socketpair()
        self._requests.setblocking(False)
        options = map(str, (theirs.fileno(), int(not is_reused())))
        with theirs, ExitStack() as unused:
            unused.enter_context(self._requests)
            self.process = subprocess.Popen(  # noqa: S603  # our own interpreter and code
                # -P: no module is imported from the current folder
                [sys.executable, "-P", "-c", _BOOT, *options, *path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
            unused.pop_all()
        self._answers: bool | None = None  # not known before the first request
        self.end = weakref.finalize(self, _end, self.process, self._requests)

    def serves(self, limits: _ResourceLimits) -> bool:
        """Return whether it runs, with these limits: other processes of its user can change them."""
        if self._answers is False:
            return False
        changes, pid = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT, self.process.pid
        try:
            return not os.waitid(os.P_PID, pid, changes) and _limits(pid) == limits
        except OSError:  # it was reaped
            return False

    def fork(self, descriptors: Sequence[int], connection: socket.socket, limit_s: float | None) -> int:
        """Return the process id that the new supervisor has written to `connection`; 0 if there is none.

        `descriptors`: those that `child_process.main` expects.
        """
        if self._answers:
            limit_s = min(limit_s or _PATIENCE_S, _PATIENCE_S)
        pid = 0
        with suppress(OSError):  # it has ended, or reads nothing
            socket.send_fds(self._requests, [b"+"], descriptors)
            answers = select.poll()
            answers.register(connection, select.POLLIN)
            answers.register(self._requests, select.POLLIN)  # at its end only
            ready = answers.poll(None if limit_s is None else limit_s * 1000)
            if any(descriptor == connection.fileno() for descriptor, _ in ready):
                pid = int.from_bytes(connection.recv(8), "big")
        self._answers = pid > 0
        return pid


def _end(process: subprocess.Popen[bytes], requests: socket.socket) -> None:
    requests.close()
    process.kill()  # it may be stopped
    process.wait()


def _limits(pid: int) -> _ResourceLimits:
    """Return the limits of a process that it passes on; of this thread for 0."""
    limits = Path(f"/proc/{pid or 'self'}/limits").read_bytes()
    return limits, tuple(sorted(os.sched_getaffinity(pid))), os.getpriority(os.PRIO_PROCESS, pid)


@cache
def is_reused() -> bool:
    """Return whether a fork server serves several calls. It does where pidfd_open(2) identifies processes."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:  # another call has the answer
            raise
        return False
    except AttributeError:
        return False
    return True


_servers: dict[tuple[Any, ...], ForkServer] = {}  # in the order of their last use
_lock = threading.Lock()


def fork_server(
    path: Sequence[str], environment: Mapping[str, str], output: int = subprocess.DEVNULL
) -> ForkServer:
    """Return a fork server for calls with this import path and environment, a running one if there is one."""
    common = INHERITED_VARIABLES | PATH_VARIABLES
    at_start = {
        name: value
        for name, value in environment.items()
        if name in common or name.startswith(_READ_AT_START)
    }
    key: tuple[Any, ...] = (sys.executable, *path, *sorted(at_start.items()))
    if is_reused():  # by calls for which the kernel passes on the same (proc(5))
        limits = _limits(0)
        key += (limits, *_INHERITED.findall(Path("/proc/thread-self/status").read_bytes()))
    with _lock:
        server = _servers.pop(key, None)
        if server is None or (is_reused() and not server.serves(limits)):
            server = ForkServer(path, at_start, output)
        if is_reused() or output == subprocess.DEVNULL:
            _servers[key] = server
        if len(_servers) > _MAX_SERVERS:
            del _servers[next(iter(_servers))]
        return server


def _forget() -> None:
    """Close the connections in a forked process: the fork servers are its parent's."""
    global _lock  # noqa: PLW0603  # another thread may have held it
    _lock = threading.Lock()
    for server in _servers.values():
        server.process.returncode = 0  # its parent waits for it
        server.end()
    _servers.clear()


os.register_at_fork(after_in_child=_forget)
