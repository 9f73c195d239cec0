"""MCP servers for tests, as real processes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gbnf.tools import Tool
from gbnf_server.mcp import McpTools

_FOLDER = Path(__file__).parent
SDK_SERVER = _FOLDER / "sdk_mcp_server.py"


def sdk_server(*options: str) -> str:
    """The command line of `sdk_mcp_server.py` over stdio."""
    return shlex.join([sys.executable, str(SDK_SERVER), "stdio", *options])


def hostile_server(mode: str) -> str:
    """The command line of `hostile_mcp_server.py`."""
    return shlex.join([sys.executable, "-S", str(_FOLDER / "hostile_mcp_server.py"), mode])


@contextmanager
def http_server(*options: str) -> Iterator[str]:
    """The URL of `sdk_mcp_server.py`, whose first option is http or sse."""
    command = [sys.executable, str(SDK_SERVER), *options]
    with serving(command) as url:
        yield url


@contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """The first line that a program prints, which is its URL; it is killed at the end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def named(mcp: McpTools, name: str) -> Tool:
    """One of the present tools."""
    return next(tool for tool in mcp.tools if tool.name == name)
