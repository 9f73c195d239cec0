"""Recorded calls and runs: what is written is read, and what happened is written, however a run ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gbnf import compile_schema
from gbnf.prompts.messages import Image
from gbnf.tools import Tool
from gbnf_server.backends.base import Completion, Request, Timings, Usage
from gbnf_server.executors import Context, ScriptedPerson, Workspace
from gbnf_server.llama.token_values import Candidate, TracedToken
from gbnf_server.planner import Planner, PlannerOptions
from gbnf_server.planner.runs.recording import RecordedCall, RunRecorder
from gbnf_server.planner.runs.run_files import RecordedRun, read_runs
from gbnf_server.system.errors import SetupError
from support.by_hand import ANSWER, call
from support.scripts import Script
from support.toys import make_tool

probabilities = st.floats(0, 1).map(lambda value: min(float(f"{value:.5g}"), 1.0))
tokens = st.binary(max_size=6) | st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace"))
traced = st.builds(
    TracedToken,
    tokens,
    st.sampled_from(["sampled", "drafted", "forced", "end"]),
    st.floats(0, 1000).map(lambda value: round(value, 6)),
    st.integers(0, 5000),
    st.none() | probabilities,
    st.none() | probabilities,
    st.lists(
        st.builds(Candidate, tokens, probabilities, st.sampled_from(["grammar", "limit", None])), max_size=3
    ).map(tuple),
)


@given(st.lists(traced, max_size=5))
def test_a_trace_is_read_as_it_was_written(trace: list[TracedToken]) -> None:
    decoding = RecordedCall(text="x", trace=tuple(trace))
    written = json.dumps(decoding.to_json())
    assert TypeAdapter(RecordedCall).validate_python(json.loads(written)) == decoding


@given(st.lists(st.floats(1e-9, 1), min_size=1, max_size=20))
def test_rounded_probabilities_stay_probabilities(values: list[float]) -> None:
    trace = tuple(
        TracedToken(b"x", "sampled", 0.1, 1, value, min(value * 1.0000001, 1.0)) for value in values
    )
    written = RecordedCall(trace=trace).to_json()
    TypeAdapter(RecordedCall).validate_python(json.loads(json.dumps(written)))


def test_a_call_is_written_without_its_images() -> None:
    message: Any = {"role": "user", "content": "look", "images": (Image(b"123", "image/png"),)}
    request = Request([message], compile_schema({"const": 1}), max_tokens=9, temperature=0.5, seed=3)
    answer = Completion("1", "length", Usage(7, 1, 5), Timings(0.1, 0.2, 0.05), shortened_at=1)
    recorded_call = RecordedCall.of(request, answer)
    assert (recorded_call.finish_reason, recorded_call.usage, recorded_call.timings) == (
        "length",
        answer.usage,
        answer.timings,
    )
    written = recorded_call.to_json()
    [shown] = json.loads(json.dumps(written))["messages"]
    assert shown == {"role": "user", "content": "look", "images": [{"media_type": "image/png", "bytes": 3}]}
    assert "root ::=" in written["grammar"]
    assert (written["max_tokens"], written["temperature"], written["seed"]) == (9, 0.5, 3)
    assert RecordedCall.of(Request([message], {"const": 1}), RuntimeError()).grammar == '{"const": 1}'


def recorded(
    folder: Path,
    tools: list[Tool],
    script: Script,
    *,
    person: Any = None,
    on_event: Callable[[int], None] | None = None,
) -> tuple[Any, RecordedRun]:
    """The file of a run, and what is read of it."""
    context = Context(Workspace(folder / "work"), **({} if person is None else {"person": person}))
    path = folder / "run.json"
    with RunRecorder(path) as recorder:
        planner = Planner(tools, script, PlannerOptions(salvage=False), context=context, recorder=recorder)
        for number, _ in enumerate(planner.stream("go", text=False)):
            if on_event is not None:
                on_event(number)
    [run] = read_runs(path)
    return json.loads(path.read_text("utf-8")), run


@pytest.mark.slow
def test_the_file_of_a_run(tmp_path: Path) -> None:
    look = make_tool(tmp_path / "tools", "look", 'return {"seen": "è"}')
    value, run = recorded(tmp_path, [look], Script({"go": ["no call", call("look"), ANSWER]}))
    assert run.run is not None
    assert run.run.outcome == "answered"
    assert json.loads(json.dumps(run.run.to_json())).items() <= value.items()
    assert [event.to_json() for event in run.events] == value["events"]
    assert [event["event"] for event in value["events"]].count("model_called") == 3
    assert [(each.step, each.purpose, each.text) for each in run.decodings] == [
        (1, "call", "no call"),
        (2, "call", call("look")),
        (3, "call", ANSWER),
    ]
    assert all(each.grammar.startswith("root ::=") for each in run.decodings)
    assert [(each.finish_reason, each.usage) for each in run.decodings] == [("stop", Usage(10, 5))] * 3
    assert [event["usage"]["prompt_tokens"] for event in value["events"] if "usage" in event] == [10] * 3
    assert [path.name for path in tmp_path.iterdir() if "run.json" in path.name] == ["run.json"]


def test_the_file_of_a_run_whose_server_is_lost(tmp_path: Path) -> None:
    look = make_tool(tmp_path / "tools", "look")
    _, run = recorded(tmp_path, [look], Script({"go": ["no call"]}, lost_after=1))
    assert run.run is not None
    assert (run.run.outcome, run.run.error) == ("failed", "nobody answers")
    assert [(each.step, each.error) for each in run.decodings] == [(1, ""), (2, "nobody answers")]


def test_the_file_of_a_run_that_is_interrupted(tmp_path: Path) -> None:
    look = make_tool(tmp_path / "tools", "look")

    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorded(tmp_path, [look], Script({"go": [call("look"), ANSWER]}), on_event=interrupt)
    [run] = read_runs(tmp_path / "run.json")
    assert (run.run, run.query, run.error) == (None, "go", "the run was interrupted")
    assert [each.text for each in run.decodings] == [call("look")]
    assert len(run.events) == 4


@pytest.mark.slow
def test_a_credential_is_never_in_the_file(tmp_path: Path) -> None:
    tool = make_tool(
        tmp_path / "tools",
        "login",
        """
        from gbnf_server.executors import Field, Form
        form = Form("F", (Field("pw", "Password?", "credentials"),))
        return {"entries": list(context.ask(form).values())}
        """,
    )
    value, _ = recorded(
        tmp_path, [tool], Script({"go": [call("login"), ANSWER]}), person=ScriptedPerson({"pw": "hunter2"})
    )
    written = json.dumps(value)
    assert "secret:" in written
    assert "hunter2" not in written


def test_a_file_that_cannot_be_written_is_found_before_the_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "run.json"):
        with pytest.raises(SetupError, match="cannot be written"):
            RunRecorder(path)
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_is_ended_since_it_leaves_the_grammar_is_recorded_once(tmp_path: Path) -> None:
    script = Script({"go": ("Sure!", ANSWER)})
    script.enforces_grammar = False
    _, run = recorded(tmp_path, [make_tool(tmp_path, "look")], script)
    assert [decoding.text for decoding in run.decodings] == ["Sure!", ANSWER]
    assert [bool(decoding.error) for decoding in run.decodings] == [False, False]
