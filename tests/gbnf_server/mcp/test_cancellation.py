"""A call that its client cancels ends: it changes nothing any more, and frees its place only then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp_types import CallToolRequestParams

from gbnf.tools import RunPolicy, Tool
from gbnf_server.executors import Context, ExecutorError, Field, Form, Write
from gbnf_server.mcp import server as mcp_server
from gbnf_server.mcp.server import ToolServer
from support.executor_faults import executor, running_in
from support.executors import world
from support.processes import wait_until

ARGS = {"type": "object", "properties": {"schedule": {"type": "array"}}}


class Session:
    """A client whose person never answers."""

    client_capabilities = SimpleNamespace(elicitation=SimpleNamespace(form=object(), url=None))

    async def elicit_form(self, *_: Any) -> Any:
        await asyncio.Event().wait()


async def call(server: ToolServer, name: str, **arguments: Any) -> Any:
    request: Any = SimpleNamespace(session=Session(), request_id=1, protocol_version="2025-11-25")
    return await server._call_tool(request, CallToolRequestParams(name=name, arguments=arguments))


async def cancelled_once(begun: Callable[[], bool], server: ToolServer, name: str, **arguments: Any) -> None:
    task = asyncio.create_task(call(server, name, **arguments))
    await asyncio.to_thread(wait_until, begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture(autouse=True)
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "_MOST_CALLS", 1)


def test_a_call_that_no_thread_can_run_frees_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        server = ToolServer([Tool("free", function=lambda *_: "done")], world(tmp_path))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError, match="new thread"):
                await call(server, "free")
        assert not server._free.locked()
        assert not (await call(server, "free")).is_error

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_cancelled_executor_is_killed_before_its_place_is_free(tmp_path: Path) -> None:
    root = tmp_path / "space"
    faulty = executor(tmp_path / "tool", 60.0)

    async def scenario() -> None:
        server = ToolServer([faulty], world(root))
        hangs = [["changes", 1], ["ends_in_a_change", "hangs"]]
        await cancelled_once((root / "half.txt").exists, server, "faulty", schedule=hangs)
        result = await call(server, "faulty", schedule=[])
        assert not result.is_error
        assert not running_in(root)
        assert not (root / "half.txt").exists()

    asyncio.run(scenario())


def test_a_cancelled_function_changes_and_asks_nothing_any_more(tmp_path: Path) -> None:
    begun, go, done, refused = threading.Event(), threading.Event(), threading.Event(), []
    form = Form("F", (Field("a", "A?", "text"),))

    def late(_arguments: dict[str, Any], context: Context) -> None:
        begun.set()
        go.wait()
        for act in (lambda: context.change(Write("late.txt", b"")), lambda: context.ask(form)):
            try:
                act()
            except ExecutorError as error:
                refused.append(error)
        done.set()

    async def scenario() -> None:
        tools = [Tool("late", function=late, run=RunPolicy()), Tool("quick", function=lambda *_: "done")]
        server = ToolServer(tools, world(tmp_path))
        await cancelled_once(begun.is_set, server, "late")
        assert not (await call(server, "quick")).is_error

    asyncio.run(scenario())
    go.set()
    assert done.wait(20)
    assert len(refused) == 2
    assert not (tmp_path / "late.txt").exists()


def test_a_question_that_nobody_answers_ends_with_its_call(tmp_path: Path) -> None:
    begun = threading.Event()

    def asks(_arguments: dict[str, Any], context: Context) -> Any:
        begun.set()
        return context.ask(Form("F", (Field("a", "A?", "text"),)))

    async def scenario() -> None:
        tools = [Tool("asks", function=asks, run=RunPolicy()), Tool("quick", function=lambda *_: "done")]
        server = ToolServer(tools, world(tmp_path))
        before = threading.enumerate()
        await cancelled_once(begun.is_set, server, "asks")
        assert not (await call(server, "quick")).is_error
        for thread in threading.enumerate():
            if thread.daemon and thread not in before:
                await asyncio.to_thread(thread.join, 20)
                assert not thread.is_alive()

    asyncio.run(scenario())
