"""The ladder: one model over one suite on each rung, as a table, and the rung that it does best on."""

from __future__ import annotations

from collections.abc import Sequence

from gbnf_server.evaluation.metrics import BY_KEY
from gbnf_server.evaluation.results import Results, ScoredRun
from gbnf_server.evaluation.statistics import by_case, estimate
from gbnf_server.evaluation.tables import TextTable, by_configuration, cell, heading, title

COLUMNS = (
    "converged",
    "valid",
    "first_tool",
    "arguments",
    "wrong_but_valid",
    "abstention_recall",
    "steps",
    "model_p50",
    "run_p50",
)
_PREFERRED = ("grammar", "field", "free", "soft", "lines", "none")
"""Of rungs that do equally well: what the grammar holds needs no luck, and thoughts cost time."""


def strategy_table(results: Results) -> TextTable:
    """Return a line for each strategy."""
    metrics = [BY_KEY[key] for key in COLUMNS]
    rows = []
    for strategy, runs in by_configuration(results, results.scored()).items():
        groups = list(by_case((run.identity, run.score) for run in runs).values())
        rows.append((strategy, *(cell(metric, estimate(metric, groups)) for metric in metrics)))
    heads = ("rung", *(heading(each) for each in metrics))
    return TextTable(title(results), heads, tuple(rows), tuple(each.about for each in metrics))


def best_strategy(results: Results) -> str:
    """Return the strategy with most converged runs, then most valid texts, then most exact calls.

    Of equals, the first of `grammar`, `field`, `free`, `soft`, `lines`, `none`.
    """
    strategies = by_configuration(results, results.scored())
    return max(
        strategies, key=lambda strategy: (_standing(strategies[strategy]), -_PREFERRED.index(strategy))
    )


def _standing(runs: Sequence[ScoredRun]) -> tuple[float, ...]:
    groups = list(by_case((run.identity, run.score) for run in runs).values())

    def value(key: str) -> float:
        return estimate(BY_KEY[key], groups).value or 0.0

    return (value("converged"), value("valid"), value("calls"), -value("wrong_but_valid"))
