"""Reading of text files in UTF-8, or UTF-16 with a byte order mark: all of them, or an error."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError

if TYPE_CHECKING:
    from gbnf_server.executors import Context, Workspace

LIMIT = 2 * 1024 * 1024
"""Maximum size of all files together, in bytes."""


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the texts of `paths`."""
    entries, paths, faults, left = [], [], [], LIMIT
    for path in arguments["paths"]:
        try:
            data = context.workspace.read(path, limit=left)
            entries.append(_text(path, data))
        except ExecutorError as error:
            faults.append(str(error))
            continue
        left -= len(data)
        paths.append(_relative(context.workspace, path))
    if faults:
        raise ExecutorError("; ".join(faults))
    return {"entries": entries, "paths": paths}


def _relative(workspace: Workspace, path: str) -> str:
    return workspace.relative(workspace.resolve(path))


def _text(path: str, data: bytes) -> str:
    marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError:
        raise ExecutorError(f"'{path}' is no text file") from None
    if "\0" in text:
        raise ExecutorError(f"'{path}' is no text file")
    return text
