"""What executors changed in a workspace, so that it can be undone.

One operation is one call's changes: all of them happen, or none. Each step is recorded (`records`) **before**
it is done. What was replaced or deleted lies under ``.gbnf/trash/<number>/<step>/``.

What must stay true:

- Nothing is replaced or removed that is not kept in the trash first, by a link or a rename, never by a copy
  that could be cut short.
- An operation without an end line, seen while the lock is held, belongs to a process that was killed: it is
  rolled back before anything else happens.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gbnf_server.errors import ExecutorError
from gbnf_server.executors.records import Operation, Records
from gbnf_server.executors.undoing import TRASH, Undoing, Undone, content, with_parents
from gbnf_server.executors.workspace import STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gbnf_server.executors.workspace import Workspace

Result = TypeVar("Result")

_STAGING = f"{STATE}/staging"


@dataclass(frozen=True, slots=True)
class Write:
    """A file with this content, new or replaced; folders above it are made. `new`: refuse to replace."""

    path: str
    data: bytes
    new: bool = False


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """A folder and those above it; what exists stays."""

    path: str


@dataclass(frozen=True, slots=True)
class Trash:
    """A file, a folder with all that is in it, or a link, moved to the trash."""

    path: str


Change = Write | MakeFolder | Trash


class Journal:
    """The record of a workspace's changes. One process at a time changes a workspace (`flock`, flock(2))."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._records = Records(workspace)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the workspace, so that what is read is still true when it is changed. Not reentrant."""
        with self._workspace.opened(STATE) as state:
            for name in ("journal", "trash", "staging"):
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=state)
            lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=state)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
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
        then: Callable[[], Result],
        sent: str = "",
    ) -> Result:
        """Make all the changes, then call `then`; where anything fails, none of them stands.

        Call it while `locked`. `sent` says in a few words what `then` does that no undo takes back. Raises
        `ExecutorError`, and whatever `then` raises.
        """
        operation = Operation(self._records.next_number(), turn, tool)
        self._records.append(operation, {"turn": turn, "tool": tool})
        try:
            staged = [self._stage(operation, index, change) for index, change in enumerate(changes)]
            for change, source in zip(changes, staged, strict=True):
                self._make(operation, change, source)
            if sent:
                self._step(operation, {"step": "sent", "text": sent})
            result = then()
        except BaseException:
            self._roll_back(operation, killed=False)
            raise
        self._records.append(operation, {"end": "done"})
        return result

    def recover(self) -> None:
        """Roll back what a killed process left half done."""
        with self.locked():
            pass

    def undo_last_turn(self, turn: str) -> Undone:
        """Undo all that the latest turn other than `turn`, and not undone yet, has changed.

        What something is in the way of stays to be undone, and is the first of its turn's to be taken up by
        the next undo: nothing older is touched before. Once a turn is undone, undoing again in the same turn
        is refused, so that a model that repeats itself does not go further back than it was asked to. Raises
        `ExecutorError` where there is nothing to undo.
        """
        with self.locked():
            operations = [self._records.load(number) for number in self._records.numbers()]
            if any(operation.turn == turn and operation.undid is not None for operation in operations):
                raise ExecutorError(
                    "the last request is undone already; to go further back, ask again in a new request"
                )
            done = [
                operation for operation in operations if operation.end == "done" and operation.turn != turn
            ]
            if not done:
                raise ExecutorError("there is nothing to undo: no earlier request changed anything")
            undoing = Undoing(self._workspace)
            latest = [operation for operation in done if operation.turn == done[-1].turn]
            for operation in reversed(latest):
                for index in undoing.undo(operation):
                    self._records.append(operation, {"undone": index})
            if not undoing.is_blocked:
                for operation in latest:
                    self._records.append(operation, {"end": "undone"})
                marker = Operation(self._records.next_number(), turn, "undo_last_turn")
                self._records.append(marker, {"turn": turn, "tool": marker.tool, "undid": done[-1].turn})
                self._records.append(marker, {"end": "undo"})
        return undoing.told()

    # ── making changes ──────────────────────────────────────────────────────────────────────────────────

    def _stage(self, operation: Operation, index: int, change: Change) -> str:
        """Check a change, and write its content beside the journal. Gives the staged path, or ""."""
        match change:
            case Write(path, data):
                if self._workspace.resolve(path) == self._workspace.root or path.endswith("/"):
                    raise ExecutorError(f"'{path}' is a folder, not a file")
                staged = f"{_STAGING}/{operation.number}-{index}"
                with self._workspace.opened_parent(staged) as (parent, name):
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

    def _make(self, operation: Operation, change: Change, staged: str) -> None:
        workspace = self._workspace
        try:
            match change:
                case MakeFolder(path):
                    self._make_folders(operation, workspace.relative(workspace.resolve(path)))
                case Trash(path):
                    self._move_to_trash(operation, workspace.relative(workspace.locate(path)))
                case Write(path, data, new):
                    real = workspace.relative(workspace.resolve(path))
                    self._make_folders(operation, real.rpartition("/")[0] or ".")
                    self._replace(operation, real, staged, data, new=new)
        except OSError as error:
            raise workspace.explain(error, change.path) from None

    def _make_folders(self, operation: Operation, path: str) -> None:
        for folder in with_parents(path):
            with self._workspace.opened_parent(folder) as (parent, name):
                try:
                    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                        raise ExecutorError(f"'{folder}' exists and is no folder")
                except FileNotFoundError:
                    self._step(operation, {"step": "folder", "path": folder})
                    os.mkdir(name, dir_fd=parent)

    def _move_to_trash(self, operation: Operation, path: str) -> None:
        with self._workspace.opened_parent(path) as (parent, name):
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            slot = self._slot(operation)
            self._step(operation, {"step": "trash", "path": path, "kept": f"{slot}/{name}"})
            with self._workspace.opened(slot) as trash:
                os.rename(name, name, src_dir_fd=parent, dst_dir_fd=trash)

    def _replace(self, operation: Operation, path: str, staged: str, data: bytes, *, new: bool) -> None:
        before = content(self._workspace, path)
        if before == "other":
            raise ExecutorError(f"'{path}' exists and is no regular file")
        if new and before is not None:
            raise ExecutorError(f"'{path}' exists already")
        step: dict[str, Any] = {"step": "write", "path": path, "before": before, "after": _digest(data)}
        with self._workspace.opened_parent(path) as (parent, name):
            if before is not None:
                step["kept"] = f"{self._slot(operation)}/{name}"
            self._step(operation, step)
            with self._workspace.opened_parent(staged) as (stage, source):
                if before is not None:
                    mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
                    os.chmod(source, stat.S_IMODE(mode), dir_fd=stage)
                    with self._workspace.opened_parent(step["kept"]) as (trash, _):
                        _keep(name, parent, trash)
                os.rename(source, name, src_dir_fd=stage, dst_dir_fd=parent)

    def _slot(self, operation: Operation) -> str:
        """A fresh folder in the trash for what the next step takes away."""
        slot = f"{TRASH}/{operation.number}"
        with self._workspace.opened(TRASH) as trash, suppress(FileExistsError):
            os.mkdir(operation.number, dir_fd=trash)
        with self._workspace.opened(slot) as folder:
            os.mkdir(str(len(operation.steps)), dir_fd=folder)
        return f"{slot}/{len(operation.steps)}"

    # ── rolling back ────────────────────────────────────────────────────────────────────────────────────

    def _roll_back_killed(self) -> None:
        for number in self._records.numbers():
            operation = self._records.load(number)
            if operation.end is None:
                self._roll_back(operation, killed=True)

    def _roll_back(self, operation: Operation, *, killed: bool) -> None:
        """Take back an operation that failed, or that was `killed`, perhaps after it had sent something."""
        undoing = Undoing(self._workspace)
        for _ in undoing.undo(operation):
            pass
        for staged in (self._workspace.state / "staging").glob(f"{operation.number}-*"):
            staged.unlink(missing_ok=True)
        if not undoing.kept:  # what could not be put back is still wanted
            shutil.rmtree(self._workspace.trash / operation.number, ignore_errors=True)
        may_be_sent = killed and any(step["step"] == "sent" for step in operation.steps)
        self._records.append(operation, {"end": "done" if may_be_sent else "rolled back"})

    def _step(self, operation: Operation, step: dict[str, Any]) -> None:
        self._records.append(operation, step)
        operation.steps.append(step)


def _keep(name: str, parent: int, trash: int) -> None:
    """Keep a file in the trash while it stays in place; where links are not to be had, move it there."""
    try:
        os.link(name, name, src_dir_fd=parent, dst_dir_fd=trash, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}:
            raise
        os.rename(name, name, src_dir_fd=parent, dst_dir_fd=trash)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
