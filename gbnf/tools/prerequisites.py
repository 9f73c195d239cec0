"""The order of tools: `[offer] after` names those that must have succeeded before a tool is offered. Pure.

`[offer] terminal` tools end a run, so that nothing comes after them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

from gbnf.tools.tool import Tool

ANY_TOOL = "*"
"""Stands for whichever tool of the pool has succeeded."""


def missing_prerequisites(tools: Iterable[Tool], succeeded: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the tools that may not be called yet, each with those that must succeed first."""
    missing = (
        (tool.name, tuple(name for name in tool.offer.after if name not in succeeded)) for tool in tools
    )
    return {name: names for name, names in missing if names}


def with_prerequisites(tools: Iterable[Tool], pool: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return `tools` and the tools that they come after, also indirectly, in the order of `pool`."""
    by_name = {tool.name: tool for tool in pool}
    pending = list(tools)
    names = {tool.name for tool in pending}
    while pending:
        for name in pending.pop().offer.after:
            if name in by_name and name not in names:
                names.add(name)
                pending.append(by_name[name])
    return tuple(tool for tool in pool if tool.name in names)


def unreachable_tools(pool: Sequence[Tool]) -> dict[Tool, str]:
    """Return the tools that no run with this pool can call, each with the reason: a sentence without its end.

    Such a tool comes after one that the pool lacks, that ends the run, or that is itself unreachable: then
    the reason is the end of that chain, or the cycle.
    """
    by_name = {tool.name: tool for tool in pool}
    leads_on: set[str] = set()  # reachable, and the run continues after it
    pending = dict(by_name)
    while ready := [tool for tool in pending.values() if leads_on.issuperset(tool.offer.after)]:
        leads_on.update(name for tool in ready if not tool.offer.terminal for name in (tool.name, ANY_TOOL))
        for tool in ready:
            del pending[tool.name]
    return {tool: _reason(tool, by_name, pending) for tool in pool if tool.name in pending}


def _reason(tool: Tool, by_name: Mapping[str, Tool], unreachable: Mapping[str, Tool]) -> str:
    """Follow the first prerequisite that can't be met, until it is no tool that waits, or a cycle."""
    chain = [tool.name]
    while True:
        after = by_name[chain[-1]].offer.after
        for name in after:
            if name not in by_name:
                similar = get_close_matches(name, by_name, n=1)
                hint = f"; did you mean {similar[0]!r}?" if similar else ""
                return f"{_waits(chain)} comes after {name!r}, which the pool does not have{hint}"
            if name not in unreachable and by_name[name].offer.terminal:
                return f"{_waits(chain)} comes after {name!r}, which ends the run"
        name = next(name for name in after if name in unreachable)
        if name in chain:
            return f"each comes after another: {' after '.join([*chain[chain.index(name) :], name])}"
        chain.append(name)


def _waits(chain: Sequence[str]) -> str:
    *before, last = chain
    return f"it comes after {last!r}, which" if before else "it"
