"""The function of a tool is executed in this process, with the context and the limits of an executor."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gbnf.tools import RunPolicy, Tool, load_tools
from gbnf_bench.code_versions import code_identity
from gbnf_server.executors import Context, Field, Form, ScriptedPerson, Write, run_executor
from gbnf_server.executors.in_process import _Deadline, _ThreadedCall
from gbnf_server.system.errors import ExecutorError, ExecutorTimeoutError
from gbnf_server.system.event_loop import shared_loop
from support.executors import Slow, snapshot, world
from support.json_values import json_values
from support.processes import limits_s

Function = Callable[[dict[str, Any], Context], Any]
FORM = Form("Title", (Field("x", "X", "text"),))


def tool(function: Function, **run: Any) -> Tool:
    return Tool("mine", function=function, run=RunPolicy(**{"timeout_s": 20.0, **run}))


def called(tmp_path: Path, function: Function, **arguments: Any) -> dict[str, Any]:
    return run_executor(tool(function), arguments, world(tmp_path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.dictionaries(st.text(), json_values, max_size=4))
def test_arguments_and_results_are_those_of_a_process(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Values pass through JSON, as through the pipes of a process, so that nothing is shared."""
    given = json.loads(json.dumps(arguments))

    def function(received: dict[str, Any], context: Context) -> Any:
        copy = json.loads(json.dumps(received))
        received.clear()
        return {"got": copy}

    assert called(tmp_path, function, x=arguments) == {"got": {"x": given}}
    assert arguments == given


