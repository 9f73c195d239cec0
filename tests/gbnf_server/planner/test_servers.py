"""The planner against a llama-server: a real one, one that dies mid-run, and one that fails by script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gbnf.errors import AmbiguousGrammarError
from gbnf.grammar.match import MatchState
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.llama import server_build as build
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.planner import Event, Hook, ModelCalled, Planner, PlannerOptions, ToolDone
from support.backends import QUICK
from support.executors import world
from support.server import completion, require_llama_server, scripted
from support.toys import NEVER, make_tool


def planner(
    tmp_path: Path, backend: LlamaServer | InProcess, hooks: Sequence[Hook] = (), **options: Any
) -> Planner:
    ping = make_tool(tmp_path / "tools", "ping", 'return {"said": "pong"}')
    chosen = PlannerOptions(**{"max_tokens": 64, "salvage": False, "repeat_calls": True, **options})
    return Planner([ping, NEVER], backend, chosen, context=world(tmp_path / "work"), hooks=hooks)


@pytest.mark.slow
def test_a_real_server_plans_as_the_model_in_this_process(
    tmp_path: Path, llama_server: LlamaServerProcess, tiny_model: Path
) -> None:
    options: dict[str, Any] = {"required": (NEVER.name,), "max_steps": 4}
    seen: list[Event] = []
    with LlamaServer(llama_server.url, prompt_style="minimal") as server:
        there = planner(tmp_path / "there", server, (seen.append,), **options).run("ping")
    with InProcess(tiny_model, prompt_style="minimal") as model:
        here = planner(tmp_path / "here", model, **options).run("ping")
    assert [json.loads(step.text)["name"] for step in there.steps] == ["ping"] * 4
    assert [(step.name, step.refusal) for step in there.steps] == [
        (step.name, step.refusal) for step in here.steps
    ]
    assert there.outcome == here.outcome == "exhausted"
    assert there.warnings == ()
    assert there.completion_tokens > 0
    # the grammar narrows, the prompt only grows: what the server has read stays in its cache
    first, *later = [event.usage for event in seen if isinstance(event, ModelCalled)]
    assert len(later) == 3
    for usage in later:
        assert first.prompt_tokens <= usage.cached_tokens < usage.prompt_tokens


@pytest.mark.slow
def test_a_server_that_dies_mid_run_fails_it(tmp_path: Path, tiny_model: Path) -> None:
    require_llama_server()
    with build.start(tiny_model, threads=1) as running:

        def end(event: Event) -> None:
            if isinstance(event, ToolDone):
                running.stop()

        with LlamaServer(running.url, prompt_style="minimal", retry_policy=QUICK) as server:
            run = planner(tmp_path, server, hooks=(end,), required=(NEVER.name,)).run("ping")
    assert run.outcome == "failed"
    assert running.url in str(run.error)
    assert [step.name for step in run.steps] == ["ping"]


@pytest.mark.slow
@pytest.mark.usefixtures("brief_pauses")
def test_a_server_that_ignores_the_grammar_is_found_out(tmp_path: Path) -> None:
    freely = '{"name": "final_answer",\n\n "arguments": {"message": "done"}}'
    with scripted(completion=[completion(freely)]) as script, LlamaServer(script.url) as server:
        constrained = planner(tmp_path / "constrained", server).run("ping")
        free = planner(tmp_path / "free", server, call_format="text").run("ping")
    assert constrained.outcome == "blocked"
    assert {step.refusal for step in constrained.steps} == {"ungrammatical"}
    assert any("did not enforce the grammar" in warning for warning in constrained.warnings)
    assert (free.answer, free.warnings) == ("done", ())


@pytest.mark.usefixtures("brief_pauses")
def test_answers_that_are_not_matched_against_the_grammar_are_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advance(_state: MatchState, _text: str) -> None:
        raise AmbiguousGrammarError(1)

    monkeypatch.setattr(MatchState, "advance", advance)
    pinged, answered = (
        '{"name": "ping", "arguments": {}}',
        '{"name": "final_answer", "arguments": {"message": "hi"}}',
    )
    with (
        scripted(completion=[completion(pinged), completion(answered)]) as script,
        LlamaServer(script.url) as server,
    ):
        run = planner(tmp_path, server).run("ping")
    assert [("not matched against the grammar" in warning) for warning in run.warnings] == [True]
    assert run.answer == "hi"
