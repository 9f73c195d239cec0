"""Progress: what of a request its calls have done, and what is left of it, by its words. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import dropwhile
from typing import Any

from gbnf.prompts.descriptions import declare_tool
from gbnf.requests import wording
from gbnf.requests.coverage import (
    has_values_for_another,
    is_covered,
    takes_more,
    uncovered_values,
    with_values_left,
)
from gbnf.requests.ranking import common_words, file_readers, names_file
from gbnf.requests.values import asks_for_several, most_calls
from gbnf.tools import Tool
from gbnf_server.planner.run_state import RunState
from gbnf_server.planner.small_models.preference import LIKELY
from gbnf_server.planner.small_models.requested_tools import (
    best_fitting_tools,
    due_tools,
    fit_scores,
    most_preferred_tools,
    only_asks,
    permitted_tools,
)

_NEARLY = 0.9
"""Of the best score: paths, addresses and times fit several tools alike."""


def has_nothing_new(call: Mapping[str, Any], state: RunState) -> bool:
    """Return whether a call of a small model shows that it has nothing else to do for the request.

    It repeats a call that is done although no value of the request is left, or calls the same tool again: for
    a request that asks for one thing, or with nothing more of the request and the results.
    """
    done = state.done_calls
    if not (state.options.guidance.ends_when_done and state.options.guidance.follows_request):
        return False
    is_all = is_covered(state.request, done)
    if call.get("name") not in state.succeeded:
        return is_all and state.calls.is_done(call)
    if _found_nothing(state):
        return state.calls.is_done(call)  # it looks elsewhere
    texts = "\n".join([state.request, *(repr(step.result) for step in state.steps if step.result)])
    if not takes_more(texts, call, done, by_argument=bool(wording.ANOTHER.search(state.query))):
        return True
    return is_all and (not asks_for_several(state.query) or state.calls.is_done(call))


def useless(call: Mapping[str, Any], tool: Tool | None, state: RunState) -> str:
    """Return why a call is not made, since it repeats what failed or is done, or has nothing new; else ""."""
    if tool is not None and (reason := state.calls.refusal(tool, call)):
        return reason
    return f"{call['name']} has done what was asked for; answer now" if has_nothing_new(call, state) else ""


def _found_nothing(state: RunState) -> bool:
    """Return whether the last call has found nothing."""
    result = state.steps[-1].result if state.steps else None
    return result is not None and result.get("entries") == []


def has_all_parts(state: RunState) -> bool:
    """Return whether there is a call for each part of a request, and its values are in them.

    Another call of a tool counts if it has more of the request. What has only read is no call for a request
    that asks for a change.
    """
    done = state.done_calls
    if not state.changing and due_tools(state.order.tools, state):
        return False
    parts = 0
    for index, call in enumerate(done):
        earlier = done[:index]
        is_first = all(call["name"] != other["name"] for other in earlier)
        parts += is_first or takes_more(state.request, call, earlier)
    return parts >= most_calls(state.query) and is_covered(state.request, done)


def _last_tool(pool: tuple[Tool, ...], state: RunState) -> Tool | None:
    """Return the tool of the last call that has a result; None without one, and if the pool has it not."""
    return next((tool for tool in pool for call in state.done_calls[-1:] if tool.name == call["name"]), None)


def lists_more(pool: tuple[Tool, ...], state: RunState) -> bool:
    """Return whether a request lists values with those of the last call that no call has."""
    last = _last_tool(pool, state) if state.steps and state.steps[-1].result is not None else None
    return last is not None and with_values_left(last, state.request, state.done_calls) is not last


def may_go_on(pool: tuple[Tool, ...], state: RunState) -> bool:
    """Return whether a request lists more for the last call's tool, or says that there is more: "also, …"."""
    is_repeated = wording.ANOTHER.search(state.query) and len(state.done_calls) < most_calls(state.query)
    return lists_more(pool, state) or bool(
        is_repeated and len({call["name"] for call in state.done_calls}) == 1
    )


