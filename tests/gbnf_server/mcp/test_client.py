"""The client with a server of the SDK, over every transport and both eras of the protocol."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED

from gbnf.tools import Tool
from gbnf_server.executors import (
    Context,
    Form,
    Person,
    ScriptedPerson,
    Workspace,
    run_executor,
)
from gbnf_server.mcp import McpServerError, McpTools, mcp_tools
from gbnf_server.mcp.config import read_source
from gbnf_server.mcp.connection import Connection
from gbnf_server.planner import Planner, PlannerOptions
from gbnf_server.system.errors import ExecutorError, ExecutorTimeoutError
from support.executors import Slow
from support.mcp_servers import SDK_SERVER, hostile_server, http_server, named, sdk_server
from support.processes import children, is_alive, limits_s, wait_until
from support.scripts import Script

pytestmark = pytest.mark.slow  # servers are programs

TRANSPORTS = ["stdio", "stdio --legacy", "http", "http --legacy", "sse --legacy"]


@dataclass(frozen=True)
class Session:
    """A running server's tools, and the lines of its log."""

    mcp: McpTools
    log: list[str]
    transport: str

    @property
    def is_modern(self) -> bool:
        return "--legacy" not in self.transport

    def call(self, name: str, arguments: dict[str, Any], there: Context) -> dict[str, Any]:
        return run_executor(named(self.mcp, name), arguments, there)

    def names(self) -> set[str]:
        return {tool.name for tool in self.mcp.tools}


@contextmanager
def opened(transport: str) -> Iterator[Session]:
    log: list[str] = []
    with ExitStack() as stack:
        kind, *options = transport.split()
        source = sdk_server(*options)
        if kind != "stdio":
            source = stack.enter_context(http_server(kind, *options))
        mcp = stack.enter_context(mcp_tools(source, on_log=lambda _, line: log.append(line)))
        yield Session(mcp, log, transport)


@pytest.fixture(scope="module", params=TRANSPORTS)
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with opened(request.param) as session:
        yield session


@pytest.fixture(scope="module")
def local() -> Iterator[Session]:
    """For what comes after the transport."""
    with opened("stdio") as session:
        yield session


def context(root: Path, person: Person) -> Context:
    return Context(Workspace(root), person=person, settings={})


def with_limit(tool: Tool, timeout_s: float) -> Tool:
    return replace(tool, run=replace(tool.run, timeout_s=timeout_s))


def test_annotations_names_and_schemas_become_those_of_tools(local: Session, there: Context) -> None:
    policies = {tool.name: (tool.run.effect, tool.run.confirm) for tool in local.mcp.tools}
    assert policies["echo"] == ("read", False)
    assert policies["add"] == ("write", False)
    assert policies["remove"] == ("write", True)
    assert named(local.mcp, "echo").description() == "Return the text."
    (finding,) = named(local.mcp, "broken_input").findings
    assert (finding.kind, finding.pointer, finding.keyword) == ("loosened", "/properties/a", "type")
    assert local.call("odd_name_", {}, there) == {"text": "odd"}  # a name that no API takes is replaced


def test_results_are_objects(session: Session, there: Context) -> None:
    assert session.call("echo", {"text": "hi"}, there) == {"text": "hi"}
    assert session.call("add", {"a": 1, "b": 2}, there) == {"total": 3}


def test_binary_data_is_saved_in_the_workspace(local: Session, there: Context) -> None:
    result = local.call("everything", {}, there)
    root = there.workspace.root
    assert result["text"] == "see"
    assert [file["type"] for file in result["files"][:2]] == ["image/png", "audio/wav"]
    assert result["files"][2] == {"type": "image/png", "error": "the data is not base64"}
    assert [(root / path).read_bytes()[:4] for path in result["entries"]] == [b"\x89PNG", b"RIFF", b"B"]
    assert result["resources"] == [
        {"uri": "file:///notes.txt", "name": "notes", "type": "text/plain"},
        {"uri": "toy://a", "text": "A"},
    ]
    assert local.call("everything", {}, there) == result


