"""The metrics of the bench: quotients of sums over runs, and percentiles of times.

A quotient of sums can be a share (converged runs over runs), a mean (tokens over runs) or a precision
(correct abstentions over abstentions). If the divisor is 0, the metric has no value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, TypeAlias

from gbnf_bench.scoring import RunScore

Unit: TypeAlias = Literal["share", "count", "ratio", "s", "ms"]


@dataclass(frozen=True, slots=True)
class Quotient:
    """`part` over `of`, each summed over the runs. `better`: the better direction, "" for neither."""

    key: str
    title: str
    about: str
    unit: Unit
    better: Literal["more", "less", ""]
    part: Callable[[RunScore], float]
    of: Callable[[RunScore], float]


@dataclass(frozen=True, slots=True)
class Percentile:
    """The `percent`-th percentile of `values`, in seconds, over all runs."""

    key: str
    title: str
    about: str
    unit: Unit
    percent: float
    values: Callable[[RunScore], tuple[float, ...]]
    better: Literal["more", "less", ""] = "less"


Metric: TypeAlias = Quotient | Percentile


def _one(_score: RunScore) -> float:
    return 1.0


def _run_time(score: RunScore) -> tuple[float, ...]:
    return (score.run_s,)


def _per_run(key: str, title: str, about: str, unit: Unit, better: Literal["more", "less", ""]) -> Quotient:
    """Return the mean of a field of the score over the runs."""
    return Quotient(key, title, about, unit, better, attrgetter(key), _one)


def _share(
    key: str, title: str, about: str, part: Callable[[RunScore], float], of: Callable[[RunScore], float]
) -> Quotient:
    """Return a share of which more is better."""
    return Quotient(key, title, about, "share", "more", part, of)


def _step_times(
    key: str, title: str, about: str, unit: Unit, values: Callable[[RunScore], tuple[float, ...]]
) -> tuple[Percentile, Percentile]:
    """Return the median and the 95th percentile of the steps' times."""
    return (
        Percentile(f"{key}_p50", f"{title} p50", about, unit, 50, values),
        Percentile(f"{key}_p95", f"{title} p95", "the same, 95th percentile", unit, 95, values),
    )


METRICS: tuple[Metric, ...] = (
    _per_run(
        "converged", "converged", "runs that ended with an answer and the expected state", "share", "more"
    ),
    _share(
        "first_tool",
        "first tool",
        "runs whose first call names an acceptable tool",
        attrgetter("first_matches"),
        _one,
    ),
    _share(
        "valid",
        "valid",
        "steps whose text was a valid call or answer",
        lambda score: score.steps - score.blocked,
        attrgetter("steps"),
    ),
    _share(
        "arguments",
        "arguments",
        "expected calls with the correct arguments, of those made at least by name",
        attrgetter("exact_matches"),
        attrgetter("named"),
    ),
    _share(
        "calls",
        "expected calls",
        "expected calls that were made with the correct arguments",
        attrgetter("exact_matches"),
        attrgetter("needed"),
    ),
    Quotient(
        "wrong_but_valid",
        "wrong but valid",
        "executed calls that match no expected call",
        "share",
        "less",
        attrgetter("false_positives"),
        attrgetter("executed"),
    ),
    _per_run(
        "destroyed",
        "destroyed",
        "runs that overwrote, deleted or sent something that the request does not name",
        "share",
        "less",
    ),
    _share(
        "abstention_precision",
        "abstention precision",
        "of the runs that called no tool, those that had none to call",
        lambda score: score.abstained and score.should_abstain,
        attrgetter("abstained"),
    ),
    _share(
        "abstention_recall",
        "abstention recall",
        "of the runs that had no tool to call, those that called none",
        lambda score: score.abstained and score.should_abstain,
        attrgetter("should_abstain"),
    ),
    Quotient(
        "steps",
        "steps / least",
        "steps over the least possible, of the runs that converged",
        "ratio",
        "less",
        lambda score: score.steps if score.converged else 0,
        lambda score: score.least_steps if score.converged else 0,
    ),
    _per_run(
        "acceptable_steps",
        "acceptable steps",
        "runs that answered within the acceptable number of steps",
        "share",
        "more",
    ),
    _per_run("calls_made", "calls / run", "executed calls of a run, without the final answer", "count", ""),
    _per_run("blocked", "blocked / run", "steps whose text was refused and not executed", "count", "less"),
    _per_run(
        "salvaged",
        "salvaged",
        "runs whose answer was made from their results; they have not converged",
        "share",
        "",
    ),
    _per_run("repaired", "repaired / run", "steps whose call was repaired during parsing", "count", "less"),
    _per_run("prompt_tokens", "tokens read", "prompt tokens a run, including cached ones", "count", "less"),
    _per_run(
        "cached_tokens", "tokens cached", "prompt tokens a run that the backend had cached", "count", "more"
    ),
    _per_run(
        "completion_tokens", "tokens written", "tokens that the model generated in a run", "count", "less"
    ),
    Percentile(
        "run_p50", "run p50", "seconds of a run, including tools: half are faster", "s", 50, _run_time
    ),
    Percentile("run_p95", "run p95", "seconds of a run: 95 % are faster", "s", 95, _run_time),
    *_step_times("model", "step", "seconds that the model took for a step", "s", attrgetter("model_s")),
    *_step_times(
        "compile",
        "compile",
        "milliseconds to filter the pool and link its grammar, a step",
        "ms",
        attrgetter("compile_s"),
    ),
    *_step_times(
        "grammar",
        "mask",
        "milliseconds of a step that the engine spent on the grammar",
        "ms",
        attrgetter("grammar_s"),
    ),
)

BY_KEY = {metric.key: metric for metric in METRICS}


def format_value(metric: Metric, value: float | None) -> str:
    """Return a value as text for a table."""
    if value is None:
        return "–"
    match metric.unit:
        case "share":
            return f"{value:.0%}"
        case "ratio":
            return f"{value:.2f}"
        case "s":
            return f"{value:.2f}" if value < 10 else f"{value:.0f}"
        case "ms":
            return f"{value * 1000:.1f}"
        case "count":
            return f"{value:.1f}" if value < 100 else f"{value:.0f}"
