"""Run a batch: several requests at a time, results in the order of the requests.

Everything is logged first. The result file is derived from the log, and may be read or deleted at any time.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from gbnf_server.executors import Context, Workspace
from gbnf_server.planner import Outcome, Planner
from gbnf_server.planner.batch.replay import InterruptedCallError, LogEntry, Replay, ReplayError
from gbnf_server.planner.batch.requests import BatchRequest
from gbnf_server.planner.drivers import RunEnvironment, adrive
from gbnf_server.planner.loop import plan
from gbnf_server.planner.runs.fingerprints import digest, options_identity, tool_identity
from gbnf_server.planner.runs.run_log import RunLog, RunLogError, Unanswered, in_order
from gbnf_server.system.errors import AnswerTimeoutError, BackendError, ExecutorError, SetupError

_FORMAT = 2  # of the log
_HEADER = ""  # its key: no request has this id


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a request. `run` is the planner's run as JSON, None if it was interrupted.

    `interrupted`: the call that was running when the process was killed. Its effect is unknown, so that it is
    not executed again, and the run ends. `error`: why the run could not start or go on; it is not logged, so
    that the next batch tries again.
    """

    request: BatchRequest
    outcome: Outcome | Literal["interrupted"]
    run: Mapping[str, Any] | None = None
    interrupted: Mapping[str, Any] | None = None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a line of the result file, as JSON."""
        line: dict[str, Any] = {"id": self.request.id, "query": self.request.query, "outcome": self.outcome}
        if self.run is not None:
            return line | {key: value for key, value in self.run.items() if key not in line}
        if self.error:
            return line | {"error": self.error}
        return line | {"interrupted": dict(self.interrupted or {})}


class Batch:
    """Requests, a planner, and the log of their runs.

    Raises RunLogError if the log belongs to other tools, options, another model or workspace, is in use, or
    cannot be written.
    """

    def __init__(
        self, requests: Sequence[BatchRequest], planner: Planner, log: Path, *, model: str = ""
    ) -> None:
        self.requests = tuple(requests)
        self._planner = planner
        header = {
            "batch": digest(
                {
                    "format": _FORMAT,
                    "tools": [tool_identity(tool) for tool in planner.tools],
                    "settings": options_identity(planner.options),
                    "backend": planner.options.backend,
                    "model": model,
                }
            ),
            "workspace": str(planner.context.workspace.root),
        }
        self._log, self._unanswered = RunLog(log, _entry), Unanswered(AnswerTimeoutError)
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

    def results(
        self, concurrency: int = 4, on_result: Callable[[BatchResult], object] | None = None
    ) -> AsyncGenerator[BatchResult]:
        """Yield every request's result, in order, as soon as those before it are available.

        `on_result` is called with each new result at once, in any order. Closing the iterator, or cancelling
        the task, ends the running runs; running tools are waited for, and their results logged.
        """

        async def result(request: BatchRequest) -> BatchResult:
            if request.id in self._results:
                return self._results[request.id]
            new = await self._result(request)
            if on_result is not None:
                on_result(new)
            return new

        return in_order(self.requests, result, concurrency)

    async def _result(self, request: BatchRequest) -> BatchResult:
        """Run a request, or resume it from the log; one whose backend fails is not logged as done."""
        entries = self._log.entries.setdefault(request.id, [])
        turn = entries[0]["turn"] if entries else self._planner.context.for_turn().turn
        try:
            context = self._context(request, turn)
        except (SetupError, ExecutorError) as error:
            return BatchResult(request, "failed", error=str(error))
        began = datetime.fromisoformat(entries[0]["at"]) if entries else context.now()
        if not entries:
            started = {"turn": turn, "at": began.isoformat(), "request": digest(asdict(request))}
            self._keep(request, {"kind": "started", **started})
        replay = Replay(
            tuple(entries[1:]), lambda entry, durable: self._keep(request, entry, durable=durable), began
        )
        planner = self._planner
        environment = RunEnvironment(
            planner.answers, context, planner.hooks, replay.execute, replay.clock, resumes=True
        )
        planning = plan(request.query, planner.tools, planner.options, turn=turn, clock=replay.clock)
        try:
            run = await self._unanswered.result(adrive(replay.planning(planning), environment))
        except InterruptedCallError as error:
            result = BatchResult(request, "interrupted", interrupted=error.call)
            self._keep(request, {"kind": "interrupted", "call": error.call})
        except ReplayError as error:
            if isinstance(error.__cause__, RunLogError):
                raise error.__cause__ from None
            raise RunLogError(
                f"request {request.id!r} cannot resume from {self._log.path}: {error}. Has a tool changed? "
                "Delete the log to start again; executed calls are not undone."
            ) from None
        else:
            if isinstance(run, BackendError):
                return BatchResult(request, "failed", error=str(run))
            result = BatchResult(request, run.outcome, run.to_json())
            self._keep(request, {"kind": "run", "run": result.run})
        self._results[request.id] = result
        del entries[1:]  # no longer needed
        return result

    def _context(self, request: BatchRequest, turn: str) -> Context:
        context = self._planner.context.for_turn(turn)
        if not request.workspace:
            return context
        return replace(context, workspace=Workspace(context.workspace.resolve(request.workspace)))

    def _keep(self, request: BatchRequest, entry: LogEntry, *, durable: bool = False) -> None:
        self._log.append({"id": request.id, **entry}, durable=durable)
        self._log.entries[request.id].append(entry)

    def _read(self, header: Mapping[str, Any]) -> None:
        """Read the results in the log. Raises RunLogError if it is of another batch or requests."""
        self._results: dict[str, BatchResult] = {}
        path = self._log.path
        if not self._log.entries:
            self._log.append(header)
        logged = self._log.entries.get(_HEADER, [{}])[0] if self._log.entries else header
        if logged.get("workspace", header["workspace"]) != header["workspace"]:
            raise RunLogError(
                f"{path} belongs to the workspace {logged['workspace']}, not to {header['workspace']}. "
                f"Use --workspace {logged['workspace']}, or another --out, or delete the log to start again; "
                "executed calls are not undone."
            )
        if logged.get("batch") != header["batch"]:
            raise RunLogError(
                f"{path} belongs to other tools, settings, another model or version. Use those, or "
                "delete it to start again; executed calls are not undone."
            )
        for request in self.requests:
            if not request.workspace:
                continue
            try:
                self._planner.context.workspace.resolve(request.workspace)
            except ExecutorError as error:
                raise RunLogError(f"request {request.id!r}: its workspace: {error}") from None
        for request in self.requests:
            replay = self._log.entries.get(request.id)
            if not replay:
                continue
            if replay[0]["request"] != digest(asdict(request)):
                raise RunLogError(
                    f"request {request.id!r} differs from the one in {path}: use another id, or delete "
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


def _entry(value: Any) -> tuple[str, Any]:
    """Return the id of a line's request, and the line. Raises TypeError or KeyError if it is none."""
    if "kind" in value:
        return value["id"], value
    _ = value["batch"]
    return _HEADER, value
