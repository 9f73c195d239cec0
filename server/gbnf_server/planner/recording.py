"""A run as one JSON file: what `gbnf run --json` prints, and every call of the model.

The file appears when the recorder is closed, whole, also after an error or an interrupt; then its `outcome`
is "interrupted" if the run has not finished.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gbnf_server.backends.answer import Answered, AnswerEvent, AnswerSource, Asked
from gbnf_server.backends.base import Completion
from gbnf_server.planner.events import (
    Event,
    ModelCalled,
    Run,
    RunFinished,
    RunStarted,
    SalvageStarted,
    StepStarted,
    TextWritten,
)
from gbnf_server.planner.recorded_calls import RecordedCall
from gbnf_server.system.errors import SetupError

if TYPE_CHECKING:
    from gbnf_server.planner.planner import Planner

INTERRUPTED = "interrupted"
"""The outcome in the file of a run that has not finished."""


class RunRecorder:
    """Collects the events of one run and the calls of its model, and writes them when it is closed.

    Raises SetupError at once if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.{os.getpid()}.part")
        self._events: list[Event] = []
        self._decodings: list[RecordedCall] = []
        self._step = 0
        self._run: Run | None = None
        try:
            if path.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            self._part.touch()
        except OSError as error:
            raise SetupError(
                f"{path} cannot be written: {error.strerror or error}. Use another file."
            ) from None

    def record(self, planner: Planner) -> None:
        """Record the run of a planner, and its model's calls: with a trace where the backend has one."""
        traces = planner.backend.info().traces
        planner.answers = partial(self._answer, planner.answers, traces)
        planner.hooks = (*planner.hooks, self.add)

    def add(self, event: Event) -> None:
        """Record an event; the pieces of streamed texts are left out, since the whole texts are recorded."""
        match event:
            case TextWritten():
                return
            case RunFinished(_, run):
                self._run = run
                return
            case StepStarted(_, step) | SalvageStarted(_, step):
                self._step = step
            case ModelCalled(purpose=purpose) if self._decodings:
                self._decodings[-1] = replace(self._decodings[-1], purpose=purpose)
        self._events.append(event)

    def close(self) -> None:
        """Write the file. Raises SetupError."""
        try:
            with self._part.open("w", encoding="utf-8", errors="replace") as file:
                json.dump(self.to_json(), file, ensure_ascii=False)
                file.write("\n")
            self._part.replace(self._path)
        except OSError as error:
            self._part.unlink(missing_ok=True)
            raise SetupError(f"{self._path} cannot be written: {error.strerror or error}.") from None

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            **(self._unfinished() if self._run is None else self._run.to_json()),
            "events": [event.to_json() for event in self._events],
            "decodings": [decoding.to_json() for decoding in self._decodings],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _answer(
        self,
        answers: AnswerSource,
        traces: bool,
        asked: Asked,
    ) -> AsyncGenerator[AnswerEvent, None]:
        traced = replace(asked, request=replace(asked.request, trace=traces))
        outcome: Completion | BaseException = asyncio.CancelledError()
        try:
            async with aclosing(answers(traced)) as events:
                async for event in events:
                    if isinstance(event, Answered):
                        outcome = event.completion
                    yield event
        except GeneratorExit:  # after the end, or instead of it
            raise
        except BaseException as error:
            outcome = error
            raise
        finally:
            self._decodings.append(RecordedCall.of(asked.request, outcome, self._step))

    def _unfinished(self) -> dict[str, Any]:
        started = next((event for event in self._events if isinstance(event, RunStarted)), None)
        about = {} if started is None else {"query": started.query, "turn": started.turn}
        return {"outcome": INTERRUPTED, "answer": None, "error": "the run was interrupted", **about}
