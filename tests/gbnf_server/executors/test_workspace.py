"""A workspace cannot be left, whatever the path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.executors import MakeFolder, Trash, Workspace, Write
from gbnf_server.executors.journal import Journal
from gbnf_server.system.errors import ExecutorError, SetupError
from support.executors import snapshot

NAMES = ["a", "folder", "in", "out", "file_out", "loop", "dangling", "parent", "deep", ".gbnf", ".GBNF"]
parts = st.sampled_from([*NAMES, ".", "..", "", "~", " ", "\0", "\udcff", "\ud800", "x" * 300]) | st.text(
    max_size=4
)
paths = st.lists(parts, max_size=5).map("/".join) | st.sampled_from(
    ["/", "/etc/passwd", "//", "folder//a", "./."]
)


def furnish(root: Path) -> tuple[Workspace, Path]:
    """A workspace with links of every kind, and what lies outside it."""
    outside, inside = root / "outside", root / "inside"
    for folder in (outside / "deep", inside / "folder" / "deep"):
        folder.mkdir(parents=True)
    (outside / "secret.txt").write_text("secret")
    (inside / "a").write_text("a")
    (inside / "folder" / "a").write_text("fa")
    for name, target in {
        "in": "folder",
        "out": "../outside",
        "file_out": "../outside/secret.txt",
        "loop": "loop",
        "dangling": "../outside/nothing",
        "parent": "..",
        "folder/out": str(outside),
        "folder/in": "../folder/deep",
        "folder/state": "../.gbnf",
    }.items():
        (inside / name).symlink_to(target)
    return Workspace(inside), outside


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Path]:
    return furnish(tmp_path_factory.mktemp("world"))


@given(path=paths)
def test_no_path_resolves_to_a_location_outside(furnished: tuple[Workspace, Path], path: str) -> None:
    workspace, _ = furnished
    for way in (workspace.resolve, workspace.locate):
        try:
            found = way(path)
        except ExecutorError:
            continue
        assert way(workspace.relative(found)) == found
        # os.path: unlike Path it says nothing of loops and of names that are too long, and goes on
        above = os.path.realpath(found.parent)
        real = Path(above, found.name) if way == workspace.locate else Path(os.path.realpath(found))
        assert os.path.commonpath([workspace.root, real]) == str(workspace.root)
        assert not real.is_relative_to(workspace.state)


@given(
    st.lists(
        st.builds(Write, paths, st.just(b"data")) | st.builds(MakeFolder, paths) | st.builds(Trash, paths),
        max_size=3,
    )
)
def test_no_change_reaches_what_lies_outside(
    tmp_path_factory: pytest.TempPathFactory, changes: list[Write | MakeFolder | Trash]
) -> None:
    workspace, outside = furnish(tmp_path_factory.mktemp("world"))
    before = snapshot(outside)
    beside = sorted(workspace.root.parent.iterdir())
    try:
        with Journal(workspace).locked():
            Journal(workspace).apply(changes, turn="t", tool="x", action=lambda: None)
    except ExecutorError:
        pass
    assert snapshot(outside) == before
    assert sorted(workspace.root.parent.iterdir()) == beside


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../outside/secret.txt", "'..' is not allowed"),
        ("folder/../a", "'..' is not allowed"),
        ("/etc/passwd", "relative to the workspace"),
        ("~/notes", "relative to the workspace"),
        ("out/secret.txt", "symbolic link leads out"),
        ("file_out", "symbolic link leads out"),
        ("dangling", "symbolic link leads out"),
        ("in/out/secret.txt", "symbolic link leads out"),
        (".gbnf/journal", "is reserved for the runtime"),
        ("folder/state/journal", "is reserved for the runtime"),
        ("new/deep/.Gbnf", "is reserved for the runtime"),
        ("", "the path is empty"),
        ("a\0b", "NUL"),
        ("\ud800", "cannot be encoded"),
    ],
)
def test_refused(furnished: tuple[Workspace, Path], path: str, reason: str) -> None:
    workspace, _ = furnished
    with pytest.raises(ExecutorError, match=reason):
        workspace.resolve(path)
    with pytest.raises(ExecutorError, match=reason):
        workspace.read(path, limit=100)


@pytest.mark.parametrize(
    ("path", "real"),
    [("in/a", "folder/a"), ("in/in", "folder/deep"), (".", "."), ("~x", "~x"), ("./~/x", "./~/x")],
)
def test_links_inside_are_followed(furnished: tuple[Workspace, Path], path: str, real: str) -> None:
    workspace, _ = furnished
    assert workspace.relative(workspace.resolve(path)) == real


def test_a_link_that_appears_after_the_check_is_not_followed(tmp_path: Path) -> None:
    workspace, _ = furnish(tmp_path)
    path = workspace.relative(workspace.resolve("folder/a"))
    (workspace.root / "folder").rename(workspace.root / "moved")
    (workspace.root / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="Not a directory"), workspace.open_parent(path):
        pass


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing", "does not exist"),
        ("foldr", "did you mean 'folder'"),
        ("folder", "is a folder"),
        ("a/b", "not a folder"),
        ("loop", "symbolic link"),
        ("large", "larger than 10 bytes"),
        ("pipe", "not a regular file"),
        ("x" * 300, "too long"),
    ],
)
def test_files_that_cannot_be_read_are_errors_with_a_reason(tmp_path: Path, path: str, reason: str) -> None:
    workspace, _ = furnish(tmp_path)
    (workspace.root / "large").write_bytes(b"x" * 11)
    os.mkfifo(workspace.root / "pipe")
    with pytest.raises(ExecutorError, match=reason):
        workspace.read(path, limit=10)


def test_a_path_outside_has_no_relative_one(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="outside the workspace"):
        Workspace(tmp_path / "w").relative(tmp_path)


def test_a_workspace_is_made_where_it_is_missing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new" / "space")
    assert workspace.root.is_dir()
    assert (workspace.state / ".gitignore").read_text() == "*\n"


def test_a_file_and_a_folder_whose_state_is_a_link_are_no_workspaces(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".gbnf").symlink_to(tmp_path)
    for name in ("file", "w"):
        with pytest.raises(SetupError, match="cannot be used as the workspace"):
            Workspace(tmp_path / name)


def test_reading_a_folder_leaves_no_descriptor_open(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    (tmp_path / "folder").mkdir()
    before = len([*Path("/dev/fd").iterdir()])
    with pytest.raises(ExecutorError, match="'folder' is a folder"):
        workspace.read("folder", limit=1)
    assert len([*Path("/dev/fd").iterdir()]) == before
