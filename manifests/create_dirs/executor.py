"""Creation of folders and their parents. Existing folders are unchanged.

A path that ends like a file's is refused: a model that has to create a folder and a file in it gives both.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError, MakeFolder

if TYPE_CHECKING:
    from gbnf_server.executors import Context

_FILES = frozenset({".csv", ".json", ".log", ".md", ".pdf", ".txt"})


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Create the folders of `paths`."""
    workspace = context.workspace
    paths = list(dict.fromkeys(workspace.relative(workspace.resolve(path)) for path in arguments["paths"]))
    if files := [path for path in paths if PurePath(path).suffix.lower() in _FILES]:
        raise ExecutorError(f"'{files[0]}' is the name of a file; write it with write_files")
    context.change(*map(MakeFolder, paths))
    return {"entries": paths}
