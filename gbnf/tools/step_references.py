"""Step references: arguments that are the number of an earlier step, whose entries the runtime inserts.

A step reference is a tool's top-level integer property with `fills = "other"`. It is offered only if an
earlier step has entries; its values are then the numbers of those steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbnf.tools import Tool


def offered_args(tool: Tool, steps: Sequence[int]) -> dict[str, Any] | None:
    """Return the argument schema offered to a model when `steps` have entries.

    Without steps, step references are removed from the properties and from each group of `requires_one_of`.
    None: the tool cannot be called, since it needs a step reference.
    """
    args = tool.model_args()
    removed = frozenset() if steps else frozenset(tool.step_references)
    if not removed:
        return args
    if removed & set(args.get("required", ())):
        return None
    groups = [[name for name in group if name not in removed] for group in args.get("requires_one_of", ())]
    if not all(groups):
        return None
    properties = {name: schema for name, schema in args.get("properties", {}).items() if name not in removed}
    offered = {**args, "properties": properties}
    if "requires_one_of" in args:
        offered["requires_one_of"] = groups
    return offered
