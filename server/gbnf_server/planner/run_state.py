"""A run's settings, which stay, and its state, which is all that changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gbnf.prompts.messages import Image, Message, PromptStyle
from gbnf.tools import Tool
from gbnf_server.backends.base import Dialect
from gbnf_server.backends.reasoning import ReasoningTags
from gbnf_server.planner.events import Outcome, Run, SalvagedAnswer, Step
from gbnf_server.planner.reasoning import ReasoningMode


@dataclass(frozen=True, slots=True)
class Settings:
    """How a planner works; the same for each of its runs.

    `max_blocked` refusals in a row end a run. `final_answer_from` is the first step that may end it.
    With `grammar` off the prompt alone asks for the format, and the text is parsed as it comes, or, with
    `soft`, read for calls in any usual shape (`gbnf.calls`). `dialect` is what the backend takes as a
    grammar; where it takes none, calls are read softly. With `salvage`, a run that ends without an answer
    gets one out of its results, if it has any: a `Planner` does so, runs that are measured do not.
    `reasoning` as in `gbnf_server.planner.reasoning`: with "free" the model thinks for `thought_tokens` at
    most, between the `markers` of its template, or in plain words where the backend has none.
    With `lines`, and no grammar, the prompt asks for calls in plain lines, which are read softly.
    For comparing, and nothing to run with: with `union` off the grammar lets any name go with any arguments,
    with `filter` off all tools are offered.
    """

    max_steps: int = 12
    max_blocked: int = 3
    final_answer_from: int = 2
    ask_user: bool = False
    grammar: bool = True
    soft: bool = False
    lines: bool = False
    dialect: Dialect = "gbnf"
    salvage: bool = False
    reasoning: ReasoningMode = "off"
    thought_tokens: int = 256
    reasoning_tags: ReasoningTags | None = None
    union: bool = True
    filter: bool = True
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    language: str = "en"
    prompt_style: PromptStyle = "full"
    backend: str = ""

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_blocked", "final_answer_from", "max_tokens", "thought_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(slots=True)
class RunState:
    """All that changes during a run."""

    query: str
    turn: str
    started_at: datetime
    images: tuple[Image, ...] = ()
    in_system_message: tuple[Tool, ...] = ()  # what the system message tells of; the same for the whole run
    described: tuple[Tool, ...] = ()  # that, and what later messages told of
    number: int = 0  # of the step in progress; 0 before the first
    blocked_in_a_row: int = 0
    entries: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # of each step that has some
    call_counts: Counter[str] = field(default_factory=Counter)  # canonical call -> times it was let through
    pending: set[str] = field(default_factory=set)  # canonical calls that nobody was there to approve
    said: list[str] = field(default_factory=list)  # the person's answers to questions
    history: list[Message] = field(default_factory=list)  # all but the system message
    steps: list[Step] = field(default_factory=list)
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
