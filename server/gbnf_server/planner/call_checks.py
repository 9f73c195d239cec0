"""The checks between a model's text and a call that may be executed.

They run in this order, and the first that fails gives the `Refusal`:

    truncated       the token limit, or a repetition without an end, ended the text, so that the call is
                    incomplete; or it shortened the answer, or the call of a tool with effect "write": half
                    a path is another
    ungrammatical   it is not in the language of the grammar: the backend ignored the grammar
    unparsed        it is not JSON, or has duplicate keys, lone surrogates or infinite numbers; or the
                    server's response had no valid text (`MalformedTextError`)
    invalid         it is JSON, but no valid call of a tool offered in this step
    repeated        it would repeat a call that failed or is done (`gbnf_server.planner.repeats`)

Invariant: only a call that passes all of them is executed. Calls in text are read with repairs, also in a
truncated text, and a truncated call is still rejected, but for one that was cut where a text which the
request has went on with blank lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gbnf.calls.validation import validate_call
from gbnf.prompts.descriptions import call_skeleton, copied_placeholder
from gbnf.prompts.messages import suggest_tool
from gbnf.protocols.call_protocols import pop_reasoning
from gbnf.protocols.protocol import ParsedCall, UnreadableCallError
from gbnf.requests import wording
from gbnf.requests.coverage import argument_values
from gbnf.requests.ranking import file_tools
from gbnf.requests.texts import (
    appends,
    contents,
    is_address,
    is_apology,
    is_copied,
    is_only_source,
    says_not_found,
    without_contents,
)
from gbnf.requests.values import paths_in
from gbnf.strict_json import nests_deeper, scalars_of
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.backends.base import Completion
from gbnf_server.executors import MAX_DEPTH
from gbnf_server.planner.answer_checks import message_faults
from gbnf_server.planner.events import Refusal
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.prerequisites import named
from gbnf_server.planner.run_state import OfferedTools, RunState
from gbnf_server.planner.small_models.call_corrections import corrected, only_named, with_proposed_call
from gbnf_server.planner.small_models.progress import useless
from gbnf_server.planner.small_models.requested_tools import writes_files
from gbnf_server.planner.step_references import fill_references

_MOST_NAMED = 3
"""Tools that an error proposes."""
_MISSING = re.compile(r"\b(?:does not exist|not found|no such|missing)\b", re.IGNORECASE)


class CallRefusedError(Exception):  # a result of the checks, not a fault of the program
    """The check that failed, the error message for the model, and the call, if the text has one."""

    def __init__(self, refusal: Refusal, error: str) -> None:
        self.refusal, self.error = refusal, error
        self.call: dict[str, Any] | None = None
        self.tool: Tool | None = None
        super().__init__(error)


@dataclass(frozen=True, slots=True)
class AcceptedCall:
    """A call that passed every check, its tool, and its arguments with step references filled in."""

    parsed: ParsedCall
    tool: Tool
    arguments: dict[str, Any]


def check_completion(completion: Completion, offer: OfferedTools, state: RunState) -> AcceptedCall:
    """Return the call in the model's text. Raises `CallRefusedError` at the first check that fails."""
    parsed = _read(completion, offer, state.options)
    ends_blank = state.options.guidance.spells_as_requested and _ends_blank(completion)
    if ends_blank and (call := _without_blank_end(parsed.call, state.request)) != parsed.call:
        repairs = (*parsed.repairs, "texts: without the blank lines that were repeated at their end")
        parsed = replace(parsed, call=call, repairs=repairs)
    else:
        ends_blank = False
    if state.options.guidance.corrects_answers:
        parsed = replace(parsed, preface="")  # it is asked as in its benches: with its calls alone
        parsed = parsed if state.succeeded else with_proposed_call(parsed, offer)
    try:
        accepted = check_call(_prepared(parsed, offer, state), offer, state)
        if not ends_blank:
            _check_length(accepted.tool, completion)
        return accepted
    except CallRefusedError as refused:
        name = None
        if isinstance(parsed.call, dict):
            refused.call, name = parsed.call, parsed.call.get("name")
        refused.tool = next((tool for tool in offer.callable if tool.name == name), None)
        raise


