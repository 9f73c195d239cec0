"""Folders of any shape are measured, and removed piece by piece."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gbnf_server.executors import Trash, Workspace, journal_store
from gbnf_server.executors.journal import Journal
from gbnf_server.executors.journal_store import folder_size, remove_trees
from support.folders import deepen


def removed(root: Path, most: int) -> int:
    """How many calls it takes to empty the folder."""
    for calls in range(1, 1000):
        folder = os.open(root, os.O_RDONLY)
        try:
            remove_trees(folder, most)
        finally:
            os.close(folder)
        if not any(root.iterdir()):
            return calls
    raise AssertionError("it is never empty")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["d", "long name " * 20])
def test_a_folder_deeper_than_the_limits_of_recursion_and_paths(deep_path: Path, name: str) -> None:
    deepen(deep_path, 2 * sys.getrecursionlimit(), name)
    folder_size(deep_path)
    assert removed(deep_path, 10**6) == 1


def test_removal_continues_after_each_batch(tmp_path: Path) -> None:
    for folder in ("a/b/c", "a/d", "e"):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(10):
            (tmp_path / folder / str(number)).touch()
    assert removed(tmp_path, 7) > 3


def test_links_and_special_files_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"x" * 100_000)
    tree = tmp_path / "tree"
    (tree / "in").mkdir(parents=True)
    for folder in (tree, tree / "in"):
        (folder / "up").symlink_to(tmp_path)
        (folder / "self").symlink_to("self")
        (folder / "dead").symlink_to("nothing")
        os.mkfifo(folder / "pipe")
        (folder / os.fsdecode(b"\xff\n")).write_bytes(b"1")
    assert folder_size(tree) < 100_000
    assert removed(tree, 10**6) == 1
    assert (tmp_path / "outside" / "x").exists()


def test_what_is_measured_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gbnf_server.executors.journal_store.MAX_MEASURED", 5)
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"x")
    assert folder_size(tmp_path) == 5
    assert folder_size(tmp_path / "missing") == 0


@pytest.mark.slow
def test_a_deep_folder_is_deleted_undone_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path)
    (tmp_path / "top").mkdir()
    deepen(tmp_path / "top", 1_500, "d")

    def delete(turn: str) -> None:
        with Journal(workspace).locked():
            Journal(workspace).apply([Trash("top")], turn=turn, tool="t", action=lambda: None)

    delete("first")
    assert Journal(workspace).undo_last_turn("second").undone == ("restored 'top'",)
    assert (tmp_path / "top" / "d" / "d").is_dir()
    delete("third")
    monkeypatch.setattr(journal_store, "MAX_CHANGES", 1)
    (tmp_path / "top").mkdir()
    delete("fourth")
    assert len(list(workspace.trash.iterdir())) == 1
    assert not list((workspace.state / "pruned").iterdir())
