"""When a tool is offered, and how its executor runs: the tables `[offer]` and `[run]` of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ESCAPE_HATCH = "escape_hatch"
"""The role of tools that do not do the requested work: ask for a new tool, undo …"""


@dataclass(frozen=True, slots=True)
class OfferPolicy:
    """When the pool filter offers a tool; without conditions: always.

    `role`: "escape_hatch" or None, or a word for another runtime.
    `markers`: offered only if the request contains one of them; none: no such condition. "…" in a marker
    stands for up to three words.
    `not_in`: phrases that contain a marker and mean something else, so that the marker does not count.
    `unless_canonical_at_least`: not offered if the pool has this many canonical tools.
    `always`: offered whatever the other conditions and the provider rules say.
    `after`: names of tools; offered only once each of them has succeeded in the run. A tool that is offered
    brings these tools into the pool, whatever their conditions say.
    `terminal`: a successful call ends the run, and its result is the answer.
    """

    role: str | None = None
    markers: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()
    unless_canonical_at_least: int | None = None
    always: bool = False
    after: tuple[str, ...] = ()
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """How a tool's executor runs.

    `effect`: whether it changes anything. `confirm`: whether the user approves each call.
    `repeatable`: whether the same call may be made again in a run though it failed or succeeded before.
    `timeout_s`: seconds, 0 for no limit.
    `env`: environment variables that it gets, in addition to those that every executor gets.
    `memory_mb`: MB (1024 kB) of memory for it and its child processes, 0 for no limit.
    `max_result_kb`: kB (1024 bytes) of its result, as JSON.
    """

    effect: Literal["read", "write"] = "write"
    confirm: bool = False
    timeout_s: float = 30.0
    env: tuple[str, ...] = ()
    memory_mb: int = 4096
    max_result_kb: int = 1024
    repeatable: bool = False