def _prepared(parsed: ParsedCall, offer: OfferedTools, state: RunState) -> ParsedCall:
    """Return a call without its reasoning, with what corrects that of a small model if it is valid."""
    if nests_deeper(parsed.call, MAX_DEPTH):  # the code below recurses into it, and JSON has no limit
        raise CallRefusedError(
            "invalid", f"the call is nested deeper than {MAX_DEPTH} arrays and objects; write a flatter one"
        )
    if state.options.reasoning == "field":
        reasoning, call = pop_reasoning(parsed.call)
        parsed = replace(parsed, call=call, reasoning=reasoning)
    is_valid = validate_call(parsed.call, offer.callable, steps=offer.refers_to).ok
    return corrected(parsed, offer, state) if is_valid else parsed


def check_call(parsed: ParsedCall, offer: OfferedTools, state: RunState) -> AcceptedCall:
    """Return a call that may be executed, whoever wrote it. Raises `CallRefusedError`."""
    call, repairs = parsed.call, parsed.repairs
    verdict = validate_call(call, offer.callable, steps=offer.refers_to)
    if not verdict.ok:
        raise CallRefusedError("invalid", _too_early(call, offer, state.options) or "; ".join(verdict.errors))
    if copied := copied_placeholder(call["arguments"]):
        raise CallRefusedError("invalid", f"{copied!r} is a placeholder; write the value itself")
    tool = next(tool for tool in offer.callable if tool.name == call["name"])
    if tool.run.effect == "write":
        call, repairs = _check_change(call, repairs, tool, offer, state)
    if reason := useless(call, tool, state):
        raise CallRefusedError("repeated", reason)
    if tool.name == FINAL_ANSWER.name:  # required tools change its policy
        for refusal, problem in message_faults(call["arguments"]["message"], state):
            raise CallRefusedError(refusal, problem)
    try:
        arguments = fill_references(tool, call["arguments"], state.entries)
    except ValueError as error:
        raise CallRefusedError("invalid", str(error)) from None
    return AcceptedCall(replace(parsed, call=call, repairs=repairs), tool, arguments)


