"""Whatever an executor does, its call ends in an `ExecutorError`, in bounded memory, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from gbnf_server.executors import AbsentPerson, Form, prepare_executors, run_executor
from gbnf_server.system.errors import ExecutorError, ExecutorTimeoutError
from support.effort import one_in
from support.executors import snapshot, world
from support.hostile_executors import HOSTILE, MARK, Hostile, Reaped
from support.processes import limits_s, wait_until

LINUX_ALONE = {
    "eats_memory",
    "eats_memory_at_once",
    "leaves_a_session_and_dies",
    "leaves_a_daemon_and_dies",
    "leaves_a_daemon_and_waits",
}
"""What macOS has no means against: limits of a process's memory, and finding orphans."""


CALLER = f"""
import sys
from dataclasses import replace
from pathlib import Path
from gbnf.tools import Tool
from gbnf_server.executors import Context, ExecutorError, Workspace, run_executor
run = {{"max_result_kb": 64, "env": [{MARK!r}]}}
mapping = {{"name": "hostile", "description": "x", "args": {{}}, "run": run}}
hostile = Tool.from_mapping(mapping, Path(sys.argv[1]))
context = Context(Workspace(sys.argv[2]))
"""


def marked(mark: str) -> list[psutil.Process]:
    """The processes that were started with this variable, or run in a folder below its value."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and (
                process.environ().get(MARK) == mark or process.cwd().startswith(mark)
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("hostile", one_in(24, HOSTILE), ids=[each.name for each in HOSTILE])
def test_a_hostile_tool_ends_in_an_error_without_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: Hostile
) -> None:
    if sys.platform != "linux" and hostile.name in LINUX_ALONE:
        pytest.skip("only Linux has the means")
    monkeypatch.setenv(MARK, str(tmp_path))
    context = world(tmp_path / "space", person=AbsentPerson())
    (tmp_path / "space" / "kept.txt").write_text("as it was")
    tool = hostile.made(tmp_path / "hostile")
    prepare_executors([tool], context)  # a fork server has a descriptor
    before, descriptors = snapshot(context.workspace.root), psutil.Process().num_fds()
    with pytest.MonkeyPatch.context() as patch:
        if hostile.name == "stops_its_supervisor":
            patch.setattr("gbnf_server.executors.runner._PATIENCE_S", 0.5)  # with what never ends
        seen = Reaped(patch)
        with pytest.raises(ExecutorError) as caught:
            run_executor(tool, {}, context)
    if hostile.name in {"exits", "never_answers", "writes_words", "dies_of_9", "stops_its_supervisor"}:
        assert bool(seen.signalled) == (hostile.name == "stops_its_supervisor")
    said = str(caught.value)
    assert re.search(hostile.says, said)
    assert len(said) <= 2000
    assert "\n" not in said
    json.dumps(said, ensure_ascii=False).encode()
    assert sum(map(len, getattr(caught.value, "__notes__", ()))) <= 10_000
    assert snapshot(context.workspace.root) == before
    assert psutil.Process().num_fds() == descriptors
    if hostile.name != "kills_its_supervisor":
        assert marked(str(tmp_path)) == []
    wait_until(lambda: not marked(str(tmp_path)))


@pytest.mark.slow
def test_the_parent_keeps_no_more_than_a_message(tmp_path: Path) -> None:
    """In a process of its own, whose largest size the system tells."""
    flood = next(each for each in HOSTILE if each.name == "floods_the_pipe")
    tool = flood.made(tmp_path / "hostile")
    code = f"""{CALLER}
import resource

def peak():
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024

before = peak()
for _ in range(3):
    try:
        run_executor(hostile, {{}}, context)
    except ExecutorError:
        pass
print(peak() - before)
"""
    command = [sys.executable, "-c", code, str(tool.path), str(tmp_path / "space")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000_000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="CPU affinity is Linux's")
def test_cpu_time_is_limited_while_the_clock_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is for every core that may be used: here one, so that it comes soon on every machine."""
    monkeypatch.setenv(MARK, str(tmp_path))
    burns = (
        "def burn():\n    while True: pass\n"
        "threading.Thread(target=burn, daemon=True).start()\n"
        "context.ask(Form('F', (Field('a', 'A?', 'text'),)))\nforever()"
    )

    class Slow(AbsentPerson):
        def answer(self, form: Form) -> dict[str, Any]:
            wait_until(lambda: len(marked(str(tmp_path))) <= 1, 500)  # the supervisor alone, or nobody
            return {"a": "x"}

    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    try:
        for timeout_s in limits_s(1):
            hostile = Hostile("burns_while_asking", burns, "", timeout_s=timeout_s).made(tmp_path / "hostile")
            with pytest.raises(ExecutorError) as caught:
                run_executor(hostile, {}, world(tmp_path / "space", person=Slow()))
            if not isinstance(caught.value, ExecutorTimeoutError):  # it came to asking in time
                break
    finally:
        os.sched_setaffinity(0, usable)
    assert "was killed by SIGXCPU (it used up its CPU time" in str(caught.value)


@pytest.mark.slow
def test_it_ends_when_its_runner_is_killed_and_so_do_its_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    waits = next(each for each in HOSTILE if each.name == "leaves_a_daemon_and_waits")
    tool = replace(waits, timeout_s=60).made(tmp_path / "hostile")
    code = f"{CALLER}\nrun_executor(hostile, {{}}, context)"
    with subprocess.Popen([sys.executable, "-c", code, str(tool.path), str(tmp_path / "space")]) as runner:
        wait_until(lambda: len(marked(str(tmp_path))) >= 4)  # itself, supervisor, executor, its child
        runner.kill()
    wait_until(lambda: not marked(str(tmp_path)))
