"""What keeps the tests cheap leaves out what it says, and nothing else."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import one_in, pairwise, scaled


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=4, unique=True), min_size=2, max_size=4))
def test_each_two_values_are_together(axes: list[list[int]]) -> None:
    chosen = pairwise(*axes)
    every = list(product(*axes))
    assert set(chosen) <= set(every)
    assert len(set(chosen)) == len(chosen)
    for one, other in combinations(range(len(axes)), 2):
        assert {(row[one], row[other]) for row in chosen} == set(product(axes[one], axes[other]))


def test_combinations_are_few() -> None:
    assert len(pairwise("abc", "def", "gh")) == 9
    assert len(pairwise(range(4), range(4), range(4))) < 24


def test_one_in_keeps_all_values_in_the_full_run() -> None:
    values: list[Any] = one_in(3, range(7))
    slow = [value for value in values if not isinstance(value, int)]
    assert [value for value in values if isinstance(value, int)] == [0, 3, 6]
    assert [value.values for value in slow] == [(1,), (2,), (4,), (5,)]
    assert all([mark.name for mark in value.marks] == ["slow"] for value in slow)


def test_examples_have_their_share_in_each_profile() -> None:
    current = settings.get_current_profile_name()
    try:
        found = {}
        for profile in ("quick", "full", "thorough"):
            settings.load_profile(profile)
            found[profile] = (scaled(40), scaled(3))
    finally:
        settings.load_profile(current)
    assert found == {"quick": (4, 1), "full": (20, 1), "thorough": (800, 60)}