def _check_change(
    call: dict[str, Any], repairs: tuple[str, ...], tool: Tool, offer: OfferedTools, state: RunState
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the call of a small model that changes something, of what the request names, and its repairs."""
    guidance = state.options.guidance
    if guidance.changes_only_what_is_asked:
        limited, unnamed = only_named(call, tool, offer, state)
        if unnamed:
            raise CallRefusedError("invalid", f"the request is not about {', '.join(unnamed)}")
        if limited is not call:
            call, repairs = limited, (*repairs, "files: only those that the request names")
        suggestion = suggest_tool("", language=state.options.language)
        if any(is_copied(text, suggestion, state.request) for text in contents(call["arguments"])):
            raise CallRefusedError("invalid", "the text is of these instructions; write what is asked for")
    if guidance.checks_changes and tool.affinity:
        for problem in _change_faults(call["arguments"], tool, state):
            raise CallRefusedError("invalid", problem)
    return call, repairs


def _change_faults(arguments: Mapping[str, Any], tool: Tool, state: RunState) -> Iterator[str]:
    """Yield why a small model may not make a change."""
    entries = state.found_texts
    texts = argument_values(arguments)
    for path in sorted(_made(tool, texts, state)):
        yield f"{path} was made in this run; change what the request names"
    if writes_files(tool) and not wording.CALLED_FILES.search(state.request):
        for path in sorted(argument_values(without_contents(arguments))):
            if is_address(path):
                yield f"{path} is an address and no file; send it a message"
    if unread := _overwritten_file(arguments, state):
        yield f"read {unread} first, so that what is in it stays"
    if _adds_nothing(arguments, state):
        yield "the content is what was there; add what the request asks for"
    own_texts = argument_values(arguments) - entries
    if any(is_apology(text, state.request) or says_not_found(text, state.request) for text in own_texts):
        yield "the text is an apology; write what the request says"
    if is_only_source(arguments, state.query):
        yield "this would change a file that is only to be read; read it first"
    elsewhere = {*paths_in(state.whole_query).values()} - {*paths_in(state.query).values()}
    if others := sorted(elsewhere & argument_values(arguments)):
        yield f"{', '.join(others)} is not for this part of the request; change what it names"
    overwrites = writes_files(tool) and not wording.EDITS.search(state.request)
    if overwrites and tool.name not in state.lead.takes_entries:
        request = state.request.casefold()
        found_paths = entries & argument_values(without_contents(arguments))
        for path in sorted(found_paths):  # it may be what was only to be read
            stem = path.rpartition("/")[2].casefold().partition(".")[0]
            if not any(re.search(rf"\b{word}", request) for word in re.findall(r"\w{3,}", stem)):
                yield f"{path} exists, and the request does not name it; write to another file, or answer"


def _made(tool: Tool, texts: frozenset[str], state: RunState) -> frozenset[str]:
    """Return the paths that calls of this run have made, and that a tool for files may not change.

    What deletes may change those that the request names twice, or says to delete by a pronoun: a small model
    deletes the folder that it has just made for "make a/b, find the drafts, remove them". What writes may
    change no file of a mail.
    """
    if not file_tools([tool]):
        return frozenset()
    deletes = bool(tool.offer.markers)
    makers = {other.name for other in state.order.tools if other.run.effect == "write"}
    makers -= set() if deletes else {other.name for other in file_tools(state.order.tools)}
    results = [step.result for step in state.run_steps if step.name in makers and step.result is not None]
    made = texts & {text for text in scalars_of(results) if isinstance(text, str)}
    if deletes and (wording.DELETES_IT.search(state.request) or len(made) > 1):
        return frozenset()
    named = (rf"(?<![\w/.-]){re.escape(path)}(?![\w/-])" for path in made)
    counts = (len(re.findall(pattern, state.request)) for pattern in named)
    return frozenset(path for path, count in zip(made, counts, strict=True) if count <= deletes)


def _overwritten_file(arguments: Mapping[str, Any], state: RunState) -> str:
    """Return the file that a call would write over although the request adds to it; "" if there is none."""
    path = appends(state.query)
    if not path or path not in argument_values(arguments):
        return ""
    for step in state.steps:
        names = () if step.call is None else argument_values(step.call["arguments"])
        if path in names and (step.result is not None or _MISSING.search(step.error or "")):
            return ""
    return path


def _adds_nothing(arguments: Mapping[str, Any], state: RunState) -> bool:
    """Return whether a call would write only what was read of the file that the request adds to."""
    read = state.steps[-1].result if state.steps else None
    entries = [entry for entry in (read or {}).get("entries") or () if isinstance(entry, str)]
    if len(entries) != 1 or appends(state.query) not in argument_values(arguments):
        return False
    texts = [json.loads(f'"{text}"') for text in argument_values(arguments) if text != appends(state.query)]
    return bool(texts) and all(set(text.split()) <= set(entries[0].split()) for text in texts)


def _check_length(tool: Tool, completion: Completion) -> None:
    """Raise `CallRefusedError` if an answer, a call that changes something, or one that repeats is shortened.

    `_read` judges truncated texts.
    """
    if completion.shortened_at is None or completion.finish_reason != "stop":
        return
    tokens = completion.usage.completion_tokens
    if tool.name == FINAL_ANSWER.name:
        error = f"the message did not end within {tokens} tokens; write a shorter one"
    elif tool.run.effect == "write" or completion.repeated:
        error = f"the call was shortened to end within {tokens} tokens, and not executed; write a shorter one"
    else:
        return
    raise CallRefusedError("truncated", _repeats(completion) or error)


_BLANK_END = re.compile(r"(?:\\[nrt]|\s)*+\"?[\s\]})]*+(?:</?[\w=.-]++>\s*+)*+`*+\s*+")


def _ends_blank(completion: Completion) -> bool:
    """Return whether a call was ended only since a text at its end went on with blank lines."""
    start = completion.shortened_at
    return (
        start is not None
        and completion.finish_reason == "stop"
        and re.fullmatch(r"(?:\\[nrt]|\s)+", completion.repeated) is not None
        and _BLANK_END.fullmatch(completion.text, start) is not None
    )


def _without_blank_end(value: Any, request: str) -> Any:
    """Return a call without the blank lines at the end of its last text, if the request has that text."""
    if isinstance(value, str):
        text = value.rstrip()
        return text if len(text) > 1 and text in request else value
    if isinstance(value, Mapping) and value:
        *_, last = value
        return {**value, last: _without_blank_end(value[last], request)}
    if isinstance(value, list) and value:
        return [*value[:-1], _without_blank_end(value[-1], request)]
    return value


def _repeats(completion: Completion) -> str:
    """Return what is wrong if the text repeats without an end, "" if it does not."""
    repeated = json.dumps(completion.repeated, ensure_ascii=False)
    return completion.repeated and (
        f"the text repeats {repeated} again and again, so it was ended, and not executed; write it once"
    )


def _too_early(call: Any, offer: OfferedTools, options: ResolvedOptions) -> str:
    """Return why a tool may not be called in this step but in a later one, "" if that is not the fault."""
    name = call.get("name") if isinstance(call, dict) else None
    if not isinstance(name, str) or any(tool.name == name for tool in offer.callable):
        return ""
    is_text = name == FINAL_ANSWER.name and all(tool.name != name for tool in offer.described)
    if is_text and offer.own:  # the model has never heard of this tool
        needed = [tool for tool in offer.own if tool.name in offer.waiting.get(name, ())] or offer.own
        shown = options.protocol.call_message(json.loads(call_skeleton(needed[0])), 0)["content"]
        names = " or ".join(tool.name for tool in needed[:_MOST_NAMED])
        such = f", such as {shown}" if shown else ""
        return f"this is no call of {names}; answer with a call of {needed[0].name}{such}"
    if name in offer.resting:
        others = " or ".join(tool.name for tool in offer.own[:_MOST_NAMED])
        possible = [*([f"call {others}"] if others else []), *(["answer"] if offer.answers else [])]
        return f"{name} cannot be called again now: {', or '.join(possible)}"
    if name not in offer.waiting:
        return ""
    missing = named(offer.waiting[name])
    return f"{name} is possible only after {' and '.join(missing)}; call {missing[0]} first"


def _read(completion: Completion, offer: OfferedTools, options: ResolvedOptions) -> ParsedCall:
    """Return the call in the text, not yet validated. Raises `CallRefusedError` if there is none."""
    truncated = completion.finish_reason == "length"
    if not completion.text.strip() and completion.reasoning:
        raise CallRefusedError(
            "truncated" if truncated else "unparsed",
            "all of the text is thoughts, and no call came after them; think less, and write the call",
        )
    protocol = options.protocol
    if truncated and not protocol.reads_truncated:
        raise CallRefusedError(
            "truncated",
            _repeats(completion)
            or f"the call was cut after {completion.usage.completion_tokens} tokens and not executed; "
            "write a shorter one",
        )
    is_repaired = options.clamp and isinstance(offer.grammar, Mapping)  # and validated then
    if completion.grammar_violation is not None and not is_repaired:
        raise CallRefusedError(
            "ungrammatical", f"the call does not fit the format: {completion.grammar_violation}"
        )
    try:
        return protocol.read(completion.text, offer.described, steps=offer.refers_to, truncated=truncated)
    except UnreadableCallError as error:
        wrong = (truncated and _repeats(completion)) or str(error)
        raise CallRefusedError("truncated" if truncated else "unparsed", wrong) from None
