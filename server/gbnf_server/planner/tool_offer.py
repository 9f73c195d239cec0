"""The tools offered in a step: those described to the model, those it may call, and their grammar.

Invariant: the system message describes the same tools for a whole run, byte for byte, so that prompts share a
growing prefix, which servers cache; only the grammar changes from step to step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache, partial
from itertools import islice
from math import inf
from typing import Any

from gbnf import Finding, SchemaError
from gbnf.compiler.pool import uncompilable_finding, uncompilable_findings
from gbnf.dialects import call_schema
from gbnf.errors import GbnfError, PoolError
from gbnf.prompts.descriptions import declare_tool
from gbnf.prompts.messages import (
    Message,
    describe_added_tools,
    native_system_prompt,
    suggest_tool,
    system_prompt,
)
from gbnf.protocols.field_lines import FieldLines
from gbnf.protocols.protocol import AnswerFormat, Offered
from gbnf.requests.coverage import with_entries, with_known_addresses, with_named_folders, with_values_left
from gbnf.requests.evidence import Evidence, gather_evidence
from gbnf.requests.pool_filter import CLEAR, Selection, best_first, filter_pool, scored
from gbnf.requests.ranking import file_readers, fits_none, has_content_of, names_file
from gbnf.schema.keywords import KEYWORDS
from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS, Tool
from gbnf.tools.prerequisites import missing_prerequisites, with_prerequisites
from gbnf.tools.tool import excluding, offered_args
from gbnf_server.planner.events import StepStarted
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.repeats import canonical
from gbnf_server.planner.run_state import OfferedTools, RunState
from gbnf_server.planner.small_models.first_step import first_choices
from gbnf_server.planner.small_models.preference import LIKELY
from gbnf_server.planner.small_models.progress import lists_more, next_tools, seems_done
from gbnf_server.planner.small_models.requested_arguments import dates_to_tell
from gbnf_server.planner.small_models.requested_tools import (
    all_due_tools,
    most_preferred_tools,
    permitted_tools,
    takes_found,
)

FOUND_AT_ONCE = 4
"""Tools that a call of `find_tools` adds; another call with the same words adds the next ones."""

_WHOLLY_DESCRIBED = 3
"""So many of the tools that a small model's template declares have descriptions of their arguments."""

_MOST_ENTRIES, _LONGEST_ENTRY = 50, 200
"""Entries of results, the latest first, and characters of each, that an argument may copy."""


def select(state: RunState, *, is_done: bool = False) -> Selection:
    """Return the tools that the person's words call for; all of them if the filter is off.

    Tools that the messages describe already, and those that `find_tools` found, are kept whatever their rank:
    after the others, in the order in which they were added. A small model with evidence, which makes it avoid
    `find_tools`, gets more of them after its first call, unless `is_done`: nothing of the request seems left.
    """
    pool, request, options = state.order.tools, state.request, state.options
    if not options.filter:
        return Selection(pool)
    limits: dict[str, Any] = {"limit": options.max_tools, "margin": options.margin}
    limits |= {"providers": options.providers}
    if options.margin and options.evidence != "none" and (is_done or not state.steps):
        limits |= {"margin": CLEAR, "best": 1}
    try:
        selection = filter_pool(pool, request, **limits, ranker=options.ranker)
    except GbnfError as error:
        notice = f"the tools are ranked by their words, since the ranker failed: {error}"
        selection = replace(filter_pool(pool, request, **limits), notice=notice)
    added = tuple(
        tool for tool in dict.fromkeys((*state.described, *state.found_tools)) if tool in selection.outranked
    )
    if not added:
        return selection
    return replace(
        selection,
        kept=(*selection.kept, *added),
        dropped={tool: reason for tool, reason in selection.dropped.items() if tool not in added},
        outranked=tuple(tool for tool in selection.outranked if tool not in added),
    )


def find_tools(query: str, state: RunState) -> dict[str, Any]:
    """Add the tools that fit `query` best, and their prerequisites, to those that the next steps offer.

    Return their names.
    """
    hidden = select(state, is_done=seems_done(state)).outranked
    ranked = _best_first(hidden, query, state.options)
    added = with_prerequisites(ranked[:FOUND_AT_ONCE], ranked)
    state.found_tools += added
    return {"tools": [tool.name for tool in added]}


