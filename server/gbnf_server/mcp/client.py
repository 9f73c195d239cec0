"""The tools of MCP servers, for as long as a context lasts.

with mcp_tools("npx -y @modelcontextprotocol/server-filesystem notes", "https://example.org/mcp") as mcp:
    Planner(lambda: mcp.tools, backend, context=context).run("list my notes")
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Self

import mcp_types

from gbnf.errors import BrokenManifestsError
from gbnf.tools import Tool
from gbnf.tools.manifest_checks import LONGEST_NAME, RESERVED_NAMES, valid_name
from gbnf.tools.sources import load_tools
from gbnf_server.executors import Context
from gbnf_server.mcp.config import McpSource, read_source
from gbnf_server.mcp.connection import Caller, Connection, McpServerError
from gbnf_server.mcp.elicitation import answer_server
from gbnf_server.mcp.log import OnLog
from gbnf_server.mcp.results import result_object
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.event_loop import BackgroundLoop, run_in_thread

START_TIMEOUT_S = 60.0
"""For a server to start and list its tools: `npx` may download it first."""


def mcp_tools(
    *sources: McpSource,
    prefix: str | None = None,
    on_log: OnLog | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> McpTools:
    """Return the tools of MCP servers, as a context: the servers start with it, and end with it.

    Arguments:
        sources: command lines, URLs, paths of an `mcp.json` (Claude Desktop, VS Code), or its content.
        prefix: put before the name of each tool, with "_".
        on_log: called with a server's name and a line: of its standard error, log messages and progress.
        start_timeout_s: time limit for the servers, which start at the same time.

    Raises McpConfigError for a source that cannot be used. Entering the context raises McpServerError for a
    server that does not start.

    """
    servers = [server for source in sources for server in read_source(source)]
    return McpTools([Connection(server, on_log, start_timeout_s) for server in servers], prefix)


class McpTools:
    """The tools of MCP servers, which run within this context."""

    def __init__(self, connections: Sequence[Connection], prefix: str | None) -> None:
        self._connections, self._prefix = connections, prefix
        self._lock = Lock()
        self._listed: tuple[tuple[mcp_types.Tool, ...], ...] | None = None
        self._tools: tuple[Tool, ...] = ()

    # Not a generator, whose finally would wait for the background thread when the program ends without it.
    def __enter__(self) -> Self:
        self._loop = BackgroundLoop("mcp")
        try:
            self._loop.run(_start(self._connections))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()

    def _end(self) -> None:
        try:
            self._loop.run(_close(self._connections))
        finally:
            self._loop.close()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The present tools, listed again if a server has told that they have changed.

        If a server cannot list them any more, those that it listed last.
        """
        with self._lock:
            for connection in self._connections:
                if connection.changed:
                    with suppress(McpServerError):  # its calls will tell
                        self._loop.run(connection.refresh())
            listed = tuple(connection.tools for connection in self._connections)
            if listed != self._listed:
                self._listed = listed
                self._tools = tuple(_tools(self._connections, self._loop, self._prefix))
            return self._tools


class McpFunction:
    """Executes the calls of one tool, as `Tool.function`."""

    def __init__(self, connection: Connection, listed: mcp_types.Tool, loop: BackgroundLoop) -> None:
        self._connection, self._loop = connection, loop
        self._name, self._output_schema = listed.name, listed.output_schema
        # a tool's identity is the same in every process: its server's, and its name
        self.__qualname__ = f"{connection.server}#{listed.name}"

    def __call__(self, arguments: dict[str, Any], context: Context) -> Future[dict[str, Any]]:
        """Start a call; its future has the result, or an ExecutorError."""
        return self._loop.start(self._call(arguments, context))

    async def _call(self, arguments: dict[str, Any], context: Context) -> dict[str, Any]:
        """Return the result of a call. What the server logs meanwhile is its output. Raises ExecutorError."""
        questions: list[Future[mcp_types.ElicitResult]] = []

        async def ask(params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
            asking = run_in_thread(partial(answer_server, self._connection.name, params, context))
            questions.append(asking)
            return await asyncio.wrap_future(asking)

        if all(tool.name != self._name for tool in self._connection.tools):
            raise ExecutorError(
                f"the MCP server '{self._connection.name}' no longer has the tool '{self._name}'"
            )
        log = self._connection.log
        before = log.count
        try:
            caller = Caller(ask, context.turn, context.workspace.root)
            result = await self._connection.call(self._name, arguments, caller)
            # a person who is still asked would answer the next question with what is meant for this one
            await asyncio.gather(*map(asyncio.wrap_future, questions), return_exceptions=True)
            name = context.tool or self._name
            value = await asyncio.to_thread(result_object, name, result, self._output_schema, context)
        except ExecutorError as error:
            error.add_note(log.since(before))
            raise
        if context.on_output is not None and (logged := log.since(before)):
            await asyncio.to_thread(context.on_output, context.secrets.redact(logged))
        return value


async def _start(connections: Sequence[Connection]) -> None:
    """Start all servers at once. Raises McpServerError for the first in order that does not start."""
    results = await asyncio.gather(*(server.start() for server in connections), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _close(connections: Sequence[Connection]) -> None:
    await asyncio.gather(*(connection.close() for connection in connections))


def _tools(connections: Sequence[Connection], loop: BackgroundLoop, prefix: str | None) -> Iterator[Tool]:
    """Yield the tools of all servers; log why one cannot be loaded."""
    offered = [(server.name, [tool.name for tool in server.tools]) for server in connections]
    names = _resolve_names(offered, prefix)
    for connection, resolved in zip(connections, names, strict=True):
        for listed, name in zip(connection.tools, resolved, strict=True):
            mapping = listed.model_dump(by_alias=True, mode="json", exclude_none=True)
            try:
                (tool,) = load_tools({**mapping, "name": name})
            except BrokenManifestsError as errors:
                connection.log.add(f"the tool {listed.name!r} is left out", str(errors))
                continue
            yield replace(tool, function=McpFunction(connection, listed, loop))


def _resolve_names(servers: Sequence[tuple[str, Sequence[str]]], prefix: str | None) -> list[list[str]]:
    """Return a name for each tool of each server: valid, short enough for every API, and different.

    A name that two servers have, or a built-in tool, gets its server's name as a prefix.
    """
    counts = Counter(name for _, tools in servers for name in set(tools))
    taken: set[str] = set(RESERVED_NAMES)
    resolved: list[list[str]] = []
    for server, tools in servers:
        names = []
        for tool in tools:
            clashes = counts[tool] > 1 or tool in RESERVED_NAMES
            parts = [prefix, server if clashes else None, tool]
            valid = name = valid_name("_".join(part for part in parts if part), LONGEST_NAME)
            number = 1
            while name in taken:
                number += 1
                name = f"{valid[: LONGEST_NAME - len(str(number)) - 1]}_{number}"
            taken.add(name)
            names.append(name)
        resolved.append(names)
    return resolved
