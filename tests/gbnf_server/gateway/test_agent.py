"""The planner as a model: with the bundled model, and with scripted ones for what that one does not do."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gbnf import load_manifests
from gbnf.prompts.messages import Image
from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf.tools import Tool
from gbnf_server.backends.base import Backend, ModelInfo
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.executors import AbsentPerson, Context, Workspace
from gbnf_server.gateway.agent import PlannerAgent
from gbnf_server.gateway.answers import Finished, ReplyEvent, Started
from gbnf_server.gateway.chat import ChatRequest, FunctionTool, JsonObject, Sampling, ToolChoice
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.llama.demo_model import model_path
from gbnf_server.planner import PlannerOptions
from gbnf_server.system.folders import manifests_path
from gbnf_server.web.errors import HttpError
from support.gateways import PATH, PlainApi, client_of, in_event_loop, request, served, until
from support.scripts import Script
from support.toys import make_tool


def agent(tools: Sequence[Tool], folder: Path, *, approve_all: bool = False) -> PlannerAgent:
    context = Context(Workspace(folder / "work"), person=AbsentPerson(approve_all=approve_all), settings={})
    return PlannerAgent(tools, PlannerOptions(filter=False, salvage=False), context)


def answer(made: PlannerAgent, backend: Backend, *messages: Any, **fields: Any) -> list[ReplyEvent]:
    async def run() -> list[ReplyEvent]:
        return [event async for event in made.answer(ChatRequest("planner", messages, **fields), backend)]

    return asyncio.run(run())


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def user(text: str) -> Any:
    return {"role": "user", "content": text}


DONE = call("final_answer", message="Done.")


@pytest.mark.slow
@in_event_loop
async def test_one_model_name_in_and_an_agent_out(tmp_path: Path) -> None:
    """Over HTTP, with the bundled model and tools."""
    made = agent(load_manifests(manifests_path()), tmp_path)
    with InProcess(model_path()) as backend:
        upstreams = Upstreams([Upstream(backend)])
        gateway = Gateway(made, upstreams, model="demo", apis=[PlainApi()], agents={"planner": made})
        async with client_of(gateway) as client:
            body = request(text="create a folder trips", model="planner")
            whole = (await client.post(PATH, json=body)).json()["texts"]
            metrics = (await client.get("/metrics")).text
    assert (tmp_path / "work" / "trips").is_dir()
    assert (whole[0], whole[-1]) == ("Started", "Finished")
    assert "trips" in whole[-2]
    assert 'gbnf_tokens_total{kind="prompt"}' in metrics


@pytest.mark.slow
def test_steps_are_reasoning_and_the_answer_is_the_text(tmp_path: Path) -> None:
    tool = make_tool(tmp_path, "ping", 'return {"entries": ["pong"]}')
    events = answer(agent([tool], tmp_path), Script({"say ping": [call("ping"), DONE]}), user("say ping"))
    assert isinstance(events[0], Started)
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert reasoning == 'ping {}\n→ {"entries": ["pong"]}\n'
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Done."]
    assert isinstance(events[-1], Finished)
    assert (events[-1].reason, events[-1].usage.prompt_tokens) == ("stop", 20)


def test_parameters_that_the_planner_does_not_use_are_named(tmp_path: Path) -> None:
    sampling = Sampling(max_tokens=9, temperature=1.0, seed=3)
    tool = make_tool(tmp_path, "ping", "return {}")
    said = {"role": "assistant", "content": "one"}
    seen = {**user("first"), "images": [Image(b"x", "image/png")]}
    called = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {}}]}
    result = {"role": "tool", "content": "{}", "tool_call_id": "c"}
    rows: list[tuple[list[Any], dict[str, Any], tuple[str, ...]]] = [
        ([], {}, ()),
        ([user("first"), said], {"reasoning": None}, ()),
        ([], {"sampling": sampling}, ("max_tokens", "temperature", "seed")),
        ([], {"reasoning": True}, ("reasoning",)),
        ([], {"parallel": False}, ("parallel_tool_calls",)),
        ([], {"max_calls": 1}, ("max_tool_calls",)),
        ([], {"tool_choice": ToolChoice("none")}, ("tool_choice",)),
        ([], {"template_variables": {"x": 1}}, ("chat_template_kwargs.x",)),
        ([seen, said], {}, ("images of earlier messages",)),
        ([user("first"), called, result, said], {}, ("earlier calls and results",)),
    ]
    for earlier, given, ignored in rows:
        script = Script({"first": [DONE] * 2, "hi": [DONE]})
        events = answer(agent([tool], tmp_path), script, *earlier, user("hi"), **given)
        assert isinstance(events[-1], Finished)
        assert events[-1].enforcement.ignored == ignored


@in_event_loop
async def test_a_server_that_does_not_answer_keeps_no_thread(tmp_path: Path) -> None:
    answers = threading.Event()

    class Hung(Script):
        async def facts(self) -> tuple[ModelInfo, int | None]:
            await until(answers.is_set)
            return await super().facts()

    made, backend = agent([make_tool(tmp_path, "ping")], tmp_path), Hung({"hi": [DONE, DONE]})
    asked = ChatRequest("planner", (user("hi"),))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    runs = [made.answer(asked, backend) for _ in range(2)]
    begun = [asyncio.ensure_future(anext(run)) for run in runs]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(60):
            await asyncio.to_thread(int)
    finally:
        answers.set()
    assert all(isinstance(event, Started) for event in await asyncio.gather(*begun))
    for run in runs:
        await run.aclose()


@pytest.mark.parametrize("approve_all", [False, True])
def test_tools_that_require_approval_are_refused_unless_configured(tmp_path: Path, approve_all: bool) -> None:
    tool = make_tool(
        tmp_path, "wipe", 'context.workspace.root.joinpath("wiped").touch()\nreturn {}', confirm=True
    )
    events = answer(
        agent([tool], tmp_path, approve_all=approve_all),
        Script({"wipe it": [call("wipe"), DONE]}),
        user("wipe it"),
    )
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert ("requires approval" in reasoning) != approve_all
    assert (tmp_path / "work" / "wiped").exists() == approve_all


def test_earlier_messages_are_the_conversation(tmp_path: Path) -> None:
    class Heard(Script):
        async def arespond(self, messages: Any, **limits: Any) -> Any:
            heard.append([message["content"] for message in messages[1:]])
            return await super().arespond(messages, **limits)

    heard: list[list[str]] = []
    tool = make_tool(tmp_path, "ping")
    messages = [
        {"role": "system", "content": "Be brief."},
        user("first"),
        {"role": "assistant", "content": "one"},
        user("second"),
    ]
    answer(agent([tool], tmp_path), Heard({"first": [DONE, DONE, DONE]}), *messages)
    assert heard[0][0] == "first"
    assert "one" in heard[0][1]
    assert heard[0][-1] == "Be brief.\n\nsecond"


@pytest.mark.slow
def test_a_run_without_an_answer_says_so_once_a_tool_has_run(tmp_path: Path) -> None:
    tool = make_tool(tmp_path, "ping")
    made = agent([tool], tmp_path)
    lost = Script({"x": [call("ping")]}, lost_after=1)
    texts = [event.text for event in answer(made, lost, user("x")) if isinstance(event, TextDelta)]
    assert texts == ["There is no answer: nobody answers"]
    with pytest.raises(HttpError, match="nobody answers") as failed:
        answer(made, Script({"x": []}, lost_after=0), user("x"))
    assert failed.value.status == 502


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": (FunctionTool("x"),)}, "tools"),
        ({"output": JsonObject()}, "response_format"),
        ({"count": 2}, "n"),
        ({"stop": ("x",)}, "stop"),
    ],
)
def test_what_it_cannot_do_is_refused(tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(HttpError) as refused:
        answer(agent([make_tool(tmp_path, "ping")], tmp_path), Script({}), user("x"), **fields)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("messages", [[user(" ")], [user("x"), {"role": "assistant", "content": "y"}]])
def test_a_request_without_a_question_is_refused(tmp_path: Path, messages: list[Any]) -> None:
    with pytest.raises(HttpError) as refused:
        answer(agent([make_tool(tmp_path, "ping")], tmp_path), Script({}), *messages)
    assert (refused.value.status, refused.value.param) == (400, "messages")


@in_event_loop
async def test_a_client_that_leaves_ends_the_run(tmp_path: Path) -> None:
    cancelled = False

    class Slow(Script):
        async def arespond(self, *_given: Any, **_limits: Any) -> Any:
            nonlocal cancelled
            self.asked += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled = True
                raise

    made, backend = agent([make_tool(tmp_path, "ping")], tmp_path), Slow({})
    gateway = Gateway(made, Upstreams([Upstream(backend)]), model="planner", apis=[PlainApi()])
    async with served(gateway) as server:
        client = await server.connect()
        client.send(request(stream=True))
        await until(lambda: backend.asked)
        client.reset()
        await until(lambda: cancelled)
        await until(lambda: not gateway.open_requests)
    assert gateway.queue.running == 0
