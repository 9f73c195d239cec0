"""What a planner run tells while it happens, and the value that it ends with.

`Event` is a closed union of frozen values. Every sequence of events is well-formed: `RunStarted` first;
then each step begins with `StepStarted` and holds at most one `ModelCalled`, after one more where the model
thinks first, followed by at most one of `CallBlocked`, or `ToolCalled` and then `ToolDone` or `ToolFailed`;
where the run ended without an answer, `SalvageStarted` may follow, and at most one `ModelCalled`;
`WarningRaised` may stand anywhere between; `RunFinished` is last and holds the `Run`. Only a cancelled run
stops without one. Where text is asked for, `TextWritten` stand before the `ModelCalled` that holds all of it.

Times: `at` is an aware datetime of the run's clock; durations are seconds. `to_json()` gives a value that
`json.dumps` takes as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypeAlias

Unanswered: TypeAlias = Literal["blocked", "exhausted", "failed"]
"""blocked: too many refused calls in a row. exhausted: no answer within the allowed steps. failed: the model,
its server or the grammar gave an error."""

Outcome: TypeAlias = Literal["answered", "salvaged", "blocked", "exhausted", "failed"]
"""answered: the model gave its final answer. salvaged: it gave none, and what the tools returned was made
into one. The others are `Unanswered`: there is no answer at all."""

Purpose: TypeAlias = Literal["call", "thought", "salvage"]
"""What the model was asked to write: a call, thoughts before one, or plain words from a run's results."""

Refusal: TypeAlias = Literal["cut", "ungrammatical", "unparsed", "invalid", "repeated"]
"""Why a model's text was not executed; `gbnf_server.planner.call_checks` says what each means."""

ToolFault: TypeAlias = Literal["error", "timeout", "denied"]
"""Why a valid call has no result: the tool said so, it took too long, or the person did not approve it."""


class _Json:
    """Gives frozen values a JSON form: their fields, by name."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]  # every subclass is a dataclass


class _Event(_Json):
    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return {"event": event_name(type(self)), **super().to_json()}


def _plain(value: Any) -> Any:
    match value:
        case _Json():
            return value.to_json()
        case datetime():
            return value.isoformat()
        case float():
            return round(value, 6)
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def event_name(kind: type) -> str:
    """The name of an event class in JSON: `ToolDone` -> "tool_done"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


@dataclass(frozen=True, slots=True)
class Step(_Json):
    """One step of a run: what the model wrote, and what came of it.

    `call` is None where the text held no valid call. `refusal` and `fault` say why nothing was executed or
    no result came, with `error` as the text that the model read; both are None for a step that succeeded,
    whose `result` is the tool's whole answer (the model may have seen it clipped). `model_s` and `tool_s`
    are seconds. `repairs` say what was done to read the call, where it was read softly. `reasoning` is what
    the model thought before the call, as far as it showed; it is no part of the call.
    """

    number: int
    text: str
    call: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    refusal: Refusal | None = None
    fault: ToolFault | None = None
    model_s: float = 0.0
    tool_s: float = 0.0
    repairs: tuple[str, ...] = ()
    reasoning: str = ""

    @property
    def name(self) -> str | None:
        """The tool that was called, None where no valid call was made."""
        return None if self.call is None else self.call["name"]


@dataclass(frozen=True, slots=True)
class SalvagedAnswer(_Json):
    """An answer from results: `by` the model, or as a list. `steps` are the numbers that it stands on.

    `error` says why the model's words were not used, where they were asked for.
    """

    text: str
    by: Literal["model", "list"]
    steps: tuple[int, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Run(_Json):
    """How a run ended: its outcome, the answer if there is one, what stood in its way, its steps.

    `error` is a sentence for every outcome but `answered`. Where it is `salvaged`, `salvage` says what the
    answer is made of. Token counts are sums over the model calls; `cached_tokens` are those prompt tokens
    that the backend did not have to read again.
    """

    outcome: Outcome
    answer: str | None
    error: str | None
    query: str
    turn: str
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]
    started_at: datetime
    duration_s: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    salvage: SalvagedAnswer | None = None


@dataclass(frozen=True, slots=True)
class RunStarted(_Event):
    """A run begins with these tools; `dropped` maps each tool that the pool filter left out to its reason."""

    at: datetime
    query: str
    turn: str
    backend: str
    grammar: bool
    tools: tuple[str, ...]
    dropped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StepStarted(_Event):
    """A step begins: the tools that it offers, and the earlier steps whose entries a call may refer to.

    `compile_s` is what choosing the tools and compiling their grammar took.
    """

    at: datetime
    step: int
    tools: tuple[str, ...]
    refers_to: tuple[int, ...]
    compile_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TextWritten(_Event):
    """The model has written one more piece of `text`, for a `purpose`.

    `answer` is what of it belongs to an answer for the person, read out of the call: "" for everything else.
    It is provisional until `RunFinished`, since a call that ends badly is refused.
    """

    at: datetime
    step: int
    purpose: Purpose
    text: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class ModelCalled(_Event):
    """The model wrote `text`, for a `purpose`. `duration_s` is the whole call, the other times the backend's.

    `grammar_s`: what the grammar took of it, None where the backend does not tell, or none held the model.
    """

    at: datetime
    step: int
    text: str
    finish: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    prompt_s: float
    completion_s: float
    duration_s: float
    reasoning: str = ""
    grammar_s: float | None = None
    purpose: Purpose = "call"


@dataclass(frozen=True, slots=True)
class ToolCalled(_Event):
    """A valid call is about to be executed. `arguments` are those that the tool gets, references filled in.

    `asks` is true where a person has to approve first.
    """

    at: datetime
    step: int
    name: str
    arguments: Mapping[str, Any]
    effect: Literal["read", "write"]
    asks: bool


@dataclass(frozen=True, slots=True)
class ToolDone(_Event):
    at: datetime
    step: int
    name: str
    result: Mapping[str, Any]
    duration_s: float


@dataclass(frozen=True, slots=True)
class ToolFailed(_Event):
    at: datetime
    step: int
    name: str
    fault: ToolFault
    error: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class CallBlocked(_Event):
    """The model's text was refused, nothing executed. `in_a_row` counts refusals, this one included."""

    at: datetime
    step: int
    refusal: Refusal
    text: str
    error: str
    in_a_row: int


@dataclass(frozen=True, slots=True)
class SalvageStarted(_Event):
    """The run has ended without an answer, by `ended` and `error`, and one is made of the results of `steps`.

    No tool is called any more.
    """

    at: datetime
    step: int
    ended: Unanswered
    error: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WarningRaised(_Event):
    at: datetime
    step: int
    message: str


@dataclass(frozen=True, slots=True)
class RunFinished(_Event):
    at: datetime
    run: Run


Event: TypeAlias = (
    RunStarted
    | StepStarted
    | TextWritten
    | ModelCalled
    | ToolCalled
    | ToolDone
    | ToolFailed
    | CallBlocked
    | SalvageStarted
    | WarningRaised
    | RunFinished
)
