"""The state of a run: what it is asked, with which options and tools, and all that changes while it runs.

`OrderedTools` are those of the run, `OfferedTools` those of one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from gbnf.prompts.messages import Image, Message
from gbnf.protocols.protocol import AnswerFormat
from gbnf.requests.evidence import Evidence
from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS, Tool
from gbnf.tools.prerequisites import ANY_TOOL
from gbnf_server.planner.compaction import Compaction, PromptMeter
from gbnf_server.planner.events import ModelCalled, Outcome, Run, SalvagedAnswer, Step
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.repeats import MAX_READS, CallLog


@dataclass(frozen=True, slots=True)
class OrderedTools:
    """The tools of a run, with the order that its options add.

    `tools`: those that a step may offer. `final_answer`: None if only a terminal tool can end the run.
    `unreachable`: the other tools of the pool, each with the reason why no step can offer it.
    """

    tools: tuple[Tool, ...] = ()
    final_answer: Tool | None = None
    unreachable: Mapping[Tool, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools offered in a step, and their grammar."""

    in_system_message: tuple[Tool, ...]
    """Those that the filter kept when the run began, and the built-in ones: it describes them."""
    described: tuple[Tool, ...]
    """Those and the tools that later messages describe."""
    callable: tuple[Tool, ...]
    """Of those, what may be called now."""
    waiting: Mapping[str, tuple[str, ...]]
    """Those that may not, by name, because other tools, these, have to succeed first."""
    refers_to: tuple[int, ...]
    """The earlier steps that have entries."""
    grammar: AnswerFormat | None
    resting: frozenset[str] = frozenset()
    """Those that failed too often, or of which every call would be a repetition."""
    excluded: tuple[str, ...] = ()
    """The calls that the grammar excludes, as JSON."""
    evidence: Evidence | None = None
    """What the request says of the call, if that is to be used."""
    only_answers: bool = False
    """Nothing of the request seems left."""
    seconds: float = 0.0
    """What choosing and compiling them took."""

    @property
    def answers(self) -> bool:
        """Whether the model may answer."""
        return any(tool.name == FINAL_ANSWER.name for tool in self.callable)

    @property
    def own(self) -> tuple[Tool, ...]:
        """The callable tools of the pool."""
        built_in = {FINAL_ANSWER.name, ASK_USER.name, FIND_TOOLS.name}
        return tuple(tool for tool in self.callable if tool.name not in built_in)


@dataclass(slots=True)
class Lead:
    """What leads a small model: which tools it prefers, and what its last steps say of the next one."""

    answers_next: bool = False  # the next step offers the answer, and what the request has for no call yet
    only_repeats: bool = False  # a call that is done was repeated, and again after the model was told so
    without_tools: bool = False  # the request is answered without tools: a draft was about them, or refused
    calls_next: frozenset[str] = frozenset()  # names of tools one of which the next step calls, if it may
    choice: Mapping[str, float] = field(default_factory=dict)  # log-probabilities of a first call, by tool
    preference: Mapping[str, float] = field(default_factory=dict)  # of tools, by name: the choice and words
    takes_entries: Mapping[str, str] = field(default_factory=dict)  # arguments for entries of earlier steps
    entries_for: str = ""  # the tool that takes what is found first


@dataclass(slots=True)
class Parts:
    """The parts of a request that are carried out one after the other, but for the one in progress."""

    left: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()  # to those that are done
    steps: tuple[Step, ...] = ()  # of those that are done
    messages_before: int = 0  # of earlier exchanges


