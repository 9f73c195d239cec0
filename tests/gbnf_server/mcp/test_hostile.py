"""Servers that behave badly: they fail their calls, in bounded time and memory, and never the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gbnf_server.executors import Context, run_executor
from gbnf_server.mcp import McpServerError, McpTools, mcp_tools
from gbnf_server.mcp.connection import MOST_TOOLS
from gbnf_server.system.errors import ExecutorError
from support.mcp_servers import hostile_server, named
from support.processes import is_alive, wait_until

pytestmark = pytest.mark.slow  # servers are programs


def ping(mcp: McpTools, there: Context, *, timeout_s: float = 30.0) -> dict[str, object]:
    tool = named(mcp, "ping")
    return run_executor(replace(tool, run=replace(tool.run, timeout_s=timeout_s)), {}, there)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("exits", r"(?s)it ended with status 2\. Run the command.*no configuration found"),
        ("unsupported", "cannot be used: no"),
        ("old", "1999-01-01"),
        ("no-list", "cannot be used: no"),
        ("bad-list", r"an invalid message of the server: .*tools"),
    ],
)
def test_a_server_that_does_not_start_says_why(mode: str, message: str) -> None:
    with pytest.raises(McpServerError, match=message) as caught, mcp_tools(hostile_server(mode)):
        pass
    assert hostile_server(mode) in str(caught.value)


def test_a_silent_server_has_a_time_limit(brief_exit: None) -> None:
    begun = time.monotonic()
    with (
        pytest.raises(McpServerError, match=r"it did not start within 0\.5 s"),
        mcp_tools(hostile_server("silent"), start_timeout_s=0.5),
    ):
        pass
    assert time.monotonic() - begun < 30  # it sleeps for 60 s


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("bad-result", "an invalid message of the server: .*content"),
        ("refuses", "'ping' failed: no such tool$"),
        ("killed", r"broke \(it was killed by SIGKILL\)"),
        ("deaf", "has no result after|it closed its standard input"),
        ("mute", r"broke \(it closed its standard output\)"),
        ("endless-line", r"broke \(it sent a message of more than 32 MB\)"),
    ],
)
def test_a_call_fails_and_the_next_one_too(
    mode: str, message: str, there: Context, request: pytest.FixtureRequest
) -> None:
    if mode in {"deaf", "mute"}:  # which go on
        request.getfixturevalue("brief_exit")
    with mcp_tools(hostile_server(mode)) as mcp:
        for _ in range(2):
            with pytest.raises(ExecutorError, match=message):
                ping(mcp, there, timeout_s=0.5 if mode == "deaf" else 60.0)


def test_garbage_between_messages_is_logged_and_ignored(there: Context) -> None:
    log: list[str] = []
    with mcp_tools(hostile_server("garbage"), on_log=lambda _, line: log.append(line)) as mcp:
        assert ping(mcp, there) == {"text": "pong"}
    assert "a line on its standard output is not a message: this is not JSON" in log


def test_standard_error_is_bounded(there: Context) -> None:
    lengths: list[int] = []
    with mcp_tools(hostile_server("endless-errors"), on_log=lambda _, line: lengths.append(len(line))) as mcp:
        assert ping(mcp, there) == {"text": "pong"}
    assert 0 < max(lengths) < 1000


@pytest.mark.parametrize(("mode", "count"), [("endless-pages", MOST_TOOLS), ("same-page", 2)])
def test_a_list_without_end_ends(mode: str, count: int) -> None:
    log: list[str] = []
    with mcp_tools(hostile_server(mode), on_log=lambda _, line: log.append(line)) as mcp:
        assert len(mcp.tools) == count
    assert (mode == "endless-pages") == any("more than" in line for line in log)


def test_a_server_that_ended_between_two_calls_is_started_again(there: Context) -> None:
    with mcp_tools(hostile_server("once")) as mcp:
        for _ in range(3):
            assert ping(mcp, there) == {"text": "pong"}
            time.sleep(0.2)


def test_requests_of_a_server_are_answered(there: Context) -> None:
    with mcp_tools(hostile_server("asks")) as mcp:
        assert ping(mcp, there) == {"text": "cancel refused"}


def test_a_server_that_goes_on_without_input_may_tidy_up(brief_exit: None) -> None:
    log: list[str] = []
    with mcp_tools(hostile_server("tidy"), on_log=lambda _, line: log.append(line)):
        pass
    assert log == ["tidied up"]


def test_child_processes_of_a_server_end_with_it(there: Context) -> None:
    with mcp_tools(hostile_server("child")) as mcp:
        pids = [int(pid) for pid in str(ping(mcp, there)["text"]).split()]
        assert all(map(is_alive, pids))
    wait_until(lambda: not any(map(is_alive, pids)))


_PROGRAM = """
import sys, time
from gbnf_server.executors import Context, Workspace, run_executor
from gbnf_server.mcp import mcp_tools
with mcp_tools(sys.argv[1]) as mcp:
    print(run_executor(mcp.tools[0], {}, Context(Workspace(sys.argv[2]), settings={}))["text"], flush=True)
    time.sleep(60)
"""
_NEVER_LEFT = """
import sys
from gbnf_server.mcp import mcp_tools
context = mcp_tools(sys.argv[1])
context.__enter__()
sys.exit(5)
"""


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_servers_end_with_the_program(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, hostile_server("child"), str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_environment()
    ) as program:
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2
        program.send_signal(number)
    wait_until(lambda: not any(map(is_alive, pids)))


def test_an_open_context_does_not_keep_the_program_alive() -> None:
    command = [sys.executable, "-c", _NEVER_LEFT, hostile_server("stubborn")]
    done = subprocess.run(command, env=_environment(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (5, b"")
