"""What a person is shown of the paths of a call to be approved."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from rich.console import Console

from gbnf_server.executors import TerminalPerson, Workspace, describe_paths
from support.pools import json_values


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    (root / "notes").mkdir(parents=True)
    (root / "notes/a.txt").write_text("x" * 1204)
    (root / "empty").mkdir()
    (root / "here").symlink_to("notes/a.txt")
    (root / "full").mkdir()
    for number in range(1001):
        (root / f"full/{number}").touch()
    (tmp_path / "secret.txt").write_text("secret")
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    return Workspace(root)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"paths": ["notes/a.txt", "notes"]},
         ['"notes/a.txt": exists, 1,204 bytes', '"notes": folder with 1 entry']),
        ({"paths": ["."]}, ['".": folder with 6 entries']),  # without the runtime's own
        ({"files": [{"path": "b.txt", "content": "empty"}]},
         ['"b.txt": new', '"empty": folder with 0 entries']),
        ({"x": "notes/a.txt", "path": "notes/a.txt"}, ['"notes/a.txt": exists, 1,204 bytes']),
        ({"path": "full"}, ['"full": folder with more than 1,000 entries']),
        ({"path": "here"}, ['"here": link to "notes/a.txt", exists, 1,204 bytes']),
        ({"paths": ["out.txt", "out", "out/secret.txt", "../secret.txt", "/etc/passwd", "~", "", "\0"]}, []),
        ({"to": "anna@example.com", "n": 3, "profile": "admin", "path": None}, []),
        ({"paths": ["notes/a.txt/b", ".gbnf/trash"]}, []),
        ({"path": "a\nb.txt"}, ['"a\\nb.txt": new']),
    ],
)  # fmt: skip
def test_the_lines_of_a_call(workspace: Workspace, arguments: dict[str, Any], lines: list[str]) -> None:
    assert list(describe_paths(arguments, workspace)) == lines


def test_ten_paths_are_shown_and_the_others_counted(workspace: Workspace) -> None:
    lines = describe_paths({"paths": [f"{number}.txt" for number in range(12)]}, workspace)
    assert len(lines) == 11
    assert lines[-1] == "other paths: 2"


@given(json_values)
def test_any_arguments_are_described_in_a_few_lines(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = describe_paths({"path": value}, Workspace(folder))
    assert len(lines) <= 11
    assert all("\n" not in line for line in lines)


def test_a_person_sees_what_is_there_before_the_question(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    screen = io.StringIO()
    person = TerminalPerson(console=Console(file=screen, width=100), workspace=workspace)
    assert not person.approve({"name": "delete_files", "arguments": {"paths": ["notes"]}})
    assert screen.getvalue().index('"notes": folder with 1 entry') < screen.getvalue().index("Allow it?")
