"""All changes of a list happen or none, a kill included, and undo brings the earlier tree back."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.executors import MakeFolder, Trash, Workspace, Write
from gbnf_server.executors.journal import Change, Journal
from gbnf_server.system.errors import ExecutorError
from support.effort import scaled
from support.executors import apply, snapshot

names = st.sampled_from(["a", "b", "c.txt", "d"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join) | st.sampled_from(["./~", "./~/a", "./ "])
contents = st.binary(max_size=8)
changes: st.SearchStrategy[Change] = (
    st.builds(Write, paths, contents, st.booleans()) | st.builds(MakeFolder, paths) | st.builds(Trash, paths)
)
VICTIM = hashlib.sha256(b"victim").hexdigest()
trees = st.dictionaries(paths, contents | st.none(), max_size=5)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def plant(root: Path, tree: dict[str, bytes | None]) -> Workspace:
    """A workspace with these files, and folders (None); what does not fit beside the others is left out."""
    workspace = Workspace(root)
    for number, (path, content) in enumerate(sorted(tree.items())):
        try:
            if content is None:
                (root / path).mkdir(parents=True, exist_ok=True)
            else:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
                (root / path).chmod(0o600 if number % 2 else 0o640)
        except OSError:
            continue
    return workspace


@settings(max_examples=scaled(150))
@given(tree=trees, turn=st.lists(st.lists(changes, max_size=3), max_size=5))
def test_undo_restores_the_tree(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes | None], turn: list[list[Change]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    workspace = plant(root, tree)
    before = snapshot(root)
    applied = 0
    for call in turn:
        unchanged = snapshot(root)
        try:
            apply(workspace, *call)
        except ExecutorError:
            assert snapshot(root) == unchanged
        else:
            applied += 1
    if applied:
        assert Journal(workspace).undo_last_turn("second").kept == ()
    assert snapshot(root) == before
    assert not list((workspace.state / "staging").glob("*"))


# Each number of system events after which the kernel kills the process, until it comes through.
KILLED = """
import os, signal, sys
from pathlib import Path
from gbnf_server.executors import MakeFolder, Trash, Workspace, Write
from gbnf_server.executors.journal import Journal

WATCHED = {"open", "os.rename", "os.link", "os.mkdir", "os.chmod", "os.remove", "os.rmdir", "shutil.rmtree"}
root = Path(sys.argv[1])
for number in range(1, 1000):
    workspace = Workspace(root / str(number))
    (workspace.root / "old").write_bytes(b"old")
    (workspace.root / "gone").mkdir()
    (workspace.root / "gone" / "x").write_bytes(b"x")
    child = os.fork()
    if child == 0:
        left = number
        def count(event, arguments):
            global left
            if event in WATCHED:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        journal = Journal(workspace)
        sys.addaudithook(count)
        undoes = sys.argv[2] == "undo"
        with journal.locked():
            changes = [Write("old", b"new"), Write("a/b/new", b"n"), Trash("gone"), MakeFolder("e/f")]
            left = 1 << 30 if undoes else left
            journal.apply(changes, turn="first", tool="t", action=lambda: None)
        if undoes:
            left = number
            journal.undo_last_turn("second")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        print(number)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
"""


def killed_everywhere(root: Path, what: str, code: str = KILLED) -> list[Path]:
    """Workspaces, each left by a process that was killed one system event later; the last was not killed."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(root), what], check=True, capture_output=True, text=True
    )
    return [root / str(number) for number in range(1, int(done.stdout) + 1)]


# Each number of bytes that a file may have, as if the disk were full then, until all fits.
FULL = """
import os, resource, signal, sys
from pathlib import Path
from gbnf_server.executors import MakeFolder, Trash, Workspace, Write
from gbnf_server.executors.journal import Journal

sys.dont_write_bytecode = True  # a module compiled under the limit would be written in part
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
root, sends = Path(sys.argv[1]), sys.argv[2] == "sends"
for number in range(1, 1000):
    workspace = Workspace(root / str(number))
    (workspace.root / "old").write_bytes(b"old")
    (workspace.root / "gone").mkdir()
    (workspace.root / "gone" / "x").write_bytes(b"x")
    child = os.fork()
    if child == 0:
        journal = Journal(workspace)
        sent = (lambda value: f"the letter {value}") if sends else None
        with journal.locked():
            changes = [Write("old", b"new"), Write("a/b/new", b"n"), Trash("gone"), MakeFolder("e/f")]
            resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
            try:
                act = lambda: os.mkdir(root / f"{number}.sent") if sends else None
                journal.apply(changes, turn="first", tool="t", action=act, sent=sent)
            except Exception:
                os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(number)
        break
"""


