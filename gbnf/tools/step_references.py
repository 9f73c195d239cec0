"""Step references: arguments that name an earlier step, whose entries the runtime puts in their place.

An executor's top-level integer property with `fills = "other"` is one. While no earlier step has entries,
it isn't offered at all; with steps, its values are their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbnf.tools import Tool


def offered_args(tool: Tool, steps: Sequence[int]) -> dict[str, Any] | None:
    """The argument schema that a model is offered when `steps` have entries; None: the tool can't be called.

    Without steps, step references go from the properties and from every `requires_one_of` list; a tool
    that can't be called without one isn't offered.
    """
    args = tool.model_args()
    gone = frozenset() if steps else frozenset(tool.step_references)
    if not gone:
        return args
    if gone & set(args.get("required", ())):
        return None
    groups = [[name for name in group if name not in gone] for group in args.get("requires_one_of", ())]
    if not all(groups):
        return None
    properties = {name: schema for name, schema in args.get("properties", {}).items() if name not in gone}
    offered = {**args, "properties": properties}
    if "requires_one_of" in args:
        offered["requires_one_of"] = groups
    return offered
