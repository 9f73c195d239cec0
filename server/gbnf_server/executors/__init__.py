"""The executors' runtime: their workspace, the person they may ask, and their processes.

Public besides the names below: `calendar_file` (calendars in a workspace).

An executor is a file ``executor.py`` beside its manifest:

    from typing import Any
    from gbnf_server.executors import Context, ExecutorError

    def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
        ...

It returns a JSON object, whose ``entries`` (strings) later steps may refer to, and raises `ExecutorError`
with a message for the model. It changes files with `Context.change`, which asks a person before a file is
written that programs execute by themselves; other changes can't be undone, and nobody is asked.
"""

from __future__ import annotations

from gbnf_server.executors.call_paths import describe_paths
from gbnf_server.executors.context import Context
from gbnf_server.executors.executed_files import is_executed_name
from gbnf_server.executors.journal import Journal, MakeFolder, Trash, Write
from gbnf_server.executors.person import (
    NOBODY_ANSWERS,
    AbsentPerson,
    Field,
    FieldKind,
    Form,
    Person,
    ScriptedPerson,
    TerminalPerson,
    check_answer,
)
from gbnf_server.executors.results import MAX_DEPTH, too_deep
from gbnf_server.executors.runner import prepare_executors, run_executor
from gbnf_server.executors.undo import UndoResult
from gbnf_server.executors.workspace import STATE_FOLDER, Workspace, is_text
from gbnf_server.system.errors import ExecutorError, ExecutorTimeoutError

__all__ = [
    "MAX_DEPTH",
    "NOBODY_ANSWERS",
    "STATE_FOLDER",
    "AbsentPerson",
    "Context",
    "ExecutorError",
    "ExecutorTimeoutError",
    "Field",
    "FieldKind",
    "Form",
    "Journal",
    "MakeFolder",
    "Person",
    "ScriptedPerson",
    "TerminalPerson",
    "Trash",
    "UndoResult",
    "Workspace",
    "Write",
    "check_answer",
    "describe_paths",
    "is_executed_name",
    "is_text",
    "prepare_executors",
    "run_executor",
    "too_deep",
]
