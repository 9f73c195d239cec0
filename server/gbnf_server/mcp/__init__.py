"""The Model Context Protocol (MCP): the tools of MCP servers, and a server of executors for MCP clients.

    mcp_tools(*sources)   the tools of servers: command lines, URLs, an mcp.json     `client`
    ToolServer            a server of a folder of executors, over stdio and HTTP     `server`

The other modules are internal, each importing only from those before it: `config` (which servers), `log`,
`stdio` (servers as processes), `connection` (one server's sessions), `results` and
`elicitation` (between MCP's values and those of executors), `client`. Names are imported on first use, since
the SDK takes a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gbnf.lazy_names import lazy_names

if TYPE_CHECKING:
    from gbnf_server.mcp.client import McpTools as McpTools
    from gbnf_server.mcp.client import mcp_tools as mcp_tools
    from gbnf_server.mcp.config import McpConfigError as McpConfigError
    from gbnf_server.mcp.connection import McpServerError as McpServerError

__all__, __getattr__, __dir__ = lazy_names(__name__, {
    "gbnf_server.mcp.client": ("McpTools", "mcp_tools"),
    "gbnf_server.mcp.config": ("McpConfigError",),
    "gbnf_server.mcp.connection": ("McpServerError",),
})  # fmt: skip