@given(value=json_values.filter(lambda value: not isinstance(value, dict)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_no_object_becomes_one(tmp_path: Path, value: Any) -> None:
    assert called(tmp_path, lambda _arguments, _context: value) == {"result": value}


def test_a_coroutine_is_awaited_and_sees_the_context_variables_of_the_caller(tmp_path: Path) -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("set")

    async def function(_arguments: dict[str, Any], _context: Context) -> Any:
        await asyncio.sleep(0)
        return variable.get()

    for each in (function, lambda _arguments, _context: variable.get()):
        assert called(tmp_path, each) == {"result": "set"}


def test_changes_are_undone(tmp_path: Path) -> None:
    context = world(tmp_path, turn="first")
    before = snapshot(tmp_path)

    def function(_arguments: dict[str, Any], context: Context) -> Any:
        context.change(Write("a.txt", b"a"))
        return [context.tool, context.turn, dict(context.settings)]

    named = tool(function, env=("GBNF_X",))
    context = world(tmp_path, settings={"GBNF_X": "1", "GBNF_Y": "2"}, turn="first")
    assert run_executor(named, {}, context) == {"result": ["mine", "first", {"GBNF_X": "1"}]}
    assert (tmp_path / "a.txt").read_text() == "a"
    assert context.journal.undo_last_turn("second").undone == ("removed 'a.txt'",)
    assert snapshot(tmp_path) == before


def test_credentials_become_handles(tmp_path: Path) -> None:
    asked = Form("Title", (Field("key", "The key", "credentials"),))

    def function(_arguments: dict[str, Any], context: Context) -> Any:
        return f"the key is {context.ask(asked)['key']}"

    context = world(tmp_path, person=ScriptedPerson(answers={"key": "hunter2"}))
    result = run_executor(tool(function), {}, context)["result"]
    handle = re.fullmatch(r"the key is (secret:\w+)", result)
    assert handle
    other = tool(lambda _arguments, context: str(context.secret(handle[1]) == "hunter2"))
    assert run_executor(other, {}, context) == {"result": "True"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda: (_ for _ in ()).throw(ExecutorError("two\nlines")), r"^two lines$"),
        (lambda: 1 / 0, r"^'mine' failed: ZeroDivisionError: .* \(test_in_process.py, line \d+\)$"),
        (lambda: exec("raise SystemExit(3)"), r"^'mine' failed: SystemExit: 3"),
        (lambda: exec("raise KeyboardInterrupt"), r"^'mine' failed: KeyboardInterrupt"),
        (object, r"^'mine' returned a value that is not JSON"),
        (lambda: {"entries": "abc"}, r"'entries' that are not a list of strings"),
        (lambda: "x" * 2_000_000, r"^'mine' returned more than 1024 kB"),
        (lambda: json.loads("[" * 70 + "]" * 70), r"nested deeper than 64"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, body: Callable[[], Any], reason: str) -> None:
    with pytest.raises(ExecutorError) as caught:
        called(tmp_path, lambda _arguments, _context: body())
    assert re.search(reason, caught.value.message)
    assert "\n" not in caught.value.message
    if "ZeroDivisionError" in reason:
        assert "in <lambda>" in "".join(caught.value.__notes__)


def test_after_its_time_it_changes_and_asks_nothing(tmp_path: Path) -> None:
    """A thread cannot be killed, so its context refuses what comes late."""
    go, done, refused = threading.Event(), threading.Event(), []

    def function(_arguments: dict[str, Any], context: Context) -> Any:
        go.wait()
        for late in (lambda: context.change(Write("late.txt", b"")), lambda: context.ask(FORM)):
            try:
                late()
            except ExecutorError as error:
                refused.append(str(error))
        done.set()

    before = snapshot(tmp_path)
    with pytest.raises(ExecutorTimeoutError, match=r"no result after 0.1 s; its thread may still be running"):
        run_executor(tool(function, timeout_s=0.1), {}, world(tmp_path))
    go.set()
    assert done.wait(20)
    assert len(refused) == 2
    assert all("has ended" in each for each in refused)
    assert snapshot(tmp_path) == before


def test_a_coroutine_is_cancelled_after_its_time(tmp_path: Path) -> None:
    cancelled = threading.Event()

    async def function(_arguments: dict[str, Any], _context: Context) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ExecutorTimeoutError):
        run_executor(tool(function, timeout_s=0.1), {}, world(tmp_path))
    assert cancelled.wait(20)


@pytest.mark.parametrize("is_late", [False, True])
def test_what_runs_in_another_event_loop_is_cancelled_after_its_time(tmp_path: Path, is_late: bool) -> None:
    go, cancelled, loop = threading.Event(), threading.Event(), shared_loop()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def function(_arguments: dict[str, Any], _context: Context) -> Any:
        started = loop.start(hang())
        loop.run(asyncio.sleep(0))  # it has begun
        if is_late:
            go.wait()
        return started

    with pytest.raises(ExecutorTimeoutError):
        run_executor(tool(function, timeout_s=0.1), {}, world(tmp_path))
    go.set()
    assert cancelled.wait(20)
    assert called(tmp_path, lambda *_: loop.start(asyncio.sleep(0, {"a": 1}))) == {"a": 1}


def test_a_call_that_has_ended_before_it_begins_starts_nothing(tmp_path: Path) -> None:
    began: list[bool] = []
    context = world(tmp_path)
    context.ended.set()
    call = _ThreadedCall(lambda *_: began.append(True), {}, context)
    with pytest.raises(ExecutorError, match="has ended"):
        call.done.result(20)
    assert not began


def test_a_coroutine_does_not_begin_after_its_time(tmp_path: Path) -> None:
    go, began = threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    def function(_arguments: dict[str, Any], _context: Context) -> Any:
        go.wait()
        return work()

    threads = threading.enumerate()
    with pytest.raises(ExecutorTimeoutError):
        run_executor(tool(function, timeout_s=0.1), {}, world(tmp_path))
    [thread] = [each for each in threading.enumerate() if each not in threads]
    go.set()
    thread.join(20)
    assert not thread.is_alive()
    assert not began.is_set()


def test_time_for_an_answer_does_not_count(tmp_path: Path) -> None:
    for timeout_s in limits_s(0.1):
        asking = tool(lambda _arguments, context: context.ask(FORM)["x"], timeout_s=timeout_s)
        person = Slow(answers={"x": "y"}, seconds=timeout_s + 0.1)
        with suppress(ExecutorTimeoutError):  # all the rest may take longer than so short a limit
            found = run_executor(asking, {}, world(tmp_path, person=person))
            break
    assert found == {"result": "y"}


def test_a_pause_that_begins_while_the_time_is_looked_at_is_no_fault() -> None:
    class Racing(_Deadline):
        """The function's thread pauses it as soon as this thread has read the time."""

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name == "_since":
                self._since = None
            return value

    assert not Racing(1000.0).is_over()
    assert Racing(1000.0).wait_s() > 0


def test_arguments_that_are_no_json(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="the arguments of 'mine' are not JSON"):
        called(tmp_path, lambda _arguments, _context: {}, x=float("inf"))


def _first(_arguments: dict[str, Any], _context: Context) -> None: ...


def _second(_arguments: dict[str, Any], _context: Context) -> None: ...


class _Callable:
    def __call__(self, _arguments: dict[str, Any], _context: Context) -> None: ...


def test_identity_is_the_name_of_the_function() -> None:
    assert tool(_first) == tool(_first)
    assert tool(_first) != tool(_second)
    assert tool(_Callable()) == tool(_Callable()) != tool(_first)


def test_the_code_of_a_function_is_its_file() -> None:
    for function in (_first, _Callable()):
        assert list(code_identity(tool(function))) == [Path(__file__).name]
    assert code_identity(tool(len)) == {}  # type: ignore[arg-type]  # it has no source, and is not called


MODULE = """
import os, time, asyncio, datetime as dt
from gbnf import load_tools, tool
from gbnf_server.executors import Context, ExecutorError, Write

class Files:
    @staticmethod
    @tool(own_process=True, timeout_s={timeout_s})
    def touch(day: dt.date, context: Context) -> dict[str, str]:
        context.change(Write(f"{{day:%Y}}.txt", b""))
        return {{"cwd": os.getcwd(), "pid": str(os.getpid()), "tool": context.tool}}

@tool(own_process=True, timeout_s={timeout_s})
async def year(day: dt.date) -> int:
    await asyncio.sleep(0)
    return day.year

@tool(own_process=True, timeout_s={timeout_s})
def hang() -> None:
    time.sleep(1000)

@tool(own_process=True, timeout_s={timeout_s})
def fail(day: dt.date) -> None:
    raise ValueError("odd")

if __name__ == "__main__":
    import sys
    from pathlib import Path
    from gbnf_server.executors import Workspace, run_executor
    [made] = load_tools(year)
    print(run_executor(made, {{"day": "2026-01-02"}}, Context(Workspace(Path(sys.argv[1])))))
"""


@pytest.fixture
def typed_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Tool]]:
    """The tools of a module of typed functions, each with its own process."""

    def loaded(timeout_s: float = 20.0) -> dict[str, Tool]:
        name = f"typed_{os.urandom(4).hex()}"
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / f"{name}.py").write_text(MODULE.format(timeout_s=timeout_s))
        monkeypatch.syspath_prepend(tmp_path / "code")
        module = importlib.import_module(name)
        found = load_tools([module.Files.touch, module.year, module.hang, module.fail])
        return {each.name: each for each in found}

    return loaded


