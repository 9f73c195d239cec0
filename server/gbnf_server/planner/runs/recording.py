"""A run as one JSON file: what `gbnf run --json` prints, and every call of the model.

The file appears when the recorder is closed, whole, also after an error or an interrupt; then its `outcome`
is "interrupted" if the run has not finished. Calls of the model are values: the request, the answer, and what
happened at each token. In JSON, an entry of a trace is a list, since a run has thousands:

    [token, kind, at_s, left, probability, allowed_probability, [[token, probability, refused_by], …]]

A token is a string, or {"bytes": "e282"} if it is not a sequence of whole characters. Times are rounded to
microseconds, probabilities to five digits.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from gbnf import Grammar
from gbnf.prompts.messages import Image
from gbnf.protocols.protocol import AnswerFormat
from gbnf.strict_json import map_json
from gbnf_server.backends.answer import Answered, AnswerEvent, AnswerSource, Asked
from gbnf_server.backends.base import Completion, Request, Timings, Usage
from gbnf_server.llama.token_values import TracedToken
from gbnf_server.planner.events import (
    Event,
    ModelCalled,
    Purpose,
    Run,
    RunFinished,
    RunStarted,
    SalvageStarted,
    StepStarted,
    TextWritten,
)
from gbnf_server.system.errors import SetupError

INTERRUPTED = "interrupted"
"""The outcome in the file of a run that has not finished."""
_TOLD = ("text", "reasoning", "finish_reason", "usage", "purpose")
_ENTRY = ("token", "kind", "at_s", "left", "probability", "allowed_probability", "candidates")


def _from_row(row: Any) -> Any:
    """Return the members of an entry of a trace. Raises ValueError."""
    if isinstance(row, TracedToken):
        return row
    if not isinstance(row, list) or len(row) != len(_ENTRY):
        raise ValueError(f"must be a list of {len(_ENTRY)} values: {', '.join(_ENTRY)}")
    entry = dict(zip(_ENTRY, row, strict=True))
    candidates = []
    for candidate in entry["candidates"] if isinstance(entry["candidates"], list) else [None]:
        if not isinstance(candidate, list) or len(candidate) != 3:
            raise ValueError("candidates must be lists of 3 values: token, probability, refused_by")
        token, probability, refused_by = candidate
        members = {"token": _token(token), "probability": _probability(probability), "refused_by": refused_by}
        candidates.append(members)
    for name in ("probability", "allowed_probability"):
        if entry[name] is not None:
            entry[name] = _probability(entry[name])
    return {**entry, "token": _token(entry["token"]), "candidates": candidates}


def _token(value: Any) -> bytes:
    match value:
        case str():
            return value.encode()
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
    raise ValueError(f'{json.dumps(value)[:40]} is no token; it must be a string, or {{"bytes": "e282"}}')


def _probability(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"{json.dumps(value)[:40]} is no probability; it must be a number from 0 to 1")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a model. Its fields are those of `Request` and `Completion`; `step` 0 is none.

    `grammar`: as GBNF, or a JSON Schema as JSON, "" without one. `error`: why there is no whole answer,
    "" if there is. `trace` is empty if the backend has none.
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    grammar: str = ""
    max_tokens: int = 0
    temperature: float = 0.0
    seed: int = 0
    text: str = ""
    reasoning: str = ""
    finish_reason: Literal["stop", "length", ""] = ""
    error: str = ""
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    shortened_at: int | None = None
    repeated: str = ""
    step: int = 0
    purpose: Purpose = "call"
    trace: tuple[Annotated[TracedToken, BeforeValidator(_from_row)], ...] = ()

    @classmethod
    def of(
        cls, request: Request, answer: Completion | BaseException, step: int = 0, purpose: Purpose = "call"
    ) -> RecordedCall:
        """Return a call of a model. No request contains credentials: no model gets them."""
        asked: dict[str, Any] = {
            "messages": tuple(map_json(message, _plain_image) for message in request.messages),
            "grammar": grammar_text(request.grammar),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "step": step,
            "purpose": purpose,
        }
        if isinstance(answer, BaseException):
            return cls(**asked, error=str(answer) or type(answer).__name__)
        names = {field.name for field in fields(cls)} & {field.name for field in fields(Completion)}
        return cls(**asked, **{name: getattr(answer, name) for name in names})

    def to_json(self) -> dict[str, Any]:
        """Return the call as JSON."""
        value = {field.name: getattr(self, field.name) for field in fields(self)}
        return value | {
            "messages": list(self.messages),
            "usage": asdict(self.usage),
            "timings": asdict(self.timings),
            "trace": trace_to_json(self.trace),
        }


def trace_to_json(trace: Sequence[TracedToken]) -> list[Any]:
    """Return a trace as JSON, an entry for each token."""
    return [
        [
            token_to_json(entry.token),
            entry.kind,
            round(entry.at_s, 6),
            entry.left,
            _rounded(entry.probability),
            _rounded(entry.allowed_probability),
            [
                [token_to_json(candidate.token), _rounded(candidate.probability), candidate.refused_by]
                for candidate in entry.candidates
            ],
        ]
        for entry in trace
    ]


def token_to_json(token: bytes) -> str | dict[str, str]:
    """Return a token as a string, or its bytes in hexadecimal digits."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return {"bytes": token.hex()}


