"""A journal of any length costs a change the same, stays bounded, and survives what replaces its files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gbnf_server.executors import MakeFolder, Trash, Workspace, Write, journal_store
from gbnf_server.executors.journal import Journal
from gbnf_server.system.errors import ExecutorError
from support.effort import scaled
from support.executors import apply, snapshot


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def files(workspace: Workspace) -> list[Path]:
    return sorted((workspace.state / "journal").iterdir())


COUNTED = """
import os, sys
from gbnf_server.executors import Workspace, Write, journal_store
from gbnf_server.executors.journal import Journal

journal_store.MAX_CHANGES = 50
workspace = Workspace(sys.argv[1])
calls = 0

WATCHED = {"open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}

def count(event, arguments):
    global calls
    calls += event in WATCHED

sys.addaudithook(count)
for number in range(int(sys.argv[2])):
    calls = 0
    journal = Journal(workspace)
    with journal.locked():
        changes = [Write("a", str(number).encode())]
        journal.apply(changes, turn=f"{number // 7:08}", tool="t", action=lambda: None)
    print(calls)
"""


@pytest.mark.slow
def test_many_changes_each_cost_the_same(tmp_path: Path, workspace: Workspace) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(tmp_path), "500"], check=True, capture_output=True, text=True
    )
    calls = [int(line) for line in done.stdout.splitlines()]
    assert len(calls) == 500
    assert max(calls[-150:]) <= max(calls[150:300])
    assert len(files(workspace)) <= 52
    assert len(list(workspace.trash.iterdir())) <= 51
    assert not list((workspace.state / "pruned").iterdir())
    assert Journal(workspace).undo_last_turn("next").kept == ()
    assert (tmp_path / "a").read_bytes() == b"496"


def test_no_settled_record_is_read_by_a_change(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        apply(workspace, Write("a", str(number).encode()))

    def refuse(_: journal_store.JournalStore, entry: journal_store.JournalEntry) -> None:
        raise AssertionError(f"{entry.file} is read")

    monkeypatch.setattr(journal_store.JournalStore, "load", refuse)
    apply(workspace, Write("a", b"x"))


# ── retention ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_oldest_changes_are_forgotten_and_an_undo_says_so(
    tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_store, "MAX_CHANGES", 3)
    apply(workspace, Write("old", b"1"), turn="first")
    for number in range(5):
        apply(workspace, Write("a", str(number).encode()), turn="second")
    outcome = Journal(workspace).undo_last_turn("third")
    assert outcome.undone == ("restored the earlier content of 'a'",)
    assert any(kept.startswith("the first 2 changes of the request are not undone") for kept in outcome.kept)
    assert (tmp_path / "a").read_bytes() == b"1"
    with pytest.raises(ExecutorError, match="nothing left to undo: only the last"):
        Journal(workspace).undo_last_turn("fourth")
    assert (tmp_path / "old").read_bytes() == b"1"


def test_the_bytes_that_are_kept_are_bounded(
    tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_store, "MAX_KEPT_BYTES", 10_000)
    for number in range(10):
        (tmp_path / "folder" / "deep").mkdir(parents=True)
        (tmp_path / "folder" / "deep" / "x").write_bytes(b"x" * 4_000)
        apply(workspace, Trash("folder"), turn=str(number))
    kept = sum(path.stat().st_size for path in workspace.state.rglob("*") if path.is_file())
    assert kept < 10_000 + 4_000
    assert Journal(workspace).undo_last_turn("next").undone == ("restored 'folder'",)


def test_the_latest_change_is_kept_whatever_its_size(
    tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_store, "MAX_KEPT_BYTES", 10)
    (tmp_path / "a").write_bytes(b"x" * 1_000)
    apply(workspace, Write("b", b"b"), turn="first")
    apply(workspace, Trash("a"), turn="second")
    assert Journal(workspace).undo_last_turn("third").undone == ("restored 'a'",)
    assert (tmp_path / "a").stat().st_size == 1_000


def test_a_change_that_failed_leaves_no_record(workspace: Workspace) -> None:
    apply(workspace, Write("a", b"1"))
    before = files(workspace)
    for _ in range(3):
        with pytest.raises(ExecutorError):
            apply(workspace, Write("a", b"2"), MakeFolder("a"))
    assert files(workspace) == before
    assert Journal(workspace).undo_last_turn("second").undone == ("removed 'a'",)


# ── before the name ─────────────────────────────────────────────────────────────────────────────────────────


def as_before_the_renaming(workspace: Workspace) -> None:
    """Records by number alone: the state between an end and its name."""
    for path in files(workspace):
        path.rename(path.with_name(re.sub(r"-\d+", "", path.name)))


def test_records_that_were_not_renamed_are_read(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "a").write_bytes(b"old")
    apply(workspace, Write("a", b"1"), turn="first")
    apply(workspace, Trash("a"), MakeFolder("b"), turn="second")
    as_before_the_renaming(workspace)
    half = workspace.state / "journal" / "00000003.jsonl"
    half.write_text('{"turn": "x", "tool": "t"}\n{"step": "folder", "path": "half"}\n{"step": "fol')
    (tmp_path / "half").mkdir()
    Journal(workspace).recover()
    assert not (tmp_path / "half").exists()
    assert [path.name for path in files(workspace)] == ["00000001-3.jsonl", "00000002-1.jsonl"]
    assert Journal(workspace).undo_last_turn("third").kept == ()
    assert Journal(workspace).undo_last_turn("fourth").kept == ()
    assert {path: content for path, (_, _, content) in snapshot(tmp_path).items()} == {"a": b"old"}


# ── what somebody puts there ────────────────────────────────────────────────────────────────────────────────

lines = st.binary(max_size=20) | st.sampled_from(
    [
        b'{"step": "write", "pa',
        b'{"step": 7}',
        b'{"step": "folder"}',
        b'{"step": "write", "path": []}',
        b'{"step": "trash", "path": "x", "kept": {}}',
        b'{"step": "write", "path": "x", "before": [], "after": {}}',
        b'{"step": "trash", "path": "x", "kept": ".gbnf/trash/00000002/0/\\ud800"}',
        b'{"step": "sent"}',
        b'{"end": []}',
        b'{"end": "some day"}',
        b'{"undone": [1]}',
        b'{"undone": 99}',
        b'{"turn": 1, "tool": 2}',
        b'{"turn": "second", "tool": "t", "undid": {}}',
        b"[" * 100_000,
        b"9" * 10_000,
        b"null",
        b"\0" * 30,
        b"\xff\xfe",
    ]
)


@settings(max_examples=scaled(60))
@given(found=st.lists(lines, min_size=1, max_size=4), settled=st.booleans(), keep=st.booleans())
@example(found=[b'{"step": "write", "path": []}'], settled=False, keep=True)
@example(found=[b'{"undone": [1]}'], settled=True, keep=True)
def test_foreign_lines_break_no_change_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, found: list[bytes], settled: bool, keep: bool
) -> None:
    root = tmp_path_factory.mktemp("w")
    workspace = Workspace(root)
    apply(workspace, Write("first", b"1"), turn="first")
    apply(workspace, Write("a", b"1"), turn="second")
    (root / "a").chmod(0o600)
    apply(workspace, Write("a", b"2"), turn="third")
    if not settled:
        as_before_the_renaming(workspace)
    record = files(workspace)[2]
    record.write_bytes(b"\n".join([*([record.read_bytes()] if keep else []), *found, b""]))
    for number in range(3):
        apply(workspace, Write(f"later{number}", b"l"), turn="later")
    Journal(workspace).undo_last_turn("undo")
    assert not list(root.glob("later*"))
    backups = [path for path in workspace.state.rglob("a") if path.is_file()]
    assert (root / "a").read_bytes() in {b"1", b"2"}
    assert (root / "a").read_bytes() == b"1" or [path.read_bytes() for path in backups] == [b"1"]


REPLACEMENTS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "garbage": lambda path: path.write_bytes(os.urandom(5_000)),
    "nothing": Path.touch,
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("put", REPLACEMENTS)
def test_what_replaces_a_record(tmp_path: Path, workspace: Workspace, put: str, settled: bool) -> None:
    apply(workspace, Write("a", b"1"), turn="first")
    (tmp_path / "b").write_bytes(b"precious")
    apply(workspace, Trash("b"), turn="second")
    if not settled:
        as_before_the_renaming(workspace)
    record = files(workspace)[1]
    record.unlink()
    REPLACEMENTS[put](record)
    apply(workspace, Write("c", b"1"), turn="third")
    assert Journal(workspace).undo_last_turn("fourth").undone == ("removed 'c'",)
    assert [path for path in workspace.state.rglob("b") if path.read_bytes() == b"precious"]
    outcome = Journal(workspace).undo_last_turn("fifth")
    assert outcome.undone == ("removed 'a'",)
    assert any("00000002" in kept for kept in outcome.kept)


@pytest.mark.parametrize("name", ["journal", "trash", "staging", "pruned"])
@pytest.mark.parametrize("put", ["a pipe", "a link", "nothing"])
def test_what_replaces_a_folder(tmp_path: Path, workspace: Workspace, put: str, name: str) -> None:
    apply(workspace, Write("a", b"1"), turn="first")
    saved = tmp_path / ".gbnf" / "elsewhere"
    (workspace.state / name).rename(saved)
    REPLACEMENTS[put](workspace.state / name)
    apply(workspace, Write("b", b"1"), turn="second")
    assert Journal(workspace).undo_last_turn("third").undone == ("removed 'b'",)
    assert len(list(workspace.state.glob(f"{name}.*.damaged"))) == 1


@pytest.mark.parametrize(
    "names",
    [
        ["notes.txt", "x.jsonl", "-1.jsonl", "٣.jsonl", "1.jsonl.swp", "00000001.jsonl~", ".nfs0001"],
        ["99999999999999999999.jsonl"],
        ["00000001.jsonl", "1.jsonl", "00000001-0.jsonl", "00000001.damaged", "1-2.damaged"],
        ["pruned.json"],
    ],
)
def test_foreign_files_beside_the_records(workspace: Workspace, names: list[str]) -> None:
    apply(workspace, Write("a", b"1"), turn="first")
    for name in names:
        (workspace.state / "journal" / name).write_bytes(b"[[[")
    apply(workspace, Write("b", b"1"), turn="second")
    assert Journal(workspace).undo_last_turn("third").undone == ("removed 'b'",)


def test_a_record_whose_name_is_taken_is_set_aside(workspace: Workspace) -> None:
    apply(workspace, Write("a", b"1"), turn="first")
    (record,) = files(workspace)
    twin = record.with_name("00000001.jsonl")
    twin.write_bytes(record.read_bytes() + b"\n")
    Journal(workspace).recover()
    assert [path.name for path in files(workspace)] == ["00000001-0.jsonl", "00000001.damaged"]
    assert Journal(workspace).undo_last_turn("second").undone == ("removed 'a'",)


def test_the_note_of_what_was_pruned_names_few_turns(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_store, "MAX_CHANGES", 1)
    monkeypatch.setattr(journal_store, "_NOTED_TURNS", 3)
    for number in range(10):
        apply(workspace, Write("a", b"1"), turn=f"turn {number}")
    note = json.loads((workspace.state / "journal" / "pruned.json").read_bytes())
    assert note == {"turn 6": 1, "turn 7": 1, "turn 8": 1}