@pytest.mark.slow
def test_a_function_in_a_process_of_its_own(
    tmp_path: Path, typed_tools: Callable[..., dict[str, Tool]]
) -> None:
    tools = typed_tools()
    context = world(tmp_path / "space")
    touched = run_executor(tools["touch"], {"day": "2026-01-02"}, context)
    assert (touched["cwd"], touched["tool"]) == (str(tmp_path / "space"), "touch")
    assert touched["pid"] != str(os.getpid())
    assert (tmp_path / "space" / "2026.txt").exists()
    assert run_executor(tools["year"], {"day": "2026-01-02"}, context) == {"result": 2026}
    with pytest.raises(ExecutorError, match=r"^'fail' failed: ValueError: odd \(typed_\w+.py, line \d+\)"):
        run_executor(tools["fail"], {"day": "2026-01-02"}, context)
    with pytest.raises(ExecutorError, match=r"^the arguments of 'fail' do not fit: day: "):
        run_executor(tools["fail"], {"day": "x"}, context)


@pytest.mark.slow
def test_a_process_of_its_own_is_killed(tmp_path: Path, typed_tools: Callable[..., dict[str, Tool]]) -> None:
    with pytest.raises(ExecutorTimeoutError, match="was stopped"):
        run_executor(typed_tools(timeout_s=0.5)["hang"], {}, world(tmp_path / "space"))


@pytest.mark.slow
def test_a_function_of_the_main_module(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MODULE.format(timeout_s=20.0))
    command = [sys.executable, str(script), str(tmp_path / "space")]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (shown.stdout, shown.stderr) == ("{'result': 2026}\n", "")


def test_a_typed_function_in_this_process(tmp_path: Path) -> None:
    def shift(day: dt.date, days: int, context: Context) -> dt.date:
        """Shift a day."""
        assert context.tool == "shift"
        return day + dt.timedelta(days)

    [made] = load_tools(shift)
    assert "context" not in made.args["properties"]
    arguments = {"day": "2026-12-31", "days": 1}
    assert run_executor(made, arguments, world(tmp_path)) == {"result": "2027-01-01"}
    with pytest.raises(ExecutorError, match=r"^the arguments of 'shift' do not fit: day: "):
        run_executor(made, {"day": "x", "days": 1}, world(tmp_path))
    assert list(code_identity(made)) == [Path(__file__).name]
