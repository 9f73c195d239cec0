"""The journal on disk: in ``.gbnf/journal``, one file of JSON lines for each operation.

``<number>.jsonl`` is an operation under way, or one that ended before its record was renamed.
``<number>-<bytes>.jsonl`` is a settled one, with that many bytes in the trash. ``<number>.damaged`` is one
that cannot be read; it is kept for a person. So a change needs only the listing of the folder, whose length
is bounded by retention: settled records are read only by an undo.

There are files rather than a database, so that damage to one file costs one operation, and the file system,
which may be a network's, needs only `flock` and `rename` (SQLite's WAL needs shared memory).

The head line has the turn and the tool, each further line a step that is about to be done, or what one sent,
and the last line how the operation ended. A line truncated by a kill is ignored: its step was not begun.

Invariants:

- Nothing that other programs wrote into the folder raises: lines that are not records are counted and
  ignored, a file that cannot be read is set aside.
- A record is never overwritten.
- Folders that are measured or removed may be nested deeper than the interpreter's recursion limit, the number
  of open files or the system's longest path allow. No link is followed, and no kind of entry raises.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gbnf_server.executors.workspace import DIRECTORY, STATE_FOLDER, Workspace
from gbnf_server.system.append_log import append_whole
from gbnf_server.system.errors import ExecutorError

JOURNAL_FOLDER = f"{STATE_FOLDER}/journal"
TRASH_FOLDER = f"{STATE_FOLDER}/trash"
PRUNED_FOLDER = f"{STATE_FOLDER}/pruned"

MAX_CHANGES = 1000
"""Maximum operations kept for undo."""

MAX_KEPT_BYTES = 1 << 30
"""Maximum bytes of replaced and deleted files kept for undo; the latest operation's are always kept."""

_MAX_RECORD_BYTES = 256 << 20
_PRUNED_AT_ONCE = 20
_REMOVED_AT_ONCE = 10_000
_NOTE = "pruned.json"
_NOTED_TURNS = 100

