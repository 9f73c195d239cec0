"""Undo the steps of operations, last first.

Invariants:

- The undo of a step checks the files: it distinguishes done, not done and half done, so undoing twice, or
  after a kill, is safe.
- Files changed since are left unchanged, and reported. So are earlier steps at the same path, until the later
  one is undone. A folder that is not empty is kept, and prevents nothing.
- A path from a record is checked by the workspace like one from a model.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gbnf_server.executors.journal_store import TRASH_FOLDER, Operation, exists
from gbnf_server.executors.workspace import Workspace
from gbnf_server.system.errors import ExecutorError


@dataclass(frozen=True, slots=True)
class UndoResult:
    """`undone`: the changes that were undone; `kept`: those that could not be, and why; one sentence each."""

    undone: tuple[str, ...]
    kept: tuple[str, ...]


class _ConflictError(Exception):  # an answer that travels
    """An existing file prevents the undo of a step; once it is gone, the step can be undone."""


class UndoOperation:
    """One undo, of one operation or several. `kept` are sentences on what is left unchanged.

    `blocked`: the paths where a file that can be removed prevents the undo.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._undone: list[str] = []
        self.kept: list[str] = []
        self.blocked: set[str] = set()

    def outcome(self) -> UndoResult:
        """Return what was undone and what was kept."""
        return UndoResult(tuple(dict.fromkeys(self._undone)), tuple(dict.fromkeys(self.kept)))

    def undo(self, operation: Operation) -> Iterator[int]:
        """Undo an operation's steps that are not undone yet; give the index of each once it is."""
        for index in reversed(range(len(operation.steps))):
            step = operation.steps[index]
            if index in operation.undone or step.get("path") in self.blocked:
                continue
            try:
                done = self._undo_step(operation, step)
            except (_ConflictError, OSError, ExecutorError) as error:
                self.blocked.add(step["path"])
                reason = error.strerror if isinstance(error, OSError) else str(error)
                unchanged = f"'{step['path']}' is left unchanged: {reason}"
                self.kept.append(str(error) if isinstance(error, _ConflictError) else unchanged)
            else:
                if done:
                    yield index

    def _undo_step(self, operation: Operation, step: dict[str, Any]) -> bool:
        """Whether the step is settled; a folder that is not empty may be removed later."""
        match step:
            case {"step": "sent", "text": str(text)}:
                self.kept.append(f"{text} cannot be undone")
                return True
            case {"step": str(), "path": str(path)} if problem := self._invalid_path(operation, step):
                self.kept.append(f"'{path}' is left unchanged: {problem}")
                return True
            case {"step": "folder", "path": str(path)}:
                return self._undo_folder(path)
            case {"step": "trash", "path": str(path), "kept": str(source)}:
                self._undo_trash(path, source)
                return True
            case {"step": "write", "path": str(), "before": _, "after": _}:
                self._undo_write(step)
                return True
            case _:
                self.kept.append(f"a step '{step.get('step')}' of another version cannot be undone")
                return True

    def _invalid_path(self, operation: Operation, step: dict[str, Any]) -> str:
        """Return what is wrong with a record's paths, "" if they are valid."""
        path, source = step["path"], step.get("kept", f"{TRASH_FOLDER}/{operation.number}/0/x")
        head, _, name = str(source).removeprefix(f"{TRASH_FOLDER}/{operation.number}/").partition("/")
        if not head.isdecimal() or name in {"", ".", ".."} or "/" in name or "\0" in name:
            return "its record names a path outside the trash"
        try:
            os.fsencode(name)
            if path.startswith("/"):
                return "the path in its record is not relative"
            self._workspace.check(f"./{path}")  # a name such as ~ is recorded without ./
        except UnicodeEncodeError:
            return "the file name in its record is invalid"
        except ExecutorError as error:
            return str(error)
        return ""

    def _undo_folder(self, path: str) -> bool:
        try:
            with self._workspace.open_parent(path) as (parent, name):
                os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return True
        except OSError as error:
            self.kept.append(f"folder '{path}' is kept: {error.strerror}")
            return False
        self._undone.append(f"removed folder '{path}'")
        return True

    def _undo_trash(self, path: str, source: str) -> None:
        if not self._exists(source):
            return
        if self._exists(path):
            raise _ConflictError(
                f"'{path}' exists again: move it away to restore the deleted one, which is kept in '{source}'"
            )
        self._restore(source, path)
        self._undone.append(f"restored '{path}'")

    def _undo_write(self, step: dict[str, Any]) -> None:
        path, before, source = step["path"], step["before"], step.get("kept")
        present = content(self._workspace, path)
        if present == before:
            return
        if present not in {None, step["after"]}:
            raise _ConflictError(f"'{path}' has changed since, and is left unchanged until it is moved away")
        if source is None:
            with self._workspace.open_parent(path) as (parent, name):
                os.unlink(name, dir_fd=parent)
            self._undone.append(f"removed '{path}'")
        else:
            self._restore(source, path)
            self._undone.append(f"restored the earlier content of '{path}'")

    def _restore(self, source: str, path: str) -> None:
        for folder in with_parents(path.rpartition("/")[0] or "."):
            with self._workspace.open_parent(folder) as (parent, name):
                if not self._exists(folder):
                    os.mkdir(name, dir_fd=parent)
        with (
            self._workspace.open_parent(source) as (trash, in_trash),
            self._workspace.open_parent(path) as (parent, name),
        ):
            os.rename(in_trash, name, src_dir_fd=trash, dst_dir_fd=parent)

    def _exists(self, path: str) -> bool:
        try:
            with self._workspace.open_parent(path) as (parent, name):
                return exists(name, parent)
        except (FileNotFoundError, NotADirectoryError):
            return False


def content(workspace: Workspace, path: str) -> str | None:
    """Return the digest of a file; None if it does not exist, "other" if it is not a regular file."""
    try:
        with workspace.open_parent(path) as (parent, name):
            if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                return "other"
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent), "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def with_parents(path: str) -> list[str]:
    """Return a path and its parents: ``a/b/c`` -> ``[a, a/b, a/b/c]``; ``.`` -> ``[]``."""
    parts = Path(path).parts
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
