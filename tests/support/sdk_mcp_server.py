"""An MCP server written with the Python SDK, for tests: run as a program over stdio, HTTP or SSE.

    python sdk_mcp_server.py stdio|http|sse [--legacy] [--tools COUNT]

Over HTTP it prints its URL. `--legacy`: protocols up to 2025-11-25 only.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import socket
import sys
import warnings
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import server as lowlevel
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.runner import serve_loop
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

warnings.simplefilter("ignore", MCPDeprecationWarning)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("toys", log_level="CRITICAL")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Sum(BaseModel):
    total: int


class Answer(BaseModel):
    colour: str
    number: int = 0


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str) -> CallToolResult:
    """Return the text."""
    return CallToolResult(content=[TextContent(text=text)])


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
def remove(name: str) -> CallToolResult:
    """Say nothing of its effect."""
    return CallToolResult(content=[TextContent(text=f"removed {name}")])


@server.tool()
def everything() -> CallToolResult:
    """Return a block of each kind."""
    return CallToolResult(
        content=[
            TextContent(text="see"),
            ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png"),
            AudioContent(data=base64.b64encode(b"RIFF").decode(), mime_type="audio/wav"),
            ImageContent(data="%%%", mime_type="image/png"),
            ResourceLink(uri="file:///notes.txt", name="notes", mime_type="text/plain"),
            EmbeddedResource(resource=TextResourceContents(uri="toy://a", text="A")),
            EmbeddedResource(
                resource=BlobResourceContents(uri="toy://b.bin", blob=base64.b64encode(b"B").decode())
            ),
        ]
    )


@server.tool()
def fail(text: str) -> CallToolResult:
    """Fail as tools do."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


@server.tool()
async def hang() -> CallToolResult:
    """Return after an hour; say on standard error when it is cancelled."""
    try:
        await anyio.sleep(3600)
        return CallToolResult(content=[])
    finally:
        _say("hang was cancelled")


@server.tool()
def crash() -> CallToolResult:
    """End the server in the middle of a call."""
    _say("about to crash")
    os._exit(7)


@server.tool()
def big(megabytes: int) -> CallToolResult:
    """Return much text."""
    return CallToolResult(content=[TextContent(text="x" * (megabytes << 20))])


@server.tool()
async def steps(ctx: Context) -> CallToolResult:
    """Report progress, and log."""
    await ctx.report_progress(1, 2, "half")
    await ctx.info("a note")
    await anyio.sleep(0.2)
    return CallToolResult(content=[TextContent(text="done")])


@server.tool()
async def grow(ctx: Context, name: str) -> CallToolResult:
    """Add a tool, and tell."""

    def added() -> str:
        return "new"

    server.add_tool(added, name=name, description="Added later", structured_output=False)
    await _tell(ctx)
    return CallToolResult(content=[TextContent(text="added")])


@server.tool()
async def shrink(ctx: Context, name: str) -> CallToolResult:
    """Remove a tool, and tell."""
    server.remove_tool(name)
    await _tell(ctx)
    return CallToolResult(content=[TextContent(text="removed")])


async def _tell(ctx: Context) -> None:
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        await ctx.notify_tools_changed()
    else:
        await ctx.session.send_tool_list_changed()


QUESTION = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green"], "title": "Which colour"},
        "number": {"type": "integer", "minimum": 1, "title": "How many"},
        "wish": {"type": "string", "default": "none"},
    },
    "required": ["colour", "number"],
}


