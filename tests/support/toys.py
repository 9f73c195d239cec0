"""Generate small tools, for tests that need a tool with one certain behaviour."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gbnf.tools import Tool, load_manifests
from gbnf_server.planner import Planner, Run

Driver = Callable[[Planner, str], Run]
"""A way to run a planner: the fixture `driver` gives each."""


def make_tool(
    folder: Path,
    name: str,
    body: str = 'return {"entries": ["done"]}',
    *,
    args: dict[str, Any] | None = None,
    effect: str = "read",
    confirm: bool = False,
    timeout_s: float = 30,
    offer: dict[str, Any] | None = None,
) -> Tool:
    """Write a manifest and an executor whose `run` has this body; load it. `args`: keywords of its schema."""
    target = folder / name
    target.mkdir(parents=True)
    schema = {"type": "object", "properties": {}, **(args or {})}
    lines = [
        f"name = {json.dumps(name)}",
        f'description = "The tool {name}."',
        f"args = {_inline(schema)}",
        f"offer = {_inline(offer or {})}",
        "[run]",
        f"effect = {json.dumps(effect)}",
        f"confirm = {json.dumps(confirm)}",
        f"timeout_s = {timeout_s}",
    ]
    (target / "manifest.toml").write_text("\n".join(lines))
    code = (
        f"import os, time\n\ndef run(arguments, context):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    )
    (target / "executor.py").write_text(code)
    [tool] = load_manifests(target)
    return tool


def _inline(value: Any) -> str:
    """A JSON value as a TOML inline value; their scalars and lists are spelt alike."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)


NEVER = Tool.from_mapping(
    {
        "name": "never",
        "description": "Needs the entries of an earlier step.",
        "args": {
            "properties": {
                "from_step": {"type": "integer", "fills": "paths"},
                "paths": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["from_step"],
        },
        "offer": {"terminal": True},
    }
)
"""Ends a run, and cannot be called in a run without entries. If it is required, no step offers an answer, so
that even a random model calls the other tools."""
