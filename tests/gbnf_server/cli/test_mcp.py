"""`gbnf mcp` on a port in use, and `--mcp` of the other commands."""

from __future__ import annotations

import json
import shlex
import socket
from pathlib import Path

import pytest

from support.command_line import Gbnf
from support.mcp_servers import hostile_server
from support.toys import make_tool


def test_a_port_in_use_is_named(gbnf: Gbnf, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = gbnf("mcp", "--workspace", tmp_path, "--http", taken.getsockname()[1])
    assert result.code == 4
    assert "cannot be used: Address already in use" in result.err


@pytest.mark.slow
def test_tools_of_servers_come_beside_others(gbnf: Gbnf, tmp_path: Path) -> None:
    called = gbnf("call", "ping", "--mcp", hostile_server("usual"), "--workspace", tmp_path)
    assert (called.code, json.loads(called.out)) == (0, {"text": "pong"})
    make_tool(tmp_path / "tools", "pong")
    config = tmp_path / "mcp.json"
    command, *arguments = shlex.split(hostile_server("usual"))
    config.write_text(json.dumps({"mcpServers": {"toys": {"command": command, "args": arguments}}}))
    listed = gbnf("manifests", "--mcp", config, "--manifests", tmp_path / "tools", "--json")
    assert {tool["name"] for tool in json.loads(listed.out)} == {"ping", "pong"}


@pytest.mark.slow
def test_a_server_that_does_not_start_is_named(gbnf: Gbnf) -> None:
    result = gbnf("compile", "--mcp", hostile_server("exits"))
    assert result.code == 4
    assert "it ended with status 2" in result.err
    assert "no configuration found" in result.err
    assert gbnf("compile", "--mcp", "missing.json").code == 3
