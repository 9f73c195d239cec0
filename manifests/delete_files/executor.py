"""Deletion of files, folders and links, which are moved to the trash: all of them, or none.

Of a link inside the workspace, the link is deleted, not its target. The contents of a listed folder are
deleted with the folder.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import Trash

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Move `paths` to the trash."""
    workspace = context.workspace
    listed = {workspace.relative(workspace.locate(path)): None for path in arguments["paths"]}
    outermost = [
        path for path in listed if not any(str(above) in listed for above in PurePosixPath(path).parents)
    ]
    context.change(*map(Trash, outermost))
    return {"entries": outermost}
