"""Our server with the SDK's client and with ours, over stdio and HTTP, in both eras of the protocol."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio.from_thread import start_blocking_portal
from jsonschema import Draft202012Validator
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult, TextContent
from mcp_types.version import LATEST_MODERN_VERSION

from gbnf import load_manifests
from gbnf_server.executors import Context, ScriptedPerson, run_executor
from gbnf_server.mcp import mcp_tools
from gbnf_server.system.addresses import is_loopback
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.folders import manifests_path
from support.mcp_servers import named, serving
from support.processes import children, is_alive, wait_until
from support.toys import make_tool

pytestmark = pytest.mark.slow  # servers are programs

GBNF = [sys.executable, "-m", "gbnf_server", "mcp"]
ANSWERS: dict[str, Any] = {"approve": True, "colour": "blue", "day": "2026-01-02", "many": ["a", "b"]}
Use = Callable[[Client], Awaitable[Any]]


class Asked:
    """The person at an SDK client, who answers by name, with `action`."""

    def __init__(self, answers: dict[str, Any] | None = None, action: Any = "accept") -> None:
        self.answers, self.action = ANSWERS if answers is None else answers, action
        self.asked: list[ElicitRequestFormParams] = []

    def answer(self, params: Any) -> ElicitResult:
        self.asked.append(params)
        content = {name: self.answers[name] for name in params.requested_schema["properties"]}
        return ElicitResult(action=self.action, content=content if self.action == "accept" else None)


class Served:
    """A running server, and SDK clients of it: with and without a person, in each era."""

    def __init__(self, transport: str, workspace: Path, options: list[str], stack: ExitStack) -> None:
        self.workspace, self._stack = workspace, stack
        command = [*GBNF, "--workspace", str(workspace), *options]
        self.source = shlex.join(command)
        self._server: Any = StdioServerParameters(command=command[0], args=command[1:])
        if transport == "http":
            self.source = self._server = stack.enter_context(serving([*command, "--http", "0"]))
        self._portal = stack.enter_context(start_blocking_portal())
        self._clients: dict[tuple[str, bool], Client] = {}
        self._person = Asked()

    async def _elicit(self, context: Any, params: Any) -> ElicitResult:
        return self._person.answer(params)

    def use(self, work: Use, *, mode: str = "auto", person: Asked | None = None) -> Any:
        key = mode, person is not None
        if key not in self._clients:
            client = Client(self._server, mode=mode, elicitation_callback=self._elicit if person else None)
            opened = self._portal.wrap_async_context_manager(client)
            self._clients[key] = self._stack.enter_context(opened)
        self._person = person or self._person
        return self._portal.call(work, self._clients[key])

    def call(self, name: str, arguments: dict[str, Any], **how: Any) -> CallToolResult:
        result = self.use(lambda client: client.call_tool(name, arguments), **how)
        assert isinstance(result, CallToolResult)
        return result


@pytest.fixture(scope="module", params=["stdio", "http"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(request.param, tmp_path_factory.mktemp("workspace"), [], stack)


@pytest.fixture
def mode(served: Served) -> str:
    """The era of the protocol: the earlier one over HTTP, where a question needs the stream of its call."""
    return "legacy" if served.source.startswith("http") else "auto"


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def test_it_lists_the_tools_with_plain_schemas(served: Served, mode: str) -> None:
    async def look(client: Client) -> tuple[str, dict[str, Any]]:
        return client.protocol_version, {tool.name: tool for tool in (await client.list_tools()).tools}

    version, listed = served.use(look, mode=mode)
    assert (version == LATEST_MODERN_VERSION) == (mode == "auto")
    tools = {tool.name: tool for tool in load_manifests(manifests_path())}
    assert listed.keys() == tools.keys()
    for name, tool in listed.items():
        Draft202012Validator.check_schema(tool.input_schema)
        policy = tools[name].run
        assert tool.annotations.read_only_hint == (policy.effect == "read")
        assert tool.annotations.destructive_hint == (policy.confirm if policy.effect == "write" else None)
        assert tool.description == tools[name].description()
        assert not set(
            re.findall(r'"(fills|runtime_resolved|requires_one_of)"', json.dumps(tool.input_schema))
        )


def test_a_result_is_structured_and_text(served: Served, mode: str) -> None:
    result = served.call("create_dirs", {"paths": ["a/b"]}, mode=mode)
    assert result.structured_content == {"entries": ["a/b"]} == json.loads(text(result))
    assert (served.workspace / "a" / "b").is_dir()


@pytest.mark.parametrize(
    ("name", "arguments", "fault"),
    [
        ("get_now", {"x": 1}, "unknown argument 'x' for tool 'get_now'"),
        ("create_dirs", {"paths": 3}, "paths"),
        ("read_files", {"paths": ["no such file"]}, "no such file"),
    ],
)
def test_a_fault_is_a_result_that_says_what_is_wrong(
    served: Served, name: str, arguments: dict[str, Any], fault: str
) -> None:
    result = served.call(name, arguments)
    assert result.is_error
    assert fault in text(result)


def test_an_unknown_tool_is_an_error_of_the_protocol(served: Served, mode: str) -> None:
    with pytest.raises(MCPError, match="unknown tool 'get_nov'"):
        served.call("get_nov", {}, mode=mode)


def test_approval_is_asked_through_the_client(served: Served, mode: str) -> None:
    served.call("create_dirs", {"paths": ["old"]})
    for person in (Asked({"approve": False}), Asked(action="decline"), Asked(action="cancel")):
        result = served.call("delete_files", {"paths": ["old"]}, mode=mode, person=person)
        assert result.is_error
        assert "did not approve" in text(result)
        assert (served.workspace / "old").is_dir()
    person = Asked()
    assert not served.call("delete_files", {"paths": ["old"]}, mode=mode, person=person).is_error
    assert not (served.workspace / "old").exists()
    (question,) = person.asked
    assert question.message.startswith("Allow delete_files to run with")
    assert '"old": folder with 0 entries' in question.message


def test_a_client_that_cannot_ask_is_refused(served: Served, mode: str) -> None:
    served.call("create_dirs", {"paths": ["kept"]})
    result = served.call("delete_files", {"paths": ["kept"]}, mode=mode)
    assert result.is_error
    assert "needs a person's approval, and this MCP client cannot ask" in text(result)
    assert (served.workspace / "kept").is_dir()


def test_a_form_is_asked_through_the_client(served: Served, mode: str) -> None:
    fields = [
        {"var": "colour", "prompt": "Which?", "schema": {"kind": "choice", "options": ["red", "blue"]}},
        {"var": "day", "prompt": "When?", "schema": {"kind": "date"}},
        {"var": "many", "prompt": "What?", "schema": {"kind": "multi_choice", "options": ["a", "b"]}},
    ]
    person = Asked()
    result = served.call("get_inputs", {"title": "Form", "dialog": fields}, mode=mode, person=person)
    assert result.structured_content is not None
    assert result.structured_content["values"] == {name: ANSWERS[name] for name in ("colour", "day", "many")}
    assert len(person.asked) == 1
    wrong = served.call(
        "get_inputs", {"title": "Form", "dialog": fields}, mode=mode, person=Asked({**ANSWERS, "colour": "x"})
    )
    assert wrong.is_error
    assert "does not fit" in text(wrong)


def test_credentials_are_not_asked_through_a_client(served: Served, mode: str) -> None:
    fields = [{"var": "key", "prompt": "Key?", "schema": {"kind": "credentials"}}]
    person = Asked()
    result = served.call("get_inputs", {"title": "Form", "dialog": fields}, mode=mode, person=person)
    assert result.is_error
    assert "credentials" in text(result)
    assert person.asked == []


def test_an_approval_is_for_one_call_only(served: Served) -> None:
    """A client that sends the sealed state of one call with another call's arguments is refused."""

    async def cheat(client: Client, state: str | None = None) -> Any:
        answers = {"approval": ElicitResult(action="accept", content={"approve": True})}
        return await client.session.call_tool(
            "delete_files",
            {"paths": ["other"]},
            input_responses=answers,  # type: ignore[arg-type]  # it is one of the union
            request_state=state,
            allow_input_required=True,
        )

    async def cheat_with_a_state(client: Client) -> Any:
        arguments = {"paths": ["a"]}
        first: Any = await client.session.call_tool("delete_files", arguments, allow_input_required=True)
        return await cheat(client, first.request_state)

    served.call("create_dirs", {"paths": ["other"]})
    with pytest.raises(MCPError, match="requestState"):
        served.use(cheat_with_a_state, person=Asked())
    assert served.use(cheat, person=Asked()).input_requests.keys() == {"approval"}  # asked anew
    assert (served.workspace / "other").is_dir()


