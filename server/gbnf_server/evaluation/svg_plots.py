"""Plots as SVG, drawn by hand: nothing to install, nothing to load, the page's own colours and type.

Each function takes plain numbers and gives one `<svg>` element. Text is escaped; every mark carries its
numbers as a `<title>`, which browsers show on hovering.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 720
_LEFT, _RIGHT, _ROW, _TOP, _AXIS = 110, 136, 34, 8, 30


@dataclass(frozen=True, slots=True)
class Bar:
    """A value between 0 and 1 with its interval, None if it has none, and the text beside it."""

    name: str
    value: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True)
class BoxPlot:
    """Where the middle and the edges of many values lie: 5th, 25th, 50th, 75th, 95th percentile; seconds."""

    name: str
    percentiles: tuple[float, float, float, float, float]
    count: int


def bar_chart(rows: Sequence[Bar]) -> Markup:
    """Horizontal bars of shares, with whiskers for the intervals."""
    marks = []
    for index, row in enumerate(rows):
        y = _TOP + index * _ROW
        marks.append(_label(row.name, y))
        marks.append(_box("bar", _LEFT, _x(row.value), y, f"{row.name}: {row.text}"))
        end = row.value
        if row.low is not None and row.high is not None:
            middle = y + _ROW / 2 - 1
            marks.append(
                f'<path class="whisker" d="M{_x(row.low):.1f} {middle}H{_x(row.high):.1f}'
                f'M{_x(row.low):.1f} {middle - 5}v10M{_x(row.high):.1f} {middle - 5}v10"/>'
            )
            end = row.high
        marks.append(_text(_x(end) + 8, y + _ROW / 2 + 3, row.text, "value"))
    ticks = [(_x(share), f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)]
    return _svg(marks, ticks, len(rows))


def stacked_bars(rows: Mapping[str, Mapping[str, int]], kinds: Sequence[str]) -> Markup:
    """Return what became of runs: a bar of parts for each row, each part in the colour of its kind."""
    marks = []
    for index, (name, counts) in enumerate(rows.items()):
        y, total, start = _TOP + index * _ROW, sum(counts.values()) or 1, 0.0
        marks.append(_label(name, y))
        for number, kind in enumerate(kinds):
            share = counts.get(kind, 0) / total
            if not share:
                continue
            x, end = _x(start), _x(start + share)
            marks.append(_box(f"k{number}", x, end - 1, y, f"{name}: {counts[kind]} {kind}"))
            if end - x > 22:
                marks.append(_text((x + end) / 2, y + _ROW / 2 + 4, str(counts[kind]), "inside"))
            start += share
    ticks = [(_x(share), f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)]
    return _svg(marks, ticks, len(rows))


def box_plots(rows: Sequence[BoxPlot]) -> Markup:
    """Boxes from the 25th to the 75th percentile with a line at the 50th, whiskers from the 5th to the 95th.

    The axis is logarithmic where the values span more than a factor of 20.
    """
    values = [value for row in rows for value in row.percentiles if value > 0]
    low, high = (min(values), max(values)) if values else (0.1, 1.0)
    logarithmic = high / low > 20
    ticks = _log_ticks(low, high) if logarithmic else _ticks(high)
    first, last = (ticks[0], ticks[-1]) if logarithmic else (0.0, ticks[-1])

    def x(value: float) -> float:
        if logarithmic:
            return _x(math.log(max(value, first) / first) / math.log(last / first))
        return _x(value / last)

    marks = []
    for index, row in enumerate(rows):
        y, (p5, p25, p50, p75, p95) = _TOP + index * _ROW, map(x, row.percentiles)
        middle = y + _ROW / 2 - 1
        said = ", ".join(
            f"p{percent} {value:.2f} s"
            for percent, value in zip((5, 25, 50, 75, 95), row.percentiles, strict=True)
        )
        marks.append(_label(row.name, y))
        marks.append(f'<path class="whisker" d="M{p5:.1f} {middle}H{p25:.1f}M{p75:.1f} {middle}H{p95:.1f}"/>')
        marks.append(_box("box", p25, p75, y, f"{row.name}: {said}; {row.count} runs"))
        marks.append(f'<path class="median" d="M{p50:.1f} {y + 6}v{_ROW - 14}"/>')
        marks.append(_text(p95 + 8, y + _ROW / 2 + 3, f"p50 {row.percentiles[2]:.2f} s", "value"))
    return _svg(marks, [(x(tick), f"{tick:g} s") for tick in ticks], len(rows))


def _svg(marks: Sequence[str], ticks: Sequence[tuple[float, str]], rows: int) -> Markup:
    height = _TOP + rows * _ROW + _AXIS
    bottom = height - _AXIS + 4
    grid = "".join(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>' for x, _ in ticks)
    axis = "".join(_text(x, bottom + 18, text, "tick") for x, text in ticks)
    width = WIDTH + _RIGHT
    return Markup(  # noqa: S704 - every text in it went through `escape`
        f'<svg viewBox="0 0 {width} {height}" role="img">{grid}{"".join(marks)}{axis}</svg>'
    )


def _x(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT)


def _box(kind: str, start: float, end: float, y: float, title: str) -> str:
    size = f'x="{start:.1f}" y="{y + 6}" width="{max(1.0, end - start):.1f}" height="{_ROW - 14}" rx="2"'
    return f'<rect class="{kind}" {size}><title>{escape(title)}</title></rect>'


def _label(text: str, y: float) -> str:
    return _text(_LEFT - 10, y + _ROW / 2 + 3, text, "label")


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _ticks(high: float) -> list[float]:
    """Three to six round steps from 0 to at least `high`."""
    raw = high / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [round(step * number, 10) for number in range(math.ceil(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around the values."""
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
