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
truncated text, and a truncated call is still rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from gbnf.calls import FinalAnswer, ToolCalls, parse_tool_calls
from gbnf.calls.parsing.lenient_json import extent, load
from gbnf.calls.validation import validate_call
from gbnf.calls.validation.validator import filled_argument_errors
from gbnf.prompts.descriptions import call_skeleton, copied_placeholder
from gbnf.prompts.messages import error_text, suggest_tool
from gbnf.protocols.call_protocols import CallsInText, pop_reasoning
from gbnf.protocols.protocol import AnswerFormat, ParsedCall, UnreadableCallError
from gbnf.protocols.readers import begins_call, looks_like_call
from gbnf.strict_json import InvalidJsonError, nests_deeper, parse_json
from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS, Tool
from gbnf.tools.coverage import argument_values
from gbnf.tools.evidence import Evidence, with_stated_choices
from gbnf.tools.ranking import file_tools
from gbnf.tools.requested_texts import (
    appends,
    as_requested,
    contents,
    is_apology,
    is_copied,
    is_only_source,
    unnamed_files,
    with_content,
    with_folders,
    with_known_paths,
    with_message,
    without_contents,
)
from gbnf_server.backends.base import Completion
from gbnf_server.executors import MAX_DEPTH
from gbnf_server.planner.events import Refusal, Step
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.prerequisites import named
from gbnf_server.planner.progress import asked_for, has_nothing_new, writes_files
from gbnf_server.planner.run_state import RunState

_MOST_NAMED = 3
"""Tools that an error proposes."""

_MISSING = re.compile(r"\b(?:does not exist|not found|no such|missing)\b", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(?:not|cannot|can['’]?t|couldn['’]?t|didn['’]?t|don['’]?t|unable|without|non)\b[^.!?\n]{0,80}\Z",
    re.IGNORECASE,
)
_LIST = 3
"""So many names of tools in a text are a list."""
_LONGEST_END = 2
"""Words behind the data of an answer: "Done."."""
_LONGEST_LABEL = 5
"""Words before the colon of a text: "It did not work:"."""
_NEARLY_WHOLE = 0.8
"""The part of a text's words that is the text."""
_NAME_OF_CALL = re.compile(r"\W*tool:\s*[\w.-]+\W*(?:args:\W*)?")
_CALL_INSIDE = re.compile(r'\{\s*"(?:name|function|tool)"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters)"\s*:')
_CITED = re.compile(r"\W*\[(\d{1,9})\][\W\d_]*")
FENCED = re.compile(r"\s*`{3,}[^\n`]*\n(.*?)\n?[ \t]*`{3,}\s*", re.DOTALL)
_FORMS = r"(?:lista?|elenco|array|dict(?:ionary)?|tuple|object|oggetto)"
_ASKS_FOR_DATA = re.compile(
    r"(?<![\w.])(?:(?:geo)?json[l5]?|raw|grezz[aeio]|bruto|format[oi]?|array"
    rf"|(?:as|into|come|return|give|output|print)(?: \w+){{0,2}} {_FORMS})\b|\bto \.\w+|[\[{{]",
    re.IGNORECASE,
)
"""Words of a request for data or a form of its own; names of files, "a.json", do not count."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


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


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools offered in a step, and their grammar.

    `in_system_message`: the tools that the system message describes: those that the filter kept when the run
    began, and the built-in ones; `described`: those and the tools that later messages describe; `callable`:
    of those, what may be called now; `waiting`: those that may not, by name, because other tools, these, have
    to succeed first; `left_out`: those that failed too often, or of which every call would be a repetition;
    `refers_to`: the earlier steps that have entries; `excluded`: the calls that the grammar excludes, as
    JSON; `evidence`: what the request says of the call, if that is to be used; `only_answers`: nothing of the
    request seems left.
    """

    in_system_message: tuple[Tool, ...]
    described: tuple[Tool, ...]
    callable: tuple[Tool, ...]
    waiting: Mapping[str, tuple[str, ...]]
    refers_to: tuple[int, ...]
    grammar: AnswerFormat | None
    left_out: frozenset[str] = frozenset()
    excluded: tuple[str, ...] = ()
    evidence: Evidence | None = None
    only_answers: bool = False

    @property
    def own(self) -> tuple[Tool, ...]:
        """The callable tools of the pool."""
        built_in = {FINAL_ANSWER.name, ASK_USER.name, FIND_TOOLS.name}
        return tuple(tool for tool in self.callable if tool.name not in built_in)