def needs_another_call(pool: tuple[Tool, ...], state: RunState) -> bool:
    """Return whether a request asks for several calls, and calls have begun to use its values up.

    Values are left that are listed with those of the last call; or others, of which the last call took some.
    """
    done = state.done_calls
    if lists_more(pool, state):
        return True
    if not done or state.steps[-1].result is None or not asks_for_several(state.query):
        return False
    last = _last_tool(pool, state)
    return has_values_for_another(state.query, done, json.dumps(declare_tool(last)) if last else "")


def next_tools(
    ready: tuple[Tool, ...],
    state: RunState,
    *,
    is_done: bool,
) -> tuple[tuple[Tool, ...], bool]:
    """Return those of the tools `ready` that a small model may call next, and whether it may answer."""
    if unread := _readers_of_found_file(ready, state):
        return unread, False
    if is_done:
        return (), True
    changing = tuple(tool for tool in ready if tool.name == state.lead.entries_for)
    if changing and state.lead.entries_for not in state.succeeded:
        if state.entries:
            return changing, False
        ready = tuple(tool for tool in ready if tool not in changing)
    all_ready, ready = ready, _tools_still_needed(ready, state)
    if not state.done_calls and [step.fault for step in state.steps if step.fault] == ["error"]:
        # it would apologise for a path that it has guessed; what only reads can be tried
        reads = tuple(tool for tool in ready if tool.run.effect == "read")
        reads = tuple(dict.fromkeys((*reads, *file_readers(all_ready))))
        if reads and state.steps[-1].fault:
            return reads, False
    if due := tuple(tool for tool in ready if tool.name in state.lead.calls_next):
        return due, False
    unused_tools = tools_for_what_is_left(state)
    others = tuple(tool for tool in ready if tool in unused_tools)
    goes_on = state.options.guidance.goes_on
    due = _tools_due_before_answer(others, state) if goes_on else ()
    if goes_on and ready and needs_another_call(ready, state):
        called = () if any(tool.run.effect == "write" for tool in others) else state.succeeded
        tools = tuple(tool for tool in ready if tool in others or tool.name in called)
        return tools or ready, bool(others) and not due
    if due:
        return due, False
    return (others if state.lead.answers_next else ready), True


def tools_for_what_is_left(state: RunState) -> tuple[Tool, ...]:
    """Return the tools that have something of the request for which there is no call yet."""
    return () if has_all_parts(state) else tools_fitting_uncovered_words(state) or ()


