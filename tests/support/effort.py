"""How many examples the profile of Hypothesis wants."""

from __future__ import annotations

from hypothesis import settings

_FULL = 100  # examples of a property in the full run: tests/conftest.py


def scaled(full: int) -> int:
    """Return the examples for a property that has `full` of them in the full run."""
    return max(1, full * settings().max_examples // _FULL)
