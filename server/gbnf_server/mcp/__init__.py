"""The Model Context Protocol (MCP): the tools of MCP servers, and a server of executors for MCP clients.

    mcp_tools(*sources)   the tools of servers: command lines, URLs, an mcp.json     `client`
    ToolServer            a server of a folder of executors, over stdio and HTTP     `server`

The other modules are internal, each importing only from those before it: `config` (which servers), `log`,
`server_process` and `stdio` (servers as processes), `connection` (one server's sessions), `results` and
`elicitation` (between MCP's values and those of executors), `client`. Names are imported on first use, since
the SDK takes a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbnf_server.mcp.client import McpTools as McpTools
    from gbnf_server.mcp.client import mcp_tools as mcp_tools
    from gbnf_server.mcp.config import McpConfigError as McpConfigError
    from gbnf_server.mcp.connection import McpServerError as McpServerError

_MODULES = {
    "McpConfigError": "gbnf_server.mcp.config",
    "McpServerError": "gbnf_server.mcp.connection",
    "McpTools": "gbnf_server.mcp.client",
    "mcp_tools": "gbnf_server.mcp.client",
}
__all__ = sorted(_MODULES)  # noqa: PLE0605  # the table is the list


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
