"""The leaderboard with a model: the planner answers each question with the entry's functions as tools.

Prompt, ranking, grammar and decoding are those of a run. The first call of a function ends it, except where
several are expected: there each call is reported as done, and the model answers when it has made them all.
Nothing is executed. Where calls are expected, no answer is possible before the first, except with
configurations that stand for what a user has, such as `auto`. These are the differences from the
leaderboard's own prompts: no second call is requested where one is expected, and each call is a step. A
refused text is not a call; a call that its schema refuses is one, and wrong. There are no retries.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from jsonschema import Draft202012Validator

from gbnf.calls import ToolCalls, parse_tool_calls
from gbnf.errors import GbnfError
from gbnf.schema.closing import close_arguments
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf.tools.prerequisites import ANY_TOOL
from gbnf_bench.bfcl.ast_checker import Call, fault
from gbnf_bench.bfcl.files import Leaderboard, LeaderboardEntry
from gbnf_bench.bfcl.functions import tools_of
from gbnf_bench.bfcl.peer import Peer
from gbnf_bench.code_versions import versions
from gbnf_bench.configurations import Configuration
from gbnf_bench.run_log import Key, RunRecord
from gbnf_bench.runner import RunOptions, Runs, run_events
from gbnf_bench.snapshots import Snapshot
from gbnf_server.backends.answer import Answered, AnswerEvent, AnswerSource, Asked, answer
from gbnf_server.backends.base import Backend, Request
from gbnf_server.executors import Context, Workspace
from gbnf_server.planner.drivers import steady_clock
from gbnf_server.planner.events import ToolCalled
from gbnf_server.planner.loop import plan
from gbnf_server.planner.options import PlannerOptions, ResolvedOptions
from gbnf_server.planner.runs.fingerprints import digest, options_identity

SPARE_STEPS = 4
"""Maximum steps beyond the expected calls."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One entry under one configuration."""

    entry: LeaderboardEntry
    configuration: Configuration
    fingerprint: str

    @property
    def key(self) -> Key:
        """Category, entry and configuration."""
        return (self.entry.category, self.entry.id, self.configuration.name, 0)

    @property
    def title(self) -> str:
        """The question in a few words."""
        return f"{self.configuration.name} {self.entry.category}"


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """The result of a question: the calls by the functions' names, and why they are wrong, if they are.

    `valid`: there are calls, and jsonschema accepts the arguments of each. `truncated`: the token limit ended
    or shortened a text. `tokens`: of the model's texts. `seconds`: for its prompts and texts.
    """

    calls: tuple[Call, ...]
    fault: str | None
    valid: bool = False
    truncated: bool = False
    tokens: int = 0
    seconds: float = 0.0


class LeaderboardRun(Runs[Question]):
    """The leaderboard's questions for one model. Raises BackendUnreachableError if the server goes away."""

    def __init__(
        self,
        leaderboard: Leaderboard,
        configurations: Sequence[Configuration],
        backend: Backend,
        *,
        model: str,
        options: RunOptions,
        peer: Peer | None = None,
    ) -> None:
        self._peer = peer
        self._backend, self._options, self._versions = backend, options, versions()
        self._answers = _LastAnswer(partial(answer, backend))
        self.jobs = tuple(
            Question(entry, configuration, self._fingerprint(entry, configuration, model))
            for entry in leaderboard.questions
            for configuration in configurations
        )

    def run(self, question: Question) -> RunRecord:
        """Ask the model one question."""
        try:
            tools = tuple(tools_of(question.entry.functions).values())
        except GbnfError as error:
            events: tuple[Any, ...] = ({"event": "unusable", "error": str(error)},)
        else:
            choice = question.configuration.peer
            if choice and self._peer is not None:
                events = self._peer.events(question.entry, tools, choice, self._options)
            else:
                events = self._events(question, tools)
        return RunRecord(
            *question.key, self._options.seed, question.fingerprint, events, Snapshot(), Snapshot()
        )

    def _events(self, question: Question, tools: tuple[Tool, ...]) -> tuple[Any, ...]:
        options = self._options_of(question.entry, question.configuration)
        clock = steady_clock(datetime.now(UTC))
        if not self._options.warm:
            self._backend.clear_prompt_cache()
        planning = plan(_query(question.entry), tools, options, turn="bfcl", clock=clock)
        with tempfile.TemporaryDirectory(prefix="gbnf-bfcl-") as folder:
            # no function is executed: each call is reported as done
            context = Context(Workspace(folder))
            names = {tool.name for tool in tools}
            return run_events(
                planning,
                self._answers,
                context,
                lambda *_: {"done": True},
                ends=lambda event: (
                    question.entry.kind != "several" and isinstance(event, ToolCalled) and event.name in names
                ),
            )

    def _options_of(self, entry: LeaderboardEntry, configuration: Configuration) -> ResolvedOptions:
        options = PlannerOptions(
            max_steps=len(entry.expected) + SPARE_STEPS,
            max_seconds=None,
            max_blocked=1,
            required=(ANY_TOOL,) if entry.expected and configuration.requires_call else (),
            max_tokens=self._options.max_tokens,
            temperature=self._options.temperature,
            seed=self._options.seed,
            salvage=False,
            **configuration.settings,
        )
        return configuration.resolve(options, self._backend)

    def _fingerprint(self, entry: LeaderboardEntry, configuration: Configuration, model: str) -> str:
        return digest(
            {
                "messages": entry.messages,
                "functions": entry.functions,
                "settings": options_identity(self._options_of(entry, configuration)),
                "configuration": configuration.name,
                "model": model,
                "warm": self._options.warm,
                "versions": self._versions,
            }
        )