def check_completion(completion: Completion, offer: OfferedTools, state: RunState) -> AcceptedCall:
    """Return the call in the model's text. Raises `CallRefusedError` at the first check that fails."""
    parsed = _read(completion, offer, state.options)
    if state.options.is_small_native:
        parsed = replace(parsed, preface="")  # it is asked as in its benches: with its calls alone
        parsed = parsed if state.succeeded else _with_proposed_call(parsed, offer)
    try:
        accepted = check_call(_corrected(parsed, offer, state), offer, state)
        _check_length(accepted.tool, completion)
        return accepted
    except CallRefusedError as refused:
        name = None
        if isinstance(parsed.call, dict):
            refused.call, name = parsed.call, parsed.call.get("name")
        refused.tool = next((tool for tool in offer.callable if tool.name == name), None)
        raise


def _with_proposed_call(parsed: ParsedCall, offer: OfferedTools) -> ParsedCall:
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


def _corrected(parsed: ParsedCall, offer: OfferedTools, state: RunState) -> ParsedCall:
    """Return a call without its reasoning; that of a small model with texts as the request spells them."""
    call, reasoning, repairs = parsed.call, parsed.reasoning, parsed.repairs
    if nests_deeper(call, MAX_DEPTH):  # the code below recurses into it, and JSON has no limit
        raise CallRefusedError(
            "invalid", f"the call is nested deeper than {MAX_DEPTH} arrays and objects; write a flatter one"
        )
    if state.options.reasoning == "field":
        reasoning, call = pop_reasoning(call)
    is_valid = validate_call(call, offer.callable, steps=offer.refers_to).ok
    if state.options.is_small and is_valid and call["name"] != FINAL_ANSWER.name:
        arguments = call["arguments"]
        results_text = json.dumps([step.result for step in state.steps], ensure_ascii=False, default=str)
        if state.options.is_small_native:
            arguments = as_requested(arguments, state.request, results_text)
        called = next(tool for tool in offer.callable if tool.name == call["name"])
        is_first = not state.earlier_texts and not any(step.result for step in state.steps)
        if is_first and called.run.effect == "write":
            suggestion = suggest_tool("", language=state.options.language)
            arguments = with_message(arguments, state.query, suggestion)
        if state.options.is_small_native:
            arguments = _completed(arguments, called, offer, state, results_text)
        requested = call | {"arguments": arguments}
        if requested != call and validate_call(requested, offer.callable, steps=offer.refers_to).ok:
            call, repairs = requested, (*repairs, "texts: written as the request and the results spell them")
    return replace(parsed, call=call, repairs=repairs, reasoning=reasoning)


def _completed(
    arguments: dict[str, Any], called: Tool, offer: OfferedTools, state: RunState, results_text: str
) -> dict[str, Any]:
    """Return the arguments of a call with what the request and the results say of files and choices."""
    results = [step.result for step in state.steps if step.result is not None]
    if results and isinstance(entries := results[-1].get("entries"), list):
        arguments = with_content(arguments, state.request, entries)
    if offer.evidence is not None:
        arguments = with_stated_choices(arguments, called, offer.evidence)
    if called.run.effect == "read":
        arguments = with_known_paths(arguments, called, f"{state.request} {results_text}")
    elif _only_makes_folders(called) and any(map(writes_files, asked_for(state.described, state))):
        arguments = with_folders(arguments)  # the file is still to be written
    return arguments


def check_call(parsed: ParsedCall, offer: OfferedTools, state: RunState) -> AcceptedCall:
    """Return a call that may be executed, whoever wrote it. Raises `CallRefusedError`."""
    call, repairs = parsed.call, parsed.repairs
    verdict = validate_call(call, offer.callable, steps=offer.refers_to)
    if not verdict.ok:
        raise CallRefusedError("invalid", _too_early(call, offer, state.options) or "; ".join(verdict.errors))
    if copied := copied_placeholder(call["arguments"]):
        raise CallRefusedError("invalid", f"{copied!r} is a placeholder; write the value itself")
    tool = next(tool for tool in offer.callable if tool.name == call["name"])
    if state.options.is_small and tool.run.effect == "write":
        limited = _only_named(call, tool, offer, state)
        if limited is not call:
            call, repairs = limited, (*repairs, "files: only those that the request names")
    if state.options.is_small and tool.run.effect == "write":
        suggestion = suggest_tool("", language=state.options.language)
        if any(is_copied(text, suggestion, state.request) for text in contents(call["arguments"])):
            raise CallRefusedError("invalid", "the text is of these instructions; write what is asked for")
    if state.options.is_small_native and tool.run.effect == "write" and tool.affinity:
        for problem in _change_faults(call["arguments"], tool, state):
            raise CallRefusedError("invalid", problem)
    reason = state.calls.refusal(tool, call)
    if reason or (tool.name != FINAL_ANSWER.name and has_nothing_new(call, state)):
        raise CallRefusedError("repeated", reason or f"{tool.name} has done what was asked for; answer now")
    if tool.name == FINAL_ANSWER.name:  # required tools change its policy
        for refusal, problem in _message_faults(call["arguments"]["message"], state):
            raise CallRefusedError(refusal, problem)
    try:
        arguments = fill_references(tool, call["arguments"], state.entries)
    except ValueError as error:
        raise CallRefusedError("invalid", str(error)) from None
    return AcceptedCall(replace(parsed, call=call, repairs=repairs), tool, arguments)


