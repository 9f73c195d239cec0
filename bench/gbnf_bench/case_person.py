"""The person of a case: scripted answers, independent of the names that the model gives to its fields."""

from __future__ import annotations

from typing import Any

from gbnf_bench.cases import PersonScript
from gbnf_server.executors import Field, ScriptedPerson, Workspace
from gbnf_server.executors.person import check_answer
from gbnf_server.system.errors import ExecutorError


class CasePerson(ScriptedPerson):
    """Answer by a field's name, else by its kind; for a choice, select the scripted option.

    A question without an answer is an `ExecutorError`, which the model reads.
    """

    def __init__(self, script: PersonScript, workspace: Workspace) -> None:
        super().__init__(approvals=script.approve, workspace=workspace)
        self._script = script

    def _value(self, field: Field) -> Any:
        try:
            return check_answer(field, self._given(field), self._workspace)
        except ValueError as error:
            raise ExecutorError(f"the person cannot answer '{field.var}': {error}") from None

    def _given(self, field: Field) -> Any:
        for key in (field.var, field.kind):
            if key in self._script.answers:
                return self._script.answers[key]
        if field.options:
            choice = field.options[min(self._script.choose, len(field.options)) - 1]
            return [choice] if field.kind == "multi_choice" else choice
        raise ExecutorError(f"the person has no answer to '{field.prompt}'")
