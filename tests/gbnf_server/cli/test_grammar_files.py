"""`gbnf lint`, what `gbnf check` shares with it, `gbnf fmt`, and both as hooks of pre-commit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gbnf_server.cli.errors import ExitCode
from support.command_line import Gbnf
from support.oracle import CHECKOUT

BROKEN = 'root ::= "日本" itm\nitem ::= ("a"\nother ::= "b" ""\n'


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.gbnf"
    path.write_text(BROKEN, "utf-8")
    return path


def test_lint_shows_file_position_excerpt_and_hint(gbnf: Gbnf, broken: Path) -> None:
    result = gbnf("lint", broken)
    assert result.code == ExitCode.FAILURE
    lines = result.out.splitlines()
    assert lines[0] == f"{broken}:1:15: error G102: the rule itm is not defined"
    assert lines[1:4] == ['  root ::= "日本" itm', "                  ^^^", "  Did you mean 'item'?"]
    assert lines[4] == f"{broken}:2:10: error G004: ( is never closed"
    assert "2 errors, 1 warning" in result.err


@pytest.mark.parametrize("text", [None, "a"])
def test_check_shows_the_same_errors(gbnf: Gbnf, broken: Path, text: str | None) -> None:
    result = gbnf("check", broken, *([text] if text else []))
    assert (result.code, result.out) == (ExitCode.INPUT, "")
    assert f"{broken}:1:15: error G102" in result.err
    assert f"{broken}:2:10: error G004" in result.err


def test_check_shows_warnings_without_a_text(gbnf: Gbnf, tmp_path: Path) -> None:
    path = tmp_path / "unused.gbnf"
    path.write_text('root ::= "a"\nitem ::= "b"')
    result = gbnf("check", path)
    assert result.out.startswith("valid: 2 rules")
    assert "warning G201: nothing refers to this rule" in result.err
    assert gbnf("check", path, "a").err == ""
    path.write_text('root ::= "a" root')
    assert gbnf("check", path).code == ExitCode.INPUT


def test_notes_are_no_failure(gbnf: Gbnf, tmp_path: Path) -> None:
    path = tmp_path / "note.gbnf"
    path.write_text("root ::= [a-z]+")
    result = gbnf("lint", path)
    assert result.code == ExitCode.SUCCESS
    assert "note G301" in result.out
    path.write_text('root ::= "a"')
    assert gbnf("lint", path, path).err == "nothing found in 1 file\n"


def test_lint_reads_the_standard_input(gbnf: Gbnf) -> None:
    assert gbnf("lint", "-", stdin="root := x").out.startswith("<stdin>:1:6: error G002")
    assert gbnf("lint", "--fix", "-", stdin="root := x").code == ExitCode.USAGE


def test_fixes_are_written_and_the_rest_is_reported(gbnf: Gbnf, tmp_path: Path) -> None:
    path = tmp_path / "fix.gbnf"
    path.write_bytes(b'root := "a" itm\r\n')
    result = gbnf("lint", "--fix", path)
    assert path.read_bytes() == b'root ::= "a" itm\r\n'
    assert "G102" in result.out
    assert "G002" not in result.out


def test_json(gbnf: Gbnf, broken: Path) -> None:
    result = gbnf("lint", "--format", "json", broken)
    found = json.loads(result.out)
    assert result.code == ExitCode.FAILURE
    assert [each["code"] for each in found] == ["G102", "G004", "G207"]
    assert all(each["file"] == str(broken) for each in found)
    assert [BROKEN[each["start"] : each["end"]] for each in found] == ["itm", "(", '""']
    assert found[2]["fix"] == [{"start": 46, "end": 48, "text": " "}]


def test_sarif(gbnf: Gbnf, broken: Path) -> None:
    log = json.loads(gbnf("lint", "--format", "sarif", broken).out)
    (run,) = log["runs"]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert log["version"] == "2.1.0"
    assert [each["ruleId"] for each in run["results"]] == ["G102", "G004", "G207"]
    for each in run["results"]:
        assert rules[each["ruleId"]]["defaultConfiguration"]["level"] == each["level"]
        place = each["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == str(broken)
        region = place["region"]
        line = BROKEN.splitlines()[region["startLine"] - 1]
        marked = BROKEN[region["charOffset"] :][: region["charLength"]]
        assert line[region["startColumn"] - 1 :].startswith(marked)


def test_fmt_rewrites_files_and_check_lists_them(gbnf: Gbnf, tmp_path: Path) -> None:
    paths = [tmp_path / "a.gbnf", tmp_path / "b.gbnf"]
    paths[0].write_text('root::="a"  # c\r\n', newline="")
    paths[1].write_text('root ::= "b"\n')
    checked = gbnf("fmt", "--check", *paths)
    assert (checked.code, checked.out) == (ExitCode.FAILURE, f"{paths[0]}\n")
    assert paths[0].read_bytes() == b'root::="a"  # c\r\n'
    assert gbnf("fmt", *paths).err == "1 file changed\n"
    assert paths[0].read_bytes() == b'root ::= "a" # c\n'
    assert gbnf("fmt", "--check", *paths).code == ExitCode.SUCCESS


def test_fmt_of_the_standard_input_and_of_a_broken_file(gbnf: Gbnf, broken: Path) -> None:
    assert gbnf("fmt", "-", stdin='root::="a"').out == 'root ::= "a"\n'
    result = gbnf("fmt", broken)
    assert result.code == ExitCode.INPUT
    assert f"{broken}: line 2, column 10: ( is never closed" in result.err
    assert broken.read_text("utf-8") == BROKEN


def test_the_hooks_of_pre_commit_are_commands_that_take_files(gbnf: Gbnf, tmp_path: Path) -> None:
    hooks = re.findall(
        r"^  entry: (gbnf \S+)$", (CHECKOUT / ".pre-commit-hooks.yaml").read_text(), re.MULTILINE
    )
    path = tmp_path / "a.gbnf"
    path.write_text('root ::= "a"\n')
    assert [gbnf(*hook.split()[1:], path).code for hook in hooks] == [ExitCode.SUCCESS] * 2


def test_samples_are_json_strings(gbnf: Gbnf, tmp_path: Path) -> None:
    path = tmp_path / "lines.gbnf"
    path.write_text('root ::= "a\\n" [0-9] | "é"')
    lines = gbnf("sample", path, "-n", "50").out.splitlines()
    assert {json.loads(line) for line in lines} == {"é", *(f"a\n{digit}" for digit in range(10))}
    seeded = ("sample", path, "-n", "2", "--seed", "3")
    assert gbnf(*seeded).out == gbnf(*seeded).out
    path.write_text('root ::= "a" root')
    failed = gbnf("sample", path)
    assert (failed.code, failed.out) == (ExitCode.INPUT, "")
    assert "G106" in failed.err


def test_a_difference_is_said_with_the_file_that_has_it(gbnf: Gbnf, tmp_path: Path) -> None:
    first, second = tmp_path / "first.gbnf", tmp_path / "second.gbnf"
    first.write_text('root ::= "a" | "b\\n"')
    second.write_text('root ::= "a"')
    found = gbnf("diff", first, second)
    assert (found.code, found.out) == (ExitCode.FAILURE, f'only {first} accepts "b\\n"\n')
    assert f"only {first}" in gbnf("diff", second, first).out
    assert gbnf("diff", "-", second, stdin='root ::= x\nx ::= "a"').out == "equal\n"
