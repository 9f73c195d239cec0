"""Undo of the latest earlier request's changes: files, folders, deletions, calendar events.

A request is a planner run. Each further call undoes one more request. Files changed since are left unchanged,
and sent messages stay sent: the result reports both. If the user moves an obstacle away, the next call
finishes the interrupted undo before it goes back further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:  # noqa: ARG001  # it has no arguments
    """Undo the changes of the latest earlier request."""
    outcome = context.journal.undo_last_turn(context.turn)
    if outcome.kept and not outcome.undone:
        raise ExecutorError(f"nothing could be undone: {'; '.join(outcome.kept)}")
    return {"entries": list(outcome.undone), **({"not_undone": list(outcome.kept)} if outcome.kept else {})}
