"""The axis of times in a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence

_FIRST_X, _LAST_X = 110, 720
"""Where the axis of a plot begins and ends, in the units of `plots.svg.j2`."""


class SecondsAxis:
    """An axis for these times, from 0; logarithmic where they span more than a factor of 20.

    `ticks`: the place and the text of each.
    """

    def __init__(self, seconds: Sequence[float]) -> None:
        positive = [value for value in seconds if value > 0] or [0.1, 1.0]
        low, high = min(positive), max(positive)
        self._is_logarithmic = high / low > 20
        values = _log_ticks(low, high) if self._is_logarithmic else _ticks(high)
        self._first, self._last = values[0], values[-1]
        self.ticks = [
            (place, f"{value:g} s") for place, value in zip(self.places(values), values, strict=True)
        ]

    def places(self, seconds: Sequence[float]) -> list[float]:
        """Return the place of each time."""
        if self._is_logarithmic:
            first, width = self._first, math.log(self._last / self._first)
            shares = [math.log(max(value, first) / first) / width for value in seconds]
        else:
            shares = [value / self._last for value in seconds]
        return [_FIRST_X + share * (_LAST_X - _FIRST_X) for share in shares]


def _ticks(high: float) -> list[float]:
    """Three to six round steps from 0 to at least `high`."""
    raw = high / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [round(step * number, 10) for number in range(math.ceil(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around the values."""
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