def _tools_still_needed(tools: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return those of `tools` that a small model may call next, after its first step.

    Once a call has succeeded, those that change something only if the request has a word or a value for them
    that no call has: it writes over what it has just read. After a call that was refused or failed, its tool,
    and others that fit or take the entries of results: it takes the nearest that is left, for anything.
    """
    called = state.succeeded
    if called:
        needed = tools_fitting_uncovered_words(state) or ()
        values = uncovered_values(state.request, state.done_calls)
        is_named = any(not value[:1].isdigit() for value in values)
        goes_on = may_go_on(tools, state)
        again = {
            tool
            for tool in tools
            if tool.name in called
            and (goes_on or (values and (is_named or not tool.run.confirm)))  # "3 slots": no mail
        }
        tools = tuple(tool for tool in tools if tool.run.effect == "read" or tool in needed or tool in again)
    if not state.steps or state.steps[-1].result is not None:
        return tools
    concerned = {*state.calls.failures, *(state.lead.takes_entries if state.entries else ())}
    uncalled = tuple(tool for tool in state.order.tools if tool.name not in called)
    likely = best_fitting_tools(uncalled, state)
    if state.lead.preference:
        likely += most_preferred_tools(uncalled, state, LIKELY)
    return tuple(tool for tool in tools if tool.name in concerned or tool in likely) if likely else tools


def seems_done(state: RunState) -> bool:
    """Return whether nothing of the request is left for a small model, by its words.

    The calls that succeeded contain its names, quotes, codes and numbers, and no other tool that fits has a
    word of it that neither they nor their tools have; or each part of it has a call, of which the only one
    was the best tool's or has changed something.
    """
    pool, options, done = state.order.tools, state.options, state.done_calls
    guidance = options.guidance
    has_hints = guidance.ends_when_done and (options.evidence != "none" or guidance.follows_request)
    if not done or not has_hints or not is_covered(state.request, done):
        return False
    if may_go_on(pool, state) or (guidance.follows_request and _readers_of_found_file(pool, state)):
        return False
    if guidance.follows_request and has_all_parts(state):
        last = _last_tool(pool, state)
        is_best = last is not None and _is_best(last, permitted_tools(pool, state), state)
        if len(done) > 1 or is_best or (last is not None and last.run.effect == "write"):
            return True
    return tools_fitting_uncovered_words(state) == ()


def _readers_of_found_file(tools: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tools that read files, if the only call has found the file that the request is about.

    Its path does not answer "the sum of the numbers in a.txt". Not for a request with a word of the tool that
    found it: "is there a file a.txt?".
    """
    done = state.done_calls
    entries = (state.steps[0].result or {}).get("entries") if len(state.steps) == len(done) == 1 else None
    if not entries or not isinstance(entries, list) or not names_file(state.query):
        return ()
    finder = next((tool for tool in tools if tool.name == done[0]["name"]), None)
    if finder is None or common_words(state.query, finder):
        return ()
    if not all(isinstance(entry, str) and entry in state.query for entry in entries):
        return ()
    return tuple(tool for tool in file_readers(tools) if tool != finder)


def _is_best(tool: Tool, tools: tuple[Tool, ...], state: RunState) -> bool:
    """Return whether a tool fits a request as well as the best, or nearly so."""
    if state.lead.preference:
        return tool in most_preferred_tools(tools, state)
    scores = fit_scores(tools, state)
    return scores.get(tool, 0.0) >= _NEARLY * max(scores.values(), default=0.0) > 0


def tools_fitting_uncovered_words(state: RunState) -> tuple[Tool, ...] | None:
    """Return the tools that fit by words of the request that no done call has; None if that is unknown."""
    pool, request, called = state.order.tools, state.request, state.succeeded
    covered = {word for tool in pool if tool.name in called for word in common_words(request, tool)}
    uncalled = best_fitting_tools(tuple(tool for tool in pool if tool.name not in called), state)
    if not covered:
        return due_tools(pool, state) or None
    reading = [
        tool
        for tool in uncalled
        if tool.run.effect == "read" and not covered.issuperset(common_words(request, tool))
    ]
    return (*reading, *due_tools(pool, state))


def _tools_due_before_answer(others: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return those of `others`, the unused tools, one of which a request asks to be called before the answer.

    - If it asks for a change, and has values that no call has: that change, or the tools that read that it
      asks for, any of them if it asks for none.
    - Otherwise the tools that it asks for, if it has several parts, or asks for a change that was not made.

    What needs approval comes last: "let me pick one, then mail it". None after a call that has failed, and
    after two that were refused. A change is due by words of a tool's affinity only, and for no question:
    "which pull requests can I merge?"
    """
    pool = state.order.tools
    done, reads = state.done_calls, due_tools(pool, state, "read")
    asked = () if only_asks(state.query) else due_tools(pool, state, marked=False)
    changes = tuple(tool for tool in asked if tool.affinity)
    steps = list(dropwhile(lambda step: step.result is None, state.steps))
    is_stuck = not done or sum(step.result is None for step in steps) > 1 or steps[-1].fault is not None
    if is_stuck or _found_nothing(state) or not (reads or changes):
        return ()
    if changes and uncovered_values(state.query, done):
        needed = {*(reads or (tool for tool in others if tool.run.effect == "read")), *changes}
    else:
        needed = {*changes} if not state.changing else set[Tool]()
        needed = {*reads, *changes} if asks_for_several(state.query) else needed
    due = tuple(tool for tool in others if tool in needed)
    return tuple(tool for tool in due if not tool.run.confirm) or due