_NAME = re.compile(r"([0-9]{1,17})(?:-([0-9]{1,17}))?\.(jsonl|damaged)")
_UNREADABLE = {errno.ELOOP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENXIO}


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One file of the journal. `kept_bytes`: None while the operation is under way."""

    number: str
    file: str
    kept_bytes: int | None
    is_damaged: bool


@dataclass(slots=True)
class Operation:
    """One call's changes. `end`: done, rolled back, undone or undo; None while under way, or if killed.

    `undone`: the indices of undone steps, if other steps could not be undone yet. `undid`: the turn that an
    undo has undone. `unreadable`: the number of lines that are not records.
    """

    number: str
    turn: str
    tool: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    end: str | None = None
    undone: set[int] = field(default_factory=set)
    undid: str | None = None
    unreadable: int = 0
    file: str = ""


class JournalStore:
    """The operations of a workspace. Callers hold the journal's lock."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def entries(self) -> list[JournalEntry]:
        """Return the files of the journal, the oldest operation first."""
        with self._workspace.open_folder(JOURNAL_FOLDER) as folder:
            names = os.listdir(folder)  # noqa: PTH208  # by descriptor
        entries = [
            JournalEntry(number, match[0], int(size) if size else None, is_damaged=kind == "damaged")
            for match in map(_NAME.fullmatch, names)
            if match
            for number, size, kind in [match.groups()]
        ]
        return sorted(entries, key=lambda entry: (int(entry.number), entry.file))

    def begin(
        self, entries: Sequence[JournalEntry], turn: str, tool: str, undid: str | None = None
    ) -> Operation:
        """Record the head of a new operation, under a number that neither a record nor the trash has."""
        with self._workspace.open_folder(TRASH_FOLDER) as trash:
            used = os.listdir(trash)  # noqa: PTH208  # by descriptor
        numbers = [entry.number for entry in entries] + [n for n in used if re.fullmatch("[0-9]{1,17}", n)]
        highest = max(map(int, numbers), default=0)
        if highest + 1 >= 10**17:
            raise ExecutorError(
                f"the journal cannot number operations beyond {highest}: "
                f"move that file out of '{JOURNAL_FOLDER}' or '{TRASH_FOLDER}'"
            )
        operation = Operation(f"{highest + 1:08d}", turn, tool, undid=undid)
        operation.file = f"{operation.number}.jsonl"
        head = {"turn": turn, "tool": tool}
        self.append(operation, head if undid is None else {**head, "undid": undid})
        return operation

    def load(self, entry: JournalEntry) -> Operation | None:
        """Return the operation; None if its file cannot be read and is quarantined."""
        operation = Operation(entry.number, "", "", file=entry.file)
        data = self._read(entry.file)
        if data is None:
            self.quarantine(operation)
            return None
        steps_end, lines, refused = 0, [line for line in data.splitlines() if line.strip()], []
        for position, line in enumerate(lines):
            steps = len(operation.steps)
            if not _take(operation, line):
                refused.append(position)
            elif len(operation.steps) > steps:
                steps_end = position
        # it begins like a record, and no step follows: truncated by a kill
        is_truncated = refused and refused[-1] >= steps_end and lines[refused[-1]].startswith(b"{")
        operation.unreadable = len(refused) - bool(is_truncated)
        return operation

    def append(self, operation: Operation, record: dict[str, Any]) -> None:
        """Add a record to an operation's file. It survives a killed process, but not a power failure."""
        with self._workspace.open_folder(JOURNAL_FOLDER) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(operation.file, flags, 0o666, dir_fd=folder)
            try:
                # a line break first, so that a truncated line before it stays separate
                append_whole(descriptor, b"\n" + json.dumps(record).encode() + b"\n")
            finally:
                os.close(descriptor)

    def settle(self, operation: Operation) -> JournalEntry | None:
        """Rename the record of an ended operation, with the bytes that it has in the trash."""
        size = folder_size(self._workspace.trash / operation.number)
        settled = JournalEntry(operation.number, f"{operation.number}-{size}.jsonl", size, is_damaged=False)
        if settled.file == operation.file:
            return settled
        with self._workspace.open_folder(JOURNAL_FOLDER) as folder:
            if exists(settled.file, folder):  # a copy that somebody made: keep both
                self.quarantine(operation)
                return None
            os.rename(operation.file, settled.file, src_dir_fd=folder, dst_dir_fd=folder)
        operation.file = settled.file
        return settled

    def is_incomplete(self, operation: Operation) -> bool:
        """Whether the trash has something of the operation that none of its steps recorded."""
        recorded = {str(step.get("kept")).rpartition("/")[0] for step in operation.steps}
        place = f"{TRASH_FOLDER}/{operation.number}"
        try:
            with self._workspace.open_folder(place) as folder:
                slots = os.listdir(folder)  # noqa: PTH208  # by descriptor
            for unknown in {f"{place}/{slot}" for slot in slots} - recorded:
                with self._workspace.open_folder(unknown) as folder, os.scandir(folder) as inside:
                    if next(inside, None) is not None:
                        return True
            return False
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def drop(self, operation: Operation) -> None:
        """Delete the record of an operation that changed nothing."""
        self._discard(operation.number)
        with self._workspace.open_folder(JOURNAL_FOLDER) as folder:
            os.unlink(operation.file, dir_fd=folder)
        self._remove_discarded()

    def quarantine(self, operation: Operation) -> None:
        """Rename a damaged record, so that it is kept, with what the trash has of it, and no longer read."""
        with self._workspace.open_folder(JOURNAL_FOLDER) as folder:
            number, name = 0, f"{operation.number}.damaged"
            while exists(name, folder):
                number += 1
                name = f"{operation.number}-{number}.damaged"
            os.rename(operation.file, name, src_dir_fd=folder, dst_dir_fd=folder)
        operation.file = name

    def prune(self, entries: Sequence[JournalEntry]) -> None:
        """Delete the oldest of `entries` beyond the limits, with their files in the trash."""
        total, count = sum(entry.kept_bytes or 0 for entry in entries), len(entries)
        turns: list[str] = []
        for entry in entries[: min(len(entries) - 1, _PRUNED_AT_ONCE)]:
            if count <= MAX_CHANGES and total <= MAX_KEPT_BYTES:
                break
            if not entry.is_damaged and (operation := self.load(entry)) and operation.end == "done":
                turns.append(operation.turn)
            # before its record, so that after a kill here the next change continues
            self._discard(entry.number)
            with self._workspace.open_folder(JOURNAL_FOLDER) as folder, suppress(OSError):
                os.unlink(entry.file, dir_fd=folder)
            count, total = count - 1, total - (entry.kept_bytes or 0)
        if turns:
            self._note(turns)
        self._remove_discarded()

    def pruned_turns(self) -> dict[str, int]:
        """Return how many operations of each turn were pruned, the latest turn last."""
        try:
            noted = json.loads(self._read(_NOTE) or b"{}")
        except (ValueError, RecursionError):
            return {}
        if not isinstance(noted, dict):
            return {}
        return {turn: count for turn, count in noted.items() if isinstance(count, int)}

    def _note(self, turns: Sequence[str]) -> None:
        noted = self.pruned_turns()
        for turn in turns:
            noted[turn] = noted.pop(turn, 0) + 1
        latest = dict(list(noted.items())[-_NOTED_TURNS:])
        with self._workspace.open_folder(JOURNAL_FOLDER) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(f"{_NOTE}.new", flags, 0o666, dir_fd=folder), "wb") as file:
                file.write(json.dumps(latest).encode())
            os.rename(f"{_NOTE}.new", _NOTE, src_dir_fd=folder, dst_dir_fd=folder)

    def _discard(self, number: str) -> None:
        """Take an operation's folder out of the trash: `_remove_discarded` removes it, in pieces."""
        with (
            self._workspace.open_folder(TRASH_FOLDER) as trash,
            self._workspace.open_folder(PRUNED_FOLDER) as pruned,
        ):
            if not exists(number, trash):
                return
            name, again = number, 0
            while exists(name, pruned):
                again += 1
                name = f"{number}-{again}"
            os.rename(number, name, src_dir_fd=trash, dst_dir_fd=pruned)

    def _remove_discarded(self) -> None:
        with self._workspace.open_folder(PRUNED_FOLDER) as pruned:
            remove_trees(pruned, _REMOVED_AT_ONCE)

    def _read(self, name: str) -> bytes | None:
        """Return the bytes of a file of the folder; None if it is not a readable file."""
        with self._workspace.open_folder(JOURNAL_FOLDER) as folder:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                descriptor = os.open(name, flags, dir_fd=folder)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno not in _UNREADABLE:
                    raise
                return None
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_RECORD_BYTES:
                    return None
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read()
            finally:
                os.close(descriptor)


