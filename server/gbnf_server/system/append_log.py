"""An append-only file of JSON values, one per line, that survives any end of the process.

Invariants: appended values are read again, complete and in order; a line that an interruption truncated is
dropped, and one that could not be written is removed; two processes never write to one log at the same time.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from gbnf_server.system.errors import InputError, SetupError


class LogInUseError(SetupError):
    """Another process has the log open."""


class LogDamagedError(InputError):
    """A complete line is invalid JSON, or nested too deeply. Field: `line`, counted from 1."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        super().__init__(reason)


class AppendLog(AbstractContextManager["AppendLog"]):
    """An open log. `values`: those that were in it when it was opened. Several threads may append."""

    def __init__(
        self, path: Path, read: Callable[[Any], Any] = lambda value: value, *, fresh: bool = False
    ) -> None:
        """Open the log. `read` converts each JSON value, or raises ValueError, KeyError or TypeError.

        With `fresh`, what is in the file is discarded, readable or not.
        Raises LogInUseError, LogDamagedError, or OSError if the file cannot be opened.
        """
        new = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._lock = path.open("ab+", buffering=0), threading.Lock()
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LogInUseError(f"{path} is in use by another process") from None
            for entry in (path, *new):
                _sync_folder(entry.parent)
            if fresh:
                self._file.truncate(0)
            self.values: list[Any] = self._read(read)
        except BaseException:
            self._file.close()
            raise

    def append(self, value: Any, *, durable: bool = False) -> None:
        """Append a value, which survives the end of the process; with `durable`, also that of the machine."""
        # a lone surrogate, which UTF-8 cannot encode, becomes its escape
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            append_whole(self._file.fileno(), line)
        if durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, and unlock it."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, read: Callable[[Any], Any]) -> list[Any]:
        self._file.seek(0)
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._file.truncate(len(whole))
        values = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                values.append(read(json.loads(line)))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise LogDamagedError(number, str(error)) from None
        return values


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive the end of the machine, where the file system allows it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append_whole(descriptor: int, data: bytes) -> None:
    """Append data to a file that nobody else writes to, all of it or, if the disk is full, nothing.

    Raises OSError.
    """
    before, written = os.fstat(descriptor).st_size, 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except BaseException:
        os.ftruncate(descriptor, before)
        raise
