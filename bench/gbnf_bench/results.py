"""A bench as one JSON file: what was compared, the machine, every run with its events, and the metrics.

The metrics are for other programs. Reading a file computes them again from the runs, so that a stored bench
is scored by the current rules.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from gbnf_bench.call_matching import References
from gbnf_bench.cases import COMPLEXITIES, Case, Suite, read_case
from gbnf_bench.code_versions import versions
from gbnf_bench.configurations import Configuration
from gbnf_bench.metrics import METRICS
from gbnf_bench.result_files import load_stored
from gbnf_bench.run_log import RunRecord
from gbnf_bench.runner import RunOptions
from gbnf_bench.scoring import RunScore, score
from gbnf_bench.statistics import estimate
from gbnf_server.planner.events import StepOffer
from gbnf_server.planner.runs.grammar_lines import GrammarLines
from gbnf_server.planner.runs.run_files import read_step_grammars

FORMAT = 2


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """One run, with its case and its score."""

    suite: str
    case: Case
    record: RunRecord
    score: RunScore

    @property
    def identity(self) -> str:
        """Suite and case, which identify the case across suites."""
        return f"{self.suite}/{self.case.id}"


@dataclass(frozen=True)
class Results:
    """One bench. `about`: label, time, versions, model, options, as JSON.

    `grammars`: those of the steps, by suite and configuration.
    """

    about: Mapping[str, Any]
    configurations: tuple[Configuration, ...]
    suites: tuple[Suite, ...]
    references: References
    records: tuple[RunRecord, ...]
    grammars: Mapping[tuple[str, str], Mapping[StepOffer, str]] = field(default_factory=dict)

    @cached_property
    def scored(self) -> tuple[ScoredRun, ...]:
        """Every run with its score, in the suites' order."""
        cases = {(suite.name, case.id): case for suite in self.suites for case in suite.cases}
        order = {key: number for number, key in enumerate(cases)}
        runs = [
            ScoredRun(record.suite, case, record, score(case, record, self.references))
            for record in self.records
            if (case := cases.get((record.suite, record.case))) is not None
        ]
        return tuple(sorted(runs, key=lambda run: (order[run.suite, run.case.id], run.record.run)))

    def to_json(self) -> dict[str, Any]:
        """Return the file's content, with metrics and scores for other programs."""
        return {
            "format": FORMAT,
            **self.about,
            "configurations": list(map(asdict, self.configurations)),
            "numbers": {
                item.name: numbers([run for run in self.scored if run.record.configuration == item.name])
                for item in self.configurations
            },
            "by_case": {
                item.name: by_case_numbers(
                    [run for run in self.scored if run.record.configuration == item.name]
                )
                for item in self.configurations
            },
            "scores": [
                {
                    **dict(zip(("suite", "case", "configuration", "run"), run.record.key, strict=True)),
                    **asdict(run.score),
                }
                for run in self.scored
            ],
            "suites": [
                {
                    "name": suite.name,
                    "description": suite.description,
                    "cases": [dict(case.source) for case in suite.cases],
                }
                for suite in self.suites
            ],
            "references": self.references,
            "runs": [record.to_json() for record in self.records],
            "grammars": write_step_grammars(self.grammars),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raise KeyError, TypeError or ValueError if the value is not a stored bench."""
        computed = {
            "format", "configurations", "numbers", "by_case", "scores", "suites", "references", "runs",
            "grammars",
        }  # fmt: skip
        if value["format"] != FORMAT:
            raise ValueError(f"its format is {value['format']!r}, and this version reads {FORMAT}")
        return cls(
            about={key: part for key, part in value.items() if key not in computed},
            configurations=tuple(Configuration(**item) for item in value["configurations"]),
            suites=tuple(
                Suite(item["name"], item["description"], tuple(map(read_case, item["cases"])))
                for item in value["suites"]
            ),
            references={
                tool: {name: (target, is_text) for name, (target, is_text) in targets.items()}
                for tool, targets in value["references"].items()
            },
            records=tuple(map(RunRecord.from_json, value["runs"])),
            grammars=read_step_grammars(value.get("grammars", {}), "the results"),
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a stored bench. Raises ResultsFileError."""
        return load_stored(path, cls._scorable, "gbnf bench")

    @classmethod
    def _scorable(cls, value: Mapping[str, Any]) -> Self:
        """Return the results; checks that they can be scored."""
        results = cls.from_json(value)
        if not all(
            isinstance(text, str) for text in (results.about["label"], results.about["model"]["name"])
        ):
            raise TypeError("label and model.name are texts")
        names = {configuration.name for configuration in results.configurations}
        if not any(run.record.configuration in names for run in results.scored):
            raise ValueError("it contains no run of its cases and configurations")
        return results


def about(
    label: str, model: Mapping[str, Any], options: RunOptions, made_at: datetime | None = None
) -> dict[str, Any]:
    """Return the header of a stored bench, as JSON.

    `made_at`: the time of its latest run; by default now.
    """
    return {
        "label": label,
        "made_at": (made_at or datetime.now(UTC)).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": {"system": sys.platform, "architecture": platform.machine()},
        "model": dict(model),
        "options": asdict(options),
    }


def by_case(runs: Iterable[ScoredRun]) -> dict[str, list[RunScore]]:
    """Return the scores of each case, in the order in which cases appear."""
    groups: dict[str, list[RunScore]] = {}
    for run in runs:
        groups.setdefault(run.identity, []).append(run.score)
    return groups


def numbers(runs: Sequence[ScoredRun]) -> dict[str, Any]:
    """Return every metric of these runs, in total and by complexity."""
    parts: dict[str, Iterable[ScoredRun]] = {"all": runs}
    for complexity in COMPLEXITIES:
        parts[complexity] = [run for run in runs if run.case.complexity == complexity]
    tables = {}
    for name, part in parts.items():
        groups = list(by_case(part).values())
        if groups:
            tables[name] = {metric.key: asdict(estimate(metric, groups)) for metric in METRICS}
    return tables


def by_case_numbers(runs: Sequence[ScoredRun]) -> dict[str, Any]:
    """Return every metric of each case with several runs, with an interval if there are enough runs.

    For a case with one run, the score of that run is enough.
    """
    tables: dict[str, Any] = {}
    for case, scores in by_case(runs).items():
        if len(scores) == 1:
            continue
        estimates = {metric.key: estimate(metric, [[score] for score in scores]) for metric in METRICS}
        tables[case] = {
            key: {"value": value.value}
            | ({} if value.low is None else {"low": value.low, "high": value.high})
            for key, value in estimates.items()
            if value.value is not None
        }
    return tables


def write_step_grammars(grammars: Mapping[tuple[str, str], Mapping[StepOffer, str]]) -> dict[str, Any]:
    """Return what `read_step_grammars` reads; each line of the grammars once."""
    lines = GrammarLines()
    rows = []
    for (suite, configuration), offers in grammars.items():
        for (tools, refers_to, excluded), text in offers.items():
            numbers = lines.add(text)
            if numbers is not None:
                rows.append(
                    {
                        "suite": suite, "configuration": configuration,
                        "tools": tools, "refers_to": refers_to, "excluded": excluded, "lines": numbers,
                    }
                )  # fmt: skip
    return {"lines": lines.lines, "steps": rows}
