"""Mutants differ from the original in one place, and tests kill those that they can tell from it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from mutants import Runner, found_again, mirrored, mutants, sample

_CODE = '''\
"""A module: 1 < 2."""
from __future__ import annotations

def size(values: list[int | None], limit: int = 10) -> int:
    """Return the size, at most `limit`."""
    total = 0
    for value in values:
        if value is None or not value:
            continue
        total += value * 2
    if total > limit:
        raise ValueError(f"beyond {total + 1}: beyond the limit")
    return total if total else limit
'''
_STEPS = """\
def steps(n):
    found = 0
    while n > 0:
        n -= 1
        found += 1
    return found
"""
_KINDS = {
    "comparison", "boolean", "arithmetic", "constant", "branches", "condition", "deletion", "jump", "return",
}  # fmt: skip


def test_each_mutant_changes_the_code_in_one_place() -> None:
    found = mutants(_CODE, "code.py")
    assert {mutant.kind for mutant in found} == _KINDS
    sources = [mutant.source(_CODE.encode()).decode() for mutant in found]
    assert len(set(sources)) == len(sources)
    for mutant, source in zip(found, sources, strict=True):
        assert source[: mutant.begin] == _CODE[: mutant.begin]
        assert source.endswith(_CODE[mutant.end :])
        assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(_CODE))


@pytest.mark.parametrize("text", ["def f(x: int | None = None) -> int: ...", '"""1 + 1"""', "x: int"])
def test_annotations_and_texts_are_not_changed(text: str) -> None:
    assert mutants(text) == []


def test_offsets_count_bytes() -> None:
    [mutant] = mutants("name = 'é' ; size = 1\n")
    assert mutant.source("name = 'é' ; size = 1\n".encode()).decode() == "name = 'é' ; size = 2\n"


def test_the_same_seed_chooses_the_same_mutants(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(_CODE)
    every = sample([tmp_path], 1000, 0, tmp_path)
    assert every == mutants(_CODE, "code.py")
    chosen = [sample([tmp_path], 5, seed, tmp_path) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert all(mutant in every for mutant in chosen[0])


def test_mutants_are_found_again_where_their_lines_have_moved(tmp_path: Path) -> None:
    code = _CODE.replace("total > limit", "limit < total").replace("    total =", "\n    total =")
    (tmp_path / "package").mkdir()
    for file in ("code.py", "package/code.py"):
        (tmp_path / file).write_text(code)
        for earlier in mutants(_CODE, "code.py"):
            now = found_again(earlier, tmp_path)
            assert (now is None) == (earlier.before == "total > limit")
            if now:
                assert replace(earlier, file=file, line=now.line, begin=now.begin, end=now.end) == now
        (tmp_path / file).unlink()


def test_the_tests_of_a_file_are_those_of_its_package() -> None:
    assert mirrored("gbnf/compiler/pool.py") == ["tests/gbnf/compiler/test_pool.py", "tests/gbnf/compiler"]
    assert mirrored("server/gbnf_server/planner/events.py")[-1] == "tests/gbnf_server/planner"
    assert mirrored("server/gbnf_server/gateway/openai_chat/reply.py") == ["tests/gbnf_server/gateway"]


@pytest.mark.slow  # it starts pytest for each
def test_mutants_are_killed_by_failures_and_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than these tests
    for folder in ("toys_made", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "toys_made" / "steps.py").write_text(_STEPS)
    (tmp_path / "pytest.ini").touch()
    test = "from toys_made.steps import steps\n\ndef test_steps():\n    assert steps({}) in {}\n"
    (tmp_path / "tests" / "test_steps.py").write_text(test.format(3, (3, 4)))
    (tmp_path / "tests" / "test_false.py").write_text(test.format(3, []))
    runner = Runner(tmp_path, least_s=1)
    outcomes = {
        mutant.kind: runner.verdict(mutant, ["tests/test_steps.py"]).outcome
        for mutant in sample([tmp_path / "toys_made"], 100, 0, tmp_path)
        if mutant.line in (3, 4, 6) and mutant.kind in ("comparison", "deletion", "return")
    }
    assert outcomes == {"comparison": "survived", "deletion": "timed out", "return": "killed"}
    assert (tmp_path / "toys_made" / "steps.py").read_text() == _STEPS
    with pytest.raises(
        typer.BadParameter, match=r"without a mutant: FAILED tests/test_false\.py::test_steps"
    ):
        runner.verdict(sample([tmp_path / "toys_made"], 1, 0, tmp_path)[0], ["tests/test_false.py"])
