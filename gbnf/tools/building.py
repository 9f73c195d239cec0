"""Tools from what is not a manifest: a name, a description, and a schema without its malformed parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gbnf.tools.manifest_checks import json_like, nests_deeper
from gbnf.tools.tool import Tool

_MAX_DEPTH = 60
"""How deeply a schema may be nested: it is rewritten and checked recursively."""


def build_tool(
    name: Any, description: str, schema: Any, *, run: Mapping[str, Any], extra: Mapping[str, Any]
) -> Tool:
    """Return a tool. What was removed from its schema is among its findings. Raises ManifestError."""
    from gbnf.tools.loosening import loosened_argument_schema  # noqa: PLC0415 - manifests need none

    # too deep: None is no schema, so any arguments are accepted
    readable = None if nests_deeper(schema, _MAX_DEPTH) else json_like(schema)
    args, findings = loosened_argument_schema(str(name), readable)
    content = {"name": name, "description": description, "args": args, "run": run}
    tool = Tool.from_mapping({**{key: extra[key] for key in extra if key not in content}, **content})
    return replace(tool, findings=(*findings, *tool.findings))