class _LastAnswer:
    """Answers a request without a grammar as the one before it, if they are equal.

    Configurations that differ only in how a text is parsed need it once.
    """

    def __init__(self, answers: AnswerSource) -> None:
        self._answers = answers
        self._last: tuple[Request, Answered] | None = None

    async def __call__(self, asked: Asked) -> AsyncGenerator[AnswerEvent, None]:
        if asked.request.grammar is None and self._last is not None and self._last[0] == asked.request:
            yield self._last[1]
            return
        async with aclosing(self._answers(asked)) as events:
            async for event in events:
                if isinstance(event, Answered) and asked.request.grammar is None:
                    self._last = asked.request, event
                yield event


def answer_of(entry: LeaderboardEntry, record: RunRecord) -> GradedAnswer:
    """Return a record's grade.

    Pure, so that a stored run can be scored again.
    """
    try:
        tools = tools_of(entry.functions)
    except GbnfError as error:
        return GradedAnswer((), f"its functions are no tools: {error}")
    names = {tool.name: function for function, tool in tools.items()}
    calls = tuple(
        (names.get(name, name), arguments)
        for name, arguments in _called(record.events, tuple(tools.values()))
    )
    failed = next((event["run"]["error"] for event in record.events if _has_failed(event)), None)
    texts = [event for event in record.events if event["event"] == "model_called"]
    return GradedAnswer(
        calls,
        failed or fault(entry, calls),
        bool(calls) and all(_is_valid(call, tools) for call in calls),
        any(
            text["finish_reason"] == "length" or text["shortened_at"] is not None
            for text in texts
            if text.get("purpose") != "choice"  # one token, to know whether the model means to call
        ),
        sum(text["usage"]["completion_tokens"] for text in texts),
        sum(text["timings"]["prompt_s"] + text["timings"]["completion_s"] for text in texts),
    )


def _is_valid(call: Call, tools: Mapping[str, Tool]) -> bool:
    name, arguments = call
    return name in tools and Draft202012Validator(close_arguments(tools[name].args)).is_valid(arguments)


def _called(events: Sequence[Mapping[str, Any]], tools: tuple[Tool, ...]) -> Iterator[Call]:
    """Return the accepted calls, and the call that was refused for its name or its arguments."""
    names = {tool.name for tool in tools}
    for event in events:
        if event["event"] == "tool_called" and event["name"] in names:  # not find_tools
            yield event["name"], event["arguments"]
        elif event["event"] == "call_blocked" and event["refusal"] == "invalid":
            step = parse_tool_calls(event["text"], (*tools, FINAL_ANSWER))
            if isinstance(step, ToolCalls):
                written = [
                    (call.name, call.arguments) for call in step.calls if call.name != FINAL_ANSWER.name
                ]
                yield from [*written, *((call.name, {}) for call in step.invalid)][:1]


def _has_failed(event: Mapping[str, Any]) -> bool:
    return bool(event["event"] == "run_finished" and event["run"]["outcome"] == "failed")


def _query(entry: LeaderboardEntry) -> str:
    """Return the messages as one request, system messages first."""
    return "\n\n".join(message["content"] for message in entry.messages)
