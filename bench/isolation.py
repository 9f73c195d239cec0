"""Work done in forked processes, so that what crashes, hangs or eats memory harms nothing else.

What must stay true: every item gets exactly one outcome, whatever its process does. Processes are forked from
this one, which has loaded what they need; so it must have no threads of its own while work is running.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import multiprocessing
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Finished:
    """`value` is what the work returned, as JSON brings it over."""

    value: Any


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process died, or the work raised. `seconds` is how long it had been at this item."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The process was killed after `seconds` at one item."""

    seconds: float


Outcome = Finished | Crashed | TimedOut


@dataclass(slots=True)
class _Worker:
    """One process: the numbers of the items that it still owes, the first of which it is at."""

    pid: int
    pipe: int
    owed: list[int]
    since: float
    unread: bytes = b""


def isolated(
    work: Callable[[Item], Any],
    items: Sequence[Item],
    *,
    jobs: int = 2,
    limit_s: float = 20.0,
    memory_mib: int = 1024,
    per_process: int = 1,
) -> Generator[tuple[int, Outcome]]:
    """The outcome of `work(item)` for each item, with the item's number, as they come.

    Each process does `per_process` items one after the other, and may take `limit_s` seconds for each and map
    `memory_mib` MiB more than this process has. After an item that ends a process, another does the rest.
    `work` returns what JSON can hold. Its output is thrown away.
    """
    pending = [
        list(range(start, min(start + per_process, len(items))))
        for start in range(0, len(items), per_process)
    ]
    pending.reverse()
    workers: dict[int, _Worker] = {}
    gc.collect()
    gc.freeze()  # or each child would copy what its collector touches
    try:
        while pending or workers:
            while pending and len(workers) < jobs:
                worker = _start(work, items, pending.pop(), memory_mib)
                workers[worker.pipe] = worker
            patience = min(worker.since for worker in workers.values()) + limit_s - time.monotonic()
            ready, _, _ = select.select(list(workers), [], [], max(patience, 0.0))
            for pipe in ready:
                worker = workers[pipe]
                received = os.read(pipe, 1 << 20)
                yield from _deliver(worker, received)
                if not received:
                    del workers[pipe]
                    yield from _bury(worker, pending)
            for worker in [each for each in workers.values() if time.monotonic() - each.since > limit_s]:
                del workers[worker.pipe]
                _end(worker)
                yield worker.owed.pop(0), TimedOut(time.monotonic() - worker.since)
                if worker.owed:
                    pending.append(worker.owed)
    finally:
        for worker in workers.values():
            _end(worker)
        gc.unfreeze()


def _deliver(worker: _Worker, received: bytes) -> Iterator[tuple[int, Outcome]]:
    """The outcomes that have come through the pipe, one JSON line each."""
    *lines, worker.unread = (worker.unread + received).split(b"\n")
    for line in lines:
        now = time.monotonic()
        number, kind, value = json.loads(line)
        worker.owed.remove(number)
        yield number, Finished(value) if kind == "value" else Crashed(value, now - worker.since)
        worker.since = now


def _bury(worker: _Worker, pending: list[list[int]]) -> Iterator[tuple[int, Outcome]]:
    """See to a process that has closed its pipe: tell the item that ended it, put back what it still owes."""
    seconds = time.monotonic() - worker.since
    os.close(worker.pipe)
    _, status = os.waitpid(worker.pid, 0)
    if not worker.owed:
        return
    code = os.waitstatus_to_exitcode(status)
    if code != _TOLD:
        yield worker.owed.pop(0), Crashed(_reason(code), seconds)
    if worker.owed:
        pending.append(worker.owed)


def _reason(code: int) -> str:
    """Why a process ended, from its exit code as Python has it: a signal's number is negative."""
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _end(worker: _Worker) -> None:
    with suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGKILL)
    os.close(worker.pipe)
    os.waitpid(worker.pid, 0)


_TOLD = 3  # exit status of a process that told what went wrong, and can't go on


def _start(
    work: Callable[[Item], Any], items: Sequence[Item], numbers: list[int], memory_mib: int
) -> _Worker:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return _Worker(pid, reader, list(numbers), time.monotonic())
    status = 1
    try:
        os.close(reader)
        _confine(memory_mib)
        status = _serve(work, items, numbers, writer)
    finally:
        os._exit(status)


def _serve(work: Callable[[Item], Any], items: Sequence[Item], numbers: list[int], writer: int) -> int:
    for number in numbers:
        try:
            line = json.dumps([number, "value", work(items[number])])
        except MemoryError:
            line = json.dumps([number, "error", "out of memory"])
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this item's outcome
            line = json.dumps([number, "error", f"{type(error).__name__}: {error}"[:500]])
        raw = line.encode() + b"\n"
        while raw:
            raw = raw[os.write(writer, raw) :]
        if line.endswith('"error", "out of memory"]'):
            return _TOLD
    return 0


def _confine(memory_mib: int) -> None:
    """No more memory than given, no core file, no terminal."""
    faulthandler.disable()  # it keeps a terminal of its own
    os.environ["GGML_NO_BACKTRACE"] = "1"  # llama.cpp would start a debugger at each abort
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # a kernel's table, not a file of ours
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    limit = mapped + (memory_mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


class Confined(Generic[Item]):
    """Does one item after the other in a process of its own, for callers that make each item as they go.

    The process is forked from this one when an item comes, and does further items until one ends it, or until
    `renew`. `work`, `limit_s` and `memory_mib` are as for `isolated`. Items and values are pickled.
    """

    def __init__(self, work: Callable[[Item], Any], *, limit_s: float = 20.0, memory_mib: int = 1024) -> None:
        self._work, self._limit_s, self._memory_mib = work, limit_s, memory_mib
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def attempt(self, item: Item) -> Outcome:
        """Return what comes of the item."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        assert self._process is not None
        begun = time.monotonic()
        try:
            self._pipe.send(item)
            if not self._pipe.poll(self._limit_s):
                self.renew()
                return TimedOut(time.monotonic() - begun)
            kind, value = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            assert code is not None
            self.renew()
            return Crashed(_reason(code), time.monotonic() - begun)
        return Finished(value) if kind == "value" else Crashed(value, time.monotonic() - begun)

    def renew(self) -> None:
        """End the process: the next item is done in a new one."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        self._pipe = self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.renew()

    def _start(self) -> None:
        fork = multiprocessing.get_context("fork")
        self._pipe, theirs = fork.Pipe()
        self._process = fork.Process(target=self._serve, args=(self._pipe, theirs))
        self._process.start()
        theirs.close()

    def _serve(self, ours: Connection, theirs: Connection) -> None:
        ours.close()  # so that this process sees the end of the other
        _confine(self._memory_mib)
        while True:
            try:
                item = theirs.recv()
            except EOFError:
                return
            try:
                theirs.send(("value", self._work(item)))
            except MemoryError:
                theirs.send(("error", "out of memory"))
            except Exception as error:  # noqa: BLE001  # whatever it is, it is this item's outcome
                theirs.send(("error", f"{type(error).__name__}: {error}"[:500]))
