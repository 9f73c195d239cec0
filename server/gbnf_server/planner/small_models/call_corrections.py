"""What of a small model's call is written as its request says: texts, files, paths and choices."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gbnf.calls import FinalAnswer, parse_tool_calls
from gbnf.calls.validation import validate_call
from gbnf.prompts.messages import suggest_tool
from gbnf.protocols.call_protocols import CallsInText
from gbnf.protocols.protocol import ParsedCall, UnreadableCallError
from gbnf.requests.coverage import argument_values
from gbnf.requests.evidence import with_stated_choices
from gbnf.requests.ranking import file_tools
from gbnf.requests.spelling import as_requested
from gbnf.requests.texts import (
    unnamed_files,
    with_content,
    with_folders,
    with_known_paths,
    with_message,
    with_named_file,
    with_sources,
    without_roots,
)
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.planner.run_state import OfferedTools, RunState
from gbnf_server.planner.small_models.requested_tools import due_tools, writes_files
from gbnf_server.planner.step_references import fill_references


def with_proposed_call(parsed: ParsedCall, offer: OfferedTools) -> ParsedCall:
    """Return the call that an answer proposes between prose, if it is possible now; otherwise the answer."""
    if parsed.call["name"] == FINAL_ANSWER.name:
        message = parsed.call["arguments"]["message"]
        with suppress(UnreadableCallError):
            if isinstance(parse_tool_calls(message, offer.own), FinalAnswer):
                return parsed
            proposed = CallsInText().read(message, offer.own, steps=offer.refers_to)
            if proposed.call["name"] != FINAL_ANSWER.name:
                return replace(proposed, reasoning=parsed.reasoning, preface="")
    return parsed


def corrected(parsed: ParsedCall, offer: OfferedTools, state: RunState) -> ParsedCall:
    """Return a valid call of a small model with texts as its request and its results spell them."""
    call, guidance = parsed.call, state.options.guidance
    if call["name"] == FINAL_ANSWER.name or not (guidance.spells_as_requested or guidance.sends_dictated):
        return parsed
    arguments = call["arguments"]
    results_text = json.dumps([step.result for step in state.steps], ensure_ascii=False, default=str)
    if guidance.spells_as_requested:
        arguments = as_requested(arguments, state.request, results_text)
    called = next(tool for tool in offer.callable if tool.name == call["name"])
    is_first = not state.earlier_texts and not any(step.result for step in state.steps)
    if guidance.sends_dictated and is_first and called.run.effect == "write":
        suggestion = suggest_tool("", language=state.options.language)
        arguments = with_message(arguments, state.query, suggestion)
    if guidance.spells_as_requested:
        arguments = _completed(arguments, called, offer, state, results_text)
    requested = call | {"arguments": arguments}
    if not validate_call(requested, offer.callable, steps=offer.refers_to).ok:
        requested = call | {"arguments": without_roots(arguments, state.request)}
    if requested == call or not validate_call(requested, offer.callable, steps=offer.refers_to).ok:
        return parsed
    repairs = (*parsed.repairs, "texts: written as the request and the results spell them")
    return replace(parsed, call=requested, repairs=repairs)


def _completed(
    arguments: dict[str, Any], called: Tool, offer: OfferedTools, state: RunState, results_text: str
) -> dict[str, Any]:
    """Return the arguments of a call with what the request and the results say of files and choices."""
    reads = {tool.name for tool in state.order.tools if tool.run.effect == "read"}
    steps = [step for step in state.steps if step.result is not None]
    steps = [step for step in steps if step.name in reads] or steps
    if steps and isinstance(entries := (steps[-1].result or {}).get("entries"), list):
        arguments = with_content(arguments, state.request, entries)
    if offer.evidence is not None:
        arguments = with_stated_choices(arguments, called, offer.evidence)
    if called.run.effect == "read":
        done = frozenset[str]().union(*(argument_values(call["arguments"]) for call in state.done_calls))
        arguments = with_sources(arguments, state.query, done)
        arguments = with_known_paths(arguments, called, f"{state.request} {results_text}")
        if file_tools([called]):
            arguments = with_named_file(arguments, state.query, ())
    elif file_tools([called], "folder") and not file_tools([called]):  # it only makes folders
        # the file is still to be written
        writes = any(map(writes_files, due_tools(state.described, state)))
        arguments = with_folders(arguments, "" if writes else state.request)
    elif writes_files(called):
        made = {str(entry) for entries in state.entries.values() for entry in entries}
        arguments = with_named_file(arguments, state.request, made)
    return arguments


def only_named(
    call: dict[str, Any], tool: Tool, offer: OfferedTools, state: RunState
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a call without the files that were found and not meant, or it and these if it needs them."""
    with suppress(ValueError):  # references that do not fit are refused later
        arguments = fill_references(tool, call["arguments"], state.entries)
        if unnamed := unnamed_files(arguments, state.request, state.found_texts):
            args = {
                name: [item for item in value if item not in unnamed] if isinstance(value, list) else value
                for name, value in arguments.items()
            }
            limited = call | {"arguments": args}
            if [] in args.values() or not validate_call(limited, offer.callable, steps=offer.refers_to).ok:
                return call, tuple(sorted(unnamed))
            return limited, ()
    return call, ()