def _only_named(call: dict[str, Any], tool: Tool, offer: OfferedTools, state: RunState) -> dict[str, Any]:
    """Return a call that changes something, without files that were found and not meant.

    Raises `CallRefusedError` if it is none without them.
    """
    entries = {entry for several in state.entries.values() for entry in several if isinstance(entry, str)}
    with suppress(ValueError):  # references that do not fit are refused later
        arguments = fill_references(tool, call["arguments"], state.entries)
        if unnamed := unnamed_files(arguments, state.request, entries):
            args = {
                name: [item for item in value if item not in unnamed] if isinstance(value, list) else value
                for name, value in arguments.items()
            }
            limited = call | {"arguments": args}
            if [] in args.values() or not validate_call(limited, offer.callable, steps=offer.refers_to).ok:
                error = f"the request is not about {', '.join(sorted(unnamed))}"
                raise CallRefusedError("invalid", error)
            return limited
    return call


def _change_faults(arguments: Mapping[str, Any], tool: Tool, state: RunState) -> Iterator[str]:
    """Yield why a small model may not make a change."""
    entries = {entry for several in state.entries.values() for entry in several if isinstance(entry, str)}
    if unread := _unread(arguments, state):
        yield f"read {unread} first, so that what is in it stays"
    if _adds_nothing(arguments, state):
        yield "the content is what was there; add what the request asks for"
    own_texts = argument_values(arguments) - entries
    if any(is_apology(text, state.request) for text in own_texts):
        yield "the text is an apology; write what the request says"
    if is_only_source(arguments, state.query):
        yield "this would change a file that is only to be read; read it first"
    if tool.name not in state.takes_entries and writes_files(tool) and not _EDITS.search(state.request):
        request = state.request.casefold()
        found_paths = entries & argument_values(without_contents(arguments))
        for path in sorted(found_paths):  # it may be what was only to be read
            stem = path.rpartition("/")[2].casefold().partition(".")[0]
            if not any(re.search(rf"\b{word}", request) for word in re.findall(r"\w{3,}", stem)):
                yield f"{path} exists, and the request does not name it; write to another file, or answer"


_EDITS = re.compile(
    r"\b(?:edit|chang|replac|updat|fix|correct|rewrit|overwrit|translat|convert|append|add|sort|format|clean|remov"
    r"|insert|(?:in(?:to)?|of) (?:each|every|all)|modif|sostitu|corregg|tradu|aggiung|aggiorn|riscriv|ordin"
    r"|togli|rimuov)\w*",
    re.IGNORECASE,
)
"""What is done to files that a request names by their kind, or not at all."""


def _message_faults(message: str, state: RunState) -> Iterator[tuple[Refusal, str]]:
    """Yield why a message is no answer."""
    if is_blank(message):
        yield "invalid", "the message of final_answer is blank; write the answer"
    if is_fragment(message, state.steps):
        yield "invalid", "the message is no answer; write a sentence"
    if _is_data(message, state):
        yield "invalid", "the message is raw data of a result; write what it says in a sentence"
    answers_next = state.options.is_small_native and state.succeeded
    if not answers_next and looks_like_call(message) and proposed_calls(message, state.described):
        yield "unparsed", "the text is a call that is not possible now; make another call, or answer"
    wants_data = _ASKS_FOR_DATA.search(state.request) is not None
    if state.options.is_small_native and not wants_data and _CALL_INSIDE.search(message):
        yield "invalid", "the message has a call in it; write the answer in words"
    if not wants_data and begins_call(message):
        yield "unparsed", "the text begins like a call, and none can be read; write one call, or an answer"
    if state.options.is_small_native and len(words(state.query)) > 3 and words(message) == words(state.query):
        yield "invalid", "the message repeats the request; write an answer to it"
    if _repeats_refusal(message, state) or _is_read(message, state):
        yield "invalid", "the message repeats an error or an instruction; write an answer to the request"


