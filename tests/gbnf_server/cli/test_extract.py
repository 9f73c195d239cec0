"""`gbnf extract` and `gbnf generate`: values that fit a schema, judged by jsonschema."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import jsonschema
import pytest

from gbnf_server.cli.errors import ExitCode
from support.command_line import Gbnf
from support.models import make_model

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "born": {"type": "integer", "maximum": 2100},
        "role": {"enum": ["cook", "pilot"]},
    },
    "required": ["name", "born", "role"],
}
CLOSED = {**PERSON, "additionalProperties": False}
MODEL = """
from pydantic import BaseModel, Field, field_validator

class Person(BaseModel):
    name: str = Field(max_length=3)
    born: int

    @field_validator("born")
    @classmethod
    def refuse(cls, value: int) -> int:
        raise ValueError("nobody is born")
"""


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
    jsonschema.validate(json.loads(result.out), CLOSED)


@pytest.mark.parametrize("schema", [{"enum": [1, "b"]}, {"type": "array", "items": {"$ref": "#/$defs/a"}}])
def test_a_value_need_not_be_an_object(gbnf: Gbnf, model: Path, tmp_path: Path, schema: object) -> None:
    content = {"$defs": {"a": {"type": "boolean"}}, "maxItems": 3, **schema}  # type: ignore[dict-item]
    (tmp_path / "schema.json").write_text(json.dumps(content))
    result = gbnf("generate", "x", "--schema", tmp_path / "schema.json", "--model", model)
    assert result.code == ExitCode.SUCCESS
    jsonschema.validate(json.loads(result.out), content)


def test_a_truncated_answer_is_a_failure(gbnf: Gbnf, model: Path, person: Path) -> None:
    result = gbnf("generate", "x", "--schema", person, "--model", model, "--max-tokens", "3")
    assert result.code == ExitCode.FAILURE
    assert "cut after 3 tokens" in result.err


def test_an_answer_of_the_demonstration_model_is_no_success(
    gbnf: Gbnf, no_smollm2: None, person: Path
) -> None:
    result = gbnf("generate", "Ada Lovelace", "--schema", person)
    assert result.code == ExitCode.FAILURE
    assert "--model FILE.gguf" in result.err
    jsonschema.validate(json.loads(result.out), CLOSED)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "invalid JSON"),
        ("[]", "an object or a boolean"),
        ('{"type": "string", "enum": [1]}', "none of the values"),
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


def test_each_text_has_a_line(gbnf: Gbnf, model: Path, person: Path, tmp_path: Path) -> None:
    texts = [tmp_path / f"{number}.txt" for number in range(3)]
    for text in texts:
        text.write_text(f"this is {text.name}")
    out = tmp_path / "out.jsonl"
    command = ["extract", "--schema", person, "--input", *texts, "--output", out, "--model", model]
    assert gbnf(*command, "--concurrency", "2").code == ExitCode.SUCCESS
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["input"] for line in lines] == [str(text) for text in texts]
    for line in lines:
        jsonschema.validate(line["value"], CLOSED)
        assert set(line["probabilities"]) == {"/name", "/born", "/role"}  # names of the text are few
    log = out.with_name("out.jsonl.log")
    logged = log.read_text().splitlines()
    assert len(logged) == 3
    log.write_text("\n".join(logged[:2]) + "\n")  # as after an interruption
    assert gbnf(*command).code == ExitCode.SUCCESS
    assert log.read_text().splitlines()[:2] == logged[:2]  # no text twice
    assert len(log.read_text().splitlines()) == 3
    assert [json.loads(line)["value"] for line in out.read_text().splitlines()] == [
        line["value"] for line in lines
    ]
    other = gbnf(*command, "--max-tokens", "300")
    assert other.code == ExitCode.ENVIRONMENT
    assert "another type, model or options" in " ".join(other.err.split())


def test_what_a_validator_refuses_is_tried_again(gbnf: Gbnf, model: Path, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODEL)
    (tmp_path / "a.txt").write_text("Ada")
    schema = f"{tmp_path / 'models.py'}:Person"
    result = gbnf("extract", tmp_path / "a.txt", "--schema", schema, "--attempts", "2", "--model", model)
    assert result.code == ExitCode.FAILURE
    line = json.loads(result.out)
    assert len(line["attempts"]) == 2
    assert "born" in line["error"]
    assert "nobody is born" in line["error"]


def test_a_text_that_cannot_be_read_is_a_line(gbnf: Gbnf, model: Path, person: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ada")
    (tmp_path / "blank.txt").write_text("\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    texts = [tmp_path / name for name in ("missing.txt", "a.txt", "blank.txt", "latin.txt")]
    result = gbnf("extract", *texts, "--schema", person, "--model", model)
    assert result.code == ExitCode.FAILURE
    missing, good, blank, latin = map(json.loads, result.out.splitlines())
    jsonschema.validate(good["value"], CLOSED)
    assert "cannot be read" in missing["error"]
    assert "is empty" in blank["error"]
    assert "UTF-8" in latin["error"]
    assert [each["input"] for each in (missing, good, blank, latin)] == [str(text) for text in texts]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_table_gives_a_value_for_each_row(
    gbnf: Gbnf, model: Path, person: Path, tmp_path: Path, suffix: str
) -> None:
    rows = [
        {"no": "1", "text": 'Ada, the "cook",\nborn 1815', "name": "x"},
        {"no": "2", "text": " ", "name": "y"},
    ]
    table, out = tmp_path / "table.csv", tmp_path / f"out.{suffix}"
    with table.open("w", newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
        writer = csv.DictWriter(file, ["no", "text", "name"])
        writer.writeheader()
        writer.writerows(rows)
    command = ["extract", table, "--column", "text", "--schema", person, "--output", out, "--model", model]
    for _ in range(2):  # the second time from the log
        assert gbnf(*command).code == ExitCode.FAILURE
        if suffix == "jsonl":
            good, blank = map(json.loads, out.read_text("utf-8").splitlines())
            jsonschema.validate(good["value"], CLOSED)
            assert good["value"]["born"] == 1815  # the only number of the text
            assert good["spans"]["/born"] == "1815"
            assert "is empty" in blank["error"]
            continue
        with out.open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file))
        assert [{name: row[name] for name in rows[0]} for row in found] == rows
        assert [row["born"] for row in found] == ["1815", ""]
        assert set(found[0]) == {*rows[0], "input", "value.name", "born", "role", "error"}
        assert found[0]["role"] in ("cook", "pilot")
        assert "is empty" in found[1]["error"]


def test_a_table_without_the_column_is_named(gbnf: Gbnf, person: Path, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("number,text\n1,Ada\n")
    result = gbnf("extract", tmp_path / "table.csv", "--column", "txt", "--schema", person)
    assert result.code == ExitCode.INPUT
    said = " ".join(result.err.split())
    assert "has no column 'txt'" in said
    assert "Did you mean 'text'?" in said


def test_a_blank_text_is_named(gbnf: Gbnf, model: Path, person: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n")
    result = gbnf("extract", tmp_path / "a.txt", "--schema", person, "--model", model)
    assert result.code == ExitCode.INPUT
    assert "a.txt" in result.err
    assert gbnf("extract", "--schema", person).code == ExitCode.USAGE
