"""Patterns: what each predicate fits, and laws that hold for all values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.evaluation.errors import Fault
from gbnf_server.evaluation.patterns import (
    MISSING,
    PREDICATES,
    has_perfect_matching,
    matches,
    maximum_matching,
    read_pattern,
)

KEYS = st.text(min_size=1, max_size=5).filter(lambda key: key not in PREDICATES)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_a_plain_value_fits_itself(value: Any) -> None:
    for written in (value, {"equals": value}, {"optional": value}, {"one_of": [value]}, {"any": True}):
        assert matches(read_pattern(written), value)


@given(VALUES, VALUES)
def test_a_plain_value_and_its_equals_fit_the_same(value: Any, other: Any) -> None:
    assert matches(read_pattern(value), other) == matches(read_pattern({"equals": value}), other)


@given(VALUES)
def test_nothing_fits_only_what_allows_it(value: Any) -> None:
    assert matches(read_pattern({"optional": value}), MISSING)
    assert matches(read_pattern({"any": True}), MISSING)
    assert not matches(read_pattern({"equals": value}), MISSING)
    assert not matches(read_pattern(value), MISSING)


@given(st.lists(VALUES, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_unordered_fits_every_order_and_no_other_members(values: list[Any], random: Any) -> None:
    mixed = random.sample(values, len(values))
    assert matches(read_pattern({"unordered": values}), mixed)
    assert not matches(read_pattern({"unordered": values}), [*mixed, "one more"])


def test_members_are_assigned_though_the_first_choice_is_taken() -> None:
    broad, narrow = read_pattern({"one_of": ["a", "b"]}), read_pattern("a")
    assert has_perfect_matching([broad, narrow], ["a", "b"])
    assert not has_perfect_matching([narrow, narrow], ["a", "b"])


@given(st.lists(st.frozensets(st.integers(0, 3)), max_size=4))
def test_as_many_as_can_be_are_assigned(wishes: list[frozenset[int]]) -> None:
    chosen = maximum_matching(len(wishes), 4, lambda seeker, offer: offer in wishes[seeker])
    assert all(offer in wishes[seeker] for seeker, offer in chosen.items())
    assert len(set(chosen.values())) == len(chosen)
    orders = itertools.permutations([*range(4), *[None] * len(wishes)], len(wishes))
    best = max(sum(offer in wish for offer, wish in zip(order, wishes, strict=True)) for order in orders)
    assert len(chosen) == best


TABLE: list[tuple[Any, Any, bool]] = [
    ({"contains": "train"}, "The TRAIN is late", True),
    ({"contains": ["train", "late"]}, "the train is late", True),
    ({"contains": ["train", "early"]}, "the train is late", False),
    ({"contains": "a"}, ["b", "a"], True),
    ({"contains": "a"}, ["ba"], False),
    ({"contains": [{"matches": "^a"}]}, ["b", "ab"], True),
    ({"contains": "1"}, 1, False),
    ({"matches": "^a.c$"}, "abc", True),
    ({"matches": "b"}, "abc", True),
    ({"matches": "^b"}, "abc", False),
    ({"matches": "1"}, 1, False),
    ({"a": 1}, {"a": 1, "b": 2}, False),
    ({"a": 1, "b": {"optional": 2}}, {"a": 1}, True),
    ({"a": 1, "b": {"optional": 2}}, {"a": 1, "b": 3}, False),
    ({"equals": {"any": True}}, {"any": True}, True),
    ({"equals": {"any": True}}, {}, False),
    ([1, {"any": True}], [1, "x"], True),
    ([1], [1, 2], False),
    (1, True, False),
    (True, 1, False),
    (2, 2.0, True),
    ("1", 1, False),
]


@pytest.mark.parametrize(("written", "value", "fits"), TABLE)
def test_what_fits(written: Any, value: Any, fits: bool) -> None:
    assert matches(read_pattern(written), value) is fits


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ({"matches": "["}, ("matches",)),
        ({"matches": 3}, ("matches",)),
        ({"any": False}, ("any",)),
        ({"one_of": []}, ("one_of",)),
        ({"unordered": "a"}, ("unordered",)),
        ({"contains": "a", "matches": "b"}, ()),
        ({"contains": "a", "other": "b"}, ()),
        ({"a": [{"matches": "["}]}, ("a", 0, "matches")),
    ],
)
def test_faults_say_where(written: Any, at: tuple[str | int, ...]) -> None:
    with pytest.raises(Fault) as caught:
        read_pattern(written)
    assert caught.value.at == at
    assert caught.value.hint
