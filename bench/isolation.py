"""Run work in forked processes, so that crashes, hangs and memory use affect nothing else.

Invariant: every item gets exactly one outcome, whatever its process does. Processes are forked from this one,
after it has loaded what they need; so this one must have no threads of its own while work is running.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Finished:
    """`value` is what the work returned."""

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


def isolated(
    work: Callable[[Item], Any],
    items: Sequence[Item],
    *,
    jobs: int = 2,
    limit_s: float = 20.0,
    memory_mib: int = 1024,
    per_process: int = 1,
) -> Generator[tuple[int, Outcome]]:
    """Return the outcome of `work(item)` for each item, with the item's number, as they come.

    Each process does `per_process` items one after the other, and may take `limit_s` seconds for each and map
    `memory_mib` MiB more than this process has. After an item that ends a process, another does the rest.
    What `work` returns is pickled. Its output is thrown away.
    """
    numbers = iter(range(len(items)))
    workers = [
        Confined[int](lambda number: work(items[number]), limit_s=limit_s, memory_mib=memory_mib)
        for _ in range(jobs)
    ]
    busy: dict[Confined[int], int] = {}
    gc.collect()
    gc.freeze()  # or each child would copy what its collector touches
    try:
        while True:
            for worker in workers:
                if worker not in busy and (number := next(numbers, None)) is not None:
                    if worker.items == per_process:
                        worker.renew()
                    worker.begin(number)
                    busy[worker] = number
            if not busy:
                return
            select.select(list(busy), [], [], min(worker.left_s() for worker in busy))
            for worker in [item for item in busy if item.is_ready()]:
                yield busy.pop(worker), worker.end()
    finally:
        for worker in workers:
            worker.renew()
        gc.unfreeze()


def _reason(code: int) -> str:
    """Why a process ended, from its exit code as Python has it: a signal's number is negative."""
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


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

    The process is forked from this one when an item comes, and does further items until one ends it or
    raises, or until `renew`. `work`, `limit_s` and `memory_mib` are as for `isolated`. Items and values are
    pickled.
    """

    def __init__(self, work: Callable[[Item], Any], *, limit_s: float = 20.0, memory_mib: int = 1024) -> None:
        self._work, self._limit_s, self._memory_mib = work, limit_s, memory_mib
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self._begun = 0.0
        #: How many items the process was given.
        self.items = 0

    def attempt(self, item: Item) -> Outcome:
        """Return what comes of the item."""
        self.begin(item)
        return self.end()

    def begin(self, item: Item) -> None:
        """Give the item to the process, which has ended the one before."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        self._begun = time.monotonic()
        self.items += 1
        with suppress(ConnectionError):  # `end` finds the process dead
            self._pipe.send(item)

    def fileno(self) -> int:
        """Return what becomes readable once the item has an outcome before its time is over."""
        assert self._pipe is not None
        return self._pipe.fileno()

    def left_s(self) -> float:
        """Return the seconds until the time limit of the current item."""
        return max(self._begun + self._limit_s - time.monotonic(), 0.0)

    def is_ready(self) -> bool:
        """Tell whether `end` returns at once."""
        assert self._pipe is not None
        return self._pipe.poll() or not self.left_s()

    def end(self) -> Outcome:
        """Wait for what comes of the item that was begun."""
        assert self._pipe is not None
        assert self._process is not None
        kind, value = "timed out", None
        try:
            if self._pipe.poll(self.left_s()):
                kind, value = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            assert code is not None
            kind, value = "error", _reason(code)
        if kind == "value":
            return Finished(value)
        seconds = time.monotonic() - self._begun
        self.renew()
        return TimedOut(seconds) if value is None else Crashed(value, seconds)

    def renew(self) -> None:
        """End the process: the next item is done in a new one."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        self._pipe = self._process = None
        self.items = 0

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
