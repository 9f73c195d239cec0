"""`gbnf generate`: one JSON value that fits a schema, judged by jsonschema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gbnf_server.backends.base import Completion, Usage
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.generate import _problem
from support.command_line import Gbnf
from support.models import make_model

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "born": {"type": "integer", "maximum": 2100}},
    "required": ["name", "born"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights: whatever fits the schema is the grammar's doing."""
    return make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", context=2048)


@pytest.fixture
def person(tmp_path: Path) -> Path:
    path = tmp_path / "person.json"
    path.write_text(json.dumps(PERSON))
    return path


@pytest.mark.parametrize("piped", ["prompt", "schema", None])
def test_the_answer_fits_the_schema(gbnf: Gbnf, model: Path, person: Path, piped: str | None) -> None:
    prompt = "Ada Lovelace"
    source = ["--schema", "-" if piped == "schema" else person, "--model", model]
    stdin = {"prompt": prompt, "schema": person.read_text(), None: ""}[piped]
    result = gbnf("generate", "-" if piped == "prompt" else prompt, *source, stdin=stdin)
    assert (result.code, result.err) == (ExitCode.SUCCESS, "")
    jsonschema.validate(json.loads(result.out), PERSON)


def test_a_truncated_answer_is_a_failure(gbnf: Gbnf, model: Path, person: Path) -> None:
    result = gbnf("generate", "x", "--schema", person, "--model", model, "--max-tokens", "3")
    assert result.code == ExitCode.FAILURE
    assert "truncated after 3 tokens. Allow more: --max-tokens 6" in result.err


def test_an_answer_of_the_demonstration_model_is_no_success(
    gbnf: Gbnf, no_smollm2: None, person: Path
) -> None:
    result = gbnf("generate", "Ada Lovelace", "--schema", person)
    assert result.code == ExitCode.FAILURE
    assert "--model FILE.gguf" in result.err
    jsonschema.validate(json.loads(result.out), PERSON)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "invalid JSON"),
        ("[]", "an object or a boolean"),
        ('{"type": "strin"}', "/type"),
        ('{"type": "string", "enum": [1]}', "no JSON value satisfies"),
        (None, "cannot be read"),
    ],
)
def test_an_invalid_schema_is_named(gbnf: Gbnf, tmp_path: Path, schema: str | None, problem: str) -> None:
    path = tmp_path / "schema.json"
    if schema is not None:
        path.write_text(schema)
    result = gbnf("generate", "x", "--schema", path)
    assert (result.code, result.out) == (ExitCode.INPUT, "")
    assert str(path) in result.err
    assert problem in result.err


@pytest.mark.parametrize(("prompt", "schema"), [("-", "-"), ("", "x"), (" ", "x")])
def test_usage_errors(gbnf: Gbnf, prompt: str, schema: str) -> None:
    left = gbnf("generate", prompt, "--schema", schema)
    assert left.code == ExitCode.USAGE
    assert "REQUEST" not in left.err


@pytest.mark.parametrize(
    ("text", "schema", "problem"),
    [
        ("3", {"type": "integer"}, ""),
        ("3.5", {"type": "integer"}, "at $ 3.5 is not of type 'integer'"),
        ('{"a": [1]}', {"properties": {"a": {"items": {"type": "string"}}}}, "at $.a[0] 1"),
        ('["b"]', {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": "a"}]}, "$[0]"),
        ("x", {}, "not JSON"),
        ("1", False, "at $ False schema"),
        ("1", {"$ref": "#"}, "cannot be validated"),
    ],
)
def test_answers_are_judged_by_the_draft_of_the_schema(text: str, schema: Any, problem: str) -> None:
    found = _problem(Completion(text, "stop", Usage(1, 1)), schema, 10)
    assert bool(found) == bool(problem)
    assert problem in found
