"""`gbnf test`, over real manifests and llama.cpp's own engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gbnf import compile_pool, load_manifests
from gbnf_server.cli.errors import ExitCode
from support.command_line import Gbnf
from support.toys import make_tool

COLOUR = {"type": "string", "enum": ["red", "green"]}


@pytest.mark.slow
def test_the_bundled_tools_pass(gbnf: Gbnf) -> None:
    result = gbnf("test", "--examples", 1)
    assert (result.code, result.err) == (ExitCode.SUCCESS, "")
    assert result.out.startswith("15 tools sound and complete in 1 example of each kind (")


@pytest.fixture
def painter(tmp_path: Path) -> Path:
    make_tool(tmp_path, "paint", args={"properties": {"colour": COLOUR, "coats": {"type": "integer"}}})
    return tmp_path


@pytest.fixture
def loosened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that knows one colour more, and no coats."""
    real = compile_pool

    def planted(tools: Any, **options: Any) -> Any:
        args = {"type": "object", "properties": {"colour": {"enum": ["red", "green", "blue"]}}}
        wrong = [type(one)(name=one.name, args=args) for one in tools]
        return real(wrong, **options)

    monkeypatch.setattr("gbnf.compile_pool", planted)


@pytest.mark.usefixtures("loosened")
def test_the_smallest_counterexamples_are_shown(gbnf: Gbnf, painter: Path) -> None:
    result = gbnf("test", painter)
    assert result.code == ExitCode.FAILURE
    assert "\x1b" not in result.out
    lines = result.out.splitlines()
    assert "paint  not sound: an invalid call is accepted" in lines
    assert "paint  not complete: a valid call is refused" in lines
    found = [json.loads(line.split(maxsplit=1)[1]) for line in lines if line.startswith("  call ")]
    assert found == [
        {"name": "paint", "arguments": {"colour": "blue"}},
        {"name": "paint", "arguments": {"coats": 0}},
    ]
    assert [line.split() for line in lines if line.startswith("  engine ")] == [
        ["engine", "accepted"],
        ["engine", "refused"],
    ]
    assert any(line.startswith("  validator ") and "colour" in line for line in lines)
    assert "  validator valid" in lines
    assert lines[-1].startswith("2 counterexamples in 1 tool (")


def test_one_manifest_can_be_tested(gbnf: Gbnf, painter: Path) -> None:
    [tool] = load_manifests(painter)
    assert tool.path is not None
    result = gbnf("test", tool.path, "--examples", 10)
    assert (result.code, result.out[:23]) == (ExitCode.SUCCESS, "1 tool sound and comple")


def test_exit_statuses_of_invalid_input_and_options(gbnf: Gbnf, painter: Path, tmp_path: Path) -> None:
    assert gbnf("test", tmp_path / "nowhere").code == ExitCode.INPUT
    result = gbnf("test", painter, "--vocab", tmp_path / "nothing.gguf")
    assert result.code == ExitCode.ENVIRONMENT
    assert "nothing.gguf" in result.err
    assert gbnf("test", painter, "--examples", 0).code == ExitCode.USAGE
