"""A bench as one self-contained HTML page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from markupsafe import Markup

from gbnf_bench.cases import COMPLEXITIES, Case
from gbnf_bench.metrics import BY_KEY, METRICS, format_value
from gbnf_bench.results import Results, ScoredRun, by_case
from gbnf_bench.statistics import estimate, value
from gbnf_bench.tables import (
    TextTable,
    by_configuration,
    cell,
    complexity_table,
    cost_table,
    gain_table,
    heading,
    quality_table,
)
from gbnf_server.inspect.pages.rendering import PAGES, content_security_policy, read_assets, render_template
from gbnf_server.inspect.pages.run_view import view_run
from gbnf_server.inspect.pages.timeline import render_grammar_lines, render_timeline
from gbnf_server.planner.runs.grammar_lines import GrammarLines
from gbnf_server.planner.runs.run_files import read_events, run_of_events

OUTCOMES = ("converged", "answered, wrong", "salvaged", "blocked", "exhausted", "failed")
"""The outcomes of a run, the best first; the page has a colour for each."""
_MOST_TIMELINES = 8_000_000
"""Characters of timelines; half of them for the runs that converged."""
_EXPECTATIONS = ("abstain", "calls", "plans", "after", "answer")


def report(results: Results) -> str:
    """Return the report as HTML."""
    groups = by_configuration(results)
    latencies = [_spread(name, runs) for name, runs in groups.items()]
    css = read_assets((PAGES, "base.css"), (PAGES, "timeline.css"), ("gbnf_bench", "report.css"))
    js = read_assets((PAGES, "grammar_lines.js"))
    grammars = GrammarLines()
    page = render_template(
        "report.html.j2",
        "gbnf_bench",
        css=css,
        js=js,
        policy=content_security_policy(css=css, js=js),
        about=results.about,
        suites=results.suites,
        configurations=results.configurations,
        quality=quality_table(results),
        cost=cost_table(results),
        gains=gain_table(results) if len(groups) > 1 else None,
        complexities=complexity_table(results),
        convergence=[_bar(name, runs) for name, runs in groups.items()],
        fates=OUTCOMES,
        outcomes=[{"name": name, "counts": Counter(map(outcome_of, runs))} for name, runs in groups.items()],
        latencies=latencies,
        time_axis=SecondsAxis([seconds for row in latencies for seconds in row["percentiles"]]),
        details=_details(results, groups, grammars),
        grammars=render_grammar_lines(grammars),
        all_metrics=_all_metrics(groups),
        parts=_by_complexity(groups),
        runs=len(results.scored),
    )
    return str(page)


def outcome_of(run: ScoredRun) -> str:
    """Return the outcome of a run, one of `OUTCOMES`."""
    if run.score.converged:
        return OUTCOMES[0]
    return OUTCOMES[1] if run.score.outcome == "answered" else run.score.outcome


def _bar(name: str, runs: Sequence[ScoredRun]) -> dict[str, Any]:
    metric = BY_KEY["converged"]
    value = estimate(metric, list(by_case(runs).values()))
    return {"name": name, "text": cell(metric, value), **asdict(value)}


def _spread(name: str, runs: Sequence[ScoredRun]) -> dict[str, Any]:
    seconds = [run.score.run_s for run in runs]
    percentiles = np.percentile(seconds, (5, 25, 50, 75, 95), method="inverted_cdf").tolist()
    return {"name": name, "percentiles": percentiles, "count": len(runs)}


def _all_metrics(groups: Mapping[str, Sequence[ScoredRun]]) -> list[dict[str, Any]]:
    by_name = {name: list(by_case(runs).values()) for name, runs in groups.items()}
    return [
        {
            "heading": heading(metric),
            "about": metric.about,
            "cells": [cell(metric, estimate(metric, grouped)) for grouped in by_name.values()],
        }
        for metric in METRICS
    ]


def _by_complexity(groups: Mapping[str, Sequence[ScoredRun]]) -> list[TextTable]:
    """Return every metric by complexity, a table for each configuration."""
    tables = []
    for name, runs in groups.items():
        there = [level for level in COMPLEXITIES if any(run.case.complexity == level for run in runs)]
        scores = [[[run.score] for run in runs if run.case.complexity == level] for level in there]
        rows = tuple(
            (heading(metric), *(format_value(metric, value(metric, part)) for part in scores))
            for metric in METRICS
        )
        tables.append(TextTable(name, ("metric", *there), rows))
    return tables


def _expected(case: Case) -> str:
    """Return the case's expectations, as written in its suite."""
    expected = {key: case.source[key] for key in _EXPECTATIONS if key in case.source}
    return json.dumps(expected, ensure_ascii=False)


def _details(
    results: Results,
    groups: Mapping[str, Sequence[ScoredRun]],
    grammars: GrammarLines,
) -> list[dict[str, Any]]:
    """Return each case with its runs, a list for each configuration.

    Runs beyond `_MOST_TIMELINES` have no timeline.
    """
    cases: dict[str, dict[str, Any]] = {}
    shown = 0
    for run in results.scored:
        entry = cases.setdefault(
            run.identity,
            {
                "suite": run.suite,
                "case": run.case,
                "expected": _expected(run.case),
                "runs": {name: [] for name in groups},
            },
        )
        most = _MOST_TIMELINES // 2 if run.score.converged else _MOST_TIMELINES
        timeline = _timeline(results, run, grammars) if shown < most else Markup()
        shown += len(timeline)
        entry["runs"][run.record.configuration].append(
            {
                "score": run.score,
                "fate": OUTCOMES.index(outcome_of(run)),
                "timeline": timeline,
            }
        )
    return list(cases.values())


def _timeline(results: Results, run: ScoredRun, grammars: GrammarLines) -> Markup:
    step_grammars = results.grammars.get((run.suite, run.record.configuration), {})
    name = f"{run.case.id}, {run.record.configuration}"
    events = read_events(run.record.events, f"the run of {name}")
    return render_timeline(view_run(run_of_events(name, events, step_grammars)), grammars, level=4)


_FIRST_X, _LAST_X = 110, 720
"""Where the axis of a plot begins and ends, in the units of `plots.svg.j2`."""


class SecondsAxis:
    """An axis for these times, from 0; logarithmic where they span more than a factor of 20.

    `ticks`: the place and the text of each.
    """

    def __init__(self, seconds: Sequence[float]) -> None:
        positive = [value for value in seconds if value > 0] or [0.1, 1.0]
        low, high = min(positive), max(positive)
        self._is_logarithmic = high / low > 20
        values = _log_ticks(low, high) if self._is_logarithmic else _ticks(high)
        self._first, self._last = values[0], values[-1]
        self.ticks = [
            (place, f"{value:g} s") for place, value in zip(self.places(values), values, strict=True)
        ]

    def places(self, seconds: Sequence[float]) -> list[float]:
        """Return the place of each time."""
        if self._is_logarithmic:
            first, width = self._first, math.log(self._last / self._first)
            shares = [math.log(max(value, first) / first) / width for value in seconds]
        else:
            shares = [value / self._last for value in seconds]
        return [_FIRST_X + share * (_LAST_X - _FIRST_X) for share in shares]


def _ticks(high: float) -> list[float]:
    """Three to six round steps from 0 to at least `high`."""
    raw = high / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [round(step * number, 10) for number in range(math.ceil(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around the values."""
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