START = {"old": b"old", "gone": None, "gone/x": b"x"}
END = {"old": b"new", "a": None, "a/b": None, "a/b/new": b"n", "e": None, "e/f": None}


def contents_of(root: Path) -> dict[str, bytes | None]:
    return {path: None if kind == "d" else content for path, (kind, _, content) in snapshot(root).items()}


@pytest.mark.slow
def test_a_kill_leaves_all_or_nothing(tmp_path: Path) -> None:
    roots = killed_everywhere(tmp_path, "apply")
    assert len(roots) > 30
    seen = []
    for root in roots:
        workspace = Workspace(root)
        Journal(workspace).recover()
        seen.append(contents_of(root))
        assert seen[-1] in (START, END)
        assert not list((workspace.state / "staging").glob("*"))
        if seen[-1] == END:
            assert Journal(workspace).undo_last_turn("second").kept == ()
            assert contents_of(root) == START
    assert seen[0] == START
    assert seen[-1] == END


@pytest.mark.slow
@pytest.mark.parametrize("what", ["changes", "sends"])
def test_a_full_disk_leaves_all_or_nothing(tmp_path: Path, what: str) -> None:
    *failed, whole = killed_everywhere(tmp_path, what, FULL)
    assert len(failed) > 300
    for root in failed:
        assert contents_of(root) == START
        Journal(Workspace(root)).recover()
        assert contents_of(root) == START
        was_sent = root.with_name(f"{root.name}.sent").exists()
        try:
            assert Journal(Workspace(root)).undo_last_turn("second").kept
        except ExecutorError as error:
            assert "nothing to undo" in str(error)  # noqa: PT017  # either is right
            assert not was_sent
    assert contents_of(whole) == END


@pytest.mark.slow
def test_an_undo_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    roots = killed_everywhere(tmp_path, "undo")
    assert len(roots) > 20
    for root in roots:
        journal = Journal(Workspace(root))
        try:
            assert journal.undo_last_turn("third").kept == ()
        except ExecutorError as error:
            assert "nothing to undo" in str(error)  # noqa: PT017  # either is right
        assert contents_of(root) == START


def test_undo_goes_back_one_turn_at_a_time(tmp_path: Path, workspace: Workspace) -> None:
    assert Journal(workspace).last_turn() is None
    apply(workspace, Write("a", b"1"), turn="first")
    apply(workspace, Write("a", b"2"), turn="second")
    apply(workspace, Write("a", b"3"), turn="second")
    assert Journal(workspace).last_turn() == "second"
    apply(workspace, Write("b", b"4"), turn="third")  # the running turn, which stays
    assert Journal(workspace).undo_last_turn("third").undone == ("restored the earlier content of 'a'",)
    assert contents_of(tmp_path) == {"a": b"1", "b": b"4"}
    with pytest.raises(ExecutorError, match="already undone"):
        Journal(workspace).undo_last_turn("third")
    assert Journal(workspace).undo_last_turn("fourth").undone == ("removed 'b'",)
    assert Journal(workspace).last_turn() == "first"
    assert Journal(workspace).undo_last_turn("fifth").undone == ("removed 'a'",)
    assert Journal(workspace).last_turn() is None
    with pytest.raises(ExecutorError, match="nothing to undo"):
        Journal(workspace).undo_last_turn("sixth")