@server.tool()
async def ask(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Ask the person."""
    params = ElicitRequestFormParams(message="Choose", requested_schema=QUESTION)
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        if ctx.input_responses is None:
            return InputRequiredResult(input_requests={"choice": ElicitRequest(params=params)})
        answer: Any = ctx.input_responses["choice"]
    else:
        answer = await ctx.session.elicit_form(params.message, QUESTION, ctx.request_id)
    assert isinstance(answer, ElicitResult)
    return CallToolResult(content=[TextContent(text=f"{answer.action} {answer.content}")])


@server.tool()
async def ask_briefly(ctx: Context) -> CallToolResult:
    """Ask the person, and return before an answer comes, which is said on standard error."""
    with anyio.move_on_after(0.1):
        await ctx.session.elicit_form("Choose", QUESTION, ctx.request_id)
    _say("does not wait")
    return CallToolResult(content=[TextContent(text="nobody answered")])


@server.tool()
async def roots(ctx: Context) -> CallToolResult:
    """Return the roots of the client."""
    found = await ctx.session.list_roots()
    return CallToolResult(content=[TextContent(text=" ".join(str(root.uri) for root in found.roots))])


_meeting: list[anyio.Event] = []


@server.tool()
async def meet(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Wait for another call of this tool; then return the roots, and what the person answers."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and ctx.input_responses is not None:
        return await ask(ctx)
    if _meeting:
        _meeting.pop().set()
    else:
        _meeting.append(other := anyio.Event())
        await other.wait()
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return await ask(ctx)
    found = await ctx.session.list_roots()
    answer = await ctx.session.elicit_form("Choose", QUESTION, ctx.request_id)
    await anyio.sleep(0.5)  # the other call is answered while this one lasts
    text = " ".join([*[str(root.uri) for root in found.roots], f"{answer.action} {answer.content}"])
    return CallToolResult(content=[TextContent(text=text)])


@server.tool()
def environment(name: str) -> CallToolResult:
    """Return a variable of the environment."""
    return CallToolResult(content=[TextContent(text=os.environ.get(name, "(unset)"))])


@server.tool(name="odd name/é")
def odd() -> CallToolResult:
    """Have a name that no API takes."""
    return CallToolResult(content=[TextContent(text="odd")])


@server.tool()
def deep() -> CallToolResult:
    """Return a deep value."""
    value: Any = 0
    for _ in range(100):
        value = [value]
    return CallToolResult(content=[], structured_content={"deep": value})


INVALID = {"type": "object", "properties": {"n": {"type": "strnig"}}}
OUTPUT_SCHEMAS: dict[str, Any] = {
    "broken_output": INVALID,
    "false_output": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    "slow_output": {"type": "object", "properties": {"n": {"type": "string", "pattern": "^(a+)+$"}}},
}
BROKEN = [
    Tool(name="broken_input", input_schema={"type": "object", "properties": {"a": {"type": "strnig"}}}),
    *(
        Tool(name=name, input_schema={"type": "object"}, output_schema=schema)
        for name, schema in OUTPUT_SCHEMAS.items()
    ),
]
"""Tools that no other API lists."""


def _install_broken(count: int) -> None:
    """Add the broken tools, and `count` more, in pages of a hundred."""
    low = server._lowlevel_server
    usual_list, usual_call = server._handle_list_tools, server._handle_call_tool

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        more = [Tool(name=f"extra_{number}", input_schema={"type": "object"}) for number in range(count)]
        tools = [*(await usual_list(ctx, params)).tools, *BROKEN, *more]
        start = int(params.cursor) if params is not None and params.cursor else 0
        rest = start + 100
        return ListToolsResult(tools=tools[start:rest], next_cursor=str(rest) if rest < len(tools) else None)

    async def call_tool(ctx: Any, params: Any) -> Any:
        if params.name.startswith("extra_"):
            return CallToolResult(content=[TextContent(text=params.name)])
        if params.name in OUTPUT_SCHEMAS:
            return CallToolResult(content=[], structured_content={"n": "a" * 40 + "!"})
        return await usual_call(ctx, params)

    low.add_request_handler("tools/list", PaginatedRequestParams, list_tools)
    low.add_request_handler("tools/call", CallToolRequestParams, call_tool)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["stdio", "http", "sse"])
    parser.add_argument("--legacy", action="store_true")
    parser.add_argument("--tools", type=int, default=0)
    given = parser.parse_args()
    _install_broken(given.tools)
    if given.legacy:
        del server._lowlevel_server._request_handlers["server/discover"]
        setattr(lowlevel, "serve_dual_era_loop", serve_loop)  # noqa: B010  # the module does not export it
    if given.transport == "stdio":
        server.run()
        return
    listening = socket.create_server(("127.0.0.1", 0))
    path = "/mcp" if given.transport == "http" else "/sse"
    app = server.streamable_http_app() if given.transport == "http" else server.sse_app()
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}{path}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


if __name__ == "__main__":
    main()
