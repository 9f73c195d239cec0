"""Durations as they are shown."""

from __future__ import annotations


def seconds(value: float) -> str:
    """Return a duration with its unit."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms" if value >= 0.001 else "< 1 ms"
