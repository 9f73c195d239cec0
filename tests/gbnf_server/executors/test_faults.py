"""Whatever fails in the middle of a call: it ends, and files, descriptors and processes are as they should be."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.executors import ExecutorError, fork_server, run_executor
from support.effort import scaled
from support.executor_faults import FaultyPerson, executor, may_hang, schedules
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
                assert "\n" not in error.message
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


def running_in(folder: Path) -> list[psutil.Process]:
    def runs(process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(str(folder))
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if runs(process)]


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


def open_descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/dev/fd") if Path(f"/dev/fd/{name}").exists()}


def free_limit(used: set[int], free: int) -> int:
    """The limit of descriptor numbers that leaves so many free ones."""
    numbers = (number for number in range(10_000) if number not in used)
    return next(number for count, number in enumerate(numbers) if count == free)
