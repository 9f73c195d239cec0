"""Maximum matchings, against brute force."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gbnf_bench.call_matching import maximum_matching


@given(st.lists(st.frozensets(st.integers(0, 3)), max_size=4))
def test_as_many_as_possible_are_assigned(wishes: list[frozenset[int]]) -> None:
    chosen = maximum_matching(len(wishes), 4, lambda seeker, offer: offer in wishes[seeker])
    assert all(offer in wishes[seeker] for seeker, offer in chosen.items())
    assert len(set(chosen.values())) == len(chosen)
    orders = itertools.permutations([*range(4), *[None] * len(wishes)], len(wishes))
    best = max(sum(offer in wish for offer, wish in zip(order, wishes, strict=True)) for order in orders)
    assert len(chosen) == best