def _unread(arguments: Mapping[str, Any], state: RunState) -> str:
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


def _only_makes_folders(tool: Tool) -> bool:
    return bool(file_tools([tool], "folder")) and not file_tools([tool])


def proposed_calls(text: str, tools: tuple[Tool, ...]) -> tuple[str, ...]:
    """Return the names of the tools of which a text that should be an answer has a call."""
    parsed = parse_tool_calls(text.lstrip("> \t\r\n"), tools)  # a quoted call is none
    calls = parsed.calls if isinstance(parsed, ToolCalls) else ()
    return tuple(call.name for call in calls if call.name != FINAL_ANSWER.name)


def proposed_tool(text: str, offered: tuple[Tool, ...], pool: tuple[Tool, ...]) -> Tool | None:
    """Return the tool that a text proposes to call, if it is offered: "use the `find_files` function".

    That is the first of one or two that it names, by names that are no words and not after a negation: a
    longer list tells what the tools do.
    """
    mentions = {tool: re.search(rf"\b{re.escape(tool.name)}\b", text) for tool in pool if "_" in tool.name}
    named = sorted((mention.start(), tool.name, tool) for tool, mention in mentions.items() if mention)
    if not 0 < len(named) < _LIST or _NEGATION.search(text[: named[0][0]]):
        return None
    return named[0][-1] if named[0][-1] in offered else None


def proposes_call(text: str, tools: tuple[Tool, ...]) -> bool:
    """Return whether a text that should be an answer is a call, has one in it, or names a tool to use."""
    named = proposed_tool(text, tools, tools) is not None
    return looks_like_call(text) or bool(proposed_calls(text, tools)) or named


def _repeats_refusal(message: str, state: RunState) -> bool:
    """Return whether an answer has only words that the model has read about one refused text."""
    refused = (step for step in state.steps if step.refusal is not None)
    errors = [set(words(error_text(step.number, step.error or ""))) for step in refused]
    return any(len(part) > 2 and set(part) <= error for part in _said(message) for error in errors)


def _said(message: str) -> tuple[list[str], ...]:
    """Return the words of a text, and without its label ("It did not work:"), and those of its sentences."""
    unlabelled = " ".join(_without_label(sentence) for sentence in _SENTENCE_END.split(message))
    return words(message), words(_without_label(message)), words(unlabelled)


def _without_label(text: str) -> str:
    label, _, rest = text.partition(":")
    return rest if rest and len(words(label)) <= _LONGEST_LABEL else text


def _is_read(message: str, state: RunState) -> bool:
    """Return whether an answer is a text that the model has read, or nearly, perhaps after a label.

    What a tool returned may be the answer, but not as the message with the step's number.
    """
    several = _said(message)
    request, *outcomes = state.history[len(state.history) - 2 * len(state.steps) - 1 :: 2]
    if any(words(message_read["content"]) in several for message_read in outcomes):
        return True
    added = request["content"].removeprefix(state.query)
    texts = {state.system, *state.system.split("\n\n"), *added.split("\n\n")}
    texts |= {tool.description(state.options.language) for tool in state.described}
    texts |= {step.error for step in state.steps if step.error}
    for message_read in outcomes:
        outcome, *more = message_read["content"].split("\n\n")
        texts |= {*more, *_error_in(outcome)}
    day = str(state.started_at.date())  # it may be what is asked for
    parts = {part for text in texts for part in _SENTENCE_END.split(text) if day not in part}
    return any(
        2 < len(part) >= _NEARLY_WHOLE * len(text) and f" {' '.join(part)} " in f" {' '.join(text)} "
        for text in map(words, texts | parts)
        for part in several
    )


def _is_data(message: str, state: RunState) -> bool:
    """Return whether an answer is JSON with the data of results, and no request says "JSON" or "raw".

    It is a part of a result, has a whole one in it, or has no values but those of results. A label before it
    and a word or two behind it say nothing.
    """
    label, data = ("", []) if _ASKS_FOR_DATA.search(state.request) else _json_values(message)
    results = [step.result for step in state.steps if step.result is not None]
    (own, values), (containers, known_values) = _parts(data), _parts(results)
    has_result = any(part in containers for part in data) or any(part and part in results for part in own)
    # behind a label, some of the values may be what was asked for
    return bool(data) and (has_result or (not label and bool(values) and values <= known_values))


