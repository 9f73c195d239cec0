"""Files, folders and links, moved to the trash: all of the list, or none of it.

Of a link that stays inside the workspace the link goes, not its target. What lies in a folder that is listed
too goes with the folder.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import Trash

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    workspace = context.workspace
    listed = {workspace.relative(workspace.locate(path)): None for path in arguments["paths"]}
    outermost = [
        path for path in listed if not any(str(above) in listed for above in PurePosixPath(path).parents)
    ]
    context.change(*map(Trash, outermost))
    return {"entries": outermost}
