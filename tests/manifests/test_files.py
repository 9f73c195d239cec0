"""find_files, read_files, write_files, create_dirs, delete_files, undo_last_turn and get_now."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.executors import ScriptedPerson
from gbnf_server.system.errors import ExecutorError
from support.executors import module, run_of, snapshot, world

TREE = [
    "a.txt",
    "B.TXT",
    "photo.jpg",
    "photo.jpeg",
    "notes/a.txt",
    "notes/2026/b.txt",
    "notes/2026/deep/c.md",
    "caf\u00e9.txt",
    ".hidden/secret.txt",
    ".profile",
    "[x].txt",
]


def plant(root: Path) -> None:
    for path in TREE:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def find(root: Path, base: str, *patterns: str) -> list[str]:
    result = run_of("find_files")({"base_path": base, "patterns": list(patterns)}, world(root))
    assert result["count"] == len(result["entries"])
    entries: list[str] = result["entries"]
    return entries


@pytest.mark.parametrize(
    ("base", "pattern", "found"),
    [
        (".", "*.txt", ["B.TXT", "[x].txt", "a.txt", "caf\u00e9.txt", "notes/2026/b.txt", "notes/a.txt"]),
        (".", "A.TXT", ["a.txt", "notes/a.txt"]),
        (".", "./a.txt", ["a.txt", "notes/a.txt"]),
        (".", "notes/**/*.txt", ["notes/2026/b.txt", "notes/a.txt"]),
        (".", "**/2026/**", ["notes/2026/b.txt", "notes/2026/deep/c.md"]),
        ("notes", "2026/*", ["notes/2026/b.txt"]),
        (".", "*.{jpg,jpeg}", ["photo.jpeg", "photo.jpg"]),
        (".", "photo.jp?", ["photo.jpg"]),
        (".", "[ab].txt", ["B.TXT", "a.txt", "notes/2026/b.txt", "notes/a.txt"]),
        (".", "[[]x].txt", ["[x].txt"]),
        (".", ".*", [".profile"]),
        (".", ".hidden/*", [".hidden/secret.txt"]),
        (".", "secret.txt", []),
        (".", unicodedata.normalize("NFD", "caf\u00e9*"), ["caf\u00e9.txt"]),
        (".", "notes/", ["notes/"]),
        (".", "*/", ["notes/", "notes/2026/", "notes/2026/deep/"]),
        # several in one text
        (".", "*.jpg;*.md", ["notes/2026/deep/c.md", "photo.jpg"]),
        (".", "*.jpg | *.jpeg", ["photo.jpeg", "photo.jpg"]),
        (".", "photo,jpg", []),
        (".", "[x]*,*.md", []),
        # no file has such a name: it is a suffix, or a part of one
        (".", "md", ["notes/2026/deep/c.md"]),
        (".", "notes/md", ["notes/2026/deep/c.md"]),
        (".", "phot", ["photo.jpeg", "photo.jpg"]),
        ("notes", "b.tx", []),  # another file than the one that was meant
        (".", "nothing", []),
    ],
)
def test_patterns(tmp_path: Path, base: str, pattern: str, found: list[str]) -> None:
    plant(tmp_path)
    assert find(tmp_path, base, pattern) == found


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("missing", "no folder 'missing'; \".\" is the workspace; '.' has "),
        ("notes/2026/logs/old", "'notes/2026' has 'b.txt'"),
        ("a.txt", "'a.txt' is a file, and no folder"),
        ("a.txt/b", "no folder 'a.txt/b'"),
    ],
)
def test_a_start_that_is_no_folder(tmp_path: Path, base: str, said: str) -> None:
    plant(tmp_path)
    with pytest.raises(ExecutorError, match="no folder") as refused:
        find(tmp_path, base, "*")
    assert said in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


@given(st.lists(st.text("ab.*?", min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_pattern_without_a_folder_agrees_with_pathlib(
    tmp_path_factory: pytest.TempPathFactory, patterns: list[str]
) -> None:
    names = ["a", "b", "ab", "ba", "a.b", "d/a", "d/ab.b", "d/e/b"]
    patterns = [pattern for pattern in patterns if pattern not in {".", ".."} and "**" not in pattern]
    root = tmp_path_factory.mktemp("tree")
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    expected = [name for name in names if any(PurePosixPath(name).match(pattern) for pattern in patterns)]
    if not expected and len(patterns) == 1 and not set("*?.") & set(patterns[0]):  # a name that nothing has
        [name] = patterns
        of_suffix = [path for path in names if path.endswith(f".{name}")]
        expected = of_suffix or [path for path in names if name in PurePosixPath(path).name]
    assert find(root, ".", *patterns) == sorted(expected)


def test_links_are_listed_where_they_lead_to_a_file_inside(tmp_path: Path) -> None:
    root = tmp_path / "space"
    plant(root)
    (tmp_path / "outside.txt").touch()
    for name, target in {
        "in.txt": "a.txt",
        "out.txt": "../outside.txt",
        "dead.txt": "none",
        "up": "notes",
    }.items():
        (root / name).symlink_to(target)
    assert find(root, ".", "in.txt", "out.txt", "dead.txt", "c.md") == ["in.txt", "notes/2026/deep/c.md"]


def test_the_runtimes_folder_is_never_found(tmp_path: Path) -> None:
    run_of("write_files")({"files": [{"path": "a", "content": "1"}]}, world(tmp_path))
    assert find(tmp_path, ".", "*", ".*", "**/*", ".gbnf/**", "lock", "*.jsonl") == ["a"]


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "a/../../*", "{a,b}" * 10])
def test_patterns_that_are_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ExecutorError, match="pattern"):
        find(tmp_path, ".", pattern)


def test_a_long_list_of_files_is_truncated_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module("find_files"), "LIMIT", 10)
    plant(tmp_path)
    result = run_of("find_files")({"base_path": ".", "patterns": ["*", ".*", ".hidden/*"]}, world(tmp_path))
    assert (len(result["entries"]), result["count"]) == (10, len(TREE))
    assert "only the first 10 " in result["left_out"]


# ── reading and writing ─────────────────────────────────────────────────────────────────────────────────────

plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"))


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), plain, min_size=1, max_size=3))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, contents: dict[str, str]) -> None:
    context = world(tmp_path_factory.mktemp("space"))
    files = [{"path": f"folder/{path}", "content": content} for path, content in contents.items()]
    entries = run_of("write_files")({"files": files}, context)["entries"]
    assert run_of("read_files")({"paths": entries}, context) == {
        "entries": list(contents.values()),
        "paths": entries,
    }


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"\xef\xbb\xbfabc", "abc"), ("è".encode("utf-16"), "è"), (b"", ""), (b"a\r\nb", "a\r\nb")],
)
def test_texts(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "x").write_bytes(data)
    assert run_of("read_files")({"paths": ["./x"]}, world(tmp_path)) == {"entries": [text], "paths": ["x"]}


def test_every_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\x89PNG\xff")
    (tmp_path / "nul").write_bytes(b"a\0b")
    with pytest.raises(ExecutorError) as caught:
        run_of("read_files")({"paths": ["image", "nul", "missing"]}, world(tmp_path))
    assert str(caught.value) == "'image' is no text file; 'nul' is no text file; 'missing' does not exist"


def test_too_much_to_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 1_200_000)
    with pytest.raises(ExecutorError, match="'x' is larger than"):
        run_of("read_files")({"paths": ["x", "x"]}, world(tmp_path))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([("a", "1"), ("./a", "2")], "'a' is listed twice"),
        ([("a", "1"), ("a/b", "2")], "'a' exists and is not a folder"),
        ([("a", "\ud800")], "content of 'a' is no text"),
    ],
)
def test_nothing_is_written_where_one_file_cannot_be(tmp_path: Path, files: Any, reason: str) -> None:
    context = world(tmp_path)
    with pytest.raises(ExecutorError, match=reason):
        run_of("write_files")(
            {"files": [{"path": path, "content": content} for path, content in files]}, context
        )
    assert snapshot(tmp_path) == {}


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("old")
    (tmp_path / "run.sh").chmod(0o750)
    allows = ScriptedPerson({"allow": True})
    run_of("write_files")({"files": [{"path": "run.sh", "content": "new"}]}, world(tmp_path, person=allows))
    assert snapshot(tmp_path) == {"run.sh": ("-", 0o750, b"new")}


def test_a_folder_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    context = world(tmp_path)
    assert run_of("create_dirs")({"paths": ["a", "a/b", "./a/b"]}, context) == {"entries": ["a", "a/b"]}
    assert context.journal.undo_last_turn("second").undone == ("removed folder 'a/b'",)


def test_content_of_a_deleted_folder_is_deleted_with_it(tmp_path: Path) -> None:
    plant(tmp_path)
    context = world(tmp_path)
    paths = ["notes/a.txt", "notes", "a.txt", "./a.txt", "notes/2026/b.txt"]
    assert run_of("delete_files")({"paths": paths}, context) == {"entries": ["notes", "a.txt"]}
    assert not (tmp_path / "notes").exists()
    assert sorted(path.name for path in context.workspace.trash.rglob("*.txt")) == ["a.txt", "a.txt", "b.txt"]


def test_undo_reports_what_it_could_not_undo(tmp_path: Path) -> None:
    context = world(tmp_path)
    run_of("write_files")({"files": [{"path": "a", "content": "1"}]}, context)
    (tmp_path / "a").write_text("by hand")
    with pytest.raises(ExecutorError, match="nothing could be undone: 'a' has changed since"):
        run_of("undo_last_turn")({}, replace(context, turn="second"))


# ── get_now ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({}, ("2026-11-21", "10:32", "Saturday", "Europe/Rome")),
        ({"timezone": "UTC"}, ("2026-11-21", "09:32", "Saturday", "UTC")),
        ({"timezone": "Pacific/Kiritimati"}, ("2026-11-21", "23:32", "Saturday", "Pacific/Kiritimati")),
    ],
)
def test_the_time(tmp_path: Path, arguments: dict[str, str], result: tuple[str, ...]) -> None:
    names = ("date", "time", "weekday", "timezone")
    assert run_of("get_now")(arguments, world(tmp_path)) == dict(zip(names, result, strict=True))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Rome", "Europe/Rome"),
        ("new york", "America/New_York"),
        ("Europe/Rom", "Europe/Rome"),
        ("../x", "such as"),
    ],
)
def test_a_zone_that_is_none(tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(ExecutorError, match=hint):
        run_of("get_now")({"timezone": name}, world(tmp_path))