@dataclass(slots=True)
class RunState:
    """What a run is asked, and all that changes during it."""

    query: str  # the request, or the part of it that is in progress
    turn: str
    started_at: datetime
    options: ResolvedOptions = field(default_factory=ResolvedOptions)
    order: OrderedTools = field(default_factory=OrderedTools)
    images: tuple[Image, ...] = ()
    in_system_message: tuple[Tool, ...] = ()  # described in the system message; the same for the whole run
    uncompilable_reasons: set[str] = field(default_factory=set)  # of tools that are not offered
    described: tuple[Tool, ...] = ()  # those, and the tools that later messages describe
    found_tools: tuple[Tool, ...] = ()  # by find_tools
    number: int = 0  # of the step in progress; 0 before the first
    blocked_in_a_row: int = 0
    lead: Lead = field(default_factory=Lead)
    whole_query: str = ""  # the request
    parts: Parts = field(default_factory=Parts)
    waited_s: float = 0.0  # for a person
    entries: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # by step
    calls: CallLog = field(default_factory=CallLog)
    pending: set[str] = field(default_factory=set)  # canonical calls without anybody to approve them
    earlier_texts: list[str] = field(default_factory=list)  # earlier requests, and answers to questions
    system: str = ""  # the system message of the last call of the model
    history: list[Message] = field(default_factory=list)  # all but the system message, whole
    compaction: Compaction = field(default_factory=Compaction)  # how the history is shown
    meter: PromptMeter = field(default_factory=PromptMeter)
    steps: list[Step] = field(default_factory=list)  # of the part in progress
    unfinished: ModelCalled | None = None  # the last call of the model, if an error has ended it
    warnings: list[str] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)  # by the names of `Usage`

    def __post_init__(self) -> None:
        self.whole_query = self.whole_query or self.query
        self.calls.repeats_all = self.options.repeat_calls
        self.calls.most_reads = 1 if self.options.guidance.follows_request else MAX_READS

    @property
    def is_divided(self) -> bool:
        """Whether the request has several parts."""
        return bool(self.parts.left or self.parts.answers)

    @property
    def run_steps(self) -> tuple[Step, ...]:
        """The steps of all parts so far."""
        return (*self.parts.steps, *self.steps)

    @property
    def request(self) -> str:
        """All that the person has said; of a request with several parts, the one in progress."""
        return "\n".join([self.query, *self.earlier_texts])

    @property
    def done_calls(self) -> tuple[Mapping[str, Any], ...]:
        """The calls that returned a result, for the part in progress."""
        return _calls_done(self.steps)

    @property
    def changing(self) -> frozenset[str]:
        """The names of the tools that change something and have returned a result."""
        return self.succeeded & {tool.name for tool in self.order.tools if tool.run.effect == "write"}

    @property
    def found_texts(self) -> frozenset[str]:
        """The texts among the entries of results."""
        return frozenset(entry for entry in chain(*self.entries.values()) if isinstance(entry, str))

    @property
    def succeeded(self) -> frozenset[str]:
        """The names of the tools that have returned a result, for the part in progress."""
        return frozenset(call["name"] for call in self.done_calls)

    @property
    def prerequisites(self) -> frozenset[str]:
        """The names of the tools that have returned a result; with `ANY_TOOL` if one of the pool has."""
        names = frozenset(call["name"] for call in _calls_done(self.run_steps))
        return names | {ANY_TOOL} if names - {ASK_USER.name, FIND_TOOLS.name} else names

    def next_part(self, answer: str) -> bool:
        """Begin the next part of the request after the answer to the last one; False if that was all.

        The model is shown this part alone, since it refers to no other: it would mix them.
        """
        if not self.parts.left:
            return False
        self.query, *left = self.parts.left
        answers, before = (*self.parts.answers, answer), self.parts.messages_before
        self.parts = Parts(tuple(left), answers, self.run_steps, before)
        self.steps, self.lead, self.blocked_in_a_row = [], Lead(takes_entries=self.lead.takes_entries), 0
        self.in_system_message = self.described = ()
        self.entries, self.compaction = {}, Compaction()
        self.calls.begin_part()
        self.history = [*self.history[:before], {"role": "user", "content": self.query}]
        return True

    def finish(
        self,
        outcome: Outcome,
        ended_at: datetime,
        *,
        answer: str | None = None,
        error: str | None = None,
        salvage: SalvagedAnswer | None = None,
    ) -> Run:
        """Return the finished run."""
        if error is not None and self.parts.left:
            error += f"; not begun: {'; '.join(self.parts.left)}"
        if answer is not None and salvage is None:
            answer = "\n".join(filter(None, [*self.parts.answers, answer]))
        return Run(
            outcome=outcome,
            answer=answer,
            error=error,
            query=self.whole_query,
            turn=self.turn,
            steps=self.run_steps,
            warnings=tuple(self.warnings),
            started_at=self.started_at,
            duration_s=(ended_at - self.started_at).total_seconds(),
            prompt_tokens=self.tokens["prompt_tokens"],
            completion_tokens=self.tokens["completion_tokens"],
            cached_tokens=self.tokens["cached_tokens"],
            salvage=salvage,
        )


def _calls_done(steps: Sequence[Step]) -> tuple[Mapping[str, Any], ...]:
    return tuple(step.call for step in steps if step.call is not None and step.result is not None)
