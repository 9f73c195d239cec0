"""A bench as one HTML page: nothing is loaded from elsewhere, so that it can be mailed and kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jinja2
import numpy as np

from gbnf_server.evaluation.cases import COMPLEXITIES, Case
from gbnf_server.evaluation.metrics import BY_KEY, METRICS, format_value
from gbnf_server.evaluation.results import Results, ScoredRun
from gbnf_server.evaluation.statistics import by_case, estimate, value
from gbnf_server.evaluation.svg_plots import Bar, BoxPlot, bar_chart, box_plots, stacked_bars
from gbnf_server.evaluation.tables import (
    TextTable,
    by_configuration,
    cell,
    complexity_table,
    cost_table,
    gain_table,
    heading,
    quality_table,
)

OUTCOMES = ("converged", "answered, wrong", "salvaged", "blocked", "exhausted", "failed")
"""What can become of a run, the good one first; the page has a colour for each."""
_EXPECTATIONS = ("abstain", "calls", "plans", "after", "answer")


def report(results: Results) -> str:
    """Return the report as HTML."""
    scored = results.scored()
    groups = by_configuration(results, scored)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gbnf_server.evaluation", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # not `tojson`, which writes an apostrophe as an escape; the page's own escaping makes the text safe
    environment.filters["as_json"] = partial(json.dumps, ensure_ascii=False)
    return environment.get_template("report.html.j2").render(
        about=results.about,
        suites=results.suites,
        configurations=results.configurations,
        quality=quality_table(results),
        cost=cost_table(results),
        gains=gain_table(results) if len(groups) > 1 else None,
        complexities=complexity_table(results),
        convergence=bar_chart([_bar(name, runs) for name, runs in groups.items()]),
        fates=OUTCOMES,
        outcomes=stacked_bars(
            {name: Counter(map(outcome_of, runs)) for name, runs in groups.items()}, OUTCOMES
        ),
        latencies=box_plots([_spread(name, runs) for name, runs in groups.items()]),
        details=_details(groups, scored),
        all_metrics=_all_metrics(groups),
        parts=_by_complexity(groups),
        runs=len(scored),
    )


def outcome_of(run: ScoredRun) -> str:
    """Return the outcome of a run, one of `OUTCOMES`."""
    if run.score.converged:
        return OUTCOMES[0]
    return OUTCOMES[1] if run.score.outcome == "answered" else run.score.outcome


def _bar(name: str, runs: Sequence[ScoredRun]) -> Bar:
    metric = BY_KEY["converged"]
    found = estimate(metric, list(by_case((run.identity, run.score) for run in runs).values()))
    return Bar(name, found.value or 0.0, found.low, found.high, cell(metric, found))


def _spread(name: str, runs: Sequence[ScoredRun]) -> BoxPlot:
    p5, p25, p50, p75, p95 = map(
        float, np.percentile([run.score.run_s for run in runs], (5, 25, 50, 75, 95), method="inverted_cdf")
    )
    return BoxPlot(name, (p5, p25, p50, p75, p95), len(runs))


def _all_metrics(groups: Mapping[str, Sequence[ScoredRun]]) -> list[dict[str, Any]]:
    by_name = {
        name: list(by_case((run.identity, run.score) for run in runs).values())
        for name, runs in groups.items()
    }
    return [
        {
            "heading": heading(metric),
            "about": metric.about,
            "cells": [cell(metric, estimate(metric, grouped)) for grouped in by_name.values()],
        }
        for metric in METRICS
    ]


def _by_complexity(groups: Mapping[str, Sequence[ScoredRun]]) -> list[TextTable]:
    """Every metric by complexity, a table for each configuration."""
    tables = []
    for name, runs in groups.items():
        there = [each for each in COMPLEXITIES if any(run.case.complexity == each for run in runs)]
        scores = [[[run.score] for run in runs if run.case.complexity == each] for each in there]
        rows = tuple(
            (heading(metric), *(format_value(metric, value(metric, part)) for part in scores))
            for metric in METRICS
        )
        tables.append(TextTable(name, ("metric", *there), rows))
    return tables


def _expected(case: Case) -> dict[str, Any]:
    """Return the case's expectations, as its suite has them."""
    return {key: case.source[key] for key in _EXPECTATIONS if key in case.source}


def _details(groups: Mapping[str, Sequence[ScoredRun]], scored: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """Each case with its runs, a list for each configuration."""
    cases: dict[str, dict[str, Any]] = {}
    for run in scored:
        entry = cases.setdefault(
            run.identity,
            {
                "suite": run.suite,
                "case": run.case,
                "expected": _expected(run.case),
                "runs": {name: [] for name in groups},
            },
        )
        entry["runs"][run.record.configuration].append(
            {
                "score": run.score,
                "fate": OUTCOMES.index(outcome_of(run)),
                "steps": run.record.events[-1]["run"]["steps"],
                "answer": run.record.events[-1]["run"]["answer"],
            }
        )
    return list(cases.values())
