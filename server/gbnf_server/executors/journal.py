"""The changes of executors in a workspace, and their undo.

One operation is one call's changes: all of them happen, or none. Each step is recorded (`records`) **before**
it is done. Replaced and deleted files are kept under ``.gbnf/trash/<number>/<step>/``.

Invariants:

- Before anything is replaced or removed, it is kept in the trash, by a link or a rename, never by a copy that
  could be incomplete.
- While the lock is held, an operation without an end line is that of a killed process: it is rolled back
  before anything else happens.
- The cost of a change does not depend on the number of earlier ones, and what is kept of those is bounded
  (`records.MAX_CHANGES`, `records.MAX_KEPT_BYTES`): the oldest are pruned first, and an undo reports it.
- Any file or folder that replaces a record, or a folder of the journal, is set aside, and the next change
  succeeds.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from gbnf_server.executors.executed_files import is_executed, refusal
from gbnf_server.executors.journal_store import (
    JOURNAL_FOLDER,
    MAX_CHANGES,
    MAX_KEPT_BYTES,
    PRUNED_FOLDER,
    TRASH_FOLDER,
    JournalEntry,
    JournalStore,
    Operation,
)
from gbnf_server.executors.undo import UndoOperation, UndoResult, content, with_parents
from gbnf_server.executors.workspace import DIRECTORY, STATE_FOLDER, Workspace
from gbnf_server.system.errors import ExecutorError

_Value = TypeVar("_Value")

_STEP_S = 0.005  # between two tries to lock
_PATIENCE_S = 3.0
_STAGING = f"{STATE_FOLDER}/staging"
_RETENTION = (
    f"only the last {MAX_CHANGES:,} changes are kept, "
    f"and at most {MAX_KEPT_BYTES >> 20:,} MiB of what they replaced and deleted"
)


@dataclass(frozen=True, slots=True)
class Write:
    """A file with this content, new or replaced, and its parent folders. `new`: refuse to replace."""

    path: str
    data: bytes
    new: bool = False


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """A folder and its parents; existing ones stay."""

    path: str


@dataclass(frozen=True, slots=True)
class Trash:
    """A file, a folder with its content, or a link, moved to the trash."""

    path: str


Change = Write | MakeFolder | Trash


class Journal:
    """The journal of a workspace. One process at a time changes a workspace (`flock`, flock(2)).

    `check` raises `ExecutorError` if no more changes are allowed; it is called while the lock is held.
    """

    def __init__(self, workspace: Workspace, check: Callable[[], None] = lambda: None) -> None:
        self._workspace = workspace
        self._check = check
        self._records = JournalStore(workspace)

    @contextmanager
    def locked(self, *, recovers: bool = False) -> Iterator[None]:
        """Lock the workspace, so that what is read is unchanged until it is written. Not reentrant.

        If another process has locked it, wait as long as changes are allowed; to recover, changes need not be
        allowed, and BlockingIOError is raised after a few seconds, in which a killed process unlocks.
        """
        with self._workspace.open_folder(STATE_FOLDER) as state:
            lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=state)
        try:
            is_locked, deadline = False, time.monotonic() + _PATIENCE_S
            while not is_locked:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_locked = True
                except BlockingIOError:
                    if recovers and time.monotonic() > deadline:
                        raise
                    time.sleep(_STEP_S)
                if not recovers:
                    self._check()
            self._make_folders_of_state()
            self._roll_back_killed()
            yield
        finally:
            os.close(lock)

    def apply(
        self,
        changes: Sequence[Change],
        *,
        turn: str,
        tool: str,
        action: Callable[[], _Value],
        sent: Callable[[_Value | None], str] | None = None,
        approved: Container[str] = (),
    ) -> _Value:
        """Make all the changes, then call `action`; if anything fails, roll all of them back.

        Call it while `locked`. `sent` describes, in a few words, what `action` does that cannot be undone:
        from its value, or from None while that is unknown.
        `approved`: the link-free paths that may be written though programs execute them (`executed_files`).
        Raises `ExecutorError`, and whatever `action` raises.
        """
        entries = self._records.entries()
        operation, has_sent = self._records.begin(entries, turn, tool), False
        try:
            staged = [self._stage(operation, index, change) for index, change in enumerate(changes)]
            for change, source in zip(changes, staged, strict=True):
                self._make(operation, change, source, approved)
            if sent is not None:
                self._step(operation, {"step": "sent", "text": sent(None)})
            result = action()
            if sent is not None:
                has_sent = True
                self._records.append(operation, {"sent": sent(result)})
            self._records.append(operation, {"end": "done"})
        except BaseException:
            self._roll_back(operation, may_have_sent=has_sent)
            raise
        self._settle(operation, entries)
        return result

    def recover(self) -> None:
        """Roll back the incomplete operation of a killed process; another process that has locked does so."""
        with suppress(BlockingIOError), self.locked(recovers=True):
            pass

    def last_turn(self) -> str | None:
        """Return the latest turn with changes that are not undone, None if there is none."""
        with self.locked():
            done = [entry for entry in self._readable(self._records.entries()) if entry.end == "done"]
        return done[-1].turn if done else None

    def undo_last_turn(self, turn: str) -> UndoResult:
        """Undo all changes of the latest turn that is not `turn` and not undone yet.

        A change whose undo a file prevents is kept, and the next undo starts with it, before anything older.
        Once a turn is undone, undoing again in the same turn is refused, so that a model that repeats itself
        undoes no more than requested. Raises `ExecutorError` if there is nothing to undo.
        """
        with self.locked():
            entries = self._records.entries()
            operations = self._readable(entries)
            if any(operation.turn == turn and operation.undid is not None for operation in operations):
                raise ExecutorError(
                    "the last request is already undone; to undo an earlier one, ask in a new request"
                )
            done = [
                operation for operation in operations if operation.end == "done" and operation.turn != turn
            ]
            if not done:
                if self._records.pruned_turns():
                    problem = f"there is nothing left to undo: {_RETENTION}; earlier ones were discarded"
                    raise ExecutorError(problem)
                problem = "there is nothing to undo: no earlier request changed anything"
                raise ExecutorError("; ".join([problem, *self._damaged(0)]))
            undoing = UndoOperation(self._workspace)
            latest = [operation for operation in done if operation.turn == done[-1].turn]
            for operation in reversed(latest):
                for index in undoing.undo(operation):
                    self._records.append(operation, {"undone": index})
            undoing.kept += self._lost(latest)
            if not undoing.blocked:
                for operation in latest:
                    self._records.append(operation, {"end": "undone"})
                    self._records.settle(operation)
                marker = self._records.begin(entries, turn, "undo_last_turn", undid=done[-1].turn)
                self._records.append(marker, {"end": "undo"})
                self._settle(marker, self._records.entries())
        return undoing.outcome()

    def _readable(self, entries: Sequence[JournalEntry]) -> list[Operation]:
        readable = []
        for entry in entries:
            operation = None if entry.is_damaged else self._records.load(entry)
            if operation is not None and operation.end is None:  # rolled back by `locked`: its end is lost
                self._records.quarantine(operation)
            elif operation is not None:
                readable.append(operation)
        return readable

    def _lost(self, undone: Sequence[Operation]) -> list[str]:
        """Return sentences on what an undo of these operations cannot restore."""
        lost = [
            f"{operation.unreadable} lines of the record of '{operation.tool}' "
            f"('{JOURNAL_FOLDER}/{operation.file}') cannot be read: their changes are not undone"
            for operation in undone
            if operation.unreadable
        ]
        if pruned := self._records.pruned_turns().get(undone[0].turn):
            lost.append(f"the first {pruned} changes of the request are not undone: {_RETENTION}")
        return lost + self._damaged(int(undone[0].number))

    def _damaged(self, after: int) -> list[str]:
        return [
            f"a change whose record cannot be read is not undone; see '{JOURNAL_FOLDER}/{entry.file}', "
            f"and '{TRASH_FOLDER}/{entry.number}' for the files that it replaced or deleted"
            for entry in self._records.entries()
            if entry.is_damaged and int(entry.number) > after
        ]

    def _settle(self, operation: Operation, earlier: Sequence[JournalEntry]) -> None:
        """Rename the record of an ended operation, and prune the oldest.

        A failure here is not one of the operation: the next operation tries again.
        """
        with suppress(OSError):
            settled = self._records.settle(operation)
            self._records.prune([*earlier, settled] if settled else earlier)

    # ── making changes ──────────────────────────────────────────────────────────────────────────────────

    def _stage(self, operation: Operation, index: int, change: Change) -> str:
        """Check a change, and write its content beside the journal. Return the staged path, or ""."""
        match change:
            case Write(path, data):
                if self._workspace.resolve(path) == self._workspace.root or path.endswith("/"):
                    raise ExecutorError(f"'{path}' is a folder, not a file")
                staged = f"{_STAGING}/{operation.number}-{index}"
                with self._workspace.open_parent(staged) as (parent, name):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    with os.fdopen(os.open(name, flags, 0o666, dir_fd=parent), "wb") as file:
                        file.write(data)
                return staged
            case MakeFolder(path):
                self._workspace.resolve(path)
            case Trash(path):
                if self._workspace.locate(path) == self._workspace.root:
                    raise ExecutorError(f"'{path}' is the workspace itself and cannot be deleted")
        return ""

    def _make(self, operation: Operation, change: Change, staged: str, approved: Container[str]) -> None:
        """Make a change; each step is logged before it, and what it removes is kept in the trash."""
        workspace = self._workspace
        try:
            match change:
                case MakeFolder(path):
                    self._make_folders(operation, workspace.relative(workspace.resolve(path)))
                case Trash(path):
                    real = workspace.relative(workspace.locate(path))
                    with workspace.open_parent(real) as (parent, name):
                        os.stat(name, dir_fd=parent, follow_symlinks=False)
                        slot = self._slot(operation)
                        in_trash = f"{slot}/{name}"
                        self._step(operation, {"step": "trash", "path": real, "kept": in_trash})
                        with workspace.open_folder(slot) as trash:
                            os.rename(name, name, src_dir_fd=parent, dst_dir_fd=trash)
                case Write(path, data, new):
                    real = workspace.relative(workspace.resolve(path))
                    if real not in approved and is_executed(workspace.root, real):
                        raise ExecutorError(refusal(repr(real)))
                    self._make_folders(operation, real.rpartition("/")[0] or ".")
                    self._replace(operation, real, staged, data, new=new)
        except OSError as error:
            # a model that is told of another file would delete that
            raise workspace.explain(error, change.path, suggests=not isinstance(change, Trash)) from None

    def _make_folders(self, operation: Operation, path: str) -> None:
        """Make the missing folders of a path; each component is checked once."""
        with self._workspace.open_folder(".") as root:
            parent = os.dup(root)
            try:
                for folder in with_parents(path):
                    name = folder.rpartition("/")[2]
                    try:
                        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                            raise ExecutorError(f"'{folder}' exists and is not a folder")
                    except FileNotFoundError:
                        self._step(operation, {"step": "folder", "path": folder})
                        os.mkdir(name, dir_fd=parent)
                    inner = os.open(name, DIRECTORY, dir_fd=parent)
                    os.close(parent)
                    parent = inner
            finally:
                os.close(parent)

    def _replace(self, operation: Operation, path: str, staged: str, data: bytes, *, new: bool) -> None:
        """Move the staged file to a path; the file that was there is kept in the trash."""
        before = content(self._workspace, path)
        if before == "other":
            raise ExecutorError(f"'{path}' exists and is not a regular file")
        if new and before is not None:
            raise ExecutorError(f"'{path}' already exists")
        after = hashlib.sha256(data).hexdigest()
        step: dict[str, Any] = {"step": "write", "path": path, "before": before, "after": after}
        with self._workspace.open_parent(path) as (parent, name):
            if before is not None:
                step["kept"] = f"{self._slot(operation)}/{name}"
            self._step(operation, step)
            with self._workspace.open_parent(staged) as (stage, source):
                if before is not None:
                    mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
                    os.chmod(source, stat.S_IMODE(mode), dir_fd=stage)
                    with self._workspace.open_parent(step["kept"]) as (trash, _):
                        _keep(name, parent, trash)
                os.rename(source, name, src_dir_fd=stage, dst_dir_fd=parent)

    def _slot(self, operation: Operation) -> str:
        """Make a folder in the trash for what the next step removes."""
        slot = f"{TRASH_FOLDER}/{operation.number}"
        with self._workspace.open_folder(TRASH_FOLDER) as trash, suppress(FileExistsError):
            os.mkdir(operation.number, dir_fd=trash)
        with self._workspace.open_folder(slot) as folder:
            os.mkdir(str(len(operation.steps)), dir_fd=folder)
        return f"{slot}/{len(operation.steps)}"

    # ── rolling back ────────────────────────────────────────────────────────────────────────────────────

    def _make_folders_of_state(self) -> None:
        with self._workspace.open_folder(STATE_FOLDER) as state:
            for path in (JOURNAL_FOLDER, TRASH_FOLDER, PRUNED_FOLDER, _STAGING):
                name = path.rpartition("/")[2]
                try:
                    os.mkdir(name, dir_fd=state)
                except FileExistsError:
                    if stat.S_ISDIR(os.stat(name, dir_fd=state, follow_symlinks=False).st_mode):
                        continue
                    os.rename(
                        name, f"{name}.{os.urandom(16).hex()}.damaged", src_dir_fd=state, dst_dir_fd=state
                    )
                    os.mkdir(name, dir_fd=state)

    def _roll_back_killed(self) -> None:
        for entry in self._records.entries():
            if entry.kept_bytes is not None or entry.is_damaged:
                continue
            operation = self._records.load(entry)
            if operation is None:
                continue
            if operation.end is None:
                self._roll_back(operation, may_have_sent=True)
            else:  # killed before its record was renamed
                self._records.settle(operation)

    def _roll_back(self, operation: Operation, *, may_have_sent: bool) -> None:
        """Roll back an operation that failed or was killed; keep the record of what it may have sent."""
        undoing = UndoOperation(self._workspace)
        for _ in undoing.undo(operation):
            pass
        with self._workspace.open_folder(_STAGING) as staging:
            for name in os.listdir(staging):  # noqa: PTH208  # by descriptor
                if name.startswith(f"{operation.number}-"):
                    with suppress(OSError):
                        os.unlink(name, dir_fd=staging)
        if may_have_sent and any(step["step"] == "sent" for step in operation.steps):
            self._records.append(operation, {"end": "done"})
            self._records.settle(operation)
        elif operation.unreadable or self._records.is_incomplete(operation):
            self._records.append(operation, {"end": "rolled back"})
            self._records.quarantine(operation)
        elif undoing.kept:  # what could not be restored is kept
            self._records.append(operation, {"end": "rolled back"})
            self._records.settle(operation)
        else:
            self._records.drop(operation)

    def _step(self, operation: Operation, step: dict[str, Any]) -> None:
        self._records.append(operation, step)
        operation.steps.append(step)


def _keep(name: str, parent: int, trash: int) -> None:
    """Link a file into the trash; if the file system has no links, move it there."""
    try:
        os.link(name, name, src_dir_fd=parent, dst_dir_fd=trash, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}:
            raise
        os.rename(name, name, src_dir_fd=parent, dst_dir_fd=trash)