@dataclass(frozen=True, slots=True)
class _Choices:
    """What a step may be: a call of `ready`, a question if `asks`, or an answer if `answers`.

    `tools`: those that are described, and compiled, with `find_tools`. `waiting`: see `OfferedTools`.
    `may_answer`: no required tool is missing. `only_answers`: nothing of the request seems left.
    """

    tools: tuple[Tool, ...]
    waiting: Mapping[str, tuple[str, ...]]
    ready: tuple[Tool, ...]
    asks: bool
    answers: bool
    may_answer: bool
    only_answers: bool


def offer_tools(state: RunState) -> OfferedTools:
    """Filter the pool by all the person's words, describe new tools, and compile the grammar of a step.

    All of them are described from the start, with their prerequisites, so that the prompt stays the same.
    """
    is_done = seems_done(state)
    tools = _describe_selected(state, is_done=is_done)
    return _constrain(_choose(tools, state, is_done=is_done), state, is_done=is_done)


def _describe_selected(state: RunState, *, is_done: bool) -> tuple[Tool, ...]:
    """Return the tools that the filter keeps, and that can be compiled; describe those that are new."""
    guidance = state.options.guidance
    selection = select(state, is_done=is_done)
    # once described, find_tools stays offered, so that the prompt stays the same
    is_searched = bool(selection.outranked) and not guidance.declares_needed
    searching = (FIND_TOOLS,) if is_searched or FIND_TOOLS in state.described else ()
    is_narrowed = guidance.declares_needed and state.options.filter
    pool = _to_declare(selection.kept, state) if is_narrowed else selection.kept
    tools = (*_compilable(pool, state), *searching)
    _describe_tools(tools, state)
    return tools


def _choose(tools: tuple[Tool, ...], state: RunState, *, is_done: bool) -> _Choices:
    """Return what of the described tools may be called next, and whether the model may answer.

    What the last step says of this one counts once: it is reset.
    """
    guidance, asks = state.options.guidance, state.options.ask_user
    ending = _ending(state)
    waiting = missing_prerequisites((*tools, *ending), state.prerequisites)
    ready = tuple(tool for tool in tools if tool.name not in waiting)
    may_answer = bool(ending) and FINAL_ANSWER.name not in waiting
    unwanted = {state.calls.resting_tool, *state.calls.unapproved}
    wanted = tuple(tool for tool in ready if tool.name not in unwanted)
    if wanted or asks or may_answer:
        ready = wanted
    state.calls.resting_tool = ""
    ready, answers = _next_choices(ready, state, answers=may_answer, is_done=is_done)
    if state.lead.preference and not state.steps:
        near = with_prerequisites(most_preferred_tools(tools, state), tools)
        ready = tuple(tool for tool in ready if tool in near) or most_preferred_tools(ready, state)
    only_answers = guidance.follows_request and answers and not ready and bool(state.done_calls)
    state.lead.answers_next, state.lead.calls_next = False, frozenset()
    return _Choices(tools, waiting, ready, asks and not only_answers, answers, may_answer, only_answers)


def _constrain(choices: _Choices, state: RunState, *, is_done: bool) -> OfferedTools:
    """Return the step's offer: what the calls may be without repetitions, their grammar and evidence."""
    options, ready = state.options, choices.ready
    refers_to, ending = tuple(sorted(state.entries)), _ending(state)
    asking = (ASK_USER,) if choices.asks else ()
    declared = ending if options.protocol.answers_by_call else ()
    excluded = _excluded(ready, state)
    is_held = options.guidance.holds_to_values_left and bool(ready) and not choices.answers
    limited, repetitions = _limited(ready, excluded, state, is_held=is_held)
    ready, limited = (
        tuple(tool for tool in some if tool.name not in repetitions) for some in (ready, limited)
    )
    names = {tool.name for tool in ready}
    resting = frozenset(tool.name for tool in choices.tools) - choices.waiting.keys() - names
    has_calls = any(offered_args(tool, refers_to) is not None for tool in ready)
    answers = choices.answers or (choices.may_answer and not has_calls)
    possible = (*ready, *asking, *(ending if answers else ()))
    grammar = evidence = None
    # a pool of no calls is an error
    if options.protocol.is_constrained and (asking or answers or has_calls or not resting):
        only_text = options.guidance.follows_request and possible == ending
        grammar = (
            options.protocol.prose()
            if only_text
            else _constraint(limited, options, refers_to, answers=answers, asks=options.ask_user)
        )
        evidence = _evidence(possible, state, ends=answers and is_done)
        if evidence and is_held:  # to what is left, so that other values may stay
            evidence = replace(evidence, used={})
    return OfferedTools(
        in_system_message=(*state.in_system_message, *asking, *declared),
        described=(*state.described, *asking, *declared),
        callable=possible,
        waiting=choices.waiting,
        refers_to=refers_to,
        grammar=grammar,
        resting=resting,
        excluded=tuple(
            canonical({"name": name, "arguments": arguments})
            for name, several in excluded.items()
            for arguments in several
        ),
        evidence=evidence,
        only_answers=choices.only_answers,
    )