def _take(operation: Operation, line: bytes) -> bool:
    """Add a line to an operation; return False if the line is invalid."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    match record:
        case {"step": str()} if all(isinstance(record.get(key, ""), str) for key in ("path", "kept", "text")):
            operation.steps.append(record)
        case {"sent": str(text)} if operation.steps and operation.steps[-1]["step"] == "sent":
            operation.steps[-1]["text"] = text
        case {"end": str(end)}:
            operation.end = end
        case {"undone": int(index)}:
            operation.undone.add(index)
        case {"turn": str(turn), "tool": str(tool)} if isinstance(record.get("undid", ""), str):
            operation.turn, operation.tool, operation.undid = turn, tool, record.get("undid")
        case _:
            return False
    return True


def exists(name: str, folder: int) -> bool:
    """Return whether the folder that is open as `folder` has an entry of this name, also a broken link."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


MAX_MEASURED = 200_000
"""Maximum entries that `folder_size` counts."""


def folder_size(path: Path) -> int:
    """Return the bytes of the readable files below `path`; 0 if it does not exist."""
    total, remaining, pending = 0, MAX_MEASURED, [str(path)]
    while pending and remaining:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                remaining -= 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
                if not remaining:
                    break
    return total


def remove_trees(folder: int, most: int) -> None:
    """Remove the content of the folder that is open as `folder`, at most `most` entries.

    A folder inside another is moved up into `folder` first: none is opened below the second level.
    """
    pending = os.listdir(folder)
    while pending and most > 0:
        name = pending.pop()
        most -= 1
        with suppress(OSError):
            if not _is_folder(name, folder):
                os.unlink(name, dir_fd=folder)
                continue
            os.chmod(name, 0o700, dir_fd=folder)  # without these permissions, it cannot be emptied
            inside = os.open(name, DIRECTORY, dir_fd=folder)
            try:
                with os.scandir(inside) as entries:
                    for entry in entries:
                        if most <= 0:
                            return
                        most -= 1
                        _take_out(entry.name, inside, folder, pending)
            finally:
                os.close(inside)
            os.rmdir(name, dir_fd=folder)


def _take_out(name: str, inside: int, folder: int, pending: list[str]) -> None:
    if not _is_folder(name, inside):
        os.unlink(name, dir_fd=inside)
        return
    os.chmod(name, 0o700, dir_fd=inside)  # a folder that is moved must be writable (rename(2))
    fresh = os.urandom(16).hex()
    os.rename(name, fresh, src_dir_fd=inside, dst_dir_fd=folder)
    pending.append(fresh)


def _is_folder(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
