"""What is shown of a run: every call of the model and of a tool, in its step, at its time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gbnf_server.executors import Context, Workspace
from gbnf_server.inspect.pages.run_view import view_run
from gbnf_server.inspect.step_rendering import run_tab
from gbnf_server.planner import Planner, PlannerOptions
from gbnf_server.planner.events import StepStarted
from gbnf_server.planner.runs.recording import RecordedCall, RunRecorder
from gbnf_server.planner.runs.run_files import RecordedRun, read_runs
from support.by_hand import ANSWER, call
from support.scripts import Script
from support.toys import make_tool


def recorded(folder: Path, *texts: str, lost_after: int | None = None) -> RecordedRun:
    tools = [
        make_tool(folder / "tools", "look", 'print("looking"); return {"seen": "<b>è</b>"}'),
        make_tool(folder / "tools", "fail", 'raise ValueError("it is gone")'),
    ]
    script = Script({"go": texts}, lost_after=lost_after)
    with RunRecorder(folder / "run.json") as recorder:
        context = Context(Workspace(folder / "work"))
        options = PlannerOptions(salvage=False)
        Planner(tools, script, options, context=context, recorder=recorder).run("go")
    [run] = read_runs(folder / "run.json")
    return run


@pytest.mark.slow
def test_what_happened_is_in_its_step(tmp_path: Path) -> None:
    run = recorded(tmp_path, "no call", call("look"), call("fail"), ANSWER)
    view = view_run(run)
    assert [step.title for step in view.steps] == ["Step 1", "Step 2", "Step 3", "Step 4"]
    kinds = [[entry.kind for entry in step.entries] for step in view.steps]
    assert kinds == [
        ["grammar", "model", "refused"],
        ["grammar", "model", "tool"],
        ["grammar", "model", "failed"],
        ["grammar", "model"],
    ]
    looked = view.steps[1].entries[2]
    assert (looked.label, looked.result) == ("look", '{"seen": "<b>è</b>"}')
    assert looked.facts == ("printed: looking",)
    assert "it is gone" in view.steps[2].entries[2].result
    models = [step.entries[1] for step in view.steps]
    assert [entry.decoding for entry in models] == [0, 1, 2, 3]
    assert [entry.text for entry in models] == [each.text for each in run.decodings]
    timed = [entry for step in view.steps for entry in step.entries if entry.start_s is not None]
    starts = [entry.start_s for entry in timed if entry.start_s is not None]
    assert starts == sorted(starts)
    for entry in timed:
        assert entry.start_s is not None
        assert entry.start_s + entry.duration_s <= view.total_s + 1e-9
    html = run_tab([run]).html
    assert "<b>è" not in html
    assert html.count("<rect") == len(timed)
    assert html.count("data-decoding=") == 4


@pytest.mark.slow
def test_what_a_request_says_of_a_call_is_beside_its_grammar(tmp_path: Path) -> None:
    run = recorded(tmp_path, ANSWER)
    evidence = {"named": ("Rome", "km"), "unmentioned": (), "likely": ("final_answer",)}
    events = tuple(
        replace(event, evidence=evidence) if isinstance(event, StepStarted) else event for event in run.events
    )
    assert view_run(run).steps[0].entries[0].facts == ()
    [grammar, _] = view_run(replace(run, events=events)).steps[0].entries
    assert grammar.facts == ("named: Rome, km", "likely: final_answer")


@pytest.mark.slow
def test_a_run_that_failed_shows_the_call_that_did(tmp_path: Path) -> None:
    view = view_run(recorded(tmp_path, call("look"), lost_after=1))
    assert view.outcome == "failed"
    [*_, last] = view.steps[-1].entries
    assert (last.kind, last.result) == ("failed", "nobody answers")


@pytest.mark.slow
def test_calls_of_a_log_belong_to_the_steps_with_their_texts(tmp_path: Path) -> None:
    run = recorded(tmp_path, "no call", call("look"), ANSWER)
    thought = RecordedCall(text="let me see")
    logged = RecordedRun(
        "r", "go", run.run, decodings=(run.decodings[0], thought, *run.decodings[1:], thought)
    )
    view = view_run(logged)
    steps = [[entry.decoding for entry in step.entries if entry.kind == "model"] for step in view.steps]
    assert steps == [[0], [1, 2], [3], [4]]
    assert view.steps[-1].title == "Other calls of the model"
    without = view_run(RecordedRun("r", "go", run.run))
    assert [step.title for step in without.steps] == ["Step 1", "Step 2", "Step 3"]
    assert not without.has_grammars


def test_a_run_that_has_not_finished() -> None:
    view = view_run(
        RecordedRun("r", "", None, "the run has not finished", decodings=(RecordedCall(text="x"),))
    )
    assert (view.outcome, view.recorded.error) == ("not finished", "the run has not finished")
    assert [entry.decoding for entry in view.steps[0].entries] == [0]
    assert "not finished" in run_tab([RecordedRun("r", "", None)]).html
