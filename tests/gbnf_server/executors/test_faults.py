"""Whatever fails in the middle of a call: it ends, and leaves whole changes, and nothing open or running."""

from __future__ import annotations

import fcntl
import resource
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.tools import RunPolicy, Tool
from gbnf_server.executors import (
    Context,
    ExecutorError,
    ExecutorTimeoutError,
    Workspace,
    Write,
    fork_server,
    run_executor,
)
from gbnf_server.system.event_loop import run_in_thread
from support.effort import scaled
from support.executor_faults import FaultyPerson, executor, may_hang, running_in, schedules
from support.executors import snapshot, world
from support.processes import wait_until

pytestmark = pytest.mark.slow


@settings(max_examples=scaled(60))
@given(schedule=schedules)
def test_a_call_ends_and_leaves_whole_changes_only(schedule: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "space"
        context = world(root, person=FaultyPerson())
        (root / "common.txt").write_text("before")
        before = snapshot(root)
        tool = executor(Path(folder) / "tool", 1.0 if may_hang(schedule) else 60.0)
        run_executor(tool, {"schedule": []}, context)  # a fork server has a descriptor
        descriptors = psutil.Process().num_fds()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gbnf_server.executors.runner._PATIENCE_S", 1.0)
            try:
                assert run_executor(tool, {"schedule": schedule}, context) == {"done": True}
            except ExecutorError as error:
                said = error.message
            else:
                said = ""
        assert "\n" not in said
        assert psutil.Process().num_fds() == descriptors
        if not any("supervisor" in str(value) for _, value in schedule):  # what it started may outlive it
            wait_until(lambda: not running_in(root))
        for process in running_in(root):
            process.kill()
        files = {path: content.decode() for path, (_, _, content) in snapshot(root).items()}
        made = [int(path[0]) for path, text in files.items() if path[0].isdecimal() and text == "new"]
        asked = [value for step, value in schedule if step == "changes"]
        assert set(made) <= set(asked)
        assert files.keys() == {"common.txt", *(f"{number}.txt" for number in made)}
        assert files["common.txt"] in {"before", *map(str, made)}
        if made:
            context.journal.undo_last_turn("next")
        assert snapshot(root) == before


@settings(max_examples=scaled(60))
@given(free=st.integers(0, 40), is_new=st.booleans())
def test_without_descriptors_a_call_is_an_error_and_nothing_is_lost(free: int, is_new: bool) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "space"
        context = world(root, person=FaultyPerson())
        tool = executor(Path(folder) / "tool", 60.0)
        schedule = [("changes", 1), ("asks", "answer")]
        if is_new:  # no fork server runs
            fork_server._servers.clear()
        fork_server.is_reused.cache_clear()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        run_executor(tool, {"schedule": []}, context)
        before = open_descriptors()
        if is_new:
            before -= {each._requests.fileno() for each in fork_server._servers.values()}
            fork_server._servers.clear()
        fork_server.is_reused.cache_clear()
        resource.setrlimit(resource.RLIMIT_NOFILE, (free_limit(before, free), limits[1]))
        try:
            run_executor(tool, {"schedule": schedule}, context)
        except ExecutorError as error:
            assert free < 40
            del error
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        fork_server._servers.clear()
        assert open_descriptors() <= before
        wait_until(lambda: not running_in(root))
        assert run_executor(tool, {"schedule": schedule}, context) == {"done": True}
        assert fork_server.is_reused() == (sys.platform == "linux")


@contextmanager
def locked_by_another(workspace: Workspace) -> Iterator[None]:
    with (workspace.state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_nothing_waits_for_another_process_beyond_the_limit_of_a_call(tmp_path: Path) -> None:
    """That process has the lock, so that it has rolled back what was incomplete."""
    context, waiting = world(tmp_path / "space"), executor(tmp_path / "tool", 0.5)

    def change(_arguments: dict[str, Any], context: Context) -> None:
        try:
            context.change(Write("late.txt", b""))
        finally:
            ended.set()

    run_executor(
        executor(tmp_path / "tool", 60.0), {"schedule": []}, context
    )  # what it is forked from starts
    ended = threading.Event()
    in_process = Tool("mine", function=change, run=RunPolicy(timeout_s=0.2))
    with locked_by_another(context.workspace):
        for tool, arguments in ((waiting, {"schedule": [("changes", 1)]}), (in_process, {})):
            call = run_in_thread(partial(run_executor, tool, arguments, context))
            assert wait([call], 20).done
            assert isinstance(call.exception(), ExecutorTimeoutError)
        assert ended.wait(20)
    assert not (tmp_path / "space" / "late.txt").exists()


def open_descriptors() -> set[int]:
    return {int(each.name) for each in Path("/dev/fd").iterdir() if each.exists()}


def free_limit(used: set[int], free: int) -> int:
    """The limit of descriptor numbers that leaves so many free ones."""
    numbers = (number for number in range(10_000) if number not in used)
    return next(number for count, number in enumerate(numbers) if count == free)
