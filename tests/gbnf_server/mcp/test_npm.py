"""The reference servers of the MCP project, as npm installs them.

    npm install --prefix FOLDER @modelcontextprotocol/server-everything \\
        @modelcontextprotocol/server-filesystem @modelcontextprotocol/server-memory

`GBNF_MCP_SERVERS` names FOLDER; by default `mcp-servers` in the cache folder. Without it, they are skipped.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gbnf import compile_pool
from gbnf_server.executors import Context, ScriptedPerson, Workspace, run_executor
from gbnf_server.mcp import McpTools, mcp_tools
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.folders import cache_folder
from support.mcp_servers import named
from support.processes import wait_until

INSTALLED = (
    Path(os.environ.get("GBNF_MCP_SERVERS") or cache_folder() / "mcp-servers") / "node_modules" / ".bin"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (INSTALLED / "mcp-server-everything").exists(), reason=f"no servers of npm in {INSTALLED}"
    ),
]


def server(name: str, *arguments: object) -> str:
    return shlex.join([str(INSTALLED / f"mcp-server-{name}"), *map(str, arguments)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def mcp(files: Path) -> Iterator[McpTools]:
    environment = {"MEMORY_FILE_PATH": str(files / "memory.jsonl")}
    memory = {"command": str(INSTALLED / "mcp-server-memory"), "env": environment}
    config = {"mcpServers": {"memory": memory}}
    with mcp_tools(server("filesystem", files), server("everything"), config) as tools:
        yield tools


@pytest.fixture
def there(tmp_path: Path) -> Context:
    person = ScriptedPerson({"name": "Ada", "check": True})
    return Context(Workspace(tmp_path), person=person, settings={})


def test_all_of_their_tools_compile(mcp: McpTools) -> None:
    assert len(mcp.tools) > 30
    assert [finding for tool in mcp.tools for finding in tool.findings] == []
    grammar = compile_pool(mcp.tools, final_answer=True)
    call = {"name": "read_text_file", "arguments": {"path": "/a", "head": 3}}
    assert grammar.match(json.dumps(call, separators=(",", ":"))).accepted


def test_everything_is_understood(mcp: McpTools, files: Path, there: Context) -> None:
    def call(name: str, **arguments: object) -> dict[str, object]:
        return run_executor(named(mcp, name), arguments, there)

    assert call("echo", message="hi") == {"text": "Echo: hi"}
    call("write_file", path=str(files / "new.txt"), content="x")
    assert (files / "new.txt").read_text() == "x"
    with pytest.raises(ExecutorError, match="Access denied"):
        call("read_text_file", path="/etc/passwd")
    call("create_entities", entities=[{"name": "Ada", "entityType": "person", "observations": []}])
    assert "Ada" in (files / "memory.jsonl").read_text()
    weather = call("get-structured-content", location="Chicago")
    assert weather.keys() == {"temperature", "conditions", "humidity"}
    image = call("get-tiny-image")["entries"]
    assert isinstance(image, list)
    assert (there.workspace.root / image[0]).read_bytes().startswith(b"\x89PNG")
    assert len(call("get-resource-links", count=2)["resources"]) == 2  # type: ignore[arg-type]  # a list
    assert "completed" in str(call("trigger-long-running-operation", duration=1, steps=2)["text"])


def test_tools_that_appear_later_are_noticed(files: Path) -> None:
    """The server adds tools that depend on what the client can do once the session has begun."""
    with mcp_tools(server("everything")) as tools:
        wait_until(lambda: "trigger-elicitation-request" in {tool.name for tool in tools.tools})
