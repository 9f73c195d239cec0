"""Creation of folders and their parents. Existing folders are unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.executors import MakeFolder

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Create the folders of `paths`."""
    workspace = context.workspace
    paths = list(dict.fromkeys(workspace.relative(workspace.resolve(path)) for path in arguments["paths"]))
    context.change(*map(MakeFolder, paths))
    return {"entries": paths}
