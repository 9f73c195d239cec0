"""The state of a run: all that changes while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gbnf.prompts.messages import Image, Message
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.planner.compaction import Compaction, PromptMeter
from gbnf_server.planner.events import ModelCalled, Outcome, Run, SalvagedAnswer, Step
from gbnf_server.planner.repeats import CallLog


@dataclass(slots=True)
class RunState:
    """All that changes during a run."""

    query: str
    turn: str
    started_at: datetime
    images: tuple[Image, ...] = ()
    providers: Mapping[str, Provider] = field(default_factory=PROVIDERS.copy)
    in_system_message: tuple[Tool, ...] = ()  # described in the system message; the same for the whole run
    left_out: set[str] = field(default_factory=set)  # why tools cannot be compiled, and so are not offered
    described: tuple[Tool, ...] = ()  # those, and the tools that later messages describe
    found: tuple[Tool, ...] = ()  # by find_tools
    number: int = 0  # of the step in progress; 0 before the first
    blocked_in_a_row: int = 0
    answers_next: bool = False  # the next step offers the answer, and what the request has for no call yet
    only_repeats: bool = False  # a call that is done was repeated, and again after the model was told so
    speaks: bool = False  # the request is answered without tools: a draft was about them, or refused
    calls_next: frozenset[str] = frozenset()  # names of tools one of which the next step calls, if it may
    choice: Mapping[str, float] = field(default_factory=dict)  # log-probabilities of a first call, by tool
    preference: Mapping[str, float] = field(default_factory=dict)  # of tools, by name: the choice and words
    takes_entries: Mapping[str, str] = field(default_factory=dict)  # arguments for entries of earlier steps
    entries_for: str = ""  # the tool that takes what is found first
    waited_s: float = 0.0  # for a person
    entries: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # by step
    calls: CallLog = field(default_factory=CallLog)
    pending: set[str] = field(default_factory=set)  # canonical calls without anybody to approve them
    said: list[str] = field(default_factory=list)  # earlier requests, and answers to questions
    system: str = ""  # the system message of the last call of the model
    history: list[Message] = field(default_factory=list)  # all but the system message, whole
    compaction: Compaction = field(default_factory=Compaction)  # how the history is shown
    meter: PromptMeter = field(default_factory=PromptMeter)
    steps: list[Step] = field(default_factory=list)
    unfinished: ModelCalled | None = None  # the last call of the model, if an error has ended it
    warnings: list[str] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)

    def finish(
        self,
        outcome: Outcome,
        at: datetime,
        *,
        answer: str | None = None,
        error: str | None = None,
        salvage: SalvagedAnswer | None = None,
    ) -> Run:
        """Return the finished run."""
        return Run(
            outcome=outcome,
            answer=answer,
            error=error,
            query=self.query,
            turn=self.turn,
            steps=tuple(self.steps),
            warnings=tuple(self.warnings),
            started_at=self.started_at,
            duration_s=(at - self.started_at).total_seconds(),
            prompt_tokens=self.tokens["prompt"],
            completion_tokens=self.tokens["completion"],
            cached_tokens=self.tokens["cached"],
            salvage=salvage,
        )
