"""`gbnf call`: one tool, without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
