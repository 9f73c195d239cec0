"""`gbnf new`: a tool that works as it is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from jsonschema import Draft202012Validator

from gbnf import load_manifests
from gbnf_server.cli.errors import ExitCode
from support.command_line import Gbnf


@pytest.mark.slow
def test_tools_load_pass_their_tests_together_and_can_be_called(gbnf: Gbnf, tmp_path: Path) -> None:
    folders = [tmp_path / "my tools" / name for name in ("count_words", "a-tool.v2", "T" * 128)]
    for folder in folders:
        result = gbnf("new", folder)
        assert result.code == ExitCode.SUCCESS
        assert {Path(line) for line in result.out.splitlines()} == set(folder.iterdir())
        called = gbnf("call", folder, '{"text": "one two"}', "--workspace", tmp_path / "work")
        assert (called.code, called.err) == (ExitCode.SUCCESS, "2 words, the longest: one\n")
    tools = {tool.name: tool.path for tool in load_manifests(tmp_path / "my tools")}
    assert tools == {folder.name: folder / "manifest.toml" for folder in folders}
    assert "\nexact: " in gbnf("compile", tmp_path / "my tools", "--report").err
    # as a user runs pytest, without the options of this run
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "my tools"]
    tests = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert tests.returncode == 0, tests.stdout
    assert "18 passed" in tests.stdout


def test_the_first_line_names_the_schema_for_editors(gbnf: Gbnf, tmp_path: Path) -> None:
    assert gbnf("new", tmp_path / "mine").code == ExitCode.SUCCESS
    text = (tmp_path / "mine" / "manifest.toml").read_text("utf-8")
    directive, _, url = text.splitlines()[0].partition(" ")
    assert directive == "#:schema"
    schema = json.loads(Path(unquote(urlsplit(url).path)).read_text("utf-8"))
    assert Draft202012Validator(schema).is_valid(tomllib.loads(text))
    assert not Draft202012Validator(schema).is_valid(tomllib.loads(text) | {"version": 1})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("2nd", "does not match"),
        ("two words", "does not match"),
        ("final_answer", "built-in"),
        ("..", "match"),
    ],
)
def test_a_name_that_no_tool_can_have(gbnf: Gbnf, tmp_path: Path, name: str, problem: str) -> None:
    result = gbnf("new", tmp_path / "tools" / name)
    assert (result.code, result.out) == (ExitCode.USAGE, "")
    assert problem in result.err
    assert not (tmp_path / "tools").exists()


def test_nothing_is_overwritten(gbnf: Gbnf, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.toml").write_text("mine")
    (tmp_path / "file").touch()
    for name in ("mine", "file"):
        result = gbnf("new", tmp_path / name)
        assert result.code == ExitCode.USAGE
        assert "already exists" in " ".join(result.err.replace("│", " ").split())
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_written(gbnf: Gbnf, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = gbnf("new", tmp_path / "file" / "mine")
    assert result.code == ExitCode.ENVIRONMENT
    assert "cannot be written" in result.err


@pytest.mark.slow
def test_every_file_is_written_though_nobody_reads_their_names(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gbnf_server", "new", str(tmp_path / "mine")]
    with os.fdopen(writing, "w") as closed:
        subprocess.run(command, stdout=closed, stderr=subprocess.DEVNULL, check=False)
    assert len(list((tmp_path / "mine").iterdir())) == 3
