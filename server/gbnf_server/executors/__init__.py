"""The executors' runtime: their workspace, the person they may ask, and their processes.

Public besides the names below: `calendar_file` (calendars in a workspace).

An executor is a file ``executor.py`` beside its manifest:

    from typing import Any
    from gbnf_server.executors import Context, ExecutorError

    def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
        ...

It returns a JSON object, whose ``entries`` (strings) later steps may refer to, and raises `ExecutorError`
with a message for the model. It changes files with `Context.change`; other changes can't be undone.
"""

from gbnf.exports import exported as _exported
from gbnf_server.executors.context import Context as Context
from gbnf_server.executors.journal import Journal as Journal
from gbnf_server.executors.journal import MakeFolder as MakeFolder
from gbnf_server.executors.journal import Trash as Trash
from gbnf_server.executors.journal import Write as Write
from gbnf_server.executors.person import AbsentPerson as AbsentPerson
from gbnf_server.executors.person import Field as Field
from gbnf_server.executors.person import FieldKind as FieldKind
from gbnf_server.executors.person import Form as Form
from gbnf_server.executors.person import Person as Person
from gbnf_server.executors.person import ScriptedPerson as ScriptedPerson
from gbnf_server.executors.person import TerminalPerson as TerminalPerson
from gbnf_server.executors.person import check_answer as check_answer
from gbnf_server.executors.results import MAX_DEPTH as MAX_DEPTH
from gbnf_server.executors.results import nesting_depth as nesting_depth
from gbnf_server.executors.results import too_deep as too_deep
from gbnf_server.executors.runner import prepare_executors as prepare_executors
from gbnf_server.executors.runner import run_executor as run_executor
from gbnf_server.executors.undo import UndoResult as UndoResult
from gbnf_server.executors.workspace import STATE_FOLDER as STATE_FOLDER
from gbnf_server.executors.workspace import Workspace as Workspace
from gbnf_server.executors.workspace import is_text as is_text
from gbnf_server.system.errors import ExecutorError as ExecutorError
from gbnf_server.system.errors import ExecutorTimeoutError as ExecutorTimeoutError

__all__ = _exported(globals())  # noqa: PLE0605  # the imports are the list
