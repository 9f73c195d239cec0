"""Progress: what of a request its calls have done, by its words. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from functools import lru_cache
from itertools import chain, dropwhile
from math import inf
from typing import Any, Literal

from gbnf.errors import GbnfError
from gbnf.prompts.descriptions import declare_tool
from gbnf.tools import Tool
from gbnf.tools.coverage import (
    argument_values,
    has_values_for_another,
    is_covered,
    takes_more,
    uncovered_values,
    with_values_left,
)
from gbnf.tools.evidence import gather_evidence
from gbnf.tools.pool_filter import filter_pool, scored
from gbnf.tools.providers import Provider
from gbnf.tools.ranking import (
    asking_words,
    common_words,
    file_readers,
    file_tools,
    is_about,
    names_file,
    says_no_more,
)
from gbnf.tools.request_values import (
    LONGEST_REQUEST,
    asks_for_several,
    may_name_time,
    most_calls,
    named_dates,
    names_in,
    names_kind_of_file,
    times_in,
)
from gbnf.tools.requested_texts import appends
from gbnf.tools.tool import with_arguments
from gbnf_server.planner.options import SMALL_MODEL_MARGIN
from gbnf_server.planner.preference import LIKELY, NEAR, SURE, near_best
from gbnf_server.planner.run_state import RunState


def narrowed(tool: Tool, request: str) -> Tool:
    """Return a tool with the arguments that a request mentions, and those that a call needs.

    Of arguments one of which is needed, the first, unless the request mentions others, or names a day whose
    date another one takes; no step references.
    """
    args = tool.args
    if not args.get("properties"):
        return tool
    alone = replace(tool, args={key: value for key, value in args.items() if key != "requires_one_of"})
    evidence = gather_evidence(request, [alone], "arguments")
    assert evidence is not None
    arguments = evidence.arguments[tool.name]
    names = {name for name, said_of_it in arguments.items() if said_of_it.is_supported}
    choices = json.dumps(args["properties"]).casefold()
    is_dated = any(word.casefold() not in choices for word in named_dates(request, _ANY_DAY))
    for group in args.get("requires_one_of", ()):
        if names.isdisjoint(group):
            dated = [name for name in group if is_dated and _takes_times(args["properties"].get(name))]
            names.update([name for name in (*dated, *group) if name in arguments][:1])
    texts = [name for name in arguments if _takes_any_text(args["properties"][name])]
    if names.isdisjoint(texts) and any(map(_PROPER_NAME.fullmatch, names_in(request))):
        names.update(texts)  # for what the request names: the time in Tokyo
    chosen = [name for name in arguments if name in names and name not in tool.step_references]
    if not set(args.get("required", ())) <= set(chosen):
        return tool
    most = times_in(request) or int(_FINDS_ONE.search(request) is not None)
    if not most or _RECURRING.search(request):
        return with_arguments(tool, chosen)
    properties = {
        name: {**schema, "maxItems": max(most, schema.get("minItems", 0))}
        if "maxItems" not in schema and schema.get("type") == "array" and _takes_times(schema.get("items"))
        else schema
        for name, schema in args["properties"].items()
    }
    return with_arguments(replace(tool, args={**args, "properties": properties}), chosen)


_PROPER_NAME = re.compile(r"[A-Z][^\W\d_]+(?:[ -][A-Z][^\W\d_]+)*")
_ANY_DAY = date(2026, 1, 5)
_SHORTEST_DATE = len("2026-01-05")
_FAR = 0.5
"""Of the best score: where no other tool has it, words are right as often as a small model."""
_LESS_SAID = 2.0
"""What others are less preferred by, beside what they fit less: some of them are declared for later steps."""
_NEARLY = 0.9
"""Of the best score: paths, addresses and times fit several tools alike."""
_FINDS_ONE = re.compile(
    r"\b(?:find|look for|pick|choose|get|propose|suggest|trova|cerca|scegli|proponi)(?:\s+me|mi)?\s+"
    r"(?:(?:an?|one|una?|uno)\s(?!(?:couple|pair|few|dozen|handful|number|paio|po|decina|dozzina|serie)\b)|un['’])"
    r"(?![^\n]*\b(?:two|three|four|five|six|ten|both|several|them|due|tre|quattro|cinque|sei|[2-9] \w+s)\b)",
    re.IGNORECASE,
)
_RECURRING = re.compile(r"\b(?:every|each|daily|weekly|ogni|tutt[ie])\b", re.IGNORECASE)


def _takes_any_text(schema: Any) -> bool:
    """Return whether a value may be any text."""
    is_text = isinstance(schema, Mapping) and schema.get("type") == "string" and "enum" not in schema
    return is_text and not _takes_times(schema)


def _takes_times(schema: Any) -> bool:
    """Return whether a text is a point in time, by its format or pattern."""
    if not isinstance(schema, Mapping):
        return False
    if schema.get("format") in {"date", "date-time"}:
        return True
    if "pattern" not in schema:
        return False
    from gbnf.schema.validators import violation  # noqa: PLC0415  # few tools have patterns

    samples = "2026-01-05T09:00", "report.txt"
    takes_times, takes_others = (not violation(schema, sample) for sample in samples)
    return takes_times and not takes_others


def dates_to_tell(
    tools: tuple[Tool, ...], request: str, today: date, preferred: tuple[Tool, ...] = ()
) -> dict[str, str]:
    """Return the days and times that a request has in words, if a tool for it takes them: half past nine.

    That is one of those that are `preferred` for the request, or have a word of it.
    """
    named = named_dates(request, today).items()
    dates = {word: str(day) for word, day in named if day != today and str(day) != word}
    if _SPOKEN_TIME.search(request):
        from gbnf_server.planner.text_dates import spoken_times  # noqa: PLC0415  # few requests have them

        spans = spoken_times(request[:LONGEST_REQUEST])
        dates |= {request[span.start : span.end]: span.value for span in spans}
    for tool in tools if dates else ():
        schemas = tool.args.get("properties", {}).values()
        items = [schema.get("items", schema) for schema in schemas if isinstance(schema, Mapping)]
        if any(map(_takes_times, items)) and (tool in preferred or common_words(request, tool)):
            return dates
    return {}


_SPOKEN_TIME = re.compile(
    r"\b(?:past|quarter to|o['’]clock|e mezz[ao]|un quarto|halb|viertel|heures?|media|cuarto|e meia|kwart)\b",
    re.IGNORECASE,
)


def invented_past(arguments: Mapping[str, Any], request: str, today: date) -> tuple[str, ...]:
    """Return the points in time before today in a call's texts whose day the request does not name."""
    days = set(named_dates(request, today).values())
    past = []
    for text in sorted(argument_values(arguments)):
        with suppress(ValueError):
            day = datetime.fromisoformat(text.split("/")[0].strip()).date()
            past += [text] if len(text) >= _SHORTEST_DATE and day < today and day not in days else []
    return tuple(past)


