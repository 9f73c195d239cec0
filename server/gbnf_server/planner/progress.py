"""Progress: what of a request its calls have done, by its words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf.tools.evidence import asks_for_several, gather_evidence, is_covered, uncovered_values
from gbnf.tools.pool_filter import scored
from gbnf.tools.ranking import common_words
from gbnf.tools.tool import with_arguments
from gbnf_server.planner.options import SMALL_MODEL_MARGIN, ResolvedOptions
from gbnf_server.planner.prerequisites import succeeded
from gbnf_server.planner.run_state import RunState


def narrowed(tool: Tool, request: str) -> Tool:
    """Return a tool with the arguments that a request mentions, and those that a call needs.

    Of arguments one of which is needed, the first, unless the request mentions others; no step references.
    """
    args = tool.args
    if not args.get("properties"):
        return tool
    alone = replace(tool, args={key: value for key, value in args.items() if key != "requires_one_of"})
    evidence = gather_evidence(request, [alone], "arguments")
    assert evidence is not None
    known = evidence.arguments[tool.name]
    names = {name for name, said_of_it in known.items() if said_of_it.is_supported}
    for group in args.get("requires_one_of", ()):
        if names.isdisjoint(group):
            names.update([name for name in group if name in known][:1])
    kept = [name for name in known if name in names and name not in tool.step_references]
    return with_arguments(tool, kept) if set(args.get("required", ())) <= set(kept) else tool


def has_nothing_new(call: Mapping[str, Any], state: RunState, options: ResolvedOptions) -> bool:
    """Return whether a call of a small model shows that it has nothing else to do for the request.

    It repeats a call that is done, or calls the same tool again, and nothing that the request names is left.
    """
    if not options.is_small_native or not is_covered(said(state), calls_done(state)):
        return False
    is_further = call.get("name") in succeeded(state.steps) and not asks_for_several(state.query)
    return is_further or state.calls.is_done(call)


def needs_another_call(state: RunState) -> bool:
    """Return whether a request asks for several calls, and names values that the last one began to use up."""
    done = calls_done(state)
    if not done or not asks_for_several(state.query):
        return False
    left = len(uncovered_values(state.query, done))
    return 0 < left < len(uncovered_values(state.query, done[:-1])) and state.steps[-1].result is not None


def still_needed(tools: tuple[Tool, ...], state: RunState, options: ResolvedOptions) -> tuple[Tool, ...]:
    """Return the tools that a small model may call next, once a call has succeeded.

    Those that change something only if the request has a word or a value for them that no call has: it writes
    over what it has just read.
    """
    called = succeeded(state.steps)
    if not called:
        return tools
    left = uncovered(tools, state, options) or ()
    again = frozenset[str]() if is_covered(said(state), calls_done(state)) else called
    return tuple(tool for tool in tools if tool.run.effect == "read" or tool in left or tool.name in again)


def seems_done(pool: tuple[Tool, ...], state: RunState, options: ResolvedOptions) -> bool:
    """Return whether nothing of the request is left for a small model, by its words.

    The calls that succeeded contain its names, quotes, codes and numbers, and no other tool that fits has a
    word of it that neither they nor their tools have.
    """
    done = calls_done(state)
    has_hints = options.evidence != "none" or options.is_small_native
    if not done or not options.is_small or not has_hints or not is_covered(said(state), done):
        return False
    return uncovered(pool, state, options) == ()


def uncovered(pool: tuple[Tool, ...], state: RunState, options: ResolvedOptions) -> tuple[Tool, ...] | None:
    """Return the tools that fit by words of the request that no done call has; None if that is unknown."""
    request = said(state)
    try:
        scores = scored(pool, request, options.ranker)
    except GbnfError:
        return None
    called = succeeded(state.steps)
    covered = {word for tool in pool if tool.name in called for word in common_words(request, tool)}
    least = SMALL_MODEL_MARGIN * max(scores.values(), default=0.0)
    fitting = (tool for tool, score in scores.items() if tool.name not in called and score >= least > 0)
    left = tuple(tool for tool in fitting if not covered.issuperset(common_words(request, tool)))
    return left if covered else None


def said(state: RunState) -> str:
    """Return all that the person has said."""
    return "\n".join([state.query, *state.said])


def calls_done(state: RunState) -> tuple[Mapping[str, Any], ...]:
    """Return the calls that returned a result."""
    return tuple(step.call for step in state.steps if step.call is not None and step.result is not None)
