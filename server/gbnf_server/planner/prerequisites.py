"""The order of a run's tools, and how the run may end. Pure.

The options `required` and `terminal` become the policies of tools that manifests have, too: every tool that
ends the run, also `final_answer`, comes after the required ones (`[offer] after`). So the loop knows one kind
of order, and checks before the first model call that some ending is possible.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gbnf.errors import PoolError, suggestion
from gbnf.tools import ASK_USER, FINAL_ANSWER, OfferPolicy, Tool
from gbnf.tools.prerequisites import ANY_TOOL, unreachable_tools, with_prerequisites
from gbnf_server.planner.options import PlannerOptions
from gbnf_server.planner.run_state import OrderedTools


def order_tools(pool: Sequence[Tool], options: PlannerOptions) -> OrderedTools:
    """Apply the order of the options to a pool.

    Raises PoolError if `required` or `terminal` name an unknown tool, if no tool can be called, or if no run
    can end, for lack of an ending or of steps.
    """
    asking = (ASK_USER,) if options.ask_user else ()
    _check_names("required", options.required, [tool.name for tool in (*pool, *asking)] + [ANY_TOOL])
    _check_names("terminal", options.terminal, [tool.name for tool in pool])
    ordered = [_with_options(tool, options) for tool in pool]
    final_answer = replace(FINAL_ANSWER, offer=OfferPolicy(after=options.required, terminal=True))
    every = (*ordered, *asking, final_answer)
    unreachable = unreachable_tools(every)
    tools = tuple(tool for tool in ordered if tool not in unreachable)
    endings = [tool for tool in (*tools, final_answer) if tool.offer.terminal and tool not in unreachable]
    if not endings:
        raise PoolError(
            f"no run can end after the required tools: 'final_answer': {unreachable[final_answer]}"
        )
    if pool and not tools:
        tool, reason = next(iter(unreachable.items()))
        raise PoolError(f"no tool of the pool can be called: {tool.name!r}: {reason}")
    unlike = {ending.offer.after: ending for ending in endings}.values()
    least = min(len(with_prerequisites([ending], every)) for ending in unlike)
    if least > options.max_steps:
        raise PoolError(
            f"max_steps is {options.max_steps}, and the required tools, their prerequisites and the answer "
            f"take at least {least} steps. Allow more steps, or require fewer tools."
        )
    described = replace(FINAL_ANSWER, offer=OfferPolicy(after=options.required))
    return OrderedTools(tools, None if unreachable.pop(final_answer, None) else described, unreachable)


def named(names: Iterable[str], any_tool: str = "another tool") -> list[str]:
    """Return required names for a message."""
    return [any_tool if name == ANY_TOOL else name for name in names]


def answer_of(result: Mapping[str, Any]) -> str:
    """Return the answer in a terminal tool's result: its `answer`, its only text, or all of it as JSON."""
    match result:
        case {"answer": str(answer)}:
            return answer
        case _ if len(result) == 1 and isinstance(only := next(iter(result.values())), str):
            return only
        case _:
            return json.dumps(result, ensure_ascii=False)


def _with_options(tool: Tool, options: PlannerOptions) -> Tool:
    """Return the tool with its part in the options; a tool that they name is offered for every request."""
    terminal = tool.offer.terminal or tool.name in options.terminal
    required = [name for name in options.required if name not in {tool.name, ANY_TOOL}] if terminal else []
    offer = replace(
        tool.offer,
        always=tool.offer.always or tool.name in (*options.required, *options.terminal),
        after=tuple(dict.fromkeys((*tool.offer.after, *required))),
        terminal=terminal,
    )
    return tool if offer == tool.offer else replace(tool, offer=offer)


def _check_names(option: str, names: Collection[str], possible: Sequence[str]) -> None:
    for name in names:
        if name not in possible:
            hint = suggestion(name, possible)
            raise PoolError(f"{option} names {name!r}, which the pool does not have.{hint}")
