"""Ends what a test process has started, if that process is killed: a server would run on for ever.

A process of its own waits for the end of the test process, however it ends. It knows the processes by a
variable of their environment, which each process gets from the one that starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import suppress

import psutil

VARIABLE = "GBNF_TEST_PROCESS"


def end_with_this_process() -> subprocess.Popen[bytes]:
    """Mark this process's children from now on, and start the process that ends them."""
    os.environ[VARIABLE] = uuid.uuid4().hex
    command = [sys.executable, __file__, os.environ[VARIABLE]]
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)


def marked(mark: str) -> list[psutil.Process]:
    """The processes with this mark."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(VARIABLE) == mark:
                found.append(process)
    return found


if __name__ == "__main__":
    sys.stdin.read()  # until the test process has ended
    while left := marked(sys.argv[1]):
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)
