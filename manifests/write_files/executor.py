"""Writing of text files in UTF-8, which replace existing ones: all of them, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError, Write

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Write `files`."""
    workspace = context.workspace
    writes: dict[str, Write] = {}
    for file in arguments["files"]:
        path = workspace.relative(workspace.resolve(file["path"]))
        if path in writes:
            raise ExecutorError(f"'{path}' is listed twice; give each file once, with its whole text")
        try:
            writes[path] = Write(file["path"], file["content"].encode())
        except UnicodeEncodeError as error:
            raise ExecutorError(f"the content of '{path}' is no text: {error.reason}") from None
    context.change(*writes.values())
    return {"entries": list(writes)}
