"""Takes back all that the latest earlier request changed: files, folders, deletions, calendar events.

A request is a planner run. Each further request goes one further back. What someone changed since is left as
it is, and what was sent stays sent: both are told. What is in the way may be moved away: the next request
takes up what was left, and goes no further back before it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError

if TYPE_CHECKING:
    from gbnf_server.executors import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:  # noqa: ARG001 - it takes none
    outcome = context.journal.undo_last_turn(context.turn)
    if outcome.kept and not outcome.undone:
        raise ExecutorError(f"nothing could be undone: {'; '.join(outcome.kept)}")
    return {"entries": list(outcome.undone), **({"not_undone": list(outcome.kept)} if outcome.kept else {})}
