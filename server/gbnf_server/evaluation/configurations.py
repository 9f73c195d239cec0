"""The configurations that the bench compares: an entry for each, with the options that are not defaults.

Each configuration adds one thing to the previous one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf_server.backends.base import Dialect


@dataclass(frozen=True, slots=True)
class Configuration:
    """A name, a description for a table's note, and the `PlannerOptions` that differ from the default.

    `union`: whether the grammar binds each name to its arguments.
    """

    name: str
    description: str
    settings: Mapping[str, Any]
    union: bool = True


_TEXT = "no grammar; calls parsed in any common syntax, and repaired"

CONFIGURATIONS: tuple[Configuration, ...] = (
    Configuration("baseline", "no grammar; only clean JSON counts", {"call_format": "json", "filter": False}),
    Configuration("text", _TEXT, {"call_format": "text", "filter": False}),
    Configuration(
        "grammar", "a grammar that combines any name with any arguments", {"filter": False}, union=False
    ),
    Configuration("union", "a grammar that binds each name to its arguments", {"filter": False}),
    Configuration("filter", "the same, over the tools that the request needs", {}),
)

STRATEGIES: tuple[Configuration, ...] = (
    Configuration("none", "no grammar; only clean JSON counts", {"call_format": "json"}),
    Configuration("text", _TEXT, {"call_format": "text"}),
    Configuration("lines", "no grammar; calls in the line protocol", {"call_format": "lines"}),
    Configuration("grammar", "a grammar that binds each name to its arguments", {}),
    Configuration("field", "the same, each call beginning with reasoning", {"reasoning": "field"}),
    Configuration("free", "reasoning without a grammar, then a constrained call", {"reasoning": "free"}),
)
"""The strategies: ways to get calls from a model, each with the tools that the request needs."""


def supported_strategies(dialect: Dialect, names: Sequence[str] = ()) -> tuple[Configuration, ...]:
    """Return the strategies of these names, or all, that a backend of this dialect supports."""
    return tuple(
        each
        for each in named(names, STRATEGIES)
        if dialect != "none" or each.settings.get("call_format", "grammar") != "grammar"
    )


def named(names: Sequence[str], table: Sequence[Configuration] = CONFIGURATIONS) -> tuple[Configuration, ...]:
    """Return the entries of `table` with these names, in its order; all for no names. Raises ValueError.

    "soft" is an old name of "text".
    """
    wanted = {"text" if name == "soft" else name for name in names}
    if unknown := wanted - {each.name for each in table}:
        known = ", ".join(each.name for each in table)
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}. Use {known}")
    return tuple(each for each in table if not names or each.name in wanted)
