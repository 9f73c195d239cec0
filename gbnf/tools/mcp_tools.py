"""Tools of MCP servers: an entry of a `tools/list` result as a `Tool`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gbnf.tools.tool import Tool

DEFAULT_TIMEOUT_S = 60.0
"""Time limit of a call, that of the SDKs of MCP."""


def tool_from_mcp(
    mapping: Mapping[str, Any], *, name: str | None = None, function: Callable[..., Any] | None = None
) -> Tool:
    """Return the tool that an entry of `tools/list` describes. Raises ManifestError.

    `name`: the tool's name here, by default the server's. The annotations give `effect` and `confirm`: a tool
    with `readOnlyHint` reads; every other one writes, and needs approval unless `destructiveHint` is false.
    """
    annotations = mapping.get("annotations")
    hints = annotations if isinstance(annotations, Mapping) else {}
    reads = hints.get("readOnlyHint") is True
    titles = (mapping.get("title"), hints.get("title"))
    described = mapping.get("description") or next((title for title in titles if title), "")
    manifest: dict[str, Any] = {
        "name": mapping.get("name") if name is None else name,
        "description": described,
        "args": _args(mapping.get("inputSchema", {"type": "object"})),
        "run": {
            "effect": "read" if reads else "write",
            "confirm": not reads and hints.get("destructiveHint") is not False,
            "timeout_s": DEFAULT_TIMEOUT_S,
        },
    }
    return replace(Tool.from_mapping(manifest), function=function)


def _args(schema: Any) -> Any:
    """Return the schema without `$schema`: what the SDKs of MCP write means the same in each draft."""
    return (
        {key: value for key, value in schema.items() if key != "$schema"}
        if isinstance(schema, dict)
        else schema
    )
