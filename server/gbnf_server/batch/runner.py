"""Running a batch: as many at a time as asked for, results in the order of the requests.

Everything that happens goes into a log first. The file of results is made of it: it can be read, or deleted,
at any time.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from gbnf_server.batch.replay import InterruptedCallError, LogEntry, Replay, ReplayError
from gbnf_server.batch.requests import BatchRequest
from gbnf_server.errors import ExecutorError, SetupError
from gbnf_server.executors import Context, Workspace
from gbnf_server.planner import Outcome, Planner
from gbnf_server.planner.drivers import RunEnvironment, adrive
from gbnf_server.planner.fingerprints import digest, tool_identity
from gbnf_server.planner.loop import plan
from gbnf_server.planner.planner import steady_clock
from gbnf_server.system.append_log import AppendLog, LogDamagedError, LogInUseError


class BatchError(SetupError):
    """A batch cannot go on; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What came of a request. `run` is the planner's run as JSON; None where it was interrupted.

    `interrupted`: the call that was being executed when the process was killed. Nobody knows whether it was
    done, so it is not done again, and the run ends there. `error`: why the run could not begin; the log keeps
    nothing of it, and the next batch tries again.
    """

    request: BatchRequest
    outcome: Outcome | Literal["interrupted"]
    run: Mapping[str, Any] | None = None
    interrupted: Mapping[str, Any] | None = None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """One line of the results."""
        given: dict[str, Any] = {"id": self.request.id, "query": self.request.query, "outcome": self.outcome}
        if self.run is not None:
            return given | {key: value for key, value in self.run.items() if key not in given}
        if self.error:
            return given | {"error": self.error}
        return given | {"interrupted": dict(self.interrupted or {})}


class Batch:
    """Requests, a planner, and the log of what has been done of them already.

    Raises BatchError where the log belongs to other tools, settings, another model or workspace, is in use,
    or cannot be written.
    """

    def __init__(
        self, requests: Sequence[BatchRequest], planner: Planner, log: Path, *, model: str = ""
    ) -> None:
        self.requests = tuple(requests)
        self._planner = planner
        self._path = log
        self._lock = threading.Lock()
        header = {
            "batch": digest(
                {
                    "tools": [tool_identity(tool) for tool in planner.tools],
                    "settings": asdict(planner.options),
                    "model": model,
                }
            ),
            "workspace": str(planner.context.workspace.root),
        }
        try:
            self._log = AppendLog(log, _entry)
        except LogInUseError:
            raise BatchError(f"{log} is in use by another batch: wait for it") from None
        except LogDamagedError as error:
            raise BatchError(
                f"{log}, line {error.line}: this is no batch's log ({error}): delete it"
            ) from None
        except OSError as error:
            raise BatchError(f"the log {log} can't be written: {error.strerror or error}") from None
        try:
            self._read(header)
        except BaseException:
            self._log.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    @property
    def done(self) -> int:
        """How many requests are in the log with their end."""
        return len(self._results)

    async def results(
        self, concurrency: int = 4, on_result: Callable[[BatchResult], object] | None = None
    ) -> AsyncGenerator[BatchResult]:
        """Every request's result, in order, as soon as those before it are there.

        `watch` sees each one as it comes, in any order. Closing the iterator, or cancelling the task, ends
        the runs that are under way: a tool that works is waited for, and what it gave is kept.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; it is at least 1")
        free = asyncio.Semaphore(concurrency)

        async def finished(request: BatchRequest) -> BatchResult:
            async with free:
                result = await self._result(request)
            if on_result is not None:
                on_result(result)
            return result

        left = [request for request in self.requests if request.id not in self._results]
        tasks = {request.id: asyncio.create_task(finished(request)) for request in left}
        try:
            for request in self.requests:
                yield await tasks[request.id] if request.id in tasks else self._results[request.id]
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _result(self, request: BatchRequest) -> BatchResult:
        entries = self._replays.get(request.id, [])
        turn = entries[0]["turn"] if entries else self._planner.context.for_turn().turn
        try:
            context = self._context(request, turn)
        except (SetupError, ExecutorError) as error:
            return BatchResult(request, "failed", error=str(error))
        if not entries:
            self._keep(request, {"kind": "started", "turn": turn, "request": digest(asdict(request))})
        replay = Replay(entries[1:], lambda entry, durable: self._keep(request, entry, durable=durable))
        environment = RunEnvironment(
            replay.backend(self._planner.backend),
            replace(context, person=replay.person(context.person)),
            self._planner.hooks,
            replay.execute,
        )
        planner = self._planner
        clock = steady_clock(context.now())
        planning = plan(request.query, planner.tools, planner.options, turn=turn, clock=clock)
        try:
            run = await adrive(planning, environment)
        except InterruptedCallError as error:
            result = BatchResult(request, "interrupted", interrupted=error.call)
            self._keep(request, {"kind": "interrupted", "call": error.call})
        except ReplayError as error:
            raise BatchError(
                f"request {request.id!r} cannot go on from {self._path}: {error}. Has a tool changed since? "
                "Delete the log to begin anew; what was done stays done."
            ) from None
        else:
            if replay.backend_error is not None:
                raise replay.backend_error  # without a model the run ended; it resumes when there is one
            result = BatchResult(request, run.outcome, run.to_json())
            self._keep(request, {"kind": "run", "run": result.run})
        self._results[request.id] = result
        return result

    def _context(self, request: BatchRequest, turn: str) -> Context:
        context = self._planner.context.for_turn(turn)
        if not request.workspace:
            return context
        return replace(context, workspace=Workspace(context.workspace.resolve(request.workspace)))

    def _keep(self, request: BatchRequest, entry: LogEntry, *, durable: bool = False) -> None:
        with self._lock:
            self._log.append({"id": request.id, **entry}, durable=durable)

    def _read(self, header: Mapping[str, Any]) -> None:
        self._replays: dict[str, list[LogEntry]] = {}
        self._results: dict[str, BatchResult] = {}
        if not self._log.values:
            self._log.append(header)
        elif self._log.values[0].get("workspace", header["workspace"]) != header["workspace"]:
            raise BatchError(
                f"{self._path} was begun in the workspace {self._log.values[0]['workspace']}, and this is "
                f"{header['workspace']}. Go on with --workspace {self._log.values[0]['workspace']}, or give "
                "another --out, or delete the log to begin anew; what was done stays done."
            )
        elif self._log.values[0].get("batch") != header["batch"]:
            raise BatchError(
                f"{self._path} was begun with other tools, other settings or another model. Go on with "
                "those, or delete it to begin anew; what was done stays done."
            )
        for request in self.requests:
            if not request.workspace:
                continue
            try:
                self._planner.context.workspace.resolve(request.workspace)
            except ExecutorError as error:
                raise BatchError(f"request {request.id!r}: its workspace: {error}") from None
        for entry in self._log.values[1:]:
            self._replays.setdefault(entry["id"], []).append(entry)
        for request in self.requests:
            replay = self._replays.get(request.id)
            if not replay:
                continue
            if replay[0]["request"] != digest(asdict(request)):
                raise BatchError(
                    f"request {request.id!r} is another than the one in {self._path}: give it another id, or "
                    "delete the log to begin anew; what was done stays done."
                )
            last = replay[-1]
            if last["kind"] == "run":
                self._results[request.id] = BatchResult(request, last["run"]["outcome"], last["run"])
            elif last["kind"] == "interrupted":
                self._results[request.id] = BatchResult(request, "interrupted", interrupted=last["call"])


def write_result(file: Any, result: BatchResult) -> None:
    """One result as a line of JSON, on its way at once."""
    file.write(json.dumps(result.to_json(), ensure_ascii=False) + "\n")
    file.flush()


def _entry(value: Any) -> Any:
    """A line of the log. Raises TypeError or KeyError where it is none."""
    if "batch" not in value:
        _ = value["id"], value["kind"]
    return value