def test_an_error_of_a_tool_is_passed_to_the_model(local: Session, there: Context) -> None:
    with pytest.raises(ExecutorError, match=r"^no way$"):
        local.call("fail", {"text": "no way"}, there)


def test_a_call_that_hangs_is_cancelled_and_the_server_continues(session: Session, there: Context) -> None:
    async def both() -> list[dict[str, Any] | BaseException]:
        hanging = with_limit(named(session.mcp, "hang"), 0.5)
        calls = [
            asyncio.to_thread(run_executor, hanging, {}, there),
            asyncio.to_thread(session.call, "echo", {"text": "first"}, there),
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    hung, echoed = asyncio.run(both())
    assert isinstance(hung, ExecutorTimeoutError)
    assert echoed == {"text": "first"}
    assert session.call("echo", {"text": "on"}, there) == {"text": "on"}
    if session.transport.startswith("stdio"):
        wait_until(lambda: "hang was cancelled" in session.log)


def test_progress_and_log_messages_are_logged(session: Session, there: Context) -> None:
    output: list[str] = []
    session.call("steps", {}, replace(there, on_output=output.append))
    assert "steps: 1/2 half" in output[0].splitlines()
    wait_until(lambda: "steps: 1/2 half" in session.log)
    if not session.is_modern:  # later ones send only what is asked for
        wait_until(lambda: "info: a note" in session.log)


def test_a_question_goes_to_the_person(session: Session, tmp_path: Path) -> None:
    person = ScriptedPerson({"colour": "green", "number": 3})
    result = session.call("ask", {}, context(tmp_path, person))
    assert result["text"].startswith("accept")
    for part in ("'colour': 'green'", "'number': 3", "'wish': 'none'"):
        assert part in result["text"]
    (form,) = person.asked
    assert form.title == "toys: Choose"
    assert [(field.var, field.prompt, field.kind) for field in form.fields] == [
        ("colour", "Which colour", "choice"),
        ("number", "How many", "number"),
    ]


def test_a_question_that_nobody_answers_is_cancelled(session: Session, there: Context) -> None:
    assert session.call("ask", {}, there)["text"] == "cancel None"


def test_a_call_that_has_asked_ends_after_the_person_has_answered(tmp_path: Path) -> None:
    """A later question would otherwise get what was meant for this one."""
    returned, was_early, log = threading.Event(), list[bool](), list[str]()

    class Thoughtful(ScriptedPerson):
        def answer(self, form: Form) -> dict[str, Any]:
            wait_until(lambda: "does not wait" in log)
            was_early.append(returned.wait(0.5))
            return super().answer(form)

    person = Thoughtful({"colour": "red", "number": "1", "wish": "x"})
    with mcp_tools(sdk_server("--legacy"), on_log=lambda _, line: log.append(line)) as mcp:
        result = run_executor(named(mcp, "ask_briefly"), {}, context(tmp_path, person))
        returned.set()
    assert result == {"text": "nobody answered"}
    assert was_early == [False]


def test_output_is_heard_where_other_calls_can_be_made(local: Session, there: Context) -> None:
    results: list[dict[str, Any]] = []

    def hear(_output: str) -> None:
        results.append(run_executor(with_limit(named(local.mcp, "echo"), 20), {"text": "hi"}, there))

    assert local.call("steps", {}, replace(there, on_output=hear)) == {"text": "done"}
    assert results == [{"text": "hi"}]


def test_an_invalid_answer_is_asked_again_and_then_declined(local: Session, tmp_path: Path) -> None:
    person = ScriptedPerson({"colour": "red", "number": 0})
    assert local.call("ask", {}, context(tmp_path, person))["text"] == "decline None"
    assert len(person.asked) == 3
    assert "$.number" in person.asked[1].title


def test_the_time_of_a_person_does_not_count(session: Session, tmp_path: Path) -> None:
    if session.transport not in ("stdio", "http --legacy"):
        pytest.skip("one transport of each protocol")

    for timeout_s in limits_s(0.3):
        person = Slow({"colour": "red", "number": 1}, seconds=timeout_s + 0.1)
        with suppress(ExecutorTimeoutError):  # all the rest may take longer than so short a limit
            result = run_executor(
                with_limit(named(session.mcp, "ask"), timeout_s), {}, context(tmp_path, person)
            )
            break
    assert result["text"].startswith("accept")


def test_the_root_is_the_workspace_of_the_call(session: Session, there: Context) -> None:
    if session.is_modern:
        pytest.skip("the request is part of earlier protocols")
    assert session.call("roots", {}, there) == {"text": there.workspace.root.as_uri()}


@pytest.mark.parametrize("same", [True, False], ids=["one run", "two runs"])
def test_nobody_is_asked_for_the_call_of_another(session: Session, tmp_path: Path, same: bool) -> None:
    people = [ScriptedPerson({"colour": "red", "number": number}) for number in (1, 2)]
    contexts = [context(tmp_path / str(number), person) for number, person in enumerate(people)]
    if same:
        contexts[1] = contexts[0]

    async def both() -> list[str]:
        calls = [asyncio.to_thread(session.call, "meet", {}, each) for each in contexts]
        return [result["text"] for result in await asyncio.gather(*calls)]

    refused = session.transport in ("stdio --legacy", "sse --legacy") and not same  # they name no call
    for there, number, result in zip(contexts, (1, 1 if same else 2), asyncio.run(both()), strict=True):
        assert ("cancel None" if refused else f"'number': {number}") in result
        assert ("file://" in result) == (same and not session.is_modern)
        assert "file://" not in result or there.workspace.root.as_uri() in result
    assert [len(person.asked) for person in people] == ([0, 0] if refused else [2, 0] if same else [1, 1])


def test_limits_of_results(session: Session, there: Context) -> None:
    with pytest.raises(ExecutorError, match="nested deeper than 64"):
        session.call("deep", {}, there)
    if session.transport.startswith("sse"):
        return  # events have 1 MiB at most
    with pytest.raises(ExecutorError, match="returned more than 1024 kB"):
        session.call("big", {"megabytes": 10}, there)
    assert session.call("echo", {"text": "on"}, there) == {"text": "on"}


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("false_output", r"\$\.n: .* is not of type 'integer'"),
        ("slow_output", "violates the output schema"),
    ],
)
def test_an_output_that_violates_its_schema_fails(
    local: Session, there: Context, name: str, fault: str
) -> None:
    with pytest.raises(ExecutorError, match=f"'{name}' was executed, but .*{fault}"):
        local.call(name, {}, there)


