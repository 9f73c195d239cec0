"""Run a batch: several requests at a time, results in the order of the requests.

Everything is logged first. The result file is derived from the log, and may be read or deleted at any time.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from gbnf_server.executors import Context, Workspace
from gbnf_server.planner import Outcome, Planner
from gbnf_server.planner.batch.replay import InterruptedCallError, LogEntry, Replay, ReplayError
from gbnf_server.planner.batch.requests import BatchRequest
from gbnf_server.planner.drivers import RunEnvironment, adrive, steady_clock
from gbnf_server.planner.fingerprints import digest, options_identity, tool_identity
from gbnf_server.planner.loop import plan
from gbnf_server.system.append_log import AppendLog, LogDamagedError, LogInUseError
from gbnf_server.system.errors import ExecutorError, SetupError


class BatchError(SetupError):
    """A batch cannot start or resume; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a request. `run` is the planner's run as JSON, None if it was interrupted.

    `interrupted`: the call that was running when the process was killed. Its effect is unknown, so that it is
    not executed again, and the run ends. `error`: why the run could not start; it is not logged, and the next
    batch tries again.
    """

    request: BatchRequest
    outcome: Outcome | Literal["interrupted"]
    run: Mapping[str, Any] | None = None
    interrupted: Mapping[str, Any] | None = None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a line of the result file, as JSON."""
        given: dict[str, Any] = {"id": self.request.id, "query": self.request.query, "outcome": self.outcome}
        if self.run is not None:
            return given | {key: value for key, value in self.run.items() if key not in given}
        if self.error:
            return given | {"error": self.error}
        return given | {"interrupted": dict(self.interrupted or {})}


class Batch:
    """Requests, a planner, and the log of their runs.

    Raises BatchError if the log belongs to other tools, options, another model or workspace, is in use, or
    cannot be written.
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
                    "settings": options_identity(planner.options),
                    "backend": planner.options.backend,
                    "model": model,
                }
            ),
            "workspace": str(planner.context.workspace.root),
        }
        try:
            self._log = AppendLog(log, _entry)
        except LogInUseError:
            raise BatchError(f"{log} is in use by another batch: wait until it ends") from None
        except LogDamagedError as error:
            raise BatchError(
                f"{log}, line {error.line}: not a line of a batch log ({error}). Delete the file"
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

    def __exit__(self, *_: object) -> None:
        self._log.close()

    @property
    def done(self) -> int:
        """The number of requests whose result is in the log."""
        return len(self._results)

    async def results(
        self, concurrency: int = 4, on_result: Callable[[BatchResult], object] | None = None
    ) -> AsyncGenerator[BatchResult]:
        """Yield every request's result, in order, as soon as those before it are available.

        `on_result` is called with each new result at once, in any order. Closing the iterator, or cancelling
        the task, ends the running runs; running tools are waited for, and their results logged.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; it must be at least 1")
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
            replay.answers(self._planner.answers),
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
                f"request {request.id!r} cannot resume from {self._path}: {error}. Has a tool changed? "
                "Delete the log to start again; executed calls are not undone."
            ) from None
        else:
            if replay.backend_error is not None:
                raise replay.backend_error  # the model was unavailable; the next batch resumes the run
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
        elif (logged := self._log.values[0].get("workspace", header["workspace"])) != header["workspace"]:
            raise BatchError(
                f"{self._path} belongs to the workspace {logged}, not to {header['workspace']}. "
                f"Use --workspace {logged}, or another --out, or delete the log to start again; "
                "executed calls are not undone."
            )
        elif self._log.values[0].get("batch") != header["batch"]:
            raise BatchError(
                f"{self._path} belongs to other tools, other settings or another model. Use those, or "
                "delete it to start again; executed calls are not undone."
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
                    f"request {request.id!r} differs from the one in {self._path}: use another id, or delete "
                    "the log to start again; executed calls are not undone."
                )
            last = replay[-1]
            if last["kind"] == "run":
                self._results[request.id] = BatchResult(request, last["run"]["outcome"], last["run"])
            elif last["kind"] == "interrupted":
                self._results[request.id] = BatchResult(request, "interrupted", interrupted=last["call"])


def write_result(file: Any, result: BatchResult) -> None:
    """Write a result as a line of JSON, and flush."""
    file.write(json.dumps(result.to_json(), ensure_ascii=False) + "\n")
    file.flush()


def _entry(value: Any) -> Any:
    """Return a line of the log. Raises TypeError or KeyError if it is none."""
    if "batch" not in value:
        _ = value["id"], value["kind"]
    return value
