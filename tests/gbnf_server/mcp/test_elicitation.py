"""Questions as forms, and forms as questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from gbnf_server.executors import AbsentPerson, Context, Field, Form, Person, ScriptedPerson, Workspace
from gbnf_server.executors.person import FIELD_KINDS
from gbnf_server.mcp.elicitation import answer_server, form_answers, form_params
from gbnf_server.system.errors import ExecutorError

OPTIONS = ("red", "green")


def context(root: Path, person: Person) -> Context:
    return Context(Workspace(root), person=person, settings={})


def answered(root: Path, schema: dict[str, Any], answers: dict[str, Any]) -> ElicitResult:
    params = ElicitRequestFormParams(message="m", requested_schema={"type": "object", **schema})
    return answer_server("s", params, context(root, ScriptedPerson(answers)))


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "x", "x"),
        ({"type": "string", "format": "date"}, "2026-01-02", "2026-01-02"),
        ({"type": "boolean"}, "yes", True),
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, "3.0", 3),
        ({"type": "number"}, "2,5", 2.5),
        ({"type": "string", "enum": ["r", "g"]}, "2", "g"),
        ({"type": "string", "enum": ["r", "g"], "enumNames": ["red", "green"]}, "red", "r"),
        ({"type": "string", "oneOf": [{"const": "r", "title": "red"}, {"const": "g"}]}, "red", "r"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "1,3", ["a", "c"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, "A", ["a"]),
    ],
)
def test_an_answer_has_the_type_of_its_property(
    tmp_path: Path, schema: dict[str, Any], typed: str, value: Any
) -> None:
    result = answered(tmp_path, {"properties": {"a": schema}, "required": ["a"]}, {"a": typed})
    assert (result.action, result.content) == ("accept", {"a": value})
    assert result.content is not None
    assert type(result.content["a"]) is type(value)


def test_required_fields_are_asked_and_others_have_their_defaults(tmp_path: Path) -> None:
    properties = {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}, "c": {"type": "string"}}
    result = answered(tmp_path, {"properties": properties, "required": ["a"]}, {"a": "y"})
    assert result.content == {"a": "y", "b": "x"}
    all_of_them = answered(tmp_path, {"properties": properties}, {"a": "1", "b": "2", "c": "3"})
    assert all_of_them.content == {"a": "1", "b": "2", "c": "3"}


_KEYWORDS = ["type", "enum", "oneOf", "items", "properties", "required", "title", "default", "format"]
_SCHEMAS = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3) | st.sampled_from(["array", "boolean", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYWORDS), inner, max_size=4)
    ),
)


@given(schema=_SCHEMAS)
def test_no_question_of_a_server_is_a_fault_of_ours(
    tmp_path_factory: pytest.TempPathFactory, schema: Any
) -> None:
    params = ElicitRequestFormParams(
        message="m", requested_schema=schema if isinstance(schema, dict) else {"properties": {"a": schema}}
    )
    root = tmp_path_factory.getbasetemp()
    result = answer_server("s", params, context(root, ScriptedPerson({"a": "x"})))
    assert result.action in {"accept", "decline", "cancel"}


@pytest.mark.parametrize(
    ("url", "answer", "action"),
    [
        ("https://example.org/login", True, "accept"),
        ("https://example.org/login", False, "decline"),
        ("javascript:alert(1)", True, "decline"),
    ],
)
def test_the_person_is_asked_to_open_a_url(tmp_path: Path, url: str, answer: bool, action: str) -> None:
    person = ScriptedPerson({"consent": answer})
    params = ElicitRequestURLParams(message="Log in", url=url, elicitation_id="1")
    assert answer_server("s", params, context(tmp_path, person)).action == action
    assert all(url in form.title for form in person.asked)
    assert answer_server("s", params, context(tmp_path, AbsentPerson())).action != "accept"


@pytest.mark.parametrize("kind", [kind for kind in FIELD_KINDS if kind != "credentials"])
def test_a_form_is_a_question_whose_answers_come_back(tmp_path: Path, kind: Any) -> None:
    options = OPTIONS if "choice" in kind else ()
    form = Form("title", (Field("a", "which?", kind, options),))
    params = form_params(form)
    Draft202012Validator.check_schema(params.requested_schema)
    values: dict[str, Any] = {"yes_no": True, "number": 2.5, "date": "2026-01-02", "multi_choice": ["red"]}
    value = values.get(kind, "red")
    assert Draft202012Validator(params.requested_schema).is_valid({"a": value})
    result = ElicitResult(action="accept", content={"a": value})
    assert form_answers(form, result, context(tmp_path, AbsentPerson())) == {"a": value}


@pytest.mark.parametrize(
    "result",
    [
        ElicitResult(action="decline"),
        ElicitResult(action="cancel"),
        ElicitResult(action="accept"),
        ElicitResult(action="accept", content={"a": "blue"}),
    ],
)
def test_a_form_without_a_valid_answer_fails(tmp_path: Path, result: ElicitResult) -> None:
    form = Form("title", (Field("a", "which?", "choice", OPTIONS),))
    with pytest.raises(ExecutorError, match="title"):
        form_answers(form, result, context(tmp_path, AbsentPerson()))
