"""Runs that are logged and resumed: those of a batch, of an extraction, of a bench.

Invariants: a run whose result is logged is not executed again; an error after which the same request may
succeed later (`BackendError.is_retryable`) is no result: it ends them all, and the next time that run is
executed again. So it is after a server that has not begun to answer in time, and the other runs go on, unless
that happens several times in a row. Of a log, what was appended is read again, complete and in order; a line
that could not be written whole is removed; two processes never write to one log at the same time.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading
from asyncio import wrap_future
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from gbnf_server.system.append_log import append_whole
from gbnf_server.system.errors import BackendError, ServerResponseError, SetupError
from gbnf_server.system.event_loop import run_in_thread

_Key = TypeVar("_Key")
_Entry = TypeVar("_Entry")
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

_MOST_UNANSWERED = 3
"""After so many requests in a row without a word of an answer in time, the server is taken for hung."""
MOST_WAITING = 1000
"""How many results may wait for an earlier one, or for the caller."""
_END: Any = object()


class RunLogError(SetupError):
    """Runs cannot be logged or resumed; the message says why, and what to do."""


class RunLog(Generic[_Key, _Entry]):
    """The entries of runs, in a file that survives any end of the process: a JSON value on each line.

    `entries`: those of each key when it was opened, in order. `read` makes the key and the entry of a JSON
    value; it raises ValueError, KeyError or TypeError. With `fresh`, the content is discarded, readable or
    not. `hint`: what to do with a file that cannot be used. Several threads may append. Raises RunLogError if
    the file is not such a log, is in use, or cannot be written.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Any], tuple[_Key, _Entry]],
        *,
        fresh: bool = False,
        hint: str = "Delete it, or use another file.",
    ) -> None:
        self.path, self._lock = path, threading.Lock()
        self.entries: dict[_Key, list[_Entry]] = {}
        try:
            new = [folder for folder in path.parents if not folder.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab+", buffering=0)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for entry in (path, *new):
                    _sync_folder(entry.parent)
                if fresh:
                    self._file.truncate(0)
                self._read(read, hint)
            except BaseException:
                self._file.close()
                raise
        except BlockingIOError:
            problem = f"{path} is in use by another process. Wait until it ends, or use another file."
            raise RunLogError(problem) from None
        except OSError as error:
            is_taken = isinstance(error, FileExistsError | NotADirectoryError)
            reason = f"{error.filename} is in the way" if is_taken else error.strerror or error
            raise RunLogError(f"{path} can't be written: {reason}. {hint}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, value: Any, *, durable: bool = False) -> None:
        """Append a value, which survives the end of the process; with `durable`, also that of the machine.

        Raises RunLogError.
        """
        # a lone surrogate, which UTF-8 cannot encode, becomes its escape
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            with self._lock:
                append_whole(self._file.fileno(), line)
                if durable:
                    os.fsync(self._file.fileno())
        except OSError as error:
            problem = f"{self.path} can't be written: {error.strerror or error}"
            raise RunLogError(f"{problem}. Free some space: what was logged before is kept.") from None

    def close(self) -> None:
        """Close the file, and unlock it."""
        with suppress(OSError):  # `append` has reported what could not be written
            self._file.close()

    def _read(self, read: Callable[[Any], tuple[_Key, _Entry]], hint: str) -> None:
        """Read the entries, and drop a line that an interruption truncated."""
        self._file.seek(0)
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._file.truncate(len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                key, entry = read(json.loads(line))
                self.entries.setdefault(key, []).append(entry)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                problem = f"{self.path}, line {number}: this is no entry of the log ({error}). {hint}"
                raise RunLogError(problem) from None


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive the end of the machine, where the file system allows it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Unanswered:
    """Runs that the server has not answered, with an error of one of these kinds: the others go on.

    Not if that happens several times in a row, or if the server refuses service: it is raised then.
    """

    def __init__(self, *kinds: type[BackendError]) -> None:
        self._kinds, self._in_a_row = kinds, 0

    async def result(self, run: Awaitable[_Result]) -> _Result | BackendError:
        """Return the result of a run, or the error for which it has none."""
        try:
            result = await run
        except self._kinds as error:
            self._in_a_row += 1
            refuses = isinstance(error, ServerResponseError) and error.status < 500
            if refuses or self._in_a_row >= _MOST_UNANSWERED:
                raise
            return error
        self._in_a_row = 0
        return result


async def in_order(
    jobs: Iterable[_Job], run: Callable[[_Job], Coroutine[Any, Any, _Result]], concurrency: int
) -> AsyncGenerator[_Result, None]:
    """Run jobs, at most `concurrency` at a time, and yield their results in the order of the jobs.

    A job is taken once it can run, in another thread, since that may take long. After an error no other job
    is started; it is raised after the results before it. Closing the generator cancels what runs.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}; it must be at least 1")
    remaining = iter(jobs)
    free, room = asyncio.Semaphore(concurrency), asyncio.Semaphore(concurrency + MOST_WAITING)
    started: asyncio.Queue[asyncio.Task[_Result] | None] = asyncio.Queue()
    tasks: set[asyncio.Task[Any]] = set()
    failed: list[asyncio.Task[_Result]] = []

    def end(task: asyncio.Task[_Result]) -> None:
        free.release()
        if task.cancelled() or task.exception() is not None:
            failed.append(task)

    async def start() -> None:
        try:
            while True:
                await room.acquire()
                await free.acquire()
                job = _END if failed else await wrap_future(run_in_thread(partial(next, remaining, _END)))
                if job is _END:
                    return
                task = asyncio.create_task(run(job))
                task.add_done_callback(end)
                tasks.add(task)
                started.put_nowait(task)
        finally:
            started.put_nowait(None)

    starting = asyncio.create_task(start())
    try:
        while (task := await started.get()) is not None:
            result = await task
            tasks.discard(task)
            room.release()
            yield result
        await starting
    finally:
        for task in (starting, *tasks):
            task.cancel()
        await asyncio.gather(starting, *tasks, return_exceptions=True)
