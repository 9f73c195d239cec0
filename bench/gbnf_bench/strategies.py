"""Compare strategies with one model and the same suites: a table, and the best strategy."""

from __future__ import annotations

from collections.abc import Sequence

from gbnf_bench.metrics import BY_KEY
from gbnf_bench.results import Results, ScoredRun, by_case
from gbnf_bench.statistics import estimate
from gbnf_bench.tables import TextTable, by_configuration, metric_table, title

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
_PREFERRED = ("native", "grammar", "whitespace", "field", "free", "text", "lines", "none")
"""Order of preference among equals: a grammar guarantees valid calls, and reasoning costs time."""


def strategy_table(results: Results) -> TextTable:
    """Return a table with a row for each strategy."""
    return metric_table(results, title(results), [BY_KEY[key] for key in COLUMNS], "strategy")


def best_strategy(results: Results) -> str:
    """Return the strategy with most converged runs; of equals, with most valid texts, then correct calls.

    If all of these are equal, the first of `native`, `grammar`, `whitespace`, `field`, `free`,
    `text`, `lines`, `none`.
    """
    strategies = by_configuration(results, results.scored())
    return max(
        strategies, key=lambda strategy: (_standing(strategies[strategy]), -_PREFERRED.index(strategy))
    )


def _standing(runs: Sequence[ScoredRun]) -> tuple[float, ...]:
    groups = list(by_case(runs).values())

    def value(key: str) -> float:
        return estimate(BY_KEY[key], groups).value or 0.0

    return (value("converged"), value("valid"), value("calls"), -value("wrong_but_valid"))
