"""Which tools a request means, by its words and by what the model prefers. Pure.

    permitted_tools       may be called: what changes something needs a word of the request
    due_tools             of one effect, asked for by words that no call has
    all_due_tools         the same, of both effects
    best_fitting_tools    fit the request nearly as well as the best
    most_preferred_tools  the model prefers them as much as the best, or nearly so

In `progress`: `tools_for_what_is_left`, which have a word or value of the request that no call has, and
`tools_fitting_uncovered_words`, which fit best by those words alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Literal

from gbnf.errors import GbnfError
from gbnf.requests import wording
from gbnf.requests.coverage import uncovered_values
from gbnf.requests.pool_filter import filter_pool, scored
from gbnf.requests.ranking import asking_words, common_words, file_tools, is_about, names_file, says_no_more
from gbnf.requests.texts import appends, writes_quote
from gbnf.requests.values import LONGEST_REQUEST, asks_for_several, may_name_time, names_kind_of_file
from gbnf.tools import Tool
from gbnf.tools.providers import Provider
from gbnf_server.planner.options import SMALL_MODEL_MARGIN
from gbnf_server.planner.run_state import RunState
from gbnf_server.planner.small_models.preference import NEAR, SURE, near_best
from gbnf_server.planner.small_models.requested_arguments import takes_any_text, takes_times

_FAR = 0.5
"""Of the best score: where no other tool has it, words are right as often as a small model."""
_LESS_SAID = 2.0
"""What others are less preferred by, beside what they fit less: some of them are declared for later steps."""


def permitted_tools(tools: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tools that a small model may call for a request: what changes something needs a word of it.

    It writes over the file that it is asked to read. A question changes nothing. A request for one thing that
    asks for one tool means no other that changes something. A tool that needs a time, which no result has
    either, also needs a request that may name one. A tool without an affinity may be meant by other words,
    and one that does not say so changes nothing. Times that were found are no names of files.
    """
    request = state.request
    if _has_found_times(state) and not (names_file(request) or wording.ABOUT_FILES.search(request)):
        tools = tuple(tool for tool in tools if not (file_tools([tool]) or file_tools([tool], "folder")))
    best = max(state.lead.preference, key=state.lead.preference.__getitem__, default="")
    chosen = best if state.lead.choice.get(best, -inf) > SURE else ""
    choice = [tool for tool in tools if tool.name == chosen]
    makes_files = "@" in request and (file_tools(choice) or file_tools(choice, "folder"))
    if makes_files and is_about(request, choice) is False:
        chosen = ""  # it makes a folder of an address where nothing can be mailed
    possible = tuple(tool for tool in tools if _may_be_meant(tool, state, is_chosen=tool.name == chosen))
    words = _asking_words(tools, request, tuple(state.options.providers.items()))
    asked = {tool for tool, asking in words.items() if asking or _is_marked(tool, request)}
    if state.lead.preference:
        near = {*most_preferred_tools(tools, state), *asked}
        possible = tuple(tool for tool in possible if tool in near or not _changes_on_request(tool))
    if asks_for_several(request) or not any(map(_changes_on_request, asked.intersection(possible))):
        return possible
    return tuple(tool for tool in possible if tool in asked or not _changes_on_request(tool))


_POINT_IN_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?:/.*)?)?")


def _has_found_times(state: RunState) -> bool:
    """Return whether the last result that has entries has points in time."""
    entries = next(reversed(state.entries.values()), ())
    return bool(entries) and all(isinstance(entry, str) and _POINT_IN_TIME.match(entry) for entry in entries)


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
    """Return whether a tool writes a file, and a request adds something to one, or a text in quotes."""
    return writes_files(tool) and (bool(appends(request)) or writes_quote(request))


def writes_files(tool: Tool) -> bool:
    """Return whether a tool is for files and changes them, and not only where its markers say so."""
    return tool.run.effect == "write" and not tool.offer.markers and bool(file_tools([tool]))


def _changes_on_request(tool: Tool) -> bool:
    """Return whether a tool says that it changes something, and how it is asked for."""
    is_needed = tool.offer.always or tool.offer.terminal
    return tool.run.effect == "write" and bool(tool.affinity) and not is_needed


def _may_be_meant(tool: Tool, state: RunState, *, is_chosen: bool = False) -> bool:
    if not _changes_on_request(tool):
        return True
    is_asked = wording.QUESTION.match(state.query) or wording.ASKS_WHETHER.match(
        state.query[:LONGEST_REQUEST]
    )
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


def only_asks(request: str) -> bool:
    """Return whether each part of a request is a question, or says to show or find something."""
    parts = [part for part in wording.PART_END.split(request[:LONGEST_REQUEST]) if part.strip()]
    return all(wording.ASKING.match(part) for part in parts)


def _needs_time(tool: Tool) -> bool:
    """Return whether each call of a tool has a point in time."""
    names = {*tool.args.get("required", ()), *chain.from_iterable(tool.args.get("requires_one_of", ()))}
    schemas = (tool.args.get("properties", {}).get(name) for name in names)
    return any(takes_times(schema.get("items", schema)) for schema in schemas if isinstance(schema, Mapping))


def takes_found(tools: tuple[Tool, ...], state: RunState) -> Tool | None:
    """Return the tool of a request that changes files which have to be found first: delete the log files.

    It takes entries of earlier steps, and the request names the files by their kind.
    """
    if not names_kind_of_file(state.query):
        return None
    asked = due_tools(tools, state) or most_preferred_tools(tools, state)[: bool(state.lead.preference)]
    changing = (tool for tool in file_tools(asked) if tool.run.effect == "write")
    return next((tool for tool in changing if tool.name in state.lead.takes_entries), None)


def due_tools(
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


def all_due_tools(pool: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
    """Return the tools that a request still asks for, whether they change something or not."""
    return (*due_tools(pool, state), *due_tools(pool, state, "read"))


def best_fitting_tools(pool: tuple[Tool, ...], state: RunState) -> tuple[Tool, ...]:
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
    asked = wording.ASKS_WHAT.match(state.query)
    if state.images or not asked or wording.OF_PERSONS.search(state.query, asked.end()):
        return ()
    without_place = _IN_PLACE.sub("", state.query)

    def says_all(tool: Tool) -> bool:
        takes_place = any(map(takes_any_text, tool.args.get("properties", {}).values()))
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


_IN_PLACE = re.compile(r"\s(?:in|a|ad)(?:[ -][A-Z][^\W\d_]+)+(?=\W*\Z)")


def most_preferred_tools(tools: tuple[Tool, ...], state: RunState, within: float = NEAR) -> tuple[Tool, ...]:
    """Return the tools that a model prefers as much as the best of them, or nearly so, the best first."""
    least = min(state.lead.preference.values(), default=0.0)
    return near_best({tool: state.lead.preference.get(tool.name, least) for tool in tools}, within)
