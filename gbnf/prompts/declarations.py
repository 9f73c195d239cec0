"""Declare tools in the form of OpenAI's API, for chat templates that describe the tools themselves.

Invariants: the same pool gives the same value; nothing that the runtime fills in appears, and no keyword of
this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf.schema.applicators import map_subschemas
from gbnf.tools import Tool, localized

_OWN_KEYWORDS = frozenset({"requires_one_of", "fills", "runtime_resolved"})


def declare_tool(tool: Tool, *, language: str = "en") -> dict[str, Any]:
    """Return `{"type": "function", "function": {"name", "description", "parameters"}}`."""
    args = tool.model_args()
    parameters = with_groups(plain_schema(args, language), args)
    if "properties" not in parameters:  # many templates iterate over them
        parameters = {"type": "object", "properties": {}, **parameters}
    function = {"name": tool.name, "description": tool.description(language), "parameters": parameters}
    return {"type": "function", "function": function}


def plain_schema(schema: Any, language: str) -> Any:
    """Return a schema without the keywords of this project, with its descriptions in one language."""
    if not isinstance(schema, Mapping):
        return schema
    plain = {key: value for key, value in schema.items() if key not in _OWN_KEYWORDS}
    if isinstance(plain.get("description"), Mapping):
        plain["description"] = localized(plain["description"], language)
    return dict(map_subschemas(plain, lambda _path, member: plain_schema(member, language)))


def with_groups(schema: dict[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with the groups of `args["requires_one_of"]` in standard keywords."""
    groups = args.get("requires_one_of")
    if not groups:
        return schema
    needed = [{"anyOf": [{"required": [name]} for name in group]} for group in groups]
    return {**schema, "allOf": [*schema.get("allOf", ()), *needed]}