def test_changes_of_the_list_are_noticed(session: Session, there: Context) -> None:
    session.call("grow", {"name": "fresh"}, there)
    wait_until(lambda: "fresh" in session.names())
    fresh = named(session.mcp, "fresh")
    assert run_executor(fresh, {}, there) == {"text": "new"}
    session.call("shrink", {"name": "fresh"}, there)
    wait_until(lambda: "fresh" not in session.names())
    with pytest.raises(ExecutorError, match="'toys' no longer has the tool 'fresh'"):
        run_executor(fresh, {}, there)


def _final(message: str) -> str:
    return f'{{"name": "final_answer", "arguments": {{"message": "{message}"}}}}'


def test_a_planner_uses_the_tools_of_the_moment(local: Session, tmp_path: Path) -> None:
    script = Script(
        {
            "grow": ['{"name": "grow", "arguments": {"name": "later"}}', _final("grown")],
            "use it": ['{"name": "later", "arguments": {}}', _final("used")],
            "shrink": ['{"name": "shrink", "arguments": {"name": "later"}}', _final("gone")],
        }
    )
    options = PlannerOptions(max_tools=None)
    there = context(tmp_path, ScriptedPerson())
    planner = Planner(lambda: local.mcp.tools, script, options, context=there)
    assert planner.run("grow").answer == "grown"
    wait_until(lambda: any(tool.name == "later" for tool in planner.tools))
    run = planner.run("use it")
    assert (run.answer, run.steps[0].result) == ("used", {"text": "new"})
    assert asyncio.run(planner.arun("shrink")).answer == "gone"
    wait_until(lambda: all(tool.name != "later" for tool in planner.tools))