def _json_values(message: str) -> tuple[str, list[Any]]:
    """Return the label before the objects and arrays of a text, and these; none if the text says more."""
    text = re.sub(r"(?m)^[ \t]*`{3,}.*$|\A\s*<\w+>|</\w+>\s*\Z", "", message).strip()
    with suppress(InvalidJsonError):
        inner = parse_json(text) if text[:1] == '"' else None
        text = inner.strip() if isinstance(inner, str) else text
    start = next((start for start, sign in enumerate(text) if sign in "[{"), len(text))
    label, rest = text[:start].strip(" \t\r\n*_`"), text[start:]
    if re.search(r"\d|[^:]\Z", label) or len(words(label)) > _LONGEST_LABEL:
        return label, []
    values: list[Any] = []
    while rest[:1] in ("{", "["):
        value = extent(rest, 0)
        try:
            values.append(load(rest[: value.end], truncated=not value.closed).value)
        except InvalidJsonError:
            return label, []
        rest = rest[value.end :].lstrip(" \t\r\n,")
    says_more = len(words(rest)) > _LONGEST_END or re.search(r"[\d\[{(]", rest)
    return label, [] if says_more else values


def _parts(value: list[Any]) -> tuple[list[Any], set[Any]]:
    """Return the objects and arrays in a JSON array, and the other values in it."""
    containers, values = [], set()
    pending = [*value]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping | list):
            containers.append(part)
            pending += part.values() if isinstance(part, Mapping) else part
        else:
            values.add(part)
    return containers, values


def is_blank(answer: str) -> bool:
    """Return whether an answer says nothing, or is the placeholder that the prompt shows."""
    return not answer.strip(" \t\r\n.…")


def _error_in(outcome: str) -> tuple[str, ...]:
    """Return the error that a message of an outcome has; () for one in another form, such as a summary."""
    try:
        value = parse_json(outcome)
    except InvalidJsonError:
        return ()
    error = value.get("error") if isinstance(value, dict) else None
    return (error,) if isinstance(error, str) else ()


def is_fragment(answer: str, steps: Iterable[Step]) -> bool:
    """Return whether an answer is only the name in a call in lines, or the number of a step and a value."""
    cited = _CITED.fullmatch(answer)
    is_step = cited is not None and any(int(cited[1]) == step.number for step in steps)
    return is_step or _NAME_OF_CALL.fullmatch(answer) is not None


def words(text: str) -> list[str]:
    """Return the words of a text, without case and punctuation."""
    return re.findall(r"\w+", text.casefold())


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
    if name in offer.left_out:
        others = " or ".join(tool.name for tool in offer.own[:_MOST_NAMED])
        answers = any(tool.name == FINAL_ANSWER.name for tool in offer.callable)
        possible = [*([f"call {others}"] if others else []), *(["answer"] if answers else [])]
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


def fill_references(
    tool: Tool, arguments: Mapping[str, Any], entries: Mapping[int, Sequence[Any]]
) -> dict[str, Any]:
    """Replace each step number by that step's entries, in the property that it fills.

    A list gets the entries appended, as they are or as strings; a string gets them appended as lines. A list
    with items of its own stays as it is if they do not fit. `arguments` are validated: every step
    that they refer to is a key of `entries`. Raises ValueError, with the sentence that the model reads, if
    the property accepts none of these.
    """
    filled = dict(arguments)
    for reference, target in tool.step_references.items():
        if target is None or reference not in filled:
            continue
        step = filled.pop(reference)
        faults: list[str] = []
        for value in _candidate_values(
            entries[step], filled.get(target), tool.args["properties"].get(target)
        ):
            errors = filled_argument_errors(tool, target, value)
            if not errors:
                filled[target] = value
                break
            faults += errors[:1]
        else:
            if isinstance(filled.get(target), list) and filled[target]:
                continue
            why = faults[0] if faults else f"{target!r} holds a value that takes no more"
            raise ValueError(f"the entries of step {step} don't fit: {why}; give what fits instead")
    return filled


def result_entries(result: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the `entries` of a result, which later steps may refer to; () if there are none."""
    entries = result.get("entries")
    return tuple(entries) if isinstance(entries, list) else ()


def _candidate_values(entries: Sequence[Any], value: Any, schema: Any) -> Iterator[Any]:
    """Yield values of a property with the entries appended to `value`, the most likely first."""
    texts = [entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False) for entry in entries]
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    if (value is None or isinstance(value, list)) and declared != "string":
        yield [*(value or []), *entries]
        yield [*(value or []), *texts]
    if (value is None or isinstance(value, str)) and declared != "array":
        yield "\n".join([*([value] if value else []), *texts])
