"""How much each run of the tests tries: `-m quick`, the full run, and the thorough one at night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

_FULL = 100  # examples of a property in the full run: tests/conftest.py


def scaled(full: int) -> int:
    """Return the examples for a property that has `full` of them in the full run."""
    return max(1, full * settings().max_examples // _FULL)


def one_in(every: int, values: Iterable[Any]) -> list[Any]:
    """Return the values as parameters of a test, of which `-m quick` takes one in `every`."""
    return [
        pytest.param(value, marks=pytest.mark.slow) if number % every else value
        for number, value in enumerate(values)
    ]
