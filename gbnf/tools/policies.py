"""When an executor is offered, and how it runs: the tables `[offer]` and `[run]` of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ESCAPE_HATCH = "escape_hatch"
"""The role of tools that are a way out (ask for a new tool, undo …) and not a way to do the work."""


@dataclass(frozen=True, slots=True)
class OfferPolicy:
    """When the pool filter offers an executor; without conditions: always.

    `role`: "escape_hatch" or None, or a word that another runtime understands.
    `markers`: offered only where the request holds one of them; none: no such condition. "…" in a marker
    stands for up to three words.
    `not_in`: phrases that hold a marker and mean something else; there it doesn't count.
    `unless_canonical_at_least`: not offered where the pool holds this many canonical tools.
    `always`: offered whatever the other conditions and the provider rules say.
    """

    role: str | None = None
    markers: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()
    unless_canonical_at_least: int | None = None
    always: bool = False


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """How an executor runs.

    `effect`: whether it changes anything; a manifest that doesn't say is taken to.
    `confirm`: whether a person approves each call. `timeout_s`: seconds, 0 for no limit.
    `env`: the environment variables that it gets, beside those that every executor gets.
    `memory_mb`: MB (1024 kB) of memory for it and all that it starts, 0 for no limit.
    `max_result_kb`: kB (1024 bytes) of its result, as JSON.
    """

    effect: Literal["read", "write"] = "write"
    confirm: bool = False
    timeout_s: float = 30.0
    env: tuple[str, ...] = ()
    memory_mb: int = 4096
    max_result_kb: int = 1024
