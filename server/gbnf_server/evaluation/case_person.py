"""The person of a case: answers given beforehand, whatever names the model gives to its questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf_server.errors import ExecutorError
from gbnf_server.evaluation.cases import PersonScript
from gbnf_server.executors import Field, Form, Workspace
from gbnf_server.executors.person import check_answer


class CasePerson:
    """Answers by a field's name, else by its kind; picks the script's option where there is a choice.

    A question without an answer is an `ExecutorError`, which the model reads.
    """

    def __init__(self, script: PersonScript, workspace: Workspace) -> None:
        self._script, self._workspace = script, workspace

    def answer(self, form: Form) -> dict[str, Any]:
        """Return the script's answer to each field."""
        return {field.var: self._value(field) for field in form.fields}

    def approve(self, call: Mapping[str, Any]) -> bool:
        """Return whether the script approves calls."""
        del call
        return self._script.approve

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
