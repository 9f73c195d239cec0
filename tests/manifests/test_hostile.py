"""Whatever lies in a workspace, each executor that walks or reads ends with a result or a reason."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.executors import run_executor
from gbnf_server.system.errors import ExecutorError
from support.executors import bundled_tools, module, run_of, world
from support.folders import deepen, remove

DEEP = sys.getrecursionlimit() + 100
LONGEST = 4096


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every kind of entry, beside the one file that a person looks for."""
    root = tmp_path_factory.mktemp("hostile")
    (root / "deep").mkdir()
    deepen(root / "deep", DEEP)
    (root / "too_deep").mkdir()
    deepen(root / "too_deep", 60, "long" * 50)
    (root / os.fsdecode(b"bad\xff")).mkdir()
    (root / os.fsdecode(b"bad\xff") / "inside.txt").touch()
    (root / os.fsdecode(b"bad\xff.txt")).touch()
    (root / "line\nbreak.txt").touch()
    (root / "self.txt").symlink_to("self.txt")
    (root / "one.txt").symlink_to("two.txt")
    (root / "two.txt").symlink_to("one.txt")
    (root / "around").symlink_to(".")
    (root / "etc.txt").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe.txt")
    (root / "~").mkdir()
    (root / "~" / "home.txt").touch()
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(root, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/socket.txt")  # the path of a socket is short (unix(7))
        os.close(folder)
        (root / "wanted.txt").write_text("here")
        yield root
    remove(root)


def test_find_files(hostile: Path) -> None:
    result = run_of("find_files")({"base_path": ".", "pattern": "*.txt"}, world(hostile))
    deepest = f"deep/{'d/' * DEEP}bottom.txt"
    assert result["entries"] == ["./~/home.txt", deepest, "line\nbreak.txt", "wanted.txt"]
    (problem,) = result["not_searched"]
    assert problem.startswith("folders that cannot be read: 'too_deep/long")
    assert len(problem) < 1_000


def test_find_files_finds_what_it_names(hostile: Path) -> None:
    context = world(hostile)
    found = run_of("find_files")({"base_path": "deep", "pattern": "**/bottom.txt"}, context)["entries"]
    assert run_of("read_files")({"paths": found}, context) == {"entries": [""], "paths": found}


@pytest.mark.parametrize(
    "pattern", ["**/" * 200 + "x", "**/*/" * 50 + "x", "*a" * 100, "[" * 100, "?" * 1000]
)
def test_patterns_that_can_match_in_many_ways(hostile: Path, pattern: str) -> None:
    result = run_of("find_files")({"base_path": "deep", "pattern": pattern}, world(hostile))
    assert result["entries"] == []


def test_a_search_ends_after_so_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("find_files"), "MAX_ENTRIES", 50)
    listed: list[os.DirEntry[str]] = []
    scandir = os.scandir

    @contextmanager
    def counted(path: Any) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as entries:
            yield (listed.append(entry) or entry for entry in entries)  # type: ignore[func-returns-value]  # it is None

    for number in range(200):
        (tmp_path / f"{number}.txt").touch()
    context = world(tmp_path)
    monkeypatch.setattr(os, "scandir", counted)
    result = run_of("find_files")({"base_path": ".", "pattern": "*.txt"}, context)
    assert len(listed) == 51
    assert 0 < result["count"] <= 50
    assert result["not_searched"] == ["the search ended after 50 files and folders: name a folder inside"]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: nothing is unreadable for root."""
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    for folder in ("closed", "open"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").touch()
    context = world(tmp_path)
    monkeypatch.setattr(os, "scandir", refusing)
    result = run_of("find_files")({"base_path": ".", "pattern": "*.txt"}, context)
    assert result["entries"] == ["open/x.txt"]
    assert result["not_searched"] == ["folders that cannot be read: 'closed/'"]


NAMES = [
    "deep",
    f"deep/{'d/' * DEEP}bottom.txt",
    "/".join(["too_deep", *["long" * 50] * 60, "bottom.txt"]),
    "d/" * 100_000,
    "x" * 5_000,
    "self.txt",
    "one.txt",
    "around/around/wanted.txt",
    "etc.txt",
    "pipe.txt",
    "socket.txt",
    "line\nbreak.txt",
    "bad\udcff.txt",
    "pipe.txt/x",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_executor_that_takes_a_path_ends(hostile: Path, name: str) -> None:
    """A hang would be the suite's; whatever else than `ExecutorError` an executor raises fails here."""
    context = world(hostile)
    calls: dict[str, dict[str, Any]] = {
        "read_files": {"paths": [name]},
        "describe_frame": {"path": name},
        "find_files": {"base_path": name, "pattern": "*"},
        "delete_files": {"paths": [f"{name}/missing"]},
        "write_files": {"files": [{"path": f"{name}/x", "content": ""}, {"path": "pipe.txt", "content": ""}]},
        "create_dirs": {"paths": [f"{name}/new", "pipe.txt"]},
    }
    for tool, arguments in calls.items():
        try:
            run_of(tool)(arguments, context)
        except ExecutorError as error:
            assert len(str(error)) < 3 * LONGEST  # noqa: PT017  # either is right


