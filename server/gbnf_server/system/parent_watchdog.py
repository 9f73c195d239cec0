"""A program that runs another one for as long as its own standard input stays open.

    python parent_watchdog.py PROGRAM ARGUMENT…

The parent process has the other end of that pipe. When the parent exits, even if it is killed, the system
closes the pipe and the watchdog ends the program, so that no server outlives its parent. If the watchdog
itself is killed, Linux kills the program by its parent-death signal.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

_PR_SET_PDEATHSIG = 1  # prctl(2)
_GRACE_PERIOD = 5.0  # seconds between SIGTERM and SIGKILL


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_input(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        while os.read(0, 1024):  # not sys.stdin, which would be locked when the interpreter ends
            pass
    process.terminate()
    try:
        process.wait(_GRACE_PERIOD)
    except subprocess.TimeoutExpired:
        process.kill()


def main(command: list[str]) -> int:
    """Run the command to its end. Return its status: 128 + n for signal n, 127 if there is no program."""
    try:
        # No thread runs yet, which is what makes preexec_fn safe.
        process = subprocess.Popen(  # noqa: S603 - the command is what this program is given to run
            command,
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - see above
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        return 127
    threading.Thread(target=_end_with_input, args=(process,), daemon=True).start()
    status = process.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
