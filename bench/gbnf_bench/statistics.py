"""Metrics with intervals: the cluster bootstrap over cases, paired to compare two sets of runs.

Runs of one case are not independent, so cases are resampled (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993: percentile intervals, 95 %), with a fixed seed. An interval always contains its estimate.
There is no interval if resampling is not informative: below `MIN_CASES` cases, for a tail (p95) with too few
cases beyond it, and if all cases have the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gbnf_bench.metrics import Metric, Percentile, Quotient
from gbnf_bench.scoring import RunScore

MIN_CASES = 5
DRAWS = 1000
_LEVELS = (2.5, 97.5)
_Z = 1.96
"""Standard deviations of a normal distribution on either side of its mean that contain 95 %."""

Groups: TypeAlias = Sequence[Sequence[RunScore]]
"""The scores of each case."""
_Draw: TypeAlias = npt.NDArray[np.intp]
_Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval over `cases` cases; None if there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    cases: int = 0


def estimate(metric: Metric, groups: Groups) -> Estimate:
    """Return the metric over all runs of all cases."""
    interval = _interval(_statistic(metric, groups), len(groups), min_cases(metric))
    # an interval without a width: all cases are equal
    return Estimate(interval.value, cases=interval.cases) if interval.low == interval.high else interval


def value(metric: Metric, groups: Groups) -> float | None:
    """Return the metric without an interval."""
    return _interval(_statistic(metric, groups), len(groups), len(groups) + 1).value


def difference(metric: Metric, first: Groups, second: Groups) -> Estimate:
    """Return `second` minus `first`. Both must have the same cases in the same order."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} cases cannot be paired")
    one, other = _statistic(metric, first), _statistic(metric, second)
    return _known(_interval(lambda draws: other(draws) - one(draws), len(first), min_cases(metric)))


def min_cases(metric: Metric) -> int:
    """Return the minimum number of cases for an interval: a tail needs as many beyond it as a median."""
    if isinstance(metric, Quotient):
        return MIN_CASES
    return math.ceil(MIN_CASES * 50 / min(metric.percent, 100 - metric.percent))


def paired(
    first: Mapping[str, list[RunScore]], second: Mapping[str, list[RunScore]]
) -> tuple[Groups, Groups]:
    """Return the cases that both have, in the same order."""
    common = [case for case in first if case in second]
    return [first[case] for case in common], [second[case] for case in common]


@cache
def _draws(cases: int) -> _Draw:
    return np.random.default_rng(0).integers(0, cases, (DRAWS, cases))


def _known(change: Estimate) -> Estimate:
    """Return a difference. If no case differs it has no interval, since other cases may differ."""
    return Estimate(change.value, cases=change.cases) if change.low == change.high == 0 else change


def _interval(statistic: Callable[[_Draw], _Floats], cases: int, least: int = MIN_CASES) -> Estimate:
    if not cases:
        return Estimate(None)
    value = float(statistic(np.arange(cases)[None, :])[0])
    if math.isnan(value):
        return Estimate(None, cases=cases)
    if cases < least:
        return Estimate(value, cases=cases)
    drawn = statistic(_draws(cases))
    low, high = np.nanpercentile(drawn, _LEVELS)
    return Estimate(value, min(float(low), value), max(float(high), value), cases)


def _statistic(metric: Metric, groups: Groups) -> Callable[[_Draw], _Floats]:
    """Return the metric of each resample (a row of case numbers); NaN if it has no value."""
    match metric:
        case Quotient():
            part = np.array([sum(metric.part(score) for score in group) for group in groups], float)
            of = np.array([sum(metric.of(score) for score in group) for group in groups], float)

            def quotient(draws: _Draw) -> _Floats:
                divisor = of[draws].sum(axis=1)
                sums = part[draws].sum(axis=1)
                quotients: _Floats = np.full(len(draws), np.nan)
                np.divide(sums, divisor, out=quotients, where=divisor > 0)
                return quotients

            return quotient
        case Percentile():
            return _percentile(metric, groups)


def _percentile(metric: Percentile, groups: Groups) -> Callable[[_Draw], _Floats]:
    """Return the smallest value that at least `percent` of the values do not exceed, in each resample."""
    candidates = [
        (value, case)
        for case, group in enumerate(groups)
        for score in group
        for value in metric.values(score)
    ]
    values = np.array([value for value, _ in candidates], float)
    cases = np.array([case for _, case in candidates], int)
    order = np.argsort(values, kind="stable")
    values, cases = values[order], cases[order]

    def percentile(draws: _Draw) -> _Floats:
        if not values.size:
            return np.full(len(draws), np.nan)
        times = np.zeros((len(draws), len(groups)), int)
        np.add.at(times, (np.arange(len(draws))[:, None], draws), 1)
        below = times[:, cases].cumsum(axis=1)
        total = below[:, -1]
        rank = np.ceil(total * metric.percent / 100)
        place = (below >= rank[:, None]).argmax(axis=1)
        return np.where(total > 0, values[place], np.nan)

    return percentile


def share(hits: Sequence[bool]) -> Estimate:
    """Return the share of hits among cases of equal weight, with Wilson's interval.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927. Unlike the
    bootstrap's, it has a width if all cases are equal.
    """
    if not hits:
        return Estimate(None)
    value, n = sum(hits) / len(hits), len(hits)
    middle = (value + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(value * (1 - value) / n + _Z**2 / (4 * n**2))
    return Estimate(value, max(0.0, min(value, middle - half)), min(1.0, max(value, middle + half)), n)


def share_difference(first: Sequence[bool], second: Sequence[bool]) -> Estimate:
    """Return the share of `second` minus that of `first`; the same cases in the same order."""
    changes = np.array(second, float) - np.array(first, float)
    return _known(_interval(lambda draws: changes[draws].mean(axis=1), len(changes)))
