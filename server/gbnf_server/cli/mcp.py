"""`gbnf mcp`: a folder of executors as an MCP server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gbnf_server.cli.model_options import ApproveAllOption, LanguageOption, WorkspaceOption
from gbnf_server.cli.output import say, serve_app
from gbnf_server.cli.tool_options import ManifestsOption, ToolsOption, ToolSources
from gbnf_server.system.addresses import is_loopback

_HTTP_PATH = "/mcp"


def mcp(
    manifests: ManifestsOption = None,
    tools: ToolsOption = None,
    http: Annotated[
        str | None,
        "[HOST:]PORT",
        "Serve streamable HTTP, at /mcp, instead of stdio. Default HOST: 127.0.0.1. Port 0: any.",
    ] = None,
    workspace: WorkspaceOption = Path("gbnf-workspace"),
    yes: ApproveAllOption = False,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="GBNF_MCP_API_KEY"),
        "API key that HTTP clients must send; required for a HOST other than this machine.",
    ] = None,
    language: LanguageOption = "en",
) -> None:
    """Offer tools to MCP clients, such as Claude Desktop, VS Code and Cursor.

    Serve on standard input and output, which the client connects, or with --http on a port. Every call is
    validated against its tool's schema, and executed in the workspace. A tool that requires approval asks the
    person through the client (elicitation); for clients without elicitation it is refused, unless --yes.

    \b
    Try:
      claude mcp add my-tools -- gbnf mcp --manifests my-tools/ --workspace ~/notes
      gbnf mcp --manifests my-tools/ --http 8000
      gbnf run "what time is it?" --mcp "gbnf mcp"
    """
    from gbnf_server.executors import Context, Workspace
    from gbnf_server.mcp.server import ToolServer

    host, port = _address(http) if http is not None else ("", 0)
    if http is not None and not is_loopback(host) and not api_key:
        raise typer.BadParameter(
            f"{host} is reachable from other machines: give --api-key", param_hint="--http"
        )
    if http is None and api_key:
        raise typer.BadParameter("it is for --http: a stdio server has one client", param_hint="--api-key")
    with ToolSources(manifests, tools).open() as pool:
        server = ToolServer(pool, Context(Workspace(workspace)), approve_all=yes, language=language)
        if http is None:
            # Executors end with this process, and the next change rolls back theirs.
            import asyncio
            import signal

            signal.signal(signal.SIGINT, signal.SIG_DFL)
            asyncio.run(server.serve_stdio())
        else:
            app = server.http_app(host, api_key or None)
            serve_app(app, host, port, _HTTP_PATH, "ready; press Ctrl-C to stop")
            say("stopped")


def _address(text: str) -> tuple[str, int]:
    """Return the host and port of `[HOST:]PORT`. Raises BadParameter."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise typer.BadParameter(f"{text!r} is not [HOST:]PORT, such as 8000", param_hint="--http")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
