"""Questions of an MCP server (elicitation) as forms for a person, and forms as questions to an MCP client.

    string  text, or date      number, integer  number      boolean  yes_no
    enum, oneOf  choice        array of these   multi_choice

A person answers every field of a form, so of a server's question only the required fields are asked, or all
if none is required; others have their defaults. Credentials are never asked through MCP, which forbids it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from gbnf_server.executors import Context, Field, FieldKind, Form, check_answer
from gbnf_server.mcp.results import output_fault
from gbnf_server.system.errors import ExecutorError

_ATTEMPTS = 3
_CONSENT = "consent"
_URL_SCHEMES = ("https://", "http://")


def answer_server(server: str, params: ElicitRequestParams, context: Context) -> ElicitResult:
    """Have the person answer a server's question; a question that nobody answers is cancelled."""
    try:
        if not isinstance(params, ElicitRequestURLParams):
            return _answer_form(server, params, context)
        if not params.url.startswith(_URL_SCHEMES):
            return ElicitResult(action="decline")
        title = f"{server}: {params.message}\n{params.url}"
        answers = context.ask(Form(title, (Field(_CONSENT, "Have you opened this page?", "yes_no"),)))
        return ElicitResult(action="accept" if answers[_CONSENT] else "decline")
    except ExecutorError:
        return ElicitResult(action="cancel")


def _answer_form(server: str, params: ElicitRequestFormParams, context: Context) -> ElicitResult:
    """Ask for the required values, or all if none is; decline after `_ATTEMPTS` that do not fit."""
    schema = params.requested_schema
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, Mapping) else {}
    required = [name for name in properties if isinstance(required, list) and name in required]
    questions = {name: _Question(name, properties[name]) for name in required or properties}
    content: dict[str, Any] = {
        name: declared["default"]
        for name, declared in properties.items()
        if isinstance(declared, Mapping) and "default" in declared and name not in questions
    }
    title = f"{server}: {params.message}"
    form_title = title
    for _ in range(_ATTEMPTS):
        answers = context.ask(Form(form_title, tuple(question.field for question in questions.values())))
        content |= {name: question.value(answers[name]) for name, question in questions.items()}
        fault = output_fault(content, schema)
        if fault is None:
            return ElicitResult(action="accept", content=content)
        form_title = f"{title}\nThe answer does not fit: {fault}"
    return ElicitResult(action="decline")


class _Question:
    """A property of a requested schema as a field, and the field's answer as its value."""

    def __init__(self, name: str, schema: Any) -> None:
        schema = schema if isinstance(schema, Mapping) else {}
        self._integer = schema.get("type") == "integer"
        self._options, kind = _options(schema), _kind(schema)
        prompt = ": ".join(str(schema[key]) for key in ("title", "description") if schema.get(key)) or name
        self.field = Field(name, prompt, kind, tuple(self._options))

    def value(self, answer: Any) -> Any:
        """Return the value that the server wants for an answer."""
        if isinstance(answer, list):
            return [self._options[title] for title in answer]
        if self._options:
            return self._options[answer]
        return int(answer) if self._integer and float(answer).is_integer() else answer


def _kind(schema: Mapping[str, Any]) -> FieldKind:
    match schema:
        case {"type": "array"}:
            return "multi_choice"
        case {"enum": _} | {"oneOf": _}:
            return "choice"
        case {"type": "boolean"}:
            return "yes_no"
        case {"type": "number" | "integer"}:
            return "number"
        case {"type": "string", "format": "date"}:
            return "date"
        case _:
            return "text"


def _options(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return what a person chooses from, and the value of each."""
    match schema:
        case {"type": "array", "items": Mapping() as items}:
            return _options(items)
        case {"enum": list(values)}:
            names = schema.get("enumNames")
            shown = names if isinstance(names, list) and len(names) == len(values) else values
            return dict(zip(map(str, shown), map(str, values), strict=True))
        case {"oneOf": list(choices)} | {"anyOf": list(choices)}:
            constants = [choice for choice in choices if isinstance(choice, Mapping) and "const" in choice]
            return {str(item.get("title") or item["const"]): str(item["const"]) for item in constants}
        case _:
            return {}


def form_params(form: Form) -> ElicitRequestFormParams:
    """Return a form as the question of an MCP server. Raises ExecutorError if it asks for credentials."""
    if any(field.kind == "credentials" for field in form.fields):
        raise ExecutorError(
            f"'{form.title}' asks for credentials, which MCP clients must not be asked for; "
            "set them in the environment of the server"
        )
    return ElicitRequestFormParams(
        message=form.title,
        requested_schema={
            "type": "object",
            "properties": {
                field.var: {"title": field.prompt, **_field_schema(field)} for field in form.fields
            },
            "required": [field.var for field in form.fields],
        },
    )


def form_answers(form: Form, result: ElicitResult, context: Context) -> dict[str, Any]:
    """Return the answers of an MCP client. Raises ExecutorError if it gave none, or invalid ones."""
    if result.action != "accept":
        raise ExecutorError(f"the person did not answer '{form.title}'")
    content = result.content or {}
    try:
        return {
            field.var: check_answer(field, content.get(field.var), context.workspace) for field in form.fields
        }
    except ValueError as error:
        raise ExecutorError(f"the answer to '{form.title}' does not fit: {error}") from None


def _field_schema(field: Field) -> dict[str, Any]:
    match field.kind:
        case "yes_no":
            return {"type": "boolean"}
        case "number":
            return {"type": "number"}
        case "date":
            return {"type": "string", "format": "date"}
        case "choice" | "choice_with_preview":
            return {"type": "string", "enum": list(field.options)}
        case "multi_choice":
            return {"type": "array", "items": {"type": "string", "enum": list(field.options)}}
        case _:
            return {"type": "string"}