def test_files_changed_since_are_unchanged_by_undo(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "deleted").write_bytes(b"old")
    apply(workspace, Write("mine", b"1"), Write("folder/x", b"x"), Trash("deleted"))
    (tmp_path / "mine").write_bytes(b"edited by hand")
    (tmp_path / "folder" / "by_hand").write_bytes(b"")
    (tmp_path / "deleted").write_bytes(b"new")
    outcome = Journal(workspace).undo_last_turn("second")
    assert outcome.undone == ("removed 'folder/x'",)
    assert len(outcome.kept) == 3
    assert contents_of(tmp_path) == {
        "mine": b"edited by hand",
        "folder": None,
        "folder/by_hand": b"",
        "deleted": b"new",
    }
    kept = next(workspace.trash.rglob("deleted"))
    assert kept.read_bytes() == b"old"


def test_a_blocked_step_is_undone_next(tmp_path: Path, workspace: Workspace) -> None:
    apply(workspace, Write("precious", b"p"), turn="first")
    (tmp_path / "a").write_bytes(b"old")
    apply(workspace, Trash("a"), Write("new/b", b"b"), turn="second")
    (tmp_path / "a").write_bytes(b"new")
    outcome = Journal(workspace).undo_last_turn("third")
    assert outcome.undone == ("removed 'new/b'", "removed folder 'new'")
    assert len(outcome.kept) == 1
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "b").write_bytes(b"b")  # somebody's own: what is undone once is not undone again
    for turn in ("fourth", "fifth", "fifth"):
        assert Journal(workspace).undo_last_turn(turn).undone == ()
    (tmp_path / "a").unlink()
    assert Journal(workspace).undo_last_turn("sixth").undone == ("restored 'a'",)
    assert contents_of(tmp_path) == {"a": b"old", "new": None, "new/b": b"b", "precious": b"p"}
    with pytest.raises(ExecutorError, match="already undone"):
        Journal(workspace).undo_last_turn("sixth")
    assert Journal(workspace).undo_last_turn("seventh").undone == ("removed 'precious'",)


def test_earlier_changes_of_a_file_wait_for_the_later_ones(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "a").write_bytes(b"0")
    apply(workspace, Write("a", b"1"))
    apply(workspace, Write("a", b"2"))
    (tmp_path / "a").write_bytes(b"0")
    assert len(Journal(workspace).undo_last_turn("second").kept) == 1
    (tmp_path / "a").unlink()
    Journal(workspace).undo_last_turn("third")
    assert contents_of(tmp_path) == {"a": b"0"}


def test_a_folder_that_is_not_empty_stays_and_blocks_nothing(tmp_path: Path, workspace: Workspace) -> None:
    apply(workspace, Write("a", b"1"), turn="first")
    apply(workspace, MakeFolder("folder"), turn="second")
    (tmp_path / "folder" / "mine").write_bytes(b"")
    assert len(Journal(workspace).undo_last_turn("third").kept) == 1
    assert Journal(workspace).undo_last_turn("fourth").undone == ("removed 'a'",)


@pytest.mark.parametrize(
    "step",
    [
        {"step": "write", "path": "../victim", "before": None, "after": VICTIM},
        {"step": "write", "path": "out/victim", "before": None, "after": VICTIM},
        {"step": "write", "path": "sub/.gbnf/x", "before": None, "after": VICTIM},
        {"step": "folder", "path": "../empty"},
        {"step": "trash", "path": "moved", "kept": ".gbnf/trash/99/0/../../../../../victim"},
        {"step": "write", "path": "gone", "before": "x", "after": "y", "kept": "../victim"},
        {"step": "write", "path": 7},
        {"step": "write"},
    ],
)
def test_a_forged_record_reaches_nothing_outside(tmp_path: Path, step: dict[str, Any]) -> None:
    (tmp_path / "victim").write_bytes(b"victim")
    (tmp_path / "empty").mkdir()
    workspace = Workspace(tmp_path / "w")
    (workspace.root / "out").symlink_to(tmp_path)
    (workspace.root / "sub" / ".gbnf").mkdir(parents=True)
    (workspace.root / "sub" / ".gbnf" / "x").write_bytes(b"victim")
    apply(workspace, Write("first", b"1"))
    before = snapshot(tmp_path)
    head = {"turn": "forged", "tool": "t"}
    for ends in ([], [{"end": "done"}]):
        record = "".join(json.dumps(line) + "\n" for line in (head, step, *ends))
        (workspace.state / "journal" / "99.jsonl").write_text(record)
        with suppress(ExecutorError):
            Journal(workspace).undo_last_turn("second")
        outside = {path: seen for path, seen in snapshot(tmp_path).items() if not path.startswith("w/")}
        assert outside == {path: seen for path, seen in before.items() if not path.startswith("w/")}
        assert (workspace.root / "sub" / ".gbnf" / "x").exists()
        assert not (workspace.root / "moved").exists()


