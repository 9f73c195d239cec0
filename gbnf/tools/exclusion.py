"""Tools without some of their calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gbnf.tools.tool import Tool


def excluding(tool: Tool, arguments: Sequence[Mapping[str, Any]]) -> Tool:
    """Return the tool without the calls that have exactly one of these arguments, in whatever order.

    `validate_call` refuses them. So does a grammar, unless it reports that it does not enforce `not`: for
    arguments with many members, and where only a step reference differs.
    """
    if not arguments:
        return tool
    excluded: dict[str, Any] = {"enum": [*arguments]}
    if "not" in tool.args:
        excluded = {"anyOf": [tool.args["not"], excluded]}
    return replace(tool, args={**tool.args, "not": excluded})
