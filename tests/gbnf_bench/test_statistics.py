"""Laws of intervals, for any scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_bench.metrics import BY_KEY, METRICS, Percentile, Quotient, format_value
from gbnf_bench.scoring import RunScore
from gbnf_bench.statistics import difference, estimate, min_cases, paired, share, share_difference

PLAIN = RunScore(
    outcome="answered", converged=True, faults=(), first="get_now", first_matches=True, needed=2, named=2,
    exact_matches=1, executed=2, calls_made=2, false_positives=1, should_abstain=False, abstained=False,
    steps=3, least_steps=3, acceptable_steps=True, refusals={}, repaired=0, prompt_tokens=100,
    cached_tokens=50, completion_tokens=20, run_s=1.0, model_s=(0.2, 0.3), compile_s=(0.001,), grammar_s=(),
)  # fmt: skip
SCORES = st.builds(
    lambda converged, exact_matches, named, seconds, abstained: replace(
        PLAIN,
        converged=converged,
        exact_matches=min(exact_matches, named),
        named=named,
        run_s=seconds,
        abstained=abstained,
    ),
    st.booleans(),
    st.integers(0, 2),
    st.integers(0, 2),
    st.floats(0.01, 100),
    st.booleans(),
)
GROUPS = st.lists(st.lists(SCORES, min_size=1, max_size=3), min_size=1, max_size=12)


@given(GROUPS, st.sampled_from(METRICS))
def test_an_interval_contains_its_estimate_at_every_run(
    groups: list[list[RunScore]], metric: Quotient | Percentile
) -> None:
    found = estimate(metric, groups)
    assert found == estimate(metric, groups)
    assert found.cases == len(groups)
    if found.value is None or len(groups) < min_cases(metric) or found.low is None:
        assert found.low is found.high is None
        return
    assert found.high is not None
    assert found.low <= found.value <= found.high
    assert found.low < found.high


def test_there_is_no_interval_where_the_draws_cannot_tell() -> None:
    mixed = [[replace(PLAIN, converged=number % 2 == 0, run_s=float(number + 1))] for number in range(50)]
    same = [[PLAIN]] * 50
    for key, least in (("converged", 5), ("run_p50", 5), ("run_p95", 50), ("grammar_p95", 50)):
        metric = BY_KEY[key]
        assert min_cases(metric) == least
        assert estimate(metric, mixed[: least - 1]).low is None
        assert difference(metric, same[: least - 1], mixed[: least - 1]).low is None
        if key != "grammar_p95":
            assert estimate(metric, mixed[:least]).low is not None
            assert difference(metric, same[:least], mixed[:least]).low is not None
        assert estimate(metric, same).low is None
        assert difference(metric, same, same).low is None
    assert share_difference([True] * 9, [True] * 9).low is None
    assert share_difference([False] * 9, [True] * 9).low == 1


@given(st.lists(st.booleans(), min_size=1, max_size=500))
def test_the_ends_of_a_share_are_1_96_standard_errors_away(hits: list[bool]) -> None:
    found = share(hits)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value <= found.high <= 1
    for end in (found.low, found.high):
        if 0 < end < 1:  # the standard error is that of the end, not of the share
            error = (end * (1 - end) / len(hits)) ** 0.5
            assert abs(end - found.value) == pytest.approx(1.96 * error, abs=1e-9)


@given(GROUPS)
def test_a_quotient_is_the_quotient_of_the_sums(groups: list[list[RunScore]]) -> None:
    scores = [score for group in groups for score in group]
    assert estimate(BY_KEY["converged"], groups).value == pytest.approx(
        sum(score.converged for score in scores) / len(scores)
    )
    named = sum(score.named for score in scores)
    found = estimate(BY_KEY["arguments"], groups).value
    assert found == (pytest.approx(sum(score.exact_matches for score in scores) / named) if named else None)


@given(GROUPS, st.sampled_from([metric for metric in METRICS if isinstance(metric, Percentile)]))
def test_a_percentile_is_numpys(groups: list[list[RunScore]], metric: Percentile) -> None:
    values = [value for group in groups for score in group for value in metric.values(score)]
    expected = float(np.percentile(values, metric.percent, method="inverted_cdf")) if values else None
    assert estimate(metric, groups).value == expected


@given(GROUPS, st.sampled_from(METRICS))
def test_nothing_differs_from_itself(groups: list[list[RunScore]], metric: Quotient | Percentile) -> None:
    change = difference(metric, groups, groups)
    if change.value is not None:
        assert change.value == 0
        assert change.low is change.high is None


def test_a_clear_gain_is_distinguished_from_chance() -> None:
    bad = [[replace(PLAIN, converged=False)] for _ in range(10)]
    good = [[PLAIN] for _ in range(10)]
    mixed = [[replace(PLAIN, converged=number % 2 == 0)] for number in range(10)]
    assert difference(BY_KEY["converged"], bad, good).low == 1
    change = difference(BY_KEY["converged"], bad, mixed)
    assert change.low is not None
    assert 0 < change.low < 0.5 < (change.high or 0) < 1


def test_only_common_cases_are_paired() -> None:
    one = {"a": [PLAIN, PLAIN], "b": [PLAIN]}
    other = {"c": [PLAIN], "a": [PLAIN]}
    assert paired(one, other) == ([[PLAIN, PLAIN]], [[PLAIN]])
    with pytest.raises(ValueError, match="cannot be paired"):
        difference(BY_KEY["converged"], [[PLAIN]], [])


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [("converged", 0.655, "66%"), ("steps", 1, "1.00"), ("run_p50", 1.234, "1.23"), ("run_p50", 12.3, "12"),
     ("compile_p50", 0.00123, "1.2"), ("blocked", 0.25, "0.2"), ("prompt_tokens", 933.4, "933"),
     ("steps", None, "–")],
)  # fmt: skip
def test_how_numbers_look(key: str, value: float | None, text: str) -> None:
    assert format_value(BY_KEY[key], value) == text