def _rounded(probability: float | None) -> float | None:
    # a sum of rounded probabilities may exceed 1 in the last digit
    return None if probability is None else min(float(f"{probability:.5g}"), 1.0)


def grammar_text(grammar: AnswerFormat | None) -> str:
    """Return a grammar as GBNF, or a JSON Schema as JSON; "" for none."""
    if grammar is None:
        return ""
    return str(grammar) if isinstance(grammar, Grammar) else json.dumps(grammar, ensure_ascii=False)


def _plain_image(value: Any) -> Any:
    """Return of an image only the type and the size."""
    return {"media_type": value.media_type, "bytes": len(value.data)} if isinstance(value, Image) else value


class RunRecorder(AbstractContextManager["RunRecorder"]):
    """Collects the events of one run and the calls of its model, and writes them when it is closed.

    Give it to the planner. Raises SetupError at once if the file cannot be written.
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

    def recorded(self, answers: AnswerSource, *, traces: bool) -> AnswerSource:
        """Return `answers`, recording each call of the model; with a trace of its tokens if `traces`."""
        return partial(self._answer, answers, traces)

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
            case ModelCalled() if self._decodings:
                told = {name: getattr(event, name) for name in _TOLD}
                self._decodings[-1] = replace(self._decodings[-1], **told)
        self._events.append(event)

    def close(self) -> None:
        """Write the file. Raises SetupError."""
        try:
            with self._part.open("w", encoding="utf-8", errors="backslashreplace") as file:
                json.dump(self.to_json(), file, ensure_ascii=False)
                file.write("\n")
            self._part.replace(self._path)
        except OSError as error:
            self._part.unlink(missing_ok=True)
            raise SetupError(f"{self._path} cannot be written: {error.strerror or error}.") from None

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        started = next((event for event in self._events if isinstance(event, RunStarted)), None)
        about = {} if started is None else {"query": started.query, "turn": started.turn}
        unfinished = {"outcome": INTERRUPTED, "answer": None, "error": "the run was interrupted", **about}
        return {
            **(unfinished if self._run is None else self._run.to_json()),
            "events": [event.to_json() for event in self._events],
            "decodings": [decoding.to_json() for decoding in self._decodings],
        }

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _answer(
        self, answers: AnswerSource, traces: bool, asked: Asked
    ) -> AsyncGenerator[AnswerEvent, None]:
        traced = replace(asked, request=replace(asked.request, trace=traces))
        outcome: Completion | BaseException = asyncio.CancelledError()
        try:
            async with aclosing(answers(traced)) as events:
                async for event in events:
                    if isinstance(event, Answered):
                        outcome = event.completion
                    yield event
        except (Exception, asyncio.CancelledError) as error:  # GeneratorExit may come after the end
            outcome = error
            raise
        finally:
            self._decodings.append(RecordedCall.of(asked.request, outcome, self._step))
