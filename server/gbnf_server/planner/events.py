"""The events and effects of a planner run, and the value that it returns.

The loop yields an effect, a driver performs it and sends the reply:

    CallModel     -> Completion
    ExecuteTool   -> the result, a JSON object
    AskPerson     -> the answer, a string
    AskApproval   -> bool

`Event` is a closed union of frozen values. Invariants of every sequence of events:

- `RunStarted` is first, `RunFinished` last and has the `Run`; only a cancelled run has no `RunFinished`;
- a step begins with `StepStarted` and has at most one `ModelCalled` for its call, and with free reasoning
  another one before it; then `CallBlocked`, or `ToolCalled` and then `ToolDone` or `ToolFailed`;
- after a run without an answer, `SalvageStarted` may follow, with at most one `ModelCalled`;
- `HistoryCompacted` comes after `StepStarted` and before a model call of the step, perhaps several times;
- streamed `TextWritten` events precede the `ModelCalled` with the whole text;
- `WarningRaised` may be anywhere between.

Times: `at` is an aware datetime of the run's clock; durations are seconds. `to_json()` returns a value for
`json.dumps`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, TypeAlias

from gbnf.protocols.readers import AnswerReader
from gbnf.strict_json import map_json
from gbnf.tools import Tool
from gbnf_server.backends.answer import AnswerPiece
from gbnf_server.backends.base import Request, Timings, Usage
from gbnf_server.llama.token_values import ValueProbability

Unanswered: TypeAlias = Literal["blocked", "exhausted", "failed"]
"""blocked: too many refused calls in a row, or no call is left that would not repeat another. exhausted: no
answer within the allowed steps or seconds. failed: the model, its server or the grammar gave an error."""

Outcome: TypeAlias = Literal["answered", "salvaged", "blocked", "exhausted", "failed"]
"""answered: the model gave its final answer, or a terminal tool succeeded, whose result is the answer.
salvaged: neither, and the answer was built from tool results. The others are `Unanswered`: there is no
answer."""

Purpose: TypeAlias = Literal["tool", "choice", "call", "reasoning", "answer", "salvage"]
"""What the model generates: a call, reasoning before one, or an answer from a run's results."""

Refusal: TypeAlias = Literal["truncated", "ungrammatical", "unparsed", "invalid", "repeated"]
"""Why a model's text was not executed; see `gbnf_server.planner.call_checks`."""

ToolFault: TypeAlias = Literal["error", "timeout", "denied"]
"""Why a valid call has no result: an error of the tool, its time-out, or a person's refusal."""


StepOffer: TypeAlias = tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]
"""The tools of a step, the steps that it may refer to, and the calls that it excludes."""


class _Json:
    """Dataclasses with a JSON form: their fields, by name."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value as JSON."""
        return {member.name: _plain(getattr(self, member.name)) for member in fields(self)}  # type: ignore[arg-type]  # every subclass is a dataclass


@dataclass(frozen=True, slots=True)
class _Event(_Json):
    at: datetime

    def to_json(self) -> dict[str, Any]:
        return {"event": event_name(type(self)), **_Json.to_json(self)}


@dataclass(frozen=True, slots=True)
class _StepEvent(_Event):
    step: int


def _plain(value: Any) -> Any:
    return map_json(value, _plain_scalar)


def _plain_scalar(value: Any) -> Any:
    match value:
        case _Json():
            return value.to_json()
        case Usage() | Timings() | ValueProbability():
            return _plain(asdict(value))
        case datetime():
            return value.isoformat()
        case float():
            return round(value, 6)
        case _:
            return value


def event_name(kind: type) -> str:
    """Return the name of an event class in JSON: `ToolDone` -> "tool_done"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


@dataclass(frozen=True, slots=True)
class Step(_Json):
    """One step of a run: the model's text, and its outcome.

    `call` is None if the text has no valid call. `refusal` says why it was not executed, `fault` why there is
    no result, and `error` is the message to the model; all are None for a step that succeeded. A text that an
    error of the backend ended has that `error` alone, and ends the run. `result` is the whole result of the
    tool (the model may have seen a shortened one). `model_s` and `tool_s`: seconds. `repairs` lists the
    repairs of a text tool call. `reasoning` is the model's reasoning before the call, if the backend returns
    it; it is not part of the call. `output` is what the tool printed, and the traceback of an exception; no
    model sees it. `probabilities`: of the values in the call, if the planner's options ask for them.
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
    output: str = ""
    probabilities: tuple[ValueProbability, ...] = ()

    @property
    def name(self) -> str | None:
        """The tool that was called, None without a valid call."""
        return None if self.call is None else self.call["name"]


