"""Requests for missing tools, one line of JSON each, in the runtime's own folder of the workspace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbnf_server.executors import Context

FILE = "requests.jsonl"


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Append the request to the list."""
    request = {
        "at": context.now().isoformat(timespec="seconds"),
        "turn": context.turn,
        "need": arguments["need"],
    }
    context.workspace.append_to_state(FILE, json.dumps(request).encode() + b"\n")
    return {"recorded": arguments["need"]}
