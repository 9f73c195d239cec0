"""A process forked for a call is as a new one, whatever earlier calls have done to their fork server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from gbnf import load_tools
from gbnf.tools import Tool
from gbnf_server.executors import (
    AbsentPerson,
    Context,
    ExecutorError,
    Form,
    fork_server,
    prepare_executors,
    run_executor,
)
from support.executors import world
from support.hostile_executors import HOSTILE, MARK
from support.processes import children, is_alive, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not fork_server.is_reused(), reason="fork servers are used once on this system"),
]

CODE = """
import builtins, ctypes, gc, json, locale, os, random, resource, signal, socket, sys, threading, time
import warnings
import psutil
import gbnf_server.executors as executors
from gbnf_server.executors import Field, Form

supervisor = os.getppid()
server = psutil.Process(supervisor).ppid()


def state():
    kinds = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")[:-1]]
    prctl = ctypes.CDLL(None).prctl
    death_signal = ctypes.c_int()
    prctl(2, ctypes.byref(death_signal), 0, 0, 0)
    os.umask(umask := os.umask(0))
    return {
        "environment": dict(os.environ), "folder": os.getcwd(), "umask": umask, "nice": os.nice(0),
        "path": [*sys.path], "flags": list(sys.flags), "command": sys.argv[0], "files": sorted(
            kind.partition(":")[0] for kind in kinds
        ),
        "main": sorted(vars(sys.modules["__main__"])), "builtins": sorted(vars(builtins)),
        "package": sorted(vars(executors)), "json": sorted(vars(json)), "filters": len(warnings.filters),
        "locale": locale.setlocale(locale.LC_ALL), "recursion": sys.getrecursionlimit(),
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "wakes": signal.set_wakeup_fd(-1),
        "limits": [resource.getrlimit(number) for number in range(resource.RLIMIT_NOFILE + 1)],
        "threads": threading.active_count(), "gc": gc.isenabled(),
        "output": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stdout.isatty()],
        "writes no bytecode": sys.dont_write_bytecode, "argument": sys.stdin.read(),
        "leads": [os.getsid(0) - os.getpid(), os.getpgid(0) - os.getpid()],
        "death signal": death_signal.value, "dumpable": prctl(3, 0, 0, 0, 0),
        "supervisor leads": os.getsid(supervisor) - supervisor,
        "children's time": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime,
        "used time": time.process_time() > 0.5, "cores": len(os.sched_getaffinity(0)),
    }


def run(arguments, context):
    answer = {
        "state": state(), "modules": sorted(sys.modules), "random": random.random(), "hash": hash("a"),
        "server": server, "supervisor": supervisor,
    }
    if arguments.get("asks"):
        context.ask(Form("F", (Field("a", "A?", "text"),)))
    exec(arguments.get("code", ""), globals())
    return answer
