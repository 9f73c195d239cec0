"""Run cases: each run in a new workspace, with real executors and the planner."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from gbnf.errors import clip
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_bench.cases import Case, Suite
from gbnf_bench.code_versions import code_identity, versions
from gbnf_bench.configurations import Configuration
from gbnf_bench.run_log import Key, RunLog, RunRecord
from gbnf_bench.snapshots import make_case_context, snapshot
from gbnf_server.backends.answer import AnswerSource, answer
from gbnf_server.backends.base import Backend
from gbnf_server.executors import Context, run_executor
from gbnf_server.planner.drivers import RunEnvironment, drive, steady_clock
from gbnf_server.planner.events import Event, StepOffer, StepStarted
from gbnf_server.planner.loop import Planning, plan
from gbnf_server.planner.options import PlannerOptions, ResolvedOptions
from gbnf_server.planner.runs.fingerprints import digest, options_identity, tool_identity
from gbnf_server.planner.runs.recording import grammar_text
from gbnf_server.planner.runs.run_files import read_events
from gbnf_server.planner.tool_offer import grammar_of_step


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The settings of all runs. Run `n` (from 0) of a case has the seed `seed + n`.

    `warm`: runs reuse the KV cache of earlier ones. Otherwise each run starts with an empty cache, so that
    neither latencies nor near ties depend on earlier runs.
    """

    runs: int = 1
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 512
    warm: bool = False


class Job(Protocol):
    """One run to execute. Its record in a log has this key and fingerprint."""

    @property
    def key(self) -> Key: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def title(self) -> str: ...


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run to execute."""

    suite: Suite
    case: Case
    configuration: Configuration
    run: int
    fingerprint: str

    @property
    def key(self) -> Key:
        """Suite, case, configuration and number of the run."""
        return (self.suite.name, self.case.id, self.configuration.name, self.run)

    @property
    def title(self) -> str:
        """The job in a few words."""
        number = f" #{self.run + 1}" if self.run else ""
        return f"{self.configuration.name} {clip(self.case.id, 28)}{number}"


_Job = TypeVar("_Job", bound=Job)
ToolRunner: TypeAlias = Callable[[Tool, Mapping[str, Any], Context], dict[str, Any]]


class Runs(ABC, Generic[_Job]):
    """The runs of a bench, of which each is logged when it is done."""

    jobs: tuple[_Job, ...]

    @abstractmethod
    def run(self, job: _Job) -> RunRecord:
        """Execute one job. Raises what is no result of a run (`gbnf_server.planner.runs.run_log`)."""

    def remaining(self, log: RunLog) -> tuple[_Job, ...]:
        """Return the jobs without a record of the same fingerprint in the log."""
        return tuple(job for job in self.jobs if (job.key, job.fingerprint) not in log.records)

    def run_all(self, log: RunLog) -> Iterator[tuple[_Job, RunRecord]]:
        """Execute the remaining jobs, and yield each record after logging it."""
        for job in self.remaining(log):
            record = self.run(job)
            log.add(record)
            yield job, record


class Bench(Runs[RunJob]):
    """The jobs of suites, configurations, tools and a model.

    `model` identifies the model (a file's hash). `execute` executes a tool, by default its executor.
    `providers`: of tool variants, as for `filter_pool`.
    """

    def __init__(
        self,
        suites: Sequence[Suite],
        configurations: Sequence[Configuration],
        tools: Sequence[Tool],
        backend: Backend,
        *,
        model: str,
        options: RunOptions,
        execute: ToolRunner = run_executor,
        providers: Mapping[str, Provider] = PROVIDERS,
    ) -> None:
        self.tools, self.options, self._providers = tuple(tools), options, dict(providers)
        self._tools = {tool.name: tool for tool in self.tools}
        self._code = {tool.name: code_identity(tool) for tool in self.tools}
        self._versions = versions()
        self._backend, self._model, self._execute = backend, model, execute
        self._prompt_style = backend.info().traits.prompt_style
        self.jobs = tuple(
            RunJob(suite, case, configuration, run, self._fingerprint(suite, case, configuration, run))
            for suite in suites
            for case in suite.cases
            for configuration in configurations
            for run in range(options.runs)
        )

    def run(self, job: RunJob) -> RunRecord:
        """Execute one job, in a temporary workspace."""
        case = job.case
        options = self._options(case, job.configuration, job.run)
        with tempfile.TemporaryDirectory(prefix="gbnf-bench-") as folder:
            context = make_case_context(case, Path(folder), self._tools)
            before = snapshot(context)
            planning = plan(
                case.query,
                case.tools(self.tools, job.suite.decoys),
                options,
                turn="bench",
                clock=steady_clock(case.now),
            )
            if not self.options.warm:
                self._backend.clear_prompt_cache()
            events = run_events(
                planning, partial(answer, self._backend), context.for_turn("bench"), self._execute
            )
            return RunRecord(*job.key, options.seed, job.fingerprint, events, before, snapshot(context))

    def step_grammars(self, records: Iterable[RunRecord]) -> dict[tuple[str, str], dict[StepOffer, str]]:
        """Return the grammars of the steps of runs, by suite and configuration, each compiled once again."""
        jobs = {job.key: job for job in self.jobs}
        by_run: dict[tuple[str, str], dict[StepOffer, str]] = {}
        for record in records:
            job = jobs[record.key]
            options = self._options(job.case, job.configuration, job.run)
            grammars = by_run.setdefault((record.suite, record.configuration), {})
            pool = {tool.name: tool for tool in job.case.tools(self.tools, job.suite.decoys)}
            rows = [event for event in record.events if event["event"] == "step_started"]
            for step in read_events(rows, "the log"):
                assert isinstance(step, StepStarted), "others were filtered out"
                offer = step.offer
                if offer not in grammars and (grammar := grammar_of_step(step, pool, options)) is not None:
                    grammars[offer] = grammar_text(grammar)
        return by_run

    def _options(self, case: Case, configuration: Configuration, run: int) -> ResolvedOptions:
        options = PlannerOptions(
            max_steps=case.max_steps,
            max_seconds=None,  # so that a slow machine gives the same results
            max_tokens=self.options.max_tokens,
            temperature=self.options.temperature,
            seed=self.options.seed + run,
            language=case.language,
            providers=self._providers,
            # the model has to refuse decoys, so the ranking must not drop them
            **{"salvage": False, "max_tools": None, **configuration.settings},
        )
        return configuration.resolve(options, self._backend)

    def _fingerprint(self, suite: Suite, case: Case, configuration: Configuration, run: int) -> str:
        tools = case.tools(self.tools, suite.decoys)
        earlier = {call["name"] for call in case.before.calls}
        content = {
            "case": case.source,
            "tools": [tool_identity(tool) for tool in tools],
            "code": {name: self._code.get(name) for name in sorted({tool.name for tool in tools} | earlier)},
            "versions": self._versions,
            "settings": options_identity(self._options(case, configuration, run)),
            "warm": self.options.warm,
            "model": self._model,
        }
        return digest(content)


def run_events(
    planning: Planning,
    answers: AnswerSource,
    context: Context,
    execute: ToolRunner,
    *,
    ends: Callable[[Event], bool] = lambda _event: False,
) -> tuple[dict[str, Any], ...]:
    """Run to the end, or to the first event that `ends` it, and return the events as JSON.

    Raises BackendError if the server is unreachable, or refuses service.
    """
    events = []
    with closing(drive(planning, RunEnvironment(answers, context, execute=execute, resumes=True))) as driven:
        for event in driven:
            events.append(event.to_json())
            if ends(event):
                break
    return tuple(events)
