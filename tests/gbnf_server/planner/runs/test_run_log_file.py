"""A log is read again as it was written; a line that nobody has written is an error that names it."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.planner.runs.run_log import RunLog, RunLogError

# Lone surrogates, too, but not pairs of them: as JSON, they are one character.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.sampled_from(["\ud800", "a\udfff"])
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


def opened(path: Path) -> RunLog[int, Any]:
    """Open a log whose values all have one key."""
    return RunLog(path, lambda value: (0, value))


@given(written=st.lists(values, max_size=4), later=values)
def test_what_was_appended_is_read_in_order_wherever_a_kill_came(
    written: list[Any], later: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    with opened(path) as log:
        for value in written:
            log.append(value)
        with pytest.raises(RunLogError, match="in use"):
            opened(path)
    data = path.read_bytes()
    data.decode()
    for kept in range(len(data) + 1):
        path.write_bytes(data[:kept])
        whole = written[: data[:kept].count(b"\n")]
        with opened(path) as log:
            assert log.entries.get(0, []) == whole
            log.append(later)
        with opened(path) as log:
            assert log.entries.get(0, []) == [*whole, later]


@pytest.mark.parametrize("syncs_folders", [True, False])
def test_a_durable_value_is_in_a_file_that_the_folders_name(
    syncs_folders: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = list[int](), os.fsync

    def noting(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode) and not syncs_folders:
            raise OSError(errno.EINVAL, "not on this file system")
        sync(descriptor)
        synced.append(found.st_ino)

    monkeypatch.setattr(os, "fsync", noting)
    path = tmp_path / "a" / "b" / "log"
    with opened(path) as log:
        log.append(1, durable=True)
    named = [path, path.parent, path.parent.parent, tmp_path] if syncs_folders else [path]
    assert set(synced) == {each.stat().st_ino for each in named}


@given(appended=st.lists(st.tuples(values, st.none() | st.integers(0, 20)), min_size=1, max_size=5))
def test_what_did_not_fit_on_the_disk_was_not_appended(
    appended: list[tuple[Any, int | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With each value, the number of bytes after which the disk is full."""
    path, written = tmp_path_factory.mktemp("log") / "log", []
    with opened(path) as log:
        for value, space in appended:
            with full_after(space):
                try:
                    log.append(value)
                except RunLogError:
                    continue
            written.append(value)
    with opened(path) as log:
        assert log.entries.get(0, []) == written


@contextmanager
def full_after(space: int | None) -> Iterator[None]:
    """A disk with so much space: a write is shortened, the next one fails (write(2))."""
    write, left = os.write, space

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(descriptor, data if left is None else data[:left])
        left = None if left is None else left - done
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", limited)
        yield


@pytest.mark.parametrize("line", ["{", "nothing", "[" * 200_000 + "]" * 200_000, json.dumps({"n": 1}) + "}"])
def test_a_line_that_is_no_value_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f'{{"n": 1}}\n{line}\n')
    with pytest.raises(RunLogError, match="line 2: this is no entry"):
        opened(tmp_path / "log")