@dataclass(frozen=True, slots=True)
class SalvagedAnswer(_Json):
    """An answer built from results: `by` the model, or as a list. `steps` are those that it is based on.

    `error` says why the model's text was not used, if it was requested.
    """

    text: str
    by: Literal["model", "list"]
    steps: tuple[int, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Run(_Json):
    """A finished run: its outcome, the answer if there is one, the error, and its steps.

    `error` is set for every outcome but `answered`, `salvage` for `salvaged`. Token counts are sums over the
    model calls; `cached_tokens` are the prompt tokens that came from the KV cache.
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
    """A run begins with these tools; `dropped` maps each tool that the pool filter dropped to the reason."""

    query: str
    turn: str
    backend: str
    grammar: bool
    tools: tuple[str, ...]
    dropped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StepStarted(_StepEvent):
    """A step begins: the tools that it offers, and the earlier steps whose entries a call may refer to.

    `compile_s`: seconds to filter the tools and compile their grammar. `excluded`: calls that the grammar
    excludes, as JSON, since they would repeat earlier ones. `evidence`: what the request says of the call
    (`gbnf.requests.evidence.Evidence.summary`), where the model gets a bonus for it.
    """

    tools: tuple[str, ...]
    refers_to: tuple[int, ...]
    compile_s: float = 0.0
    excluded: tuple[str, ...] = ()
    evidence: Mapping[str, Any] | None = None

    @property
    def offer(self) -> StepOffer:
        """What decides about the grammar of the step."""
        return self.tools, self.refers_to, self.excluded


@dataclass(frozen=True, slots=True)
class HistoryCompacted(_StepEvent):
    """The history is shown shortened from now on, since it is near the model's context, or exceeds it.

    `tier`: see `gbnf_server.planner.compaction`. `steps`: those that are not shown whole. `tokens_before` and
    `tokens_after`: of the prompt, estimated. The steps of the `Run` keep their whole results.
    """

    tier: int
    steps: tuple[int, ...]
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True)
class TextWritten(_StepEvent):
    """The model has generated one more piece of `text`, for a `purpose`.

    `answer` is the part of it that belongs to the final answer, "" if none. It is provisional until
    `RunFinished`, since the call may still be rejected; where calls are text, one may still follow.
    """

    purpose: Purpose
    text: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class ModelCalled(_StepEvent):
    """The model generated `text`, for a `purpose`. `duration_s`: the whole call; `timings`: the backend's.

    An error or a cancellation may have ended the text; there is one token in `usage` for each piece then.
    `shortened_at`: the index in the text from which on the token limit determined it, or `repeated` what the
    model repeated without an end (see `Completion`). `call_odds`: of the purpose "choice", the log-odds that
    the model means to call a tool (`gbnf_server.backends.call_odds`).
    """

    text: str
    finish_reason: Literal["stop", "length"]
    usage: Usage
    timings: Timings
    duration_s: float
    reasoning: str = ""
    purpose: Purpose = "call"
    shortened_at: int | None = None
    repeated: str = ""
    call_odds: float | None = None


@dataclass(frozen=True, slots=True)
class ToolCalled(_StepEvent):
    """A valid call is about to be executed. `arguments`: with step references filled in.

    `asks`: whether it requires approval.
    """

    name: str
    arguments: Mapping[str, Any]
    effect: Literal["read", "write"]
    asks: bool


@dataclass(frozen=True, slots=True)
class ToolDone(_StepEvent):
    """A tool returned a result. `output`: what it printed."""

    name: str
    result: Mapping[str, Any]
    duration_s: float
    output: str = ""


@dataclass(frozen=True, slots=True)
class ToolFailed(_StepEvent):
    """A call has no result. `output`: what the tool printed, and the traceback of an exception."""

    name: str
    fault: ToolFault
    error: str
    duration_s: float
    output: str = ""


@dataclass(frozen=True, slots=True)
class CallBlocked(_StepEvent):
    """The model's text was rejected, nothing executed. `in_a_row`: consecutive refusals, with this one."""

    refusal: Refusal
    text: str
    error: str
    in_a_row: int


@dataclass(frozen=True, slots=True)
class SalvageStarted(_StepEvent):
    """The run has ended without an answer, and one is built from the results of `steps`.

    `ended` and `error` are those of the run. No more tools are called.
    """

    ended: Unanswered
    error: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WarningRaised(_StepEvent):
    """A problem that does not end the run; each message is reported once."""

    message: str


@dataclass(frozen=True, slots=True)
class RunFinished(_Event):
    """The run has ended."""

    run: Run


Event: TypeAlias = (
    RunStarted
    | StepStarted
    | HistoryCompacted
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


@dataclass(frozen=True, slots=True)
class CallModel:
    """Generate text. `reader`: makes the reader of its part in the final answer; `pieces`: as they come."""

    request: Request
    reader: Callable[[], AnswerReader] = field(compare=False, repr=False)
    step: int
    purpose: Purpose
    pieces: list[AnswerPiece] = field(default_factory=list, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ExecuteTool:
    """Run a tool with these arguments; step references are filled in. `on_output`: see `Context`."""

    tool: Tool
    arguments: Mapping[str, Any]
    on_output: Callable[[str], None] = field(default=lambda _: None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Ask the person a question; without options the answer is free text."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Ask the person to approve a call; step references are filled in."""

    call: Mapping[str, Any]


Effect: TypeAlias = CallModel | ExecuteTool | AskPerson | AskApproval