def has_nothing_new(call: Mapping[str, Any], state: RunState) -> bool:
    """Return whether a call of a small model shows that it has nothing else to do for the request.

    It repeats a call that is done although no value of the request is left, or calls the same tool again: for
    a request that asks for one thing, or with nothing more of the request and the results.
    """
    done = state.done_calls
    if not state.options.is_small_native:
        return False
    is_all = is_covered(state.request, done)
    if call.get("name") not in state.succeeded:
        return is_all and state.calls.is_done(call)
    if _found_nothing(state):
        return state.calls.is_done(call)  # it looks elsewhere
    texts = "\n".join([state.request, *(repr(step.result) for step in state.steps if step.result)])
    if not takes_more(texts, call, done, by_argument=bool(_ANOTHER.search(state.query))):
        return True
    return is_all and (not asks_for_several(state.query) or state.calls.is_done(call))


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
    changes = state.succeeded & {tool.name for tool in state.order.tools if tool.run.effect == "write"}
    if not changes and asked_for(state.order.tools, state):
        return False
    parts = 0
    for index, call in enumerate(done):
        earlier = done[:index]
        is_first = all(call["name"] != other["name"] for other in earlier)
        parts += is_first or takes_more(state.request, call, earlier)
    return parts >= most_calls(state.query) and is_covered(state.request, done)


def lists_more(pool: tuple[Tool, ...], state: RunState) -> bool:
    """Return whether a request lists values with those of the last call that no call has."""
    done = state.done_calls
    if not done or state.steps[-1].result is None:
        return False
    last = next((tool for tool in pool if tool.name == done[-1]["name"]), None)
    return last is not None and with_values_left(last, state.request, done) is not last


def may_go_on(pool: tuple[Tool, ...], state: RunState) -> bool:
    """Return whether a request lists more for the last call's tool, or says that there is more: "also, …"."""
    is_repeated = _ANOTHER.search(state.query) and len(state.done_calls) < most_calls(state.query)
    return lists_more(pool, state) or bool(
        is_repeated and len({call["name"] for call in state.done_calls}) == 1
    )