@pytest.mark.parametrize("name", ["missin.txt", "bad"])
def test_a_hint_among_many_names_is_text(tmp_path: Path, name: str) -> None:
    for number in range(3_000):
        (tmp_path / f"n{number:06}").touch()
    (tmp_path / os.fsdecode(b"bad\xff")).touch()
    with pytest.raises(ExecutorError) as caught:
        run_of("read_files")({"paths": [name]}, world(tmp_path))
    str(caught.value).encode()


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "socket"])
def test_a_calendar_that_is_no_file(tmp_path: Path, kind: str) -> None:
    calendar = tmp_path / "calendar.ics"
    match kind:
        case "pipe":
            os.mkfifo(calendar)
        case "folder":
            calendar.mkdir()
        case "loop":
            calendar.symlink_to("calendar.ics")
        case "socket":
            os.mknod(calendar, 0o140600)
    context = world(tmp_path)
    with pytest.raises(ExecutorError):
        run_of("create_events")({"title": "t", "starts": ["2026-12-01T10:00"]}, context)
    try:
        assert run_of("find_events_empty")({"period": "tomorrow"}, context)["count"]
    except ExecutorError:
        assert kind != "loop"


@pytest.mark.slow
def test_a_path_deeper_than_the_recursion_limit_breaks_no_later_search(deep_path: Path) -> None:
    """The whole way, in the process of its own that each has."""
    context = world(deep_path)
    folder = "/".join(["d"] * DEEP)
    run_executor(bundled_tools()["create_dirs"], {"paths": [folder]}, context)
    (deep_path / "a.txt").touch()
    found = run_executor(bundled_tools()["find_files"], {"base_path": ".", "pattern": "*"}, context)
    assert found == {"entries": ["a.txt"], "count": 1}
    found = run_executor(bundled_tools()["find_files"], {"base_path": ".", "pattern": "d/d/d/"}, context)
    assert found["entries"] == ["d/d/d/"]
    run_executor(bundled_tools()["delete_files"], {"paths": ["d"]}, context)
    assert not (deep_path / "d").exists()
    undone = context.journal.undo_last_turn("second")
    assert len(undone.undone) == DEEP + 1
    assert sorted(path.name for path in deep_path.iterdir()) == [".gbnf", "a.txt"]


EXPRESSIONS = [
    "(" * 4_000 + "1",
    "-" * 4_990 + "1",
    "1" + "+1" * 2_400,
    "9" * 4_990,
    "9" * 4_990 + "%x",
    "1%" * 2_400,
    "sqrt(" * 900 + "1" + ")" * 900,
    "2**" * 1_500 + "1",
    "." * 4_990,
    "1" * 100_000,
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=range(len(EXPRESSIONS)))
def test_compute_refuses_what_is_too_much(expression: str) -> None:
    with pytest.raises(ExecutorError):
        module("compute").compute(expression)
