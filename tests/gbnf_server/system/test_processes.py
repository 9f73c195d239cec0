"""Names of signals, and ending process groups without touching anybody else's."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.system.processes import (
    describe_exit,
    has_exited,
    kill_descendants,
    kill_group,
    memory_of_descendants,
    signal_name,
)
from support.hostile_executors import Reaped
from support.processes import is_alive, wait_until


@given(number=st.integers())
def test_every_number_has_a_name_of_its_own(number: int) -> None:
    name = signal_name(number)
    base, _, distance = name.partition("+")
    if name.startswith("signal "):
        assert name == f"signal {number}"
    else:
        assert signal.Signals[base] + int(distance or 0) == number


def test_a_signal_that_python_knows_has_its_name() -> None:
    assert [signal_name(int(each)) for each in signal.Signals] == [each.name for each in signal.Signals]


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="no realtime signals on this system")
def test_realtime_signals_are_named_by_their_distance() -> None:
    for distance in (1, 3, signal.SIGRTMAX - signal.SIGRTMIN - 1):
        assert signal_name(signal.SIGRTMIN + distance) == f"SIGRTMIN+{distance}"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("exit 255", "ended with status 255"),
        ("sh -c 'kill -SEGV $$'; exit $?", "was killed by SIGSEGV"),
        ("kill -TERM $$", "was killed by SIGTERM"),
    ],
)
def test_exit_statuses_and_signals_are_described(code: str, said: str) -> None:
    done = subprocess.run(["sh", "-c", code], stderr=subprocess.DEVNULL, check=False)
    assert describe_exit(done.returncode) == said


# ── ending processes ────────────────────────────────────────────────────────────────────────────────────────

POLITE = "print(flush=True); import time; time.sleep(90)"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); " + POLITE
LEAVING = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]).wait(90)"
ENDED = "print(flush=True)"


def started(code: str) -> subprocess.Popen[bytes]:
    """A process that leads its own session, and has printed a line."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as output:
        output.readline()
    return process


@pytest.mark.parametrize("code", [POLITE, STUBBORN, LEAVING, ENDED])
def test_a_group_is_never_signalled_after_its_leader_was_reaped(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    process = started(code)
    group = [process.pid, *(each.pid for each in psutil.Process(process.pid).children(recursive=True))]
    seen = Reaped(monkeypatch)
    kill_group(process, grace_period=0.2)
    assert process.returncode is not None
    assert seen.signalled
    wait_until(lambda: not any(map(is_alive, group)))


def test_a_process_that_was_reaped_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    process = started(ENDED)
    process.wait()
    seen = Reaped(monkeypatch)
    kill_group(process)
    assert seen.signalled == []


def test_a_polite_process_is_not_forced() -> None:
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); " + POLITE
    process = started(code)
    kill_group(process, grace_period=60)
    assert process.returncode == 7


def test_whether_a_child_has_ended_is_known_without_reaping_it() -> None:
    process = started(POLITE)
    assert not has_exited(process.pid)
    process.terminate()
    wait_until(lambda: has_exited(process.pid))
    assert has_exited(process.pid)
    assert process.wait() == -signal.SIGTERM
    with pytest.raises(ChildProcessError):
        has_exited(process.pid)


def test_descendants_in_sessions_of_their_own_are_found() -> None:
    process = started(LEAVING.replace("]).wait", "], start_new_session=True).wait"))
    descendants = [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
    assert descendants
    assert memory_of_descendants(process.pid, 1 << 40) > 1_000_000
    assert 0 < memory_of_descendants(process.pid, 0) <= memory_of_descendants(process.pid, 1 << 40)
    kill_descendants(process.pid)
    wait_until(lambda: not any(map(is_alive, descendants)))
    process.wait()
    kill_descendants(process.pid)  # nobody is there any more
    assert memory_of_descendants(process.pid, 0) == 0


# ── supervisors ─────────────────────────────────────────────────────────────────────────────────────────────

KILLED_EARLY = """
import ctypes, os, signal, socket
from gbnf_server.system import supervisor

real = ctypes.CDLL(None)

class Library:
    def prctl(self, option, *arguments):
        if option == 1:  # PR_SET_PDEATHSIG: the parent ends just before
            parent = os.getppid()
            os.kill(parent, signal.SIGKILL)
            while os.getppid() == parent:
                pass
        return real.prctl(option, *arguments)

supervisor.ctypes.CDLL = lambda _: Library()
connection, other = socket.socketpair()
supervisor.continue_supervised(connection.fileno(), lambda: None)
print("survived", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a process does not end with its supervisor")
def test_a_process_whose_supervisor_is_killed_while_it_starts_ends() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_EARLY], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == -signal.SIGKILL
