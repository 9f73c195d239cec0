"""Both drivers on real parts: a model of random weights that only a grammar makes sensible, real tools."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gbnf.tools import Tool
from gbnf_server.backends.answer import answer
from gbnf_server.backends.in_process import InProcess
from gbnf_server.executors import AbsentPerson, Context, ExecutorError, Form, Journal, ScriptedPerson
from gbnf_server.planner import (
    Event,
    Hook,
    ModelCalled,
    Planner,
    PlannerOptions,
    RunFinished,
    StepStarted,
    ToolCalled,
    ToolDone,
    WarningRaised,
)
from gbnf_server.planner.drivers import RunEnvironment, adrive, drive, steady_clock
from gbnf_server.planner.events import AskApproval, AskPerson, ExecuteTool
from gbnf_server.planner.model_calls import Clock
from support.executors import SATURDAY, world
from support.models import make_model
from support.toys import NEVER, Driver, make_tool


def planner(
    tools: list[Tool],
    backend: InProcess,
    context: Context,
    hooks: Sequence[Hook] = (),
    clock: Clock | None = None,
    **options: Any,
) -> Planner:
    """A planner that never offers the final answer, so that the random model can only call the tools."""
    defaults = {
        "required": (NEVER.name,), "max_steps": 2, "max_tokens": 64, "salvage": False, "repeat_calls": True
    }  # fmt: skip
    chosen = PlannerOptions(**{**defaults, **options})
    return Planner([*tools, NEVER], backend, chosen, context=context, hooks=hooks, clock=clock)


@pytest.mark.slow
def test_a_run_of_real_parts(tmp_path: Path, backend: InProcess, driver: Driver) -> None:
    ping = make_tool(tmp_path / "tools", "ping", 'return {"said": "pong"}')
    seen: list[Event] = []
    run = driver(
        planner(
            [ping], backend, world(tmp_path / "work"), max_steps=9, repeat_calls=False, hooks=(seen.append,)
        ),
        "ping",
    )
    assert [step.name for step in run.steps] == ["ping", "ping"]
    assert run.outcome == "blocked"
    assert str(run.error).startswith("every call that is left would repeat an earlier one, and these")
    assert [event.result for event in seen if isinstance(event, ToolDone)] == [{"said": "pong"}] * 2
    assert seen[-1] == RunFinished(seen[-1].at, run)
    assert run.duration_s > 0
    assert 0 <= (run.started_at - SATURDAY).total_seconds() < 60, "the context's present"
    assert sum(event.duration_s for event in seen if isinstance(event, ModelCalled)) > 0


@pytest.mark.slow
def test_a_hook_that_raises_makes_a_warning(tmp_path: Path, backend: InProcess, driver: Driver) -> None:
    ping = make_tool(tmp_path / "tools", "ping")
    seen: list[Event] = []

    def broken(event: Event) -> None:
        if isinstance(event, StepStarted | RunFinished):
            raise ZeroDivisionError("no divisor")

    watched = planner([ping], backend, world(tmp_path / "work"), hooks=(broken, seen.append))
    run = driver(watched, "ping")
    assert [step.fault for step in run.steps] == [None, None]
    assert len([event for event in seen if isinstance(event, WarningRaised)]) == 1
    assert all("broken raised ZeroDivisionError: no divisor" in warning for warning in run.warnings)
    assert len(run.warnings) == 2
    assert isinstance(seen[-1], RunFinished)


@pytest.mark.slow
def test_a_tool_out_of_time_is_a_fault_that_the_plan_survives(
    tmp_path: Path, backend: InProcess, driver: Driver
) -> None:
    slow = make_tool(tmp_path / "tools", "slow", "time.sleep(60)\nreturn {}", timeout_s=0.1)
    run = driver(planner([slow], backend, world(tmp_path / "work")), "go")
    assert [step.fault for step in run.steps] == ["timeout", "timeout"]
    assert run.outcome == "exhausted"


@pytest.mark.parametrize(
    ("person", "fault", "said"),
    [
        (ScriptedPerson(approvals=False), "denied", "did not approve"),
        (AbsentPerson(), "denied", "nobody to ask"),
        (AbsentPerson(approve_all=True), None, None),
    ],
)
def test_approval(
    tmp_path: Path, backend: InProcess, person: Any, fault: str | None, said: str | None
) -> None:
    careful = make_tool(
        tmp_path / "tools", "careful", '(context.workspace.root / "ran").touch()\nreturn {}', confirm=True
    )
    work = world(tmp_path / "work", person=person)
    [step] = planner([careful], backend, work, max_steps=1).run("go").steps
    assert step.fault == fault
    assert (said or "") in (step.error or "")
    assert (work.workspace.root / "ran").exists() == (fault is None)


@pytest.mark.slow
def test_the_environment_switches_the_grammar_off(
    tmp_path: Path, backend: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ping = make_tool(tmp_path / "tools", "ping")
    monkeypatch.setenv("GBNF_GRAMMAR", "0")
    run = planner([ping], backend, world(tmp_path / "work"), max_steps=5).run("ping")
    assert {step.refusal for step in run.steps} <= {"truncated", "unparsed"}
    monkeypatch.setenv("GBNF_GRAMMAR", "1")
    run = planner([ping], backend, world(tmp_path / "work"), max_steps=1).run("ping")
    assert run.steps[0].name == "ping"


def test_a_context_that_is_too_short_is_an_error_with_a_hint(tmp_path: Path) -> None:
    ping = make_tool(tmp_path / "tools", "ping")
    with InProcess(make_model(tmp_path / "tiny.gguf", context=64), prompt_style="minimal") as short:
        run = planner([ping], short, world(tmp_path / "work")).run("a request that is quite long " * 9)
    assert run.outcome == "failed"
    assert "fewer tools" in str(run.error)
    assert run.steps == ()


@pytest.mark.slow
def test_an_interrupt_kills_the_tool_and_takes_its_change_back(tmp_path: Path, backend: InProcess) -> None:
    body = """
    from gbnf_server.executors import Write

    def wait():
        (context.workspace.root / "pid").write_text(str(os.getpid()))
        time.sleep(60)

    with context.journal.locked():
        context.journal.apply([Write("half.txt", b"half")], turn=context.turn, tool="t", action=wait)
    return {}
    """
    half = make_tool(tmp_path / "tools", "half", body, effect="write")
    root = tmp_path / "work"

    def interrupt(event: Event) -> None:
        if isinstance(event, ToolCalled):
            threading.Thread(target=_interrupt_when, args=(lambda: _text(root / "pid"),), daemon=True).start()

    with pytest.raises(KeyboardInterrupt):
        planner([half], backend, world(root), hooks=(interrupt,)).run("go")
    assert not (root / "half.txt").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(_text(root / "pid")), 0)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_of_the_runtime_rolls_back_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    recovered: list[Path] = []
    monkeypatch.setattr(Journal, "recover", lambda journal: recovered.append(journal._workspace.root))
    context = world(tmp_path / "work")

    def full(*_call: Any) -> Any:
        raise OSError(28, "No space left on device")

    one = RunEnvironment(None, context, execute=full)  # type: ignore[arg-type]  # no model is asked
    ping = make_tool(tmp_path / "tools", "ping", 'return {"said": "pong"}')
    with pytest.raises(OSError, match="No space left"):
        replies(one, is_async, ExecuteTool(ping, {}))
    assert recovered == [context.workspace.root]


def replies(around: RunEnvironment, is_async: bool, *effects: Any) -> Any:
    """What a run that only has these effects gets for them, errors among it."""

    def asking() -> Generator[Any, Any, Any]:
        found = []
        for effect in effects:
            try:
                found.append((yield effect))
            except ExecutorError as error:
                found.append(error)
        return found

    if is_async:
        return asyncio.run(adrive(asking(), around))
    with pytest.raises(StopIteration) as stop:
        next(drive(asking(), around))
    return stop.value.value


def _interrupt_when(is_time: Callable[[], Any]) -> None:
    while not is_time():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def _until(is_time: Callable[[], bool], task: asyncio.Task[Any]) -> None:
    while not is_time():
        if task.done():
            pytest.fail(f"the run ended before its time: {task.result()}")
        await asyncio.sleep(0.01)


@pytest.mark.slow
def test_a_cancelled_run_ends_after_the_call_that_was_under_way(tmp_path: Path, backend: InProcess) -> None:
    body = """
    from gbnf_server.executors import Write
    (context.workspace.root / "begun").touch()
    while not (context.workspace.root / "cancelled").exists():
        time.sleep(0.01)
    time.sleep(0.1)
    context.change(Write("whole.txt", b"whole"))
    return {}
    """
    slow = make_tool(tmp_path / "tools", "slow", body, effect="write")
    work = world(tmp_path / "work")
    seen: list[Event] = []

    async def cancel_while_it_works() -> None:
        task = asyncio.create_task(planner([slow], backend, work, hooks=(seen.append,)).arun("go"))
        await _until((work.workspace.root / "begun").exists, task)
        task.cancel()
        (work.workspace.root / "cancelled").touch()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert _text(work.workspace.root / "whole.txt") == "whole"

    asyncio.run(cancel_while_it_works())
    assert isinstance(seen[-1], ToolCalled)
    assert work.journal.undo_last_turn("later").undone == ("removed 'whole.txt'",)


class Hesitant(ScriptedPerson):
    """Waits before it answers."""

    def __init__(self) -> None:
        super().__init__({"name": "Ada"})
        self.thinks, self.may_answer = threading.Event(), threading.Event()

    def answer(self, form: Form) -> dict[str, Any]:
        self.thinks.set()
        assert self.may_answer.wait(60)
        return super().answer(form)


@pytest.mark.slow
def test_a_cancelled_run_does_not_wait_for_a_person(tmp_path: Path, backend: InProcess) -> None:
    body = """
    from gbnf_server.executors import Field, Form
    (context.workspace.root / context.ask(Form("t", (Field("name", "Who?", "text"),)))["name"]).touch()
    return {}
    """
    asking = make_tool(tmp_path / "tools", "asking", body, timeout_s=0)
    person = Hesitant()
    work = world(tmp_path / "work", person=person)
    before = set(threading.enumerate())

    async def cancel_while_the_person_thinks() -> None:
        task = asyncio.create_task(planner([asking], backend, work).arun("go"))
        await _until(person.thinks.is_set, task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)

    asyncio.run(cancel_while_the_person_thinks())
    assert not person.may_answer.is_set()
    person.may_answer.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert not (work.workspace.root / "Ada").exists()


@pytest.mark.parametrize("is_async", [False, True])
def test_questions_reach_the_person(tmp_path: Path, backend: InProcess, is_async: bool) -> None:
    person = ScriptedPerson({"answer": "blue"}, approvals=lambda call: call["name"] == "good")
    around = RunEnvironment(partial(answer, backend), world(tmp_path, person=person))
    said = replies(
        around,
        is_async,
        AskPerson("Which?", ("red", "blue")),
        AskPerson("Say it.", ()),
        AskPerson("Which?", ("red",)),
        AskApproval({"name": "good", "arguments": {}}),
        AskApproval({"name": "bad", "arguments": {}}),
    )
    assert said[:2] == ["blue", "blue"]
    assert isinstance(said[2], ExecutorError)
    assert said[3:] == [True, False]
    assert [form.fields[0].kind for form in person.asked] == ["choice", "text", "choice"]


def test_the_clock_starts_at_the_present_and_never_goes_back() -> None:
    clock = steady_clock(SATURDAY)
    moments = [clock() for _ in range(100)]
    assert moments == sorted(moments)
    assert moments[0] >= SATURDAY
    assert moments[0].tzinfo is SATURDAY.tzinfo


def test_a_workspace_that_vanished_fails_the_step_and_not_the_program(
    tmp_path: Path, backend: InProcess
) -> None:
    ping = make_tool(tmp_path / "tools", "ping")
    work = world(tmp_path / "work")
    shutil.rmtree(work.workspace.root)
    run = planner([ping], backend, work, max_steps=1).run("ping")
    assert run.outcome == "exhausted"
    assert [step.fault for step in run.steps] == ["error"]
