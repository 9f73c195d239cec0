"""`gbnf call`: one tool, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf_server.cli.call import _valid_arguments
from gbnf_server.cli.errors import ExitCode
from support.command_line import CommandResult, Gbnf
from support.toys import make_tool

TEXT = {"properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    make_tool(
        folder, "echo", 'print("said", arguments["text"])\nreturn {"text": arguments["text"]}', args=TEXT
    )
    make_tool(folder, "fail", 'print("before")\nraise ValueError("odd \\x1b[31m")')
    make_tool(folder, "careful", confirm=True)
    return folder


def call(gbnf: Gbnf, tools: Path, *arguments: object, stdin: str = "") -> CommandResult:
    return gbnf("call", *arguments, "--manifests", tools, "--workspace", tools.parent / "work", stdin=stdin)


@pytest.mark.slow
@pytest.mark.parametrize("piped", [False, True])
def test_the_result_is_json_and_prints_go_to_stderr(gbnf: Gbnf, tools: Path, piped: bool) -> None:
    arguments = '{"text": "è\\n"}'
    result = call(gbnf, tools, "echo", "-" if piped else arguments, stdin=arguments)
    assert result.code == ExitCode.SUCCESS
    assert json.loads(result.out) == {"text": "è\n"}
    assert result.err == "said è\n"


@pytest.mark.slow
def test_a_failure_shows_prints_traceback_and_message(gbnf: Gbnf, tools: Path) -> None:
    result = call(gbnf, tools, "fail")
    assert (result.code, result.out) == (ExitCode.FAILURE, "")
    assert result.err.startswith("before\nTraceback")
    assert "error: 'fail' failed: ValueError: odd \\u001b[31m (executor.py, line " in result.err
    assert "\x1b" not in result.err


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ("{", ["invalid JSON"]),
        ("[]", ["must be an object"]),
        ("{}", ["missing required args ['text']"]),
        ('{"text": ""}', ["'text'", "at least 1 character"]),
        ('{"texts": 1}', ["['text']", "'texts'", "Did you mean 'text'?"]),
        ("\udcff", ["invalid JSON"]),
    ],
)
def test_invalid_arguments_are_all_named(
    gbnf: Gbnf, tools: Path, arguments: str, problems: list[str]
) -> None:
    result = call(gbnf, tools, "echo", arguments)
    assert (result.code, result.out) == (ExitCode.USAGE, "")
    said = " ".join(result.err.replace("│", " ").split())
    assert all(problem in said for problem in problems), result.err
    assert not (tools.parent / "work").exists()


def test_an_unknown_tool_and_a_folder_that_does_not_exist(gbnf: Gbnf, tools: Path) -> None:
    named, path = call(gbnf, tools, "ecko"), gbnf("call", tools / "ecko", "{}")
    for result in (named, path):
        assert result.code == ExitCode.USAGE
        assert "Did you mean 'echo'?" in " ".join(result.err.replace("│", " ").split())
    assert "there is no folder" in " ".join(path.err.replace("│", " ").split())


PAIRS = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "dry": {"type": "boolean"},
    "nothing": {"type": "null"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}},
    "either": {"type": ["string", "integer", "null"]},
    "point": {"type": "object", "properties": {"x": {"type": "integer"}}},
}
PAIRS_TOOL = Tool.from_mapping(
    {"name": "pairs", "args": {"type": "object", "properties": PAIRS, "$defs": {"step": {"type": "integer"}}}}
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
AS_JSON = st.fixed_dictionaries(
    {},
    optional={
        "count": st.integers(),
        "share": NUMBERS,
        "dry": st.booleans(),
        "nothing": st.none(),
        "tags": st.lists(st.text()),
        "steps": st.lists(st.integers()),
        "either": st.integers() | st.none(),
        "point": st.fixed_dictionaries({"x": st.integers()}),
    },
)


@given(
    values=AS_JSON,
    text=st.text() | st.sampled_from(["3", "true", '"quoted"', "a=b", "[1]", "{}", "null", ""]),
    repeated=st.fixed_dictionaries(
        {"tags": st.lists(st.text(), min_size=2), "steps": st.lists(st.integers(), min_size=2)}
    ),
)
def test_pairs_are_read_as_the_schema_says(
    values: dict[str, Any], text: str, repeated: dict[str, list[Any]]
) -> None:
    pairs = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    assert _valid_arguments([f"text={text}", *pairs], PAIRS_TOOL) == {"text": text, **values}
    pairs = [f"{key}={value}" for key, values in repeated.items() for value in values]
    assert _valid_arguments(pairs, PAIRS_TOOL) == repeated


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        (["tags=one"], {"tags": ["one"]}),
        (["steps=1"], {"steps": [1]}),
        (["either=01"], {"either": "01"}),
        (["either=x y"], {"either": "x y"}),
        (["text=", "count=2"], {"text": "", "count": 2}),
    ],
)
def test_what_a_pair_means(pairs: list[str], arguments: dict[str, Any]) -> None:
    assert _valid_arguments(pairs, PAIRS_TOOL) == arguments


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        (["count=two"], "'count' of tool 'pairs' must be integer, got string 'two'"),
        (["count=1", "count=2"], "must be integer, got array [1, 2]"),
        (["dri=true"], "Did you mean 'dry'?"),
        (["count=1", "text"], "expected KEY=VALUE, got 'text'"),
        (["count=1", '{"text": "a=b"}'], "expected KEY=VALUE"),
    ],
)
def test_a_pair_that_does_not_fit_is_named(pairs: list[str], problem: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        _valid_arguments(pairs, PAIRS_TOOL)
    assert problem in caught.value.message


@pytest.mark.slow
def test_approval(gbnf: Gbnf, tools: Path) -> None:
    result = call(gbnf, tools, "careful")
    assert result.code == ExitCode.FAILURE
    assert "there is nobody to ask" in result.err
    assert call(gbnf, tools, "careful", "--yes").code == ExitCode.SUCCESS


def test_a_tool_without_code(gbnf: Gbnf, tools: Path) -> None:
    (tools / "echo" / "executor.py").unlink()
    result = call(gbnf, tools, "echo", '{"text": "x"}')
    assert result.code == ExitCode.FAILURE
    assert "executor.py" in result.err
