"""How much each run of the tests tries: `-m quick`, the full run, and the thorough one at night."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import settings

_FULL = 100


def scaled(full: int) -> int:
    """Return the examples for a property whose share of them is `full` in a hundred."""
    return max(1, full * settings().max_examples // _FULL)


def one_in(every: int, values: Iterable[Any]) -> list[Any]:
    """Return the values as parameters of a test, of which `-m quick` takes one in `every`."""
    return [
        pytest.param(value, marks=pytest.mark.slow) if number % every else value
        for number, value in enumerate(values)
    ]


def pairwise(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return few combinations of a value of each axis, in which each two values of two axes are together."""
    every = list(product(*map(range, map(len, axes))))

    def pairs(places: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(places), 2))

    missing, chosen = set().union(*map(pairs, every)), []
    while missing:
        best = max(every, key=lambda places: len(pairs(places) & missing))
        missing -= pairs(best)
        chosen.append(tuple(axis[place] for axis, place in zip(axes, best, strict=True)))
    return chosen
