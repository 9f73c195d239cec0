"""The planner against a llama-server: a real one, one that dies mid-run, and one that fails by script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.llama import server_build as build
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.planner import Event, Hook, ModelCalled, Planner, PlannerOptions, ToolDone
from support.executors import world
from support.server import Reply, completion, require_llama_server, scripted
from support.toys import NEVER, Driver, make_tool

PING = '{"name": "ping", "arguments": {}}'


def planner(
    tmp_path: Path, backend: LlamaServer | InProcess, hooks: Sequence[Hook] = (), **options: Any
) -> Planner:
    ping = make_tool(tmp_path / "tools", "ping", 'return {"said": "pong"}')
    chosen = PlannerOptions(**{"max_tokens": 64, "salvage": False, "repeat_calls": True, **options})
    return Planner([ping, NEVER], backend, chosen, context=world(tmp_path / "work"), hooks=hooks)


@pytest.mark.slow
def test_a_real_server_plans_as_the_model_in_this_process(
    tmp_path: Path, llama_server: LlamaServerProcess, tiny_model: Path, driver: Driver
) -> None:
    options: dict[str, Any] = {"required": (NEVER.name,), "max_steps": 4}
    with LlamaServer(llama_server.url, prompt_style="minimal") as server:
        there = driver(planner(tmp_path / "there", server, **options), "ping")
    with InProcess(tiny_model, prompt_style="minimal") as model:
        here = driver(planner(tmp_path / "here", model, **options), "ping")
    assert [json.loads(step.text)["name"] for step in there.steps] == ["ping"] * 4
    assert [(step.name, step.refusal) for step in there.steps] == [
        (step.name, step.refusal) for step in here.steps
    ]
    assert there.outcome == here.outcome == "exhausted"
    assert there.warnings == ()
    assert there.completion_tokens > 0


@pytest.mark.slow
def test_a_real_server_reads_the_tools_once(tmp_path: Path, llama_server: LlamaServerProcess) -> None:
    """The grammar narrows, the prompt only grows: what the server has read stays in its cache."""
    seen: list[Event] = []
    with LlamaServer(llama_server.url, prompt_style="minimal") as server:
        planner(tmp_path, server, hooks=(seen.append,), required=(NEVER.name,), max_steps=3).run("ping")
    first, *later = [event for event in seen if isinstance(event, ModelCalled)]
    assert len(later) == 2
    for event in later:
        assert event.usage.cached_tokens >= first.usage.prompt_tokens
        assert event.usage.prompt_tokens > event.usage.cached_tokens


@pytest.mark.slow
def test_a_server_that_dies_mid_run_fails_it(tmp_path: Path, tiny_model: Path, driver: Driver) -> None:
    require_llama_server()
    with build.start(tiny_model, threads=1) as running:

        def end(event: Event) -> None:
            if isinstance(event, ToolDone):
                running.stop()

        with LlamaServer(running.url, prompt_style="minimal", retries=1, backoff=0.01) as server:
            run = driver(planner(tmp_path, server, hooks=(end,), required=(NEVER.name,)), "ping")
    assert run.outcome == "failed"
    assert running.url in str(run.error)
    assert [step.name for step in run.steps] == ["ping"]


@pytest.mark.slow
def test_a_server_that_fails_mid_run_fails_it(tmp_path: Path, driver: Driver) -> None:
    fault = Reply(500, {"error": {"code": 500, "message": "dead end", "type": "server_error"}})
    with (
        scripted(completion=[completion(PING), fault]) as script,
        LlamaServer(script.url, retries=1, backoff=0.01) as server,
    ):
        run = driver(planner(tmp_path, server), "ping")
    assert run.outcome == "failed"
    assert "dead end" in str(run.error)
    assert [step.result for step in run.steps] == [{"said": "pong"}]


@pytest.mark.slow
def test_a_server_that_ignores_the_grammar_is_found_out(tmp_path: Path, driver: Driver) -> None:
    freely = '{"name": "ping",\n\n "arguments": {}}'
    with scripted(completion=[completion(freely)]) as script, LlamaServer(script.url) as server:
        constrained = driver(planner(tmp_path / "constrained", server), "ping")
        free = driver(planner(tmp_path / "free", server, call_format="text", max_steps=1), "ping")
    assert constrained.outcome == "blocked"
    assert {step.refusal for step in constrained.steps} == {"ungrammatical"}
    assert any("did not enforce the grammar" in warning for warning in constrained.warnings)
    assert [step.name for step in free.steps] == ["ping"]
    assert free.warnings == ()
