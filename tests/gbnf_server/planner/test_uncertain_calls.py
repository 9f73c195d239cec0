"""Calls whose values are uncertain: the person approves them, or says which value is meant."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gbnf import tool
from gbnf.prompts.messages import Message
from gbnf.tools import load_tools
from gbnf_server import Context, InProcess, Planner, PlannerOptions
from gbnf_server.backends.base import Completion
from gbnf_server.executors import AbsentPerson, Form, Workspace
from gbnf_server.llama.token_values import ValueProbability
from support.scripts import Script

CALL = {"name": "paint", "arguments": {"color": "red", "coats": 2}}
END = {"name": "final_answer", "arguments": {"message": "done"}}
SURE = ValueProbability("/arguments/coats", 0.9)
UNSURE = ValueProbability("/arguments/color", 0.4, (('"blue"', 0.6), ('"red"', 0.4)))
UNSURE_NUMBER = ValueProbability("/arguments/coats", 0.3)


class Doubting(Script):
    """Says the call with these probabilities, then the answer."""

    def __init__(self, *values: ValueProbability) -> None:
        super().__init__({"paint it": [json.dumps(CALL), json.dumps(END), json.dumps(END)]})
        self._values = values

    def respond(self, messages: Sequence[Message], **limits: Any) -> Completion:
        said = super().respond(messages, **limits)
        return Completion(said.text, "stop", said.usage, probabilities=self._values)


class Answering:
    """A person who approves or not, and answers with `says`; `approvals`, `forms`: what was asked."""

    def __init__(self, *, approves: bool = True, says: str = "blue") -> None:
        self.approvals: list[Mapping[str, Any]] = []
        self.forms: list[Form] = []
        self._approves, self._says = approves, says

    def approve(self, call: Mapping[str, Any]) -> bool:
        self.approvals.append(call)
        return self._approves

    def answer(self, form: Form) -> dict[str, Any]:
        self.forms.append(form)
        return {"answer": self._says}


def run(tmp_path: Path, person: Any, *values: ValueProbability, **options: Any) -> tuple[Any, list[Any]]:
    painted: list[Any] = []

    @tool(effect="read")
    def paint(color: str, coats: int) -> str:
        """Paint it."""
        painted.append((color, coats))
        return "painted"

    context = Context(Workspace(tmp_path), person=person)
    settings = PlannerOptions(**{"confirm_below": 0.6, "call_format": "json", **options})
    return Planner(load_tools([paint]), Doubting(*values), settings, context=context).run("paint it"), painted


@pytest.mark.parametrize("value", [UNSURE, UNSURE_NUMBER])
@pytest.mark.parametrize("approves", [True, False])
def test_an_uncertain_call_needs_approval(tmp_path: Path, value: ValueProbability, approves: bool) -> None:
    person = Answering(approves=approves)
    done, painted = run(tmp_path, person, value, SURE)
    assert person.approvals == [CALL]
    assert painted == [("red", 2)] * approves
    assert done.steps[0].fault == (None if approves else "denied")
    assert any(value.pointer in warning for warning in done.warnings)
    assert done.steps[0].probabilities == (value, SURE)
    assert json.loads(json.dumps(done.to_json()))["steps"][0]["probabilities"][0]["pointer"] == value.pointer


def test_a_certain_call_needs_none(tmp_path: Path) -> None:
    for values, options in (((SURE,), {}), ((UNSURE, SURE), {"confirm_below": 0.0}), ((), {})):
        person = Answering()
        _, painted = run(tmp_path, person, *values, **options)
        assert (person.approvals, painted) == ([], [("red", 2)])


def test_the_person_says_which_value_is_meant(tmp_path: Path) -> None:
    person = Answering()
    done, painted = run(tmp_path, person, UNSURE, ask_user=True)
    assert painted == [("blue", 2)]
    assert (len(person.forms), person.approvals) == (1, [])
    assert done.steps[0].call == {"name": "paint", "arguments": {"color": "blue", "coats": 2}}


def test_a_value_among_many_is_approved_instead(tmp_path: Path) -> None:
    person = Answering()
    _, painted = run(tmp_path, person, UNSURE_NUMBER, ask_user=True)
    assert (person.forms, person.approvals, painted) == ([], [CALL], [("red", 2)])


@pytest.mark.parametrize("ask_user", [True, False])
def test_nobody_there_is_no_approval(tmp_path: Path, ask_user: bool) -> None:
    done, painted = run(tmp_path, AbsentPerson(), UNSURE, ask_user=ask_user)
    assert painted == []
    assert done.steps[0].fault == "denied"


def test_a_probability_is_from_0_to_1() -> None:
    with pytest.raises(ValueError, match="confirm_below is 2"):
        PlannerOptions(confirm_below=2)


def test_a_model_in_this_process_tells_them(backend: InProcess, tmp_path: Path) -> None:
    @tool(effect="read")
    def flip(heads: bool) -> str:
        """Flip a coin."""
        return "flipped"

    settings = PlannerOptions(probabilities=True, terminal=("flip",), required=("flip",))
    context = Context(Workspace(tmp_path))
    (step,) = Planner(load_tools([flip]), backend, settings, context=context).run("flip it").steps
    (value,) = step.probabilities
    assert value.pointer == "/arguments/heads"
    assert {text for text, _ in value.alternatives} == {"true", "false"}
