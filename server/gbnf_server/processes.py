"""Ending child processes together with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress


def kill_group(process: subprocess.Popen[str] | subprocess.Popen[bytes], *, patience: float = 2.0) -> None:
    """End a process that leads its own session, and its children: politely, by force after `patience` s."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