def _ending(state: RunState) -> tuple[Tool, ...]:
    return (state.order.final_answer,) if state.order.final_answer else ()


def _to_declare(pool: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tools of a pool that the prompt of a small native model declares, the best first.

    Of many, it calls the first. What will not be offered is not declared either.
    """
    pool = (
        most_preferred_tools(pool, state, inf)
        if state.lead.preference
        else _best_first(pool, state.request, state.options)
    )
    offerable = {*state.described, *permitted_tools(pool, state)}
    pool = tuple(tool for tool in pool if tool in offerable) or pool
    if not state.lead.preference:
        return pool
    likely = {*most_preferred_tools(pool, state, LIKELY), *state.described}
    likely |= {*all_due_tools(pool, state)}
    likely |= {tool for tool in pool if tool.offer.always or tool.offer.terminal}
    # it is read, or found, before it is changed
    if names_file(state.query) or has_content_of(state.query) or takes_found(pool, state):
        likely |= {*file_readers(pool)}
    needed = with_prerequisites(likely, pool)
    return tuple(tool for tool in pool if tool in needed)


def _next_choices(
    ready: tuple[Tool, ...], state: RunState, *, answers: bool, is_done: bool
) -> tuple[tuple[Tool, ...], bool]:
    """Return those of the tools `ready` that a model may call next, and whether it may answer."""
    options, guidance = state.options, state.options.guidance
    if guidance.changes_only_what_is_asked and options.filter:
        ready = permitted_tools(ready, state)
    if not answers:
        return ready, False
    if guidance.begins_as_asked and not state.steps and (choices := first_choices(ready, state)):
        return choices
    # a part of a request asks for a tool, and a small model would answer as if it had been called
    is_begun = state.done_calls or state.blocked_in_a_row
    if (
        state.is_divided
        and not is_begun
        and not set(ready).isdisjoint(all_due_tools(state.order.tools, state))
    ):
        return ready, False
    if guidance.follows_request:
        return next_tools(ready, state, is_done=is_done)
    is_held = guidance.holds_to_values_left and options.evidence != "none"
    return ready, not (is_held and lists_more(ready, state))


def _limited(
    ready: tuple[Tool, ...],
    excluded: Mapping[str, tuple[dict[str, Any], ...]],
    state: RunState,
    *,
    is_held: bool,
) -> tuple[tuple[Tool, ...], set[str]]:
    """Return tools with only those arguments that may be next, and the names of those that have none."""
    options = state.options
    limited = tuple(excluding(tool, excluded.get(tool.name, ())) for tool in ready)
    if is_held:
        limited = tuple(with_values_left(tool, state.request, state.done_calls) for tool in limited)
    if state.entries and [tool.name for tool in ready] == [state.lead.entries_for]:
        argument, entries = state.lead.takes_entries[state.lead.entries_for], _latest_entries(state)
        limited = tuple(with_entries(tool, argument, entries) for tool in limited)
    elif state.lead.entries_for and not state.entries:  # what it finds elsewhere would be changed, too
        limited = tuple(with_named_folders(tool, state.query) for tool in limited)
    unaddressed = limited
    uncompilable = partial(
        uncompilable_findings, steps=tuple(sorted(state.entries)), max_depth=options.max_depth
    )
    if options.guidance.changes_only_what_is_asked:
        written = "\n".join(str(message["content"]) for message in state.history)
        limited = tuple(with_known_addresses(tool, written, state.request) for tool in limited)
    if options.spans and options.dialect == "gbnf":
        from gbnf_server.planner.spans.values import with_spans  # noqa: PLC0415  # it reads the names of CLDR

        read_as = state.request, state.started_at.date(), options.date_order
        spans = ((tool, with_spans(tool, *read_as)) for tool in limited)
        # some type may need what its text does not have, such as two dates
        limited = tuple(tool if uncompilable((restricted,)) else restricted for tool, restricted in spans)
    has_fewer = bool(excluded) or limited != unaddressed
    repetitions = {finding.tool for finding in uncompilable(limited)} if has_fewer else set()
    return limited, repetitions | {
        tool.name
        for tool in ready
        if _takes_nothing(tool) and state.calls.refusal(tool, {"name": tool.name, "arguments": {}})
    }


def _best_first(tools: tuple[Tool, ...], query: str, options: ResolvedOptions) -> tuple[Tool, ...]:
    """Return the tools with those first that fit best, by their words if the ranker fails."""
    try:
        return best_first(tools, query, options.ranker)
    except GbnfError:
        return best_first(tools, query)


def _evidence(tools: tuple[Tool, ...], state: RunState, *, ends: bool) -> Evidence | None:
    """Return what the request says of the next call."""
    avoids_search = FIND_TOOLS in tools and (ends or (state.options.margin > 0 and not state.steps))
    own = [tool for tool in tools if tool not in (FIND_TOOLS, ASK_USER, FINAL_ANSWER)]
    may_fit_none = FINAL_ANSWER in tools and FIND_TOOLS not in tools and not state.steps
    if state.options.guidance.suggests_best and may_fit_none:
        ends = fits_none(state.request, own)
    copied = _latest_entries(state)
    evidence = gather_evidence(
        state.request, own, state.options.evidence, done=state.done_calls, entries=copied
    )
    return evidence and replace(
        evidence,
        likely=(FINAL_ANSWER.name,) if ends else (),
        unlikely=(FIND_TOOLS.name,) if avoids_search else (),
        callable=tuple(tool.name for tool in tools),
    )


def _latest_entries(state: RunState) -> tuple[str, ...]:
    """Return the texts among the entries of results, the latest result first."""
    entries = (
        entry
        for several in reversed(state.entries.values())
        for entry in several
        if isinstance(entry, str) and 0 < len(entry) <= _LONGEST_ENTRY
    )
    return tuple(islice(entries, _MOST_ENTRIES))


def _takes_nothing(tool: Tool) -> bool:
    """Return whether a tool has no arguments, so that there is one call of it."""
    args = tool.model_args()
    constraining = {keyword: value for keyword, value in args.items() if keyword in KEYWORDS and value}
    return constraining.keys() <= {"type"}


def _excluded(tools: tuple[Tool, ...], state: RunState) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return the arguments that the grammar excludes, by tool; {} if it cannot exclude any."""
    # engines ignore or refuse the `not` of a JSON Schema
    if not state.options.protocol.is_constrained or state.options.dialect == "json_schema":
        return {}
    return {tool.name: arguments for tool in tools if (arguments := state.calls.excluded(tool))}


def declared_tools(offer: OfferedTools, options: ResolvedOptions) -> tuple[dict[str, Any], ...]:
    """Return the tools that the chat template declares, in native formats."""
    if not options.protocol.declares_tools:
        return ()
    return tuple(
        declare_tool(
            tool,
            language=options.language,
            guiding=options.guidance.declares_needed,
            described=not options.guidance.declares_needed or rank < _WHOLLY_DESCRIBED,
            patterns=not (options.constrained and options.protocol.is_constrained),
        )
        for rank, tool in enumerate(offer.described)
    )


def system_message(offer: OfferedTools, options: ResolvedOptions, today: date) -> Message:
    """Return the system message of a run; it is empty if the chat template's declarations are all."""
    tools = offer.in_system_message
    if options.protocol.declares_tools:
        if options.model.answers_by_call_only:
            return {"role": "system", "content": ""}
        content = native_system_prompt(
            options.language,
            today=today,
            brief=options.guidance.declares_needed,
            has_tools=bool(offer.described),
            has_references=any(tool.step_references for tool in offer.described),
        )
        return {"role": "system", "content": content}
    if isinstance(options.protocol, FieldLines):
        return {"role": "system", "content": options.protocol.prompt(options.language)}
    answers = any(tool.name == FINAL_ANSWER.name for tool in tools)
    content = system_prompt(
        tools,
        style=options.model.prompt_style,
        language=options.language,
        reasoning=options.reasoning == "field",
        lines=options.protocol.lines,
        endings=() if answers else [tool.name for tool in tools if tool.offer.terminal],
        constrained=options.protocol.is_constrained,
    )
    return {"role": "system", "content": content}


def grammar_of_step(
    started: StepStarted, pool: Mapping[str, Tool], options: ResolvedOptions
) -> AnswerFormat | None:
    """Compile the grammar of a step of an earlier run again, from the tools of its run, by name.

    Return None for a step without a grammar, or if the pool has not all of its tools. Raises PoolError.
    """
    built_in = {FINAL_ANSWER.name, ASK_USER.name}
    by_name = {FIND_TOOLS.name: FIND_TOOLS, **pool}
    names = [name for name in started.tools if name not in built_in]
    if not started.tools or not options.protocol.is_constrained or not all(name in by_name for name in names):
        return None
    if options.guidance.follows_request and started.tools == (FINAL_ANSWER.name,):
        return options.protocol.prose()
    excluded: dict[str, list[dict[str, Any]]] = {}
    for call in map(json.loads, started.excluded):
        excluded.setdefault(call["name"], []).append(call["arguments"])
    tools = tuple(excluding(by_name[name], excluded.get(name, ())) for name in names)
    answers, asks = FINAL_ANSWER.name in started.tools, ASK_USER.name in started.tools
    return _constraint(tools, options, started.refers_to, answers=answers, asks=asks)


def _constraint(
    tools: tuple[Tool, ...], options: ResolvedOptions, steps: tuple[int, ...], *, answers: bool, asks: bool
) -> AnswerFormat | None:
    """Return what constrains the calls of these tools."""
    order, depth = options.property_order, options.max_depth
    offered = Offered(
        tools, answers, steps=steps, ask_user=asks, property_order=order, max_depth=depth, other_calls=False
    )
    return options.protocol.constraint(offered)


def _compilable(tools: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tools without those that cannot be compiled; `state.uncompilable_reasons` says why."""
    if not state.options.protocol.is_constrained:
        return tools
    is_schema = state.options.dialect == "json_schema"
    findings = (
        _not_in_joint_schema(tools)
        if is_schema
        else uncompilable_findings(tools, max_depth=state.options.max_depth)
    )
    state.uncompilable_reasons |= {str(finding) for finding in findings}
    names = {finding.tool for finding in findings}
    if names and len(names) == len(tools):
        raise PoolError(f"no tool can be compiled: {'; '.join(map(str, findings))}")
    return tuple(tool for tool in tools if tool.name not in names)


@lru_cache(maxsize=64)
def _not_in_joint_schema(tools: tuple[Tool, ...]) -> tuple[Finding, ...]:
    findings = []
    for tool in tools:
        try:
            call_schema((tool,), steps=(1,))
        except SchemaError as error:
            findings.append(uncompilable_finding(tool, error))
    return tuple(findings)


def _describe_tools(tools: tuple[Tool, ...], state: RunState) -> None:
    """Describe tools once: the first in the system message, later ones after the message that added them."""
    if not state.in_system_message:
        state.in_system_message = state.described = tools
        if best := _clearly_best(tools, state.query, state.options):
            _append(state, suggest_tool(best.name, language=state.options.language))
        today = state.started_at.date()
        near = most_preferred_tools(tools, state) if state.lead.preference else ()
        if state.options.guidance.tells_dates and (dates := dates_to_tell(tools, state.query, today, near)):
            _append(state, "\n".join(f"{word}: {day}" for word, day in dates.items()))
        return
    more = tuple(tool for tool in tools if tool not in state.described)
    if more and not state.options.protocol.declares_tools:
        # after a person's answer that names something new, or what find_tools found
        style = state.options.model.prompt_style
        _append(state, describe_added_tools(more, style=style, language=state.options.language))
    state.described = (*state.described, *more)


def _clearly_best(tools: tuple[Tool, ...], query: str, options: ResolvedOptions) -> Tool | None:
    """Return the tool that fits a request best by far, for a small model; None if there is no such tool.

    A model that chooses among tools at random half of the time follows the name in a message nearly always.
    """
    choices = dict.fromkeys(tool for tool in tools if tool != FIND_TOOLS)
    if not options.filter or not options.guidance.suggests_best or len(choices) < 2:
        return None
    try:
        scores = scored(tuple(choices), query, options.ranker)
    except GbnfError:
        return None
    first, second = sorted(scores, key=lambda tool: -scores[tool])[:2]
    return first if scores[second] < CLEAR * scores[first] > 0 else None


def _append(state: RunState, text: str) -> None:
    """Add a paragraph to the last message."""
    last = state.history[-1]
    state.history[-1] = {**last, "content": f"{last['content']}\n\n{text}"}
