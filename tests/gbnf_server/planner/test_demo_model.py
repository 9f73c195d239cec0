"""The planner with the embedded model: in this process and in a real llama-server, to an answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gbnf.prompts.messages import call_text
from gbnf_server.backends.base import Backend
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.llama import server_build as build
from gbnf_server.llama.demo_model import model_path
from gbnf_server.planner import Planner
from gbnf_server.planner.events import CallModel
from gbnf_server.system.errors import ExecutorError
from support.by_hand import completion, drive_by_hand, resolved
from support.executors import world
from support.pools import BUNDLED as POOL
from support.server import require_llama_server
from training.traces import trace

BY_NAME = {tool.name: tool for tool in POOL}

needs_model = pytest.mark.skipif(not model_path().is_file(), reason="there is no embedded model yet")


@pytest.fixture(scope="module", params=["in process", "llama-server"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "in process":
        with InProcess(model_path()) as model:
            yield model
        return
    require_llama_server()
    with build.start(model_path()) as running, LlamaServer(running.url) as server:
        yield server


@pytest.mark.slow
@needs_model
def test_a_request_is_planned_and_executed_and_the_next_takes_it_back(
    tmp_path: Path, backend: Backend
) -> None:
    context = world(tmp_path)
    planner = Planner(POOL, backend, context=context)
    run = planner.run("create a folder trips")
    assert (run.outcome, run.error, run.warnings) == ("answered", None, ())
    assert run.answer
    assert (context.workspace.root / "trips").is_dir()
    assert [step.name for step in run.steps] == ["create_dirs", "final_answer"]
    run = planner.run("undo the last request")
    assert run.steps[0].name == "undo_last_turn"
    assert not (context.workspace.root / "trips").exists()


@needs_model
@pytest.mark.parametrize("query", ["hello", "ciao"])
def test_small_talk_is_answered_without_a_tool(tmp_path: Path, backend: Backend, query: str) -> None:
    run = Planner(POOL, backend, context=world(tmp_path)).run(query)
    assert (run.outcome, [step.name for step in run.steps]) == ("answered", ["final_answer"])


@pytest.mark.parametrize("seed", range(60))
def test_the_planner_sends_what_the_model_was_trained_on(seed: int) -> None:
    """The conversation of a training trace, and the one that the loop has when it goes the same way."""
    learnt = trace(random.Random(seed))
    pool = [BY_NAME[name] for name in learnt.pool]
    calls = [call_text({"name": step.name, "arguments": step.arguments}) for step in learnt.steps]
    answer = call_text({"name": "final_answer", "arguments": {"message": learnt.answer}})
    driven = drive_by_hand(
        pool,
        map(completion, [*calls, answer]),
        query=learnt.request,
        replies=[
            ExecutorError(step.error or "") if step.result is None else step.result for step in learnt.steps
        ],
        options=resolved(prompt_style="minimal"),
    )
    last = driven.of(CallModel)[-1].request.messages
    sent = [(message["role"], message["content"]) for message in last]
    assert sent[1:] == learnt.turns()[:-1]
    same_tools = set(driven.events[0].tools) == set(learnt.pool)  # type: ignore[union-attr]  # RunStarted
    if same_tools and not learnt.decoys:
        assert sent[0] == ("system", learnt.system())