def test_a_crash_fails_the_call_and_the_next_one_starts_the_server_again(there: Context) -> None:
    with mcp_tools(sdk_server()) as mcp:
        with pytest.raises(ExecutorError, match=r"'crash' failed: .*\(it ended with status 7\)") as caught:
            run_executor(named(mcp, "crash"), {}, there)
        assert "about to crash" in caught.value.__notes__[0]
        assert run_executor(named(mcp, "echo"), {"text": "again"}, there) == {"text": "again"}


def test_a_server_over_http_that_dies_fails_its_calls(there: Context) -> None:
    with http_server("http") as url, mcp_tools(url) as mcp:
        with pytest.raises(ExecutorError, match="the connection with its MCP server broke"):
            run_executor(named(mcp, "crash"), {}, there)
        with pytest.raises(ExecutorError, match="has ended, and does not start again"):
            run_executor(named(mcp, "echo"), {"text": "a"}, there)


def test_a_thousand_tools_come_in_pages_and_names_that_clash_get_a_prefix() -> None:
    with mcp_tools(sdk_server("--tools", "1000"), sdk_server(), prefix="p") as mcp:
        names = [tool.name for tool in mcp.tools]
    assert len(set(names)) == len(names) > 1000
    assert {"p_extra_999", "p_toys_echo", "p_toys_echo_2"} <= set(names)


def test_the_environment_is_the_default_one_and_the_named_one(
    there: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_SECRET", "hidden")
    entry = {"command": sys.executable, "args": [str(SDK_SERVER), "stdio"], "env": {"TOY_GIVEN": "given"}}
    with mcp_tools({"mcpServers": {"toy": entry}}) as mcp:
        tool = named(mcp, "environment")
        assert run_executor(tool, {"name": "TOY_GIVEN"}, there) == {"text": "given"}
        assert run_executor(tool, {"name": "TOY_SECRET"}, there) == {"text": "(unset)"}
        assert run_executor(tool, {"name": "PATH"}, there) == {"text": os.environ["PATH"]}


def test_credentials_are_hidden(local: Session, there: Context) -> None:
    handle = there.secrets.keep("swordfish", "password")
    assert local.call("echo", {"text": "swordfish"}, there) == {"text": handle}
    with pytest.raises(ExecutorError, match=handle):
        local.call("fail", {"text": "swordfish"}, there)


def test_no_processes_or_threads_remain(brief_exit: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gbnf_server.mcp.stdio._GRACE_PERIOD_S", 0.2)
    before, threads = set(children(os.getpid())), set(threading.enumerate())
    with mcp_tools(hostile_server("stubborn"), hostile_server("usual")):
        started = set(children(os.getpid())) - before
        below = {each.pid for pid in started for each in psutil.Process(pid).children(recursive=True)}
        assert len(started) == len(below) == 2
    assert not [pid for pid in started | below if is_alive(pid)]
    assert set(children(os.getpid())) <= before
    assert set(threading.enumerate()) <= threads


def test_servers_that_started_end_when_another_does_not() -> None:
    before = set(children(os.getpid()))
    with (
        pytest.raises(McpServerError, match="no program 'no-such-program'"),
        mcp_tools(hostile_server("usual"), "no-such-program --x"),
    ):
        pass
    assert set(children(os.getpid())) <= before


def test_an_address_without_a_server_is_named() -> None:
    with (
        pytest.raises(McpServerError, match=r"http://127\.0\.0\.1:9/mcp.*Check that it runs"),
        mcp_tools("http://127.0.0.1:9/mcp"),
    ):
        pass


def test_a_late_failure_of_a_session_does_not_close_the_next_one() -> None:
    async def play() -> None:
        (server,) = read_source(sdk_server())
        connection = Connection(server, None, 60.0)
        await connection.start()
        first, stdio = connection._client, connection._stdio
        assert first is not None
        await connection.close()
        await connection.start()
        second = connection._client
        late = MCPError(CONNECTION_CLOSED, "Connection closed")
        failure = await connection._failure("x", late, first, stdio)
        assert "broke" in str(failure)
        assert connection._client is second is not None
        assert await second.list_tools()
        await connection._failure("x", late, second, connection._stdio)
        assert connection._client is None

    asyncio.run(play())
