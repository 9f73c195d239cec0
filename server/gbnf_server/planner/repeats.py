"""Calls that are not made, since they would repeat what failed or is done.

In the state of a run, which a new result changes (another call, or the same one with another result):

- a call that failed, or was denied, is not made again until the state changes;
- a tool whose calls need a person is not called again in the run after nobody was there to approve one, or to
  answer it;
- a call with effect "write" that succeeded is not made again in the run;
- a call with effect "read" that succeeded `MAX_READS` times (that of a small model: once) is not made again
  until one that writes does;
- a small model that repeats what is done, although nothing of the request is left, has to answer next;
- a tool is left out of the next step after a call that would repeat another, and after each call that fails
  or is refused once `MAX_FAILURES` have in one state; not after another invalid call of the tool that fits
  the request best, which can be corrected.

The grammar excludes only failed calls with effect "read"; the others are refused. A model that is kept from
the call that it wants writes the nearest that is left, token by token: 5000 instead of 500.

A tool with `[run] repeatable` is exempt, and so is every tool with the option `repeat_calls`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gbnf.errors import clip
from gbnf.tools import FIND_TOOLS, Tool

MAX_READS = 2
"""How many results the same call may return without a change between them."""
MAX_FAILURES = 2
"""How many calls of a tool may fail in one state before a step leaves it out."""
MAX_EXCLUDED = 3
"""How many calls of one tool a grammar excludes, the last ones: the validator refuses the others."""
MAX_EXCLUDED_LENGTH = 400
"""The most characters of the arguments, as JSON, that a grammar excludes."""


def canonical(call: Mapping[str, Any]) -> str:
    """Return the same text for equal calls, whatever the order of their keys: 1 and 1.0 are equal."""
    from gbnf.schema.value_sets import equality_key  # noqa: PLC0415  # needed once there is a call

    return equality_key(dict(call))


@dataclass(slots=True)
class CallLog:
    """The outcomes of a run's calls. Calls are keys as `canonical` returns them."""

    repeats_all: bool = False  # `PlannerOptions.repeat_calls`
    most_reads: int = MAX_READS
    failed: dict[str, str] = field(default_factory=dict)  # since the state changed; with the errors
    written: dict[str, None] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)  # since the last write
    results: set[tuple[str, str]] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)  # by tool, since the state changed
    resting_tool: str = ""  # the tool that the next step leaves out
    unapproved: dict[str, str] = field(default_factory=dict)  # tools that need a person; with the errors

    def add_result(self, tool: Tool, call: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Add a call and its result."""
        key = canonical(call)
        outcome = (key, json.dumps(result, sort_keys=True, default=repr))
        is_new = outcome not in self.results
        if is_new:
            self.results.add(outcome)
            self.failed.clear()
            self.failures.clear()
        if tool.run.effect == "write":
            self.written[key] = None
            self.read.clear()
        elif not (is_new and tool == FIND_TOOLS):  # which finds others when it is called again
            self.read[key] += 1

    def begin_part(self) -> None:
        """Let the next part of a request call again what another one has read, or what has failed."""
        self.read.clear()
        self.failed.clear()
        self.failures.clear()
        self.resting_tool = ""

    def add_failure(self, call: Mapping[str, Any], error: str) -> None:
        """Add a call that has no result."""
        key = canonical(call)
        self.failed.pop(key, None)
        self.failed[key] = clip(error, 200)

    def add_unapproved(self, tool: Tool, error: str) -> None:
        """Add a tool that needs a person, who is absent: with other arguments it would, too."""
        if not self._may_repeat(tool):
            self.unapproved[tool.name] = error

    def count_failure(self, tool: Tool, *, is_repetition: bool = False) -> str:
        """Count a failed or refused call. Return why the next step leaves its tool out, "" if it does not."""
        self.failures[tool.name] += 1
        if is_repetition:
            self.failures[tool.name] = max(self.failures[tool.name], MAX_FAILURES)
        if self.failures[tool.name] < MAX_FAILURES or self._may_repeat(tool):
            return ""
        self.resting_tool = tool.name
        return (
            f"{tool.name} is not possible in the next step, after {self.failures[tool.name]} such calls; "
            "call another tool, or answer"
        )

    def refusal(self, tool: Tool, call: Mapping[str, Any]) -> str:
        """Return why a call is not made again, as the model reads it; "" if it may be made."""
        key, name = canonical(call), tool.name
        if self._may_repeat(tool):
            return ""
        if name in self.unapproved:
            return f"{name} is not possible: {self.unapproved[name]}; call another tool, or answer"
        if key in self.written:
            return (
                f"{name} has already been done with these arguments; use its result, or call something else"
            )
        if key in self.failed:
            error = self.failed[key]
            return f"{name} has failed with these arguments ({error}); change them, or call another tool"
        if self.read[key] >= self.most_reads:
            times = "" if self.most_reads == 1 else f" {self.most_reads} times"
            return (
                f"{name} was already called{times} with these arguments; "
                "use what it returned, or call something else"
            )
        return ""

    def is_done(self, call: Mapping[str, Any]) -> bool:
        """Return whether the same call has succeeded, and nothing has changed what it returns."""
        key = canonical(call)
        return key in self.written or self.read[key] > 0

    def excluded(self, tool: Tool) -> tuple[dict[str, Any], ...]:
        """Return the arguments that a grammar of the next step excludes for a tool: the last, if short."""
        if self._may_repeat(tool) or tool.run.effect == "write":
            return ()
        calls = [json.loads(key) for key in self.failed if len(key) <= MAX_EXCLUDED_LENGTH]
        return tuple(call["arguments"] for call in calls if call["name"] == tool.name)[-MAX_EXCLUDED:]

    def _may_repeat(self, tool: Tool) -> bool:
        return self.repeats_all or tool.run.repeatable