"""

SPOIL = """
sys.modules["spoilt"] = sys.modules["__main__"].spoilt = sys
builtins.spoilt = executors.spoilt = json.spoilt = 1
del os.environ["PATH"]
os.environ["SPOILT"] = "1"
os.chdir("/")
os.umask(0)
os.nice(5)
locale.setlocale(locale.LC_ALL, "POSIX")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
    signal.signal(number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
threading.Thread(target=time.sleep, args=[60], daemon=True).start()
sys.path.insert(0, "/spoilt")
sys.argv[0] = "spoilt"
sys.setrecursionlimit(500)
warnings.simplefilter("ignore")
gc.disable()
random.seed(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
kept = [open(os.devnull) for _ in range(20)]
print("spoilt", end="")
"""

PROGRAM = """
import os, sys, time
from pathlib import Path
from gbnf.tools import Tool
from gbnf_server.executors import Context, Workspace, fork_server, run_executor
mapping = {"name": "mine", "description": "x", "args": {}, "run": {}}
mine = Tool.from_mapping(mapping, Path(sys.argv[1]))
context = Context(Workspace(sys.argv[2]))

def server():
    return run_executor(mine, {}, context)["server"]

print(first := server(), flush=True)
"""


def made(folder: Path, *, env: tuple[str, ...] = ()) -> Tool:
    folder.mkdir(exist_ok=True)
    (folder / "executor.py").write_text(CODE)
    run = {"env": list(env), "timeout_s": 60}
    mapping = {"name": "mine", "description": "Mine.", "args": {}, "run": run}
    return Tool.from_mapping(mapping, folder / "manifest.toml")


@pytest.fixture
def mine(tmp_path: Path) -> Tool:
    return made(tmp_path / "mine")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return world(tmp_path / "space")


@pytest.fixture
def used_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a system without pidfd_open(2)."""
    monkeypatch.delattr(os, "pidfd_open")
    fork_server.is_reused.cache_clear()
    yield
    monkeypatch.undo()
    fork_server.is_reused.cache_clear()


def called(tool: Tool, context: Context, code: str = "") -> dict[str, Any]:
    return run_executor(tool, {"code": textwrap.dedent(code)}, context)


# ── a forked process is as a new one ────────────────────────────────────────────────────────────────────────


def test_a_call_finds_nothing_of_the_one_before(mine: Tool, context: Context) -> None:
    first, second = called(mine, context, SPOIL), called(mine, context)
    assert second["server"] == first["server"]
    assert second["supervisor"] != first["supervisor"]
    assert second["state"]["files"] == ["/dev/null", *["pipe"] * 4]  # no connection of others
    assert second["state"] == first["state"]
    assert "spoilt" not in second["modules"]
    assert second["random"] != first["random"]


def test_a_call_finds_what_a_new_process_has(
    mine: Tool, context: Context, request: pytest.FixtureRequest
) -> None:
    forked = called(mine, context)
    request.getfixturevalue("used_once")
    new = called(mine, context)
    assert new["supervisor"] not in {forked["supervisor"], forked["server"]}
    assert new["server"] == os.getpid()
    assert new["state"] == forked["state"]
    assert set(new["modules"]) <= set(forked["modules"])


def test_no_code_of_an_executor_is_loaded_before_its_call(mine: Tool, context: Context) -> None:
    """Where a module of ours is edited between two calls, the second call has the new one."""
    assert mine.path is not None
    assert called(mine, context)["state"]
    (mine.path.parent / "executor.py").write_text("import helper\ndef run(*_): return {'is': helper.IS}")
    (mine.path.parent / "helper.py").write_text("IS = 'new'")
    assert run_executor(mine, {}, context) == {"is": "new"}


# ── what a process has from its start ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [("PYTHONHASHSEED", "1", "2"), ("TZ", "Asia/Tokyo", "UTC"), ("LC_ALL", "C", "C.UTF-8")],
)
def test_variables_that_matter_at_the_start_of_a_process_are_those_of_the_call(
    tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch, name: str, value: str, other: str
) -> None:
    tool = made(tmp_path / "mine", env=("PYTHONHASHSEED",))
    found = []
    for each in (value, other, value):
        monkeypatch.setenv(name, each)
        found.append(called(tool, context))
    assert found[0]["server"] == found[2]["server"] != found[1]["server"]
    assert [each["state"]["environment"][name] for each in found] == [value, other, value]
    assert found[0]["state"] == found[2]["state"]
    if name == "PYTHONHASHSEED":
        assert found[0]["hash"] == found[2]["hash"] != found[1]["hash"]


def test_there_are_few_fork_servers(
    tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = made(tmp_path / "mine", env=("PYTHONHASHSEED",))
    servers = []
    for seed in range(fork_server._MAX_SERVERS + 2):
        monkeypatch.setenv("PYTHONHASHSEED", str(seed))
        servers.append(called(tool, context)["server"])
    assert len(set(servers)) == len(servers)
    alive = [is_alive(pid) for pid in servers]
    assert alive == [False] * 2 + [True] * fork_server._MAX_SERVERS


def test_what_this_process_passes_on_is_of_the_moment_of_the_call(mine: Tool, context: Context) -> None:
    before = called(mine, context)["state"]
    usable, mask = os.sched_getaffinity(0), os.umask(0o077)
    os.sched_setaffinity(0, {min(usable)})
    try:
        within = called(mine, context)["state"]
    finally:
        os.umask(mask)
        os.sched_setaffinity(0, usable)
    assert (within["umask"], within["cores"]) == (0o077, 1)
    assert called(mine, context)["state"] == before


def test_a_process_that_cannot_start_says_why(
    mine: Tool, context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    with pytest.raises(ExecutorError, match=r"ended with exit code 1 .*; its last output: .*"):
        called(mine, context)
    monkeypatch.undo()
    assert called(mine, context)


def test_a_missing_workspace(mine: Tool, context: Context) -> None:
    context.workspace.root.rename(context.workspace.root.with_name("moved"))
    with pytest.raises(ExecutorError, match=r"could not be started: .*No such file or directory"):
        called(mine, context)


# ── what is a call's own ────────────────────────────────────────────────────────────────────────────────────


def test_calls_at_the_same_time_see_their_own_variables_only(tmp_path: Path) -> None:
    names = [f"GBNF_X{number}" for number in range(6)]
    tools = [made(tmp_path / name, env=(name,)) for name in names]
    settings = {name: f"value of {name}" for name in names}
    context = world(tmp_path / "space", settings=settings)
    with ThreadPoolExecutor(len(tools)) as threads:
        found = list(threads.map(lambda tool: called(tool, context, "time.sleep(0.1)"), tools * 3))
    assert len({each["server"] for each in found}) == 1
    for name, each in zip(names * 3, found, strict=True):
        environment = each["state"]["environment"]
        assert {key: value for key, value in environment.items() if key.startswith("GBNF_")} == {
            name: settings[name]
        }


def test_large_variables_arrive(tmp_path: Path) -> None:
    value = "x" * 1_000_000  # more than execve(2) takes
    context = world(tmp_path / "space", settings={"GBNF_X": value})
    assert (
        called(made(tmp_path / "mine", env=("GBNF_X",)), context)["state"]["environment"]["GBNF_X"] == value
    )


def test_the_fork_server_has_nothing_of_a_call(tmp_path: Path) -> None:
    """Neither its variables, nor its arguments, nor what a person typed, as its memory shows."""
    tokens = [f"token-{os.urandom(8).hex()}" for _ in range(3)]

    class Typing(AbsentPerson):
        def answer(self, form: Form) -> dict[str, Any]:
            return {"a": tokens[2]}

    context = world(tmp_path / "space", settings={"GBNF_X": tokens[0]}, person=Typing())
    tool = made(tmp_path / "mine", env=("GBNF_X",))
    found = run_executor(tool, {"code": f"token = {tokens[1]!r}", "asks": True}, context)
    assert found["state"]["environment"]["GBNF_X"] == tokens[0]
    try:
        memory = memory_of(found["server"])
    except PermissionError:
        pytest.skip("this system does not show the memory of other processes")
    assert b"gbnf_server.executors" in memory
    assert not [token for token in tokens if token.encode() in memory]


def memory_of(pid: int) -> bytes:
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line):
                start, end = (int(each, 16) for each in found.groups())
                with suppress(OSError):
                    memory.seek(start)
                    parts.append(memory.read(end - start))
    return b"".join(parts)


# ── attacks on the fork server ──────────────────────────────────────────────────────────────────────────────

SIGNALS = ("SIGKILL", "SIGSTOP", "SIGTERM", "SIGINT", "SIGHUP", "SIGSEGV", "SIGUSR1")
HARMLESS = ("SIGCHLD", "SIGCONT", "SIGPIPE", "SIGTSTP", "SIGWINCH")
ATTACKS = {
    **{f"sends_{name}": f"os.kill(server, signal.{name})" for name in (*SIGNALS, *HARMLESS)},
    "kills_its_group": "os.killpg(server, signal.SIGKILL)",
    "ends_its_descriptors": "resource.prlimit(server, resource.RLIMIT_NOFILE, (3, 3))",
    "ends_its_processes": "resource.prlimit(server, resource.RLIMIT_NPROC, (1, 1))",
    "ends_its_time": "resource.prlimit(server, resource.RLIMIT_CPU, (1, 1))",
    "ends_its_memory": "resource.prlimit(server, resource.RLIMIT_DATA, (1 << 20, 1 << 20))",
    "limits_its_cores": "os.sched_setaffinity(server, {min(os.sched_getaffinity(0))})",
    "slows_it": "os.setpriority(os.PRIO_PROCESS, server, 19)",
    "kills_both": "os.kill(server, 9)\nos.kill(supervisor, 9)\ntime.sleep(60)",
    "stops_both": "os.kill(server, 19)\nos.kill(supervisor, 19)",
    "kills_it_later": "if os.fork() == 0:\n    os.setsid()\n    time.sleep(0.2)\n    os.kill(server, 9)\n"
    "time.sleep(0.5)",
    "writes_everywhere": "for number in range(3, 64):\n    try: os.write(number, b'+\\n' * 500)\n"
    "    except OSError: pass\ntime.sleep(60)",
    "closes_everything": "os.closerange(0, 64)\ntime.sleep(60)",
    "joins_its_group": "os.setpgid(0, server)",
    "opens_its_descriptors": "for each in os.listdir(f'/proc/{server}/fd'):\n"
    "    try: os.write(os.open(f'/proc/{server}/fd/{each}', os.O_WRONLY), b'+')\n    except OSError: pass",
    "leaves_processes": "for _ in range(20):\n    if os.fork() == 0: os.setsid(); time.sleep(60)",
    "forks_without_end": "resource.setrlimit(resource.RLIMIT_CPU, (2, 2))\n"
    "while time.process_time() < 0.2:\n    if os.fork() == 0: time.sleep(60)",
}


def is_ignored(name: str) -> bool:
    """Return whether the tests were started with the signal ignored, as by nohup, which is inherited."""
    return signal.getsignal(signal.Signals[name]) is signal.SIG_IGN


@pytest.mark.parametrize("attack", ATTACKS)
def test_calls_after_an_attack_are_as_before(
    mine: Tool, context: Context, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    before = called(mine, context)
    if attack == "stops_both":
        monkeypatch.setattr("gbnf_server.executors.runner._PATIENCE_S", 0.5)
    try:
        within = called(mine, context, ATTACKS[attack])
        assert within["server"] == before["server"]
    except ExecutorError:
        assert attack in {"kills_both", "writes_everywhere", "closes_everything", "joins_its_group"}
    after = called(mine, context)
    assert after["state"] == before["state"]
    if attack.removeprefix("sends_") in HARMLESS:
        assert after["server"] == before["server"]
    elif (name := attack.removeprefix("sends_")) in SIGNALS and not is_ignored(name):
        assert after["server"] != before["server"]
    if after["server"] != before["server"]:
        assert not is_alive(before["server"])
    wait_until(lambda: not children(after["server"]))


@pytest.mark.parametrize("attack", ["sends_SIGKILL", "sends_SIGSTOP", "ends_its_processes", "kills_both"])
def test_a_call_in_progress_does_not_need_the_fork_server(mine: Tool, tmp_path: Path, attack: str) -> None:
    class Attacking(AbsentPerson):
        def answer(self, form: Form) -> dict[str, Any]:
            with suppress(ExecutorError):
                called(mine, world(tmp_path / "other"), ATTACKS[attack])
            called(mine, world(tmp_path / "other"))  # which ends a fork server that was stopped
            return {"a": "x"}

    context = world(tmp_path / "space", person=Attacking())
    assert run_executor(mine, {"asks": True}, context)["state"]["folder"] == str(tmp_path / "space")


def test_calls_in_many_threads_get_through_while_the_fork_server_is_killed(
    mine: Tool, context: Context
) -> None:
    codes = ["", "", "os.kill(server, 9)", ""] * 6
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda code: called(mine, context, code), codes))
    assert {each["state"]["folder"] for each in found} == {str(context.workspace.root)}


# ── its beginning and its end ───────────────────────────────────────────────────────────────────────────────


def test_it_is_started_ahead_for_tools_that_have_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_TIME", str(tmp_path))  # so that there is none yet
    context = world(tmp_path / "space")
    before = set(fork_server._servers)
    prepare_executors(load_tools(made), context)
    assert set(fork_server._servers) == before
    tool = made(tmp_path / "mine")
    prepare_executors([tool], context)
    prepare_executors([tool], context)
    [server] = [each for key, each in fork_server._servers.items() if key not in before]
    assert called(tool, context)["server"] == server.process.pid


def program(more: str, mine: Tool, tmp_path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM + more, str(mine.path), str(tmp_path / "space")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)


@pytest.mark.parametrize("end", ["", "os._exit(0)", "sys.exit(1)", "os.kill(os.getpid(), 9)"])
def test_it_ends_with_the_program(mine: Tool, tmp_path: Path, end: str) -> None:
    with program(end, mine, tmp_path) as runner:
        server = int(runner.communicate()[0])
    wait_until(lambda: not is_alive(server))


def test_a_program_that_is_forked_has_fork_servers_of_its_own(mine: Tool, tmp_path: Path) -> None:
    more = """
if child := os.fork():
    os.waitpid(child, os.WUNTRACED)
    print(server(), child, flush=True)
    os.kill(os.getpid(), 9)
os.chdir("/")
print(server(), flush=True)
os.kill(os.getpid(), 19)
"""
    with program(more, mine, tmp_path) as runner:
        assert runner.stdout is not None
        first, second, third, child = (
            runner.stdout.readline(),
            *runner.stdout.readline().split(),
            *(runner.stdout.readline().split()),
        )
        try:
            assert int(first) == int(third) != int(second)
            wait_until(lambda: not is_alive(int(first)))  # though the forked process goes on
            assert is_alive(int(second))
        finally:
            os.kill(int(child), 9)
        wait_until(lambda: not is_alive(int(second)))


# ── where it is used once ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("used_once")
def test_where_forking_is_unsafe_it_becomes_the_supervisor(mine: Tool, context: Context) -> None:
    before = set(fork_server._servers)
    prepare_executors([mine], context)
    [ahead] = [each for key, each in fork_server._servers.items() if key not in before]
    found = [called(mine, context)["supervisor"] for _ in range(3)]
    assert found[0] == ahead.process.pid
    assert len(set(found)) == 3
    assert set(fork_server._servers) <= before
    del ahead
    assert not any(map(psutil.pid_exists, found))


@pytest.mark.usefixtures("used_once")
@pytest.mark.parametrize(
    "name",
    ["exits", "kills_its_supervisor", "stops_its_supervisor", "leaves_a_daemon_and_dies", "burns_time"],
)
def test_hostile_tools_where_it_is_used_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    [hostile] = [each for each in HOSTILE if each.name == name]
    monkeypatch.setenv(MARK, str(tmp_path))
    if name == "stops_its_supervisor":
        monkeypatch.setattr("gbnf_server.executors.runner._PATIENCE_S", 0.5)
    with pytest.raises(ExecutorError) as caught:
        run_executor(hostile.made(tmp_path / "hostile"), {}, world(tmp_path / "space", person=AbsentPerson()))
    assert re.search(hostile.says, str(caught.value))
    del caught
    wait_until(lambda: not [each for each in psutil.process_iter() if runs_in(each, tmp_path)])


def runs_in(process: psutil.Process, folder: Path) -> bool:
    with suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(str(folder))
    return False