_ANOTHER = re.compile(
    r"\b(?:also|another|again|repeat|same|finally|what if|anche|altr[oaie]|ripeti|stess[oaie]|infine)\b",
    re.IGNORECASE,
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
    declaration = " ".join(json.dumps(declare_tool(tool)) for tool in pool if tool.name == done[-1]["name"])
    return has_values_for_another(state.query, done, declaration)


def meant(tools: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tools that a small model may call for a request: what changes something needs a word of it.

    It writes over the file that it is asked to read. A question changes nothing. A request for one thing that
    asks for one tool means no other that changes something. A tool that needs a time, which no result has
    either, also needs a request that may name one. A tool without an affinity may be meant by other words,
    and one that does not say so changes nothing.
    """
    request = state.request
    best = max(state.preference, key=state.preference.__getitem__, default="")
    chosen = best if state.choice.get(best, -inf) > SURE else ""
    choice = [tool for tool in tools if tool.name == chosen]
    makes_files = "@" in request and (file_tools(choice) or file_tools(choice, "folder"))
    if makes_files and is_about(request, choice) is False:
        chosen = ""  # it makes a folder of an address where nothing can be mailed
    possible = tuple(tool for tool in tools if _may_be_meant(tool, state, is_chosen=tool.name == chosen))
    words = _asking_words(tools, request, tuple(state.options.providers.items()))
    asked = {tool for tool, asking in words.items() if asking or _is_marked(tool, request)}
    if state.preference:
        near = {*nearest(tools, state), *asked}
        possible = tuple(tool for tool in possible if tool in near or not _may_be_left_out(tool))
    if asks_for_several(request):
        return possible
    if not any(_may_be_left_out(tool) for tool in asked.intersection(possible)):
        return possible
    return tuple(tool for tool in possible if tool in asked or not _may_be_left_out(tool))


@lru_cache(maxsize=32)
def _asking_words(
    pool: tuple[Tool, ...], request: str, providers: tuple[tuple[str, Provider], ...]
) -> Mapping[Tool, frozenset[str]]:
    """Return `asking_words` of the tools that the rules offer. A step needs them several times.

    What adds something to a file asks for the tools that write files.
    """
    words = asking_words(request, filter_pool(pool, request, providers=dict(providers)).kept)
    return {tool: asking | {"add"} if _adds(tool, request) else asking for tool, asking in words.items()}


def _adds(tool: Tool, request: str) -> bool:
    """Return whether a tool writes a file, and a request adds something to one."""
    return writes_files(tool) and bool(appends(request))


def writes_files(tool: Tool) -> bool:
    """Return whether a tool is for files and changes them, and not only where its markers say so."""
    return tool.run.effect == "write" and not tool.offer.markers and bool(file_tools([tool]))


def _may_be_left_out(tool: Tool) -> bool:
    """Return whether a tool says that it changes something, and how it is asked for."""
    is_needed = tool.offer.always or tool.offer.terminal
    return tool.run.effect == "write" and bool(tool.affinity) and not is_needed


def _may_be_meant(tool: Tool, state: RunState, *, is_chosen: bool = False) -> bool:
    if not _may_be_left_out(tool):
        return True
    is_asked = _QUESTION.match(state.query) or _ASKS_WHETHER.match(state.query[:LONGEST_REQUEST])
    is_question = is_asked and not asks_for_several(state.query)
    request = state.request
    has_words = is_chosen or common_words(request, tool) or _is_marked(tool, request) or _adds(tool, request)
    if is_question or not has_words:
        return False
    return bool(state.entries) or may_name_time(state.request) or not _needs_time(tool)


def _is_marked(tool: Tool, request: str) -> bool:
    """Return whether a tool that the rules offer is asked for by its markers.

    It is, since the request has one of them, unless addresses are one and the request has none.
    """
    return bool(tool.offer.markers) and ("@" not in tool.offer.markers or "@" in request)


_INTERROGATIVE = (
    r"(?:what|which|who|whose|where|when|how|che|cosa|qual[ei]?|quant[oaie]|chi|dove|quando|com['e])\b"
)
_SHOWING = (
    r"(?:(?:please|(?:can|could|would) you|puoi|potresti)\s+)*"
    r"(?:show|list|read|find|search|look|open|display|print|tell me"
    r"|(?:mostra|leggi|elenca|trova|cerca)(?:mi)?|apri|dimmi)\b"
)
_QUESTION = re.compile(rf"\s*(?:{_INTERROGATIVE}(?:[^.!\n]|\.\b)*\?\s*\Z|{_SHOWING}[^,;:]*\Z)", re.IGNORECASE)
"""A question, or a request to show or find something."""
_ASKS_WHETHER = re.compile(
    r"\s*+(?![^\n]*\b(?:you|please|puoi|potresti|per favore|able to|(?:way|chance|possibility|time) (?:to|of)"
    r"|mind|allowed|mett\w+|modo di"
    r"|possibilità di)\b)"
    r"(?:any|(?:is|are|was|were) there|(?:do|did|have|had|am|was|were|are) (?:I|we)|does|has"
    r"|c['’](?:è|era)|ci sono|ho)\b(?:[^.,;:!\n]|\.\b)*\?\s*\Z",
    re.IGNORECASE,
)
_PART_END = re.compile(r"[.,;!?]\s+|[!?]\Z|\b(?:and|then|e|poi)\b", re.IGNORECASE)
_ASKING = re.compile(
    rf"\s*(?:{_INTERROGATIVE}|{_SHOWING}|"
    r"(?:is|are|was|were|do|does|did|has|have|any|should|explain|spiega(?:mi)?)\b)",
    re.IGNORECASE,
)


def only_asks(request: str) -> bool:
    """Return whether each part of a request is a question, or says to show or find something."""
    parts = [part for part in _PART_END.split(request[:LONGEST_REQUEST]) if part.strip()]
    return all(_ASKING.match(part) for part in parts)


def _needs_time(tool: Tool) -> bool:
    """Return whether each call of a tool has a point in time."""
    names = {*tool.args.get("required", ()), *chain.from_iterable(tool.args.get("requires_one_of", ()))}
    schemas = (tool.args.get("properties", {}).get(name) for name in names)
    return any(_takes_times(schema.get("items", schema)) for schema in schemas if isinstance(schema, Mapping))


def next_tools(
    ready: tuple[Tool, ...],
    state: RunState,
    *,
    is_done: bool,
) -> tuple[tuple[Tool, ...], bool]:
    """Return those of the tools `ready` that a small model may call next, and whether it may answer."""
    if unread := _unread(ready, state):
        return unread, False
    if is_done:
        return (), True
    changing = tuple(tool for tool in ready if tool.name == state.entries_for)
    if changing and state.entries_for not in state.succeeded:
        if state.entries:
            return changing, False
        ready = tuple(tool for tool in ready if tool not in changing)
    all_ready, ready = ready, _still_needed(ready, state)
    if not state.done_calls and [step.fault for step in state.steps if step.fault] == ["error"]:
        # it would apologise for a path that it has guessed; what only reads can be tried
        reads = tuple(tool for tool in ready if tool.run.effect == "read")
        reads = tuple(dict.fromkeys((*reads, *file_readers(all_ready))))
        if reads and state.steps[-1].fault:
            return reads, False
    if due := tuple(tool for tool in ready if tool.name in state.calls_next):
        return due, False
    unused_tools = unused(state)
    others = tuple(tool for tool in ready if tool in unused_tools)
    due = _due(others, state)
    if ready and needs_another_call(ready, state):
        changes = any(tool.run.effect == "write" for tool in others)
        called = () if changes else state.succeeded
        tools = tuple(tool for tool in ready if tool in others or tool.name in called)
        return tools or ready, bool(others) and not due
    if due:
        return due, False
    return (others if state.answers_next else ready), True


def unused(state: RunState) -> tuple[Tool, ...]:
    """Return the tools that have something of the request for which there is no call yet."""
    return () if has_all_parts(state) else uncovered(state) or ()


def _still_needed(tools: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return those of `tools` that a small model may call next, after its first step.

    Once a call has succeeded, those that change something only if the request has a word or a value for them
    that no call has: it writes over what it has just read. After a call that was refused or failed, its tool,
    and others that fit or take the entries of results: it takes the nearest that is left, for anything.
    """
    called = state.succeeded
    if called:
        needed = uncovered(state) or ()
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
    concerned = {*state.calls.failures, *(state.takes_entries if state.entries else ())}
    uncalled = tuple(tool for tool in state.order.tools if tool.name not in called)
    fitting = _fitting(uncalled, state)
    if state.preference:
        fitting += nearest(uncalled, state, LIKELY)
    return tuple(tool for tool in tools if tool.name in concerned or tool in fitting) if fitting else tools


def seems_done(state: RunState) -> bool:
    """Return whether nothing of the request is left for a small model, by its words.

    The calls that succeeded contain its names, quotes, codes and numbers, and no other tool that fits has a
    word of it that neither they nor their tools have; or each part of it has a call, of which the only one
    was the best tool's or has changed something.
    """
    pool, options, done = state.order.tools, state.options, state.done_calls
    has_hints = options.evidence != "none" or options.is_small_native
    if not done or not options.is_small or not has_hints or not is_covered(state.request, done):
        return False
    if may_go_on(pool, state) or (options.is_small_native and _unread(pool, state)):
        return False
    if options.is_small_native and has_all_parts(state):
        last = next((tool for tool in pool if tool.name == done[-1]["name"]), None)
        is_best = last is not None and _is_best(last, meant(pool, state), state)
        if len(done) > 1 or is_best or (last is not None and last.run.effect == "write"):
            return True
    return uncovered(state) == ()


def _unread(tools: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tools that read files, if the only call has found the file that the request is about.

    Its path does not answer "the sum of the numbers in a.txt". Not for a request with a
    word of the tool that found it: "is there a file a.txt?".
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
    if state.preference:
        return tool in nearest(tools, state)
    scores = fit_scores(tools, state)
    return scores.get(tool, 0.0) >= _NEARLY * max(scores.values(), default=0.0) > 0


def uncovered(state: RunState) -> tuple[Tool, ...] | None:
    """Return the tools that fit by words of the request that no done call has; None if that is unknown."""
    pool, request, called = state.order.tools, state.request, state.succeeded
    covered = {word for tool in pool if tool.name in called for word in common_words(request, tool)}
    fitting = _fitting(tuple(tool for tool in pool if tool.name not in called), state)
    if not covered:
        return asked_for(pool, state) or None
    reading = [
        tool
        for tool in fitting
        if tool.run.effect == "read" and not covered.issuperset(common_words(request, tool))
    ]
    return (*reading, *asked_for(pool, state))


def takes_found(tools: tuple[Tool, ...], state: RunState) -> Tool | None:
    """Return the tool of a request that changes files which have to be found first: delete the log files.

    It takes entries of earlier steps, and the request names the files by their kind.
    """
    if not names_kind_of_file(state.query):
        return None
    asked = asked_for(tools, state) or nearest(tools, state)[: bool(state.preference)]
    changing = (tool for tool in file_tools(asked) if tool.run.effect == "write")
    return next((tool for tool in changing if tool.name in state.takes_entries), None)


def is_harmless(tool: Tool, state: RunState) -> bool:
    """Return whether a tool changes nothing, or is asked for."""
    return tool.run.effect == "read" or tool in asked_for(state.order.tools, state)


def asked_for(
    pool: tuple[Tool, ...],
    state: RunState,
    effect: Literal["read", "write"] = "write",
    *,
    marked: bool = True,
) -> tuple[Tool, ...]:
    """Return the tools of an effect that a request still asks for: no call is for these words of it.

    A tool is also asked for by its markers (not without `marked`: they may mean something else); if an
    address is one, only by an address that no call has.
    """
    request, called = state.request, state.succeeded
    words = _asking_words(pool, request, tuple(state.options.providers.items()))
    covered = frozenset[str]().union(*(words[tool] for tool in words if tool.name in called))
    rest = " ".join(uncovered_values(request, state.done_calls))
    return tuple(
        tool
        for tool in words
        if tool.run.effect == effect
        and tool.name not in called
        and _may_be_meant(tool, state)
        and (words[tool] - covered or (_is_marked(tool, rest) and (marked or "@" in tool.offer.markers)))
    )


def _due(others: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return those of `others`, the unused tools, one of which a request asks to be called before the answer.

    - If it asks for a change, and has values that no call has: that change, or the tools that read that it
      asks for, any of them if it asks for none.
    - Otherwise the tools that it asks for, if it has several parts, or asks for a change that was not made.

    What needs approval comes last: "let me pick one, then mail it". None after a call that has failed, and
    after two that were refused. A change is due by words of a tool's affinity only, and for no question:
    "which pull requests can I merge?"
    """
    pool = state.order.tools
    done, reads = state.done_calls, asked_for(pool, state, "read")
    asked = () if only_asks(state.query) else asked_for(pool, state, marked=False)
    changes = tuple(tool for tool in asked if tool.affinity)
    steps = list(dropwhile(lambda step: step.result is None, state.steps))
    is_stuck = not done or sum(step.result is None for step in steps) > 1 or steps[-1].fault is not None
    if is_stuck or _found_nothing(state) or has_all_parts(state) or not (reads or changes):
        return ()
    if changes and uncovered_values(state.query, done):
        needed = {*(reads or (tool for tool in others if tool.run.effect == "read")), *changes}
    else:
        changed = state.succeeded & {tool.name for tool in state.order.tools if tool.run.effect == "write"}
        needed = {*reads, *changes} if asks_for_several(state.query) else set() if changed else {*changes}
    due = tuple(tool for tool in others if tool in needed)
    return tuple(tool for tool in due if not tool.run.confirm) or due


def _fitting(pool: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tools that fit the request nearly as well as the best."""
    scores = fit_scores(pool, state)
    least = SMALL_MODEL_MARGIN * max(scores.values(), default=0.0)
    return tuple(tool for tool, score in scores.items() if score >= least > 0)


def fit_scores(pool: tuple[Tool, ...], state: RunState) -> Mapping[Tool, float]:
    """Return how well tools fit the request; nothing if that is unknown."""
    try:
        return scored(pool, state.request, state.options.ranker)
    except GbnfError:
        return {}


def fits_alone(tool: Tool, tools: tuple[Tool, ...], state: RunState) -> bool:
    """Return whether a tool fits the request better than each of `tools` that has not succeeded."""
    scores = fit_scores(tools, state)
    called = state.succeeded
    others = (score for other, score in scores.items() if other.name not in {tool.name, *called})
    return scores.get(tool, 0.0) > max(others, default=0.0)


def choice_scores(tools: tuple[Tool, ...], state: RunState) -> Mapping[Tool, float]:
    """Return how well tools fit the request; one that its markers ask for, as well as the best."""
    scores = fit_scores(tools, state)
    best, request = max(scores.values(), default=0.0), state.request
    return {tool: best if _is_marked(tool, request) else score for tool, score in scores.items()}


def said_choice(tools: tuple[Tool, ...], state: RunState) -> Mapping[str, float]:
    """Return the choice among tools that the words of a request make; nothing unless they are clear.

    They are if they ask for one of the tools, and none fits half as well.
    """
    scores = choice_scores(tools, state)
    ranked = sorted(scores, key=lambda tool: -scores[tool])
    words = _asking_words(tools, state.request, tuple(state.options.providers.items()))
    if not ranked or scores[ranked[0]] <= 0 or not words.get(ranked[0]):
        return {}
    if any(scores[tool] >= _FAR * scores[ranked[0]] for tool in ranked[1:]):
        return {}
    return {tool.name: 0.0 if tool is ranked[0] else -_LESS_SAID for tool in tools}


def answers_alone(tools: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tool that answers a request by itself: with the time, or that in a place which it names."""
    asked = _ASKS_WHAT.match(state.query)
    if state.images or not asked or _OF_PERSONS.search(state.query, asked.end()):
        return ()
    without_place = _IN_PLACE.sub("", state.query)

    def says_all(tool: Tool) -> bool:
        takes_place = any(map(_takes_any_text, tool.args.get("properties", {}).values()))
        return says_no_more(without_place if takes_place else state.query, tool)

    alone = [
        tool
        for tool in tools
        if tool.run.effect == "read"
        and not tool.args.get("required")
        and not tool.args.get("requires_one_of")
        and says_all(tool)
    ]
    return tuple(alone) if len(alone) == 1 else ()


_ASKS_WHAT = re.compile(
    r"\s*(?:(?:please|puoi|can you|could you)\s+)?"
    r"(?:what|which|che|qual\w*|tell me|dimmi|give me the|dammi l|show me)\b",
    re.IGNORECASE,
)
_IN_PLACE = re.compile(r"\s(?:in|a|ad)(?:[ -][A-Z][^\W\d_]+)+(?=\W*\Z)")
_OF_PERSONS = re.compile(
    r"\b(?:i|we|he|she|they|you|my|your|have|has|had|was|were|do|did|must|should|will|not|no|non|ho|hai|sei"
    r"|devo|devi|era|giornata|a day)\b|n['’]t\b",
    re.IGNORECASE,
)


def nearest(tools: tuple[Tool, ...], state: RunState, within: float = NEAR) -> tuple[Tool, ...]:
    """Return the tools that a model prefers as much as the best of them, or nearly so, the best first."""
    least = min(state.preference.values(), default=0.0)
    return near_best({tool: state.preference.get(tool.name, least) for tool in tools}, within)