def test_our_client_uses_our_server(served: Served, there: Context) -> None:
    with mcp_tools(served.source) as mcp:
        here = replace(there, person=ScriptedPerson({"approve": True}))
        assert named(mcp, "get_now").run.effect == "read"
        assert named(mcp, "delete_files").run.confirm
        made = run_executor(named(mcp, "create_dirs"), {"paths": ["ours"]}, there)
        assert made == {"entries": ["ours"]}
        with pytest.raises(ExecutorError, match="did not approve"):
            run_executor(named(mcp, "delete_files"), {"paths": ["ours"]}, there)
        assert run_executor(named(mcp, "delete_files"), {"paths": ["ours"]}, here) == {"entries": ["ours"]}


def test_every_call_is_approved_with_yes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        served = Served("stdio", tmp_path, ["--yes"], stack)
        served.call("create_dirs", {"paths": ["old"]})
        assert not served.call("delete_files", {"paths": ["old"]}).is_error
    assert not (tmp_path / "old").exists()


def post(url: str, **headers: str) -> int:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    usual = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    return httpx2.post(url, json=body, headers=usual | headers).status_code


def test_an_api_key_is_needed_and_web_pages_cannot_use_it(there: Context, tmp_path: Path) -> None:
    key = {"Authorization": "Bearer swordfish"}
    with serving([*GBNF, "--workspace", str(tmp_path), "--http", "0", "--api-key", "swordfish"]) as guarded:
        assert [post(guarded), post(guarded, Authorization="Bearer sword")] == [401, 401]
        with mcp_tools({"mcpServers": {"a": {"url": guarded, "headers": key}}}) as mcp:
            assert "time" in run_executor(named(mcp, "get_now"), {}, there)
        assert post(guarded, **key, Origin="https://example.org") == 403
        assert post(guarded, **key, Host="example.org") == 421
        assert post(guarded, **key) not in {401, 403, 421}


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False)],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_an_interrupt_ends_the_server_and_its_running_call(tmp_path: Path) -> None:
    make_tool(tmp_path / "tools", "slow", "time.sleep(60)")
    command = [*GBNF, "--workspace", str(tmp_path / "w"), "--manifests", str(tmp_path / "tools")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        client = {"name": "t", "version": "1"}
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        for message in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "slow", "arguments": {}}},
        ):
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "gbnf"
        wait_until(lambda: children(server.pid))
        below = children(server.pid)
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == -signal.SIGINT
    wait_until(lambda: not any(map(is_alive, below)))
