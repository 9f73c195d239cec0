"""A test process that is killed leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from support.processes import is_alive, wait_until

PROGRAM = """
import subprocess, sys
from support.leftovers import end_with_this_process
end = end_with_this_process()
sleeps = "import time; time.sleep(1000)"
alone = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {sleeps!r}]).pid, flush=True)"
subprocess.Popen([sys.executable, "-c", alone + "; " + sleeps], start_new_session=True).wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_what_a_killed_test_process_has_started_ends(number: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}  # noqa: PTH120  # a path for Python
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as tests:
        assert tests.stdout is not None
        grandchild = int(tests.stdout.readline())
        assert is_alive(grandchild)
        tests.send_signal(number)
    wait_until(lambda: not is_alive(grandchild))
