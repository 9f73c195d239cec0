"""The executors' runtime: where they work, whom they may ask, and how they are run.

An executor is a file ``executor.py`` beside its manifest:

    from typing import Any
    from gbnf_server.executors import Context, ExecutorError

    def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
        ...

It returns a JSON object, whose ``entries`` (strings) are what later steps refer to, and raises
`ExecutorError` for what the model should read. It changes files by `Context.change`, so that the change can
be undone; what it does behind that back is its own affair.
"""

from __future__ import annotations

from gbnf_server.errors import ExecutorError, ExecutorTimeout
from gbnf_server.executors.context import Context
from gbnf_server.executors.journal import MakeFolder, Trash, Write
from gbnf_server.executors.person import AbsentPerson, Field, Form, Person, ScriptedPerson, TerminalPerson
from gbnf_server.executors.runner import run_executor
from gbnf_server.executors.undo import UndoResult
from gbnf_server.executors.workspace import Workspace

__all__ = [
    "AbsentPerson",
    "Context",
    "ExecutorError",
    "ExecutorTimeout",
    "Field",
    "Form",
    "MakeFolder",
    "Person",
    "ScriptedPerson",
    "TerminalPerson",
    "Trash",
    "UndoResult",
    "Workspace",
    "Write",
    "run_executor",
]
