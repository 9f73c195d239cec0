"""A run as it happens: text in pieces, the answer in them, images on the way in."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gbnf.prompts.messages import Image
from gbnf.tool_formats import TextDelta
from gbnf.tools import Tool
from gbnf_server.backends.base import BackendEvent, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.planner import (
    Event,
    Hook,
    ModelCalled,
    Planner,
    PlannerOptions,
    RunFinished,
    TextWritten,
    ToolDone,
)
from gbnf_server.planner.events import CallModel
from gbnf_server.system.errors import BackendError
from support.backends import FakeBackend
from support.by_hand import ANSWER, NOW, POOL, completion, drive_by_hand
from support.executors import world
from support.server import Reply, scripted
from support.server import completion as served
from support.toys import NEVER, make_tool

PING = '{"name": "ping", "arguments": {}}'
Stream = Callable[..., list[Event]]


async def collected(events: AsyncGenerator[Event, None]) -> list[Event]:
    return [event async for event in events]


@pytest.fixture(params=["sync", "async"])
def stream(request: pytest.FixtureRequest) -> Stream:
    if request.param == "sync":
        return lambda planner, query, **options: list(planner.stream(query, text=True, **options))
    return lambda planner, query, **options: asyncio.run(collected(planner.astream(query, **options)))


def planner(
    tmp_path: Path, backend: Any, *, hooks: Sequence[Hook] = (), body: str = "return {}", **options: Any
) -> Planner:
    ping = make_tool(tmp_path / "tools", "ping", body)
    defaults = {"required": (NEVER.name,), "max_steps": 2, "max_tokens": 64, "salvage": False}
    chosen = PlannerOptions(**{**defaults, **options})
    return Planner([ping, NEVER], backend, chosen, context=world(tmp_path / "work"), hooks=hooks)


def lines(*pieces: str) -> Reply:
    """A streamed answer of llama-server."""
    parts = [{"content": piece, "stop": False} for piece in pieces]
    events = [*parts, {**served("").body, "stop": True}]
    return Reply(200, "".join(f"data: {json.dumps(event)}\n\n" for event in events))


@pytest.mark.slow
def test_each_piece_is_an_event_before_the_whole(tmp_path: Path, stream: Stream) -> None:
    answer = ['{"name": "final_answer", "arguments": {"mess', 'age": "al', "l d", 'one"}}']
    seen: list[Event] = []
    with (
        scripted(completion=[lines(PING[:9], PING[9:]), lines(*answer)]) as script,
        LlamaServer(script.url) as server,
    ):
        events = stream(planner(tmp_path, server, required=(), hooks=[seen.append]), "ping")
    assert seen == events
    written = [event for event in events if isinstance(event, TextWritten)]
    assert [event.text for event in written] == [PING[:9], PING[9:], *answer]
    assert [event.answer for event in written] == ["", "", "", "al", "l d", "one"]
    assert {event.purpose for event in written} == {"call"}
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert (last.run.outcome, last.run.answer) == ("answered", "all done")
    moments = [event.at for event in events]
    assert moments == sorted(moments)
    for event in events:
        assert json.loads(json.dumps(event.to_json())) == event.to_json()


@pytest.mark.parametrize("call_format", ["text", "lines"])
def test_an_answer_in_text_comes_in_pieces(tmp_path: Path, stream: Stream, call_format: Any) -> None:
    class Speaking(FakeBackend):
        async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
            has_called = any(message["role"] == "assistant" for message in request.messages)
            pieces = ["All ", "is ", "well.\n"] if has_called else [PING[:9], PING[9:]]
            for piece in pieces:
                yield TextDelta(piece)
            yield completion("".join(pieces))

    options: dict[str, Any] = {"call_format": call_format, "required": ()}
    events = stream(planner(tmp_path, Speaking(), **options), "ping")
    answers = [event.answer for event in events if isinstance(event, TextWritten)]
    assert answers == ["", "", "", "All is", " well."]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].run.answer == "All is well."


@pytest.mark.slow
def test_the_pieces_are_the_text_of_the_call(tmp_path: Path, backend: InProcess, stream: Stream) -> None:
    events = stream(planner(tmp_path, backend, reasoning="free", reasoning_budget=9), "ping")
    pieces = ""
    called = 0
    for event in events:
        match event:
            case TextWritten():
                pieces += event.text
            case ModelCalled():
                assert pieces == event.text
                pieces, called = "", called + 1
    assert called == 4
    quiet = list(planner(tmp_path / "quiet", backend).stream("ping", text=False))
    assert not any(isinstance(event, TextWritten) for event in quiet)


@pytest.mark.slow
@pytest.mark.usefixtures("brief_pauses")
def test_a_salvaged_answer_comes_in_pieces(tmp_path: Path) -> None:
    turns: list[Any] = [lines(PING), lines("no call"), lines("It said", " pong [1].")]
    with scripted(completion=turns) as script, LlamaServer(script.url) as server:
        events = [*planner(tmp_path, server, max_blocked=1, salvage=True).stream("ping")]
    salvaged = [event for event in events if isinstance(event, TextWritten) and event.purpose == "salvage"]
    assert [event.answer for event in salvaged] == ["It said", " pong [1]."]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].run.answer == "It said pong [1]."


@pytest.mark.slow
def test_a_hook_that_raises_at_a_piece_warns(tmp_path: Path, backend: InProcess) -> None:
    def broken(event: Event) -> None:
        if isinstance(event, TextWritten):
            raise ZeroDivisionError("no divisor")

    *_, last = planner(tmp_path, backend, hooks=[broken]).stream("ping")
    assert isinstance(last, RunFinished)
    assert [step.name for step in last.run.steps] == ["ping", "ping"]
    assert len(last.run.warnings) == 1
    assert "no divisor" in last.run.warnings[0]


def test_a_time_out_in_the_middle_of_a_stream_is_the_backends_error(tmp_path: Path, stream: Stream) -> None:
    class Slow(FakeBackend):
        async def generate(self, _request: Request) -> AsyncGenerator[BackendEvent, None]:
            yield TextDelta("p")
            raise BackendError("cancelled")  # as the timer of `InProcess` does, between two tokens

    last = stream(planner(tmp_path, Slow()), "ping")[-1]
    assert isinstance(last, RunFinished)
    assert (last.run.outcome, last.run.error) == ("failed", "cancelled")


@pytest.mark.slow
def test_leaving_early_stops_the_run(tmp_path: Path, backend: InProcess) -> None:
    running = planner(tmp_path, backend, body='(context.workspace.root / "ran").touch()\nreturn {}')

    async def first() -> Event:
        async with aclosing(running.astream("ping")) as events:
            async for event in events:
                if isinstance(event, TextWritten):
                    break
        assert not backend._kv_cache._slots, "the call has ended with its stream"
        return event

    assert getattr(asyncio.run(first()), "step", None) == 1
    events = running.stream("ping", text=True)
    next(event for event in events if isinstance(event, TextWritten))
    events.close()
    assert not (tmp_path / "work" / "ran").exists()
    assert any(isinstance(event, ToolDone) for event in running.stream("ping"))  # the model is free again


@pytest.mark.slow
def test_a_run_begins_outside_of_the_event_loop(tmp_path: Path, backend: InProcess) -> None:
    """MCP servers list their tools then, and a server may be asked for its context length."""
    threads: list[int] = []
    ping = make_tool(tmp_path / "tools", "ping", "return {}")

    def tools() -> list[Tool]:
        threads.append(threading.get_ident())
        return [ping, NEVER]

    options = PlannerOptions(required=(NEVER.name,), max_steps=1, max_tokens=64, salvage=False)
    running = Planner(tools, backend, options, context=world(tmp_path))

    async def run() -> None:
        threads.clear()
        await running.arun("ping")
        await collected(running.astream("ping"))
        assert len(threads) == 2
        assert threading.get_ident() not in threads

    asyncio.run(run())


# Images.


def test_images_go_with_the_request_and_stay_in_the_conversation() -> None:
    image = Image(b"\x89PNG", "image/png")
    texts = [completion(NOW), completion(ANSWER)]
    driven = drive_by_hand(POOL, texts, query="look", images=(image,))
    asked = [effect.request.messages[1] for effect in driven.of(CallModel)]
    assert asked == [{"role": "user", "content": "look", "images": (image,)}] * 2
    assert "images" not in drive_by_hand(POOL, [completion(NOW)]).of(CallModel)[0].request.messages[1]


def test_images_where_none_are_taken_fail_the_run(tmp_path: Path, backend: InProcess) -> None:
    run = planner(tmp_path, backend).run("look", images=[Image(b"GIF89a", "image/gif")])
    assert run.outcome == "failed"
    assert "takes no images" in str(run.error)
    assert "describe_frame" in str(run.error)
