"""What the bench compares: one line each, of settings that differ from the planner's own.

The order is that of the claim: each line adds one thing to the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf_server.backends.base import Dialect


@dataclass(frozen=True, slots=True)
class Configuration:
    """A name, what it says in a table's note, and the `Settings` of the planner that it changes."""

    name: str
    description: str
    settings: Mapping[str, Any]


CONFIGURATIONS: tuple[Configuration, ...] = (
    Configuration("baseline", "no grammar; only clean JSON counts", {"grammar": False, "filter": False}),
    Configuration(
        "soft",
        "no grammar; calls read in any usual shape, and mended",
        {"grammar": False, "soft": True, "filter": False},
    ),
    Configuration("grammar", "a grammar of any name with any arguments", {"union": False, "filter": False}),
    Configuration("union", "a grammar that binds each name to its arguments", {"filter": False}),
    Configuration("filter", "the same, over the tools that the request needs", {}),
)  # fmt: skip


STRATEGIES: tuple[Configuration, ...] = (
    Configuration("none", "no grammar; only clean JSON counts", {"grammar": False}),
    Configuration(
        "soft", "no grammar; calls read in any usual shape, and mended", {"grammar": False, "soft": True}
    ),
    Configuration(
        "lines", "no grammar; calls in plain lines", {"grammar": False, "soft": True, "lines": True}
    ),
    Configuration("grammar", "a grammar that binds each name to its arguments", {}),
    Configuration("field", "the same, each call beginning with a thought", {"reasoning": "field"}),
    Configuration("free", "thoughts without a grammar, then the call under it", {"reasoning": "free"}),
)
"""The ways to get calls out of a model, each over the tools that the request needs."""


def supported_strategies(dialect: Dialect) -> tuple[Configuration, ...]:
    """Return the strategies that a backend of this dialect supports."""
    return tuple(each for each in STRATEGIES if dialect != "none" or not each.settings.get("grammar", True))


def named(names: Sequence[str]) -> tuple[Configuration, ...]:
    """Return the configurations of these names in the table's order.

    All where none is named. Raises ValueError.
    """
    known = {each.name for each in CONFIGURATIONS}
    for name in names:
        if name not in known:
            choice = ", ".join(each.name for each in CONFIGURATIONS)
            raise ValueError(f"there is no configuration {name!r}; there are {choice}")
    return tuple(each for each in CONFIGURATIONS if not names or each.name in names)
