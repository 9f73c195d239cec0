"""Progress: what of a request its calls have done, by its words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf.tools.evidence import asks_for_several, is_covered
from gbnf.tools.pool_filter import scored
from gbnf.tools.ranking import common_words
from gbnf_server.planner.options import SMALL_MODEL_MARGIN, ResolvedOptions
from gbnf_server.planner.prerequisites import succeeded
from gbnf_server.planner.run_state import RunState


def has_nothing_new(call: Mapping[str, Any], state: RunState, options: ResolvedOptions) -> bool:
    """Return whether a call of a small model shows that it has nothing else to do for the request.

    It repeats a call that is done, or calls the same tool again, and nothing that the request names is left.
    """
    if not options.is_small_native or not is_covered(said(state), calls_done(state)):
        return False
    is_further = call.get("name") in succeeded(state.steps) and not asks_for_several(state.query)
    return is_further or state.calls.is_done(call)


def seems_done(pool: tuple[Tool, ...], state: RunState, options: ResolvedOptions) -> bool:
    """Return whether nothing of the request is left for a small model, by its words.

    The calls that succeeded contain its names, quotes, codes and numbers, and no other tool that fits has a
    word of it that neither they nor their tools have.
    """
    done, request = calls_done(state), said(state)
    has_hints = options.evidence != "none" or options.is_small_native
    if not done or not options.is_small or not has_hints or not is_covered(request, done):
        return False
    try:
        scores = scored(pool, request, options.ranker)
    except GbnfError:
        return False
    called = succeeded(state.steps)
    covered = {word for tool in pool if tool.name in called for word in common_words(request, tool)}
    least = SMALL_MODEL_MARGIN * max(scores.values(), default=0.0)
    fitting = (tool for tool, score in scores.items() if tool.name not in called and score >= least > 0)
    return bool(covered) and all(covered.issuperset(common_words(request, tool)) for tool in fitting)


def said(state: RunState) -> str:
    """Return all that the person has said."""
    return "\n".join([state.query, *state.said])


def calls_done(state: RunState) -> tuple[Mapping[str, Any], ...]:
    """Return the calls that returned a result."""
    return tuple(step.call for step in state.steps if step.call is not None and step.result is not None)