def test_a_file_that_is_gone_since_comes_back(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"old")
    apply(workspace, Trash("folder/a"))
    (tmp_path / "folder").rmdir()
    assert Journal(workspace).undo_last_turn("second").kept == ()
    assert (tmp_path / "folder" / "a").read_bytes() == b"old"


def test_undo_reports_what_was_sent(workspace: Workspace) -> None:
    apply(workspace, Write("copy", b"1"), sent="the letter")
    outcome = Journal(workspace).undo_last_turn("second")
    assert outcome.kept == ("the letter cannot be undone",)
    assert outcome.undone == ("removed 'copy'",)


def test_a_failing_action_rolls_back_its_changes(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def fail() -> None:
        assert (tmp_path / "a").read_bytes() == b"new"
        raise ExecutorError("no")

    with Journal(workspace).locked(), pytest.raises(ExecutorError, match="no"):
        Journal(workspace).apply([Write("a", b"new")], turn="first", tool="t", action=fail, sent=str)
    assert contents_of(tmp_path) == {"a": b"old"}
    with pytest.raises(ExecutorError, match="nothing to undo"):
        Journal(workspace).undo_last_turn("second")


def test_a_link_goes_to_the_trash_and_its_target_stays(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "target").write_bytes(b"t")
    (tmp_path / "link").symlink_to("target")
    apply(workspace, Trash("link"))
    assert contents_of(tmp_path) == {"target": b"t"}
    Journal(workspace).undo_last_turn("second")
    assert (tmp_path / "link").readlink() == Path("target")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Write(".", b""), "is a folder"),
        (Write("folder/", b""), "is a folder"),
        (Write("folder", b""), "not a regular file"),
        (Write("file/x", b""), "is not a folder"),
        (Write("file", b"", new=True), "already exists"),
        (MakeFolder("file"), "is not a folder"),
        (Trash("."), "workspace itself"),
        (Trash("missing"), "does not exist"),
        (Trash("file/x"), "not a folder"),
        (Trash("out"), "leads out"),
    ],
)
def test_refused(tmp_path: Path, change: Change, reason: str) -> None:
    workspace = Workspace(tmp_path / "w")
    (workspace.root / "folder").mkdir()
    (workspace.root / "file").write_bytes(b"f")
    (workspace.root / "out").symlink_to(tmp_path)
    before = snapshot(workspace.root)
    with pytest.raises(ExecutorError, match=reason):
        apply(workspace, Write("first", b"1"), change)
    assert snapshot(workspace.root) == before


@pytest.mark.slow
def test_two_processes_wait_for_each_other(tmp_path: Path) -> None:
    """Each adds its line to what it has read: with no lock, one of them would be lost."""
    code = """
import sys
from gbnf_server.executors import Workspace, Write
from gbnf_server.executors.journal import Journal
workspace = Workspace(sys.argv[1])
(workspace.state / f"ready{sys.argv[2]}").touch()
while len(list(workspace.state.glob("ready*"))) < 2:
    pass
for number in range(40):
    journal = Journal(workspace)
    with journal.locked():
        before = workspace.read("log", limit=10**6)
        journal.apply([Write("log", before + b"x")], turn=sys.argv[2], tool="t", action=lambda: None)
"""
    (tmp_path / "log").write_bytes(b"")
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(number)]) for number in range(2)
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert (tmp_path / "log").read_bytes() == b"x" * 80


def test_numbering_continues_where_only_the_trash_remains(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "a").write_bytes(b"1")
    apply(workspace, Trash("a"))
    for record in (workspace.state / "journal").iterdir():
        record.unlink()
    (tmp_path / "a").write_bytes(b"2")
    apply(workspace, Trash("a"), turn="second")
    Journal(workspace).undo_last_turn("third")
    assert (tmp_path / "a").read_bytes() == b"2"
