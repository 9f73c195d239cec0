"""A bench as one self-contained HTML page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import jinja2
import numpy as np

from gbnf_server.evaluation.cases import COMPLEXITIES, Case
from gbnf_server.evaluation.metrics import BY_KEY, METRICS, format_value
from gbnf_server.evaluation.plot_axis import SecondsAxis
from gbnf_server.evaluation.results import Results, ScoredRun, by_case
from gbnf_server.evaluation.statistics import estimate, value
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
"""The outcomes of a run, the best first; the page has a colour for each."""
_EXPECTATIONS = ("abstain", "calls", "plans", "after", "answer")


def report(results: Results) -> str:
    """Return the report as HTML."""
    scored = results.scored()
    groups = by_configuration(results, scored)
    latencies = [_spread(name, runs) for name, runs in groups.items()]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gbnf_server.evaluation", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # not `tojson`, which escapes apostrophes; the template's autoescaping makes the text safe
    environment.filters["as_json"] = partial(json.dumps, ensure_ascii=False)
    return environment.get_template("report.html.j2").render(
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


def _bar(name: str, runs: Sequence[ScoredRun]) -> dict[str, Any]:
    metric = BY_KEY["converged"]
    found = estimate(metric, list(by_case(runs).values()))
    return {"name": name, "text": cell(metric, found), **asdict(found)}


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
        there = [each for each in COMPLEXITIES if any(run.case.complexity == each for run in runs)]
        scores = [[[run.score] for run in runs if run.case.complexity == each] for each in there]
        rows = tuple(
            (heading(metric), *(format_value(metric, value(metric, part)) for part in scores))
            for metric in METRICS
        )
        tables.append(TextTable(name, ("metric", *there), rows))
    return tables


def _expected(case: Case) -> dict[str, Any]:
    """Return the case's expectations, as written in its suite."""
    return {key: case.source[key] for key in _EXPECTATIONS if key in case.source}


def _details(groups: Mapping[str, Sequence[ScoredRun]], scored: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """Return each case with its runs, a list for each configuration."""
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
