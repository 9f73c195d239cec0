"""The checks between a model's text and an answer: that it is no call, no error and no bare result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from gbnf.calls import ToolCalls, parse_tool_calls
from gbnf.calls.parsing.lenient_json import extent, load
from gbnf.prompts.messages import error_text
from gbnf.protocols.readers import begins_call, looks_like_call
from gbnf.requests import wording
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.planner.events import Refusal, Step
from gbnf_server.planner.run_state import RunState

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
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def message_faults(message: str, state: RunState) -> Iterator[tuple[Refusal, str]]:
    """Yield why a message is no answer."""
    if is_blank(message):
        yield "invalid", "the message of final_answer is blank; write the answer"
    if is_fragment(message, state.steps):
        yield "invalid", "the message is no answer; write a sentence"
    if _is_data(message, state):
        yield "invalid", "the message is raw data of a result; write what it says in a sentence"
    corrects = state.options.guidance.corrects_answers
    answers_next = corrects and state.succeeded
    if not answers_next and looks_like_call(message) and proposed_calls(message, state.described):
        yield "unparsed", "the text is a call that is not possible now; make another call, or answer"
    wants_data = wording.ASKS_FOR_DATA.search(state.request) is not None
    if corrects and not wants_data and _CALL_INSIDE.search(message):
        yield "invalid", "the message has a call in it; write the answer in words"
    if not wants_data and begins_call(message):
        yield "unparsed", "the text begins like a call, and none can be read; write one call, or an answer"
    if corrects and len(words(state.query)) > 3 and words(message) == words(state.query):
        yield "invalid", "the message repeats the request; write an answer to it"
    if _repeats_refusal(message, state) or _is_read(message, state):
        yield "invalid", "the message repeats an error or an instruction; write an answer to the request"


def proposed_calls(text: str, tools: tuple[Tool, ...]) -> tuple[str, ...]:
    """Return the names of the tools of which a text that should be an answer has a call."""
    parsed = parse_tool_calls(text.lstrip("> \t\r\n"), tools)  # a quoted call is none
    calls = parsed.calls if isinstance(parsed, ToolCalls) else ()
    return tuple(call.name for call in calls if call.name != FINAL_ANSWER.name)


def proposed_tool(text: str, offered: tuple[Tool, ...], pool: tuple[Tool, ...]) -> Tool | None:
    """Return the tool that a text proposes to call, if it is offered: "use the `find_files` function".

    That is the first of one or two that it names, not after a negation, by names that are no words, or words
    that it calls a function or a tool: a longer list tells what the tools do.
    """
    mentions = {tool: _mention(tool.name).search(text) for tool in pool}
    named = sorted((mention.start(), tool.name, tool) for tool, mention in mentions.items() if mention)
    if not 0 < len(named) < _LIST or _NEGATION.search(text[: named[0][0]]):
        return None
    return named[0][-1] if named[0][-1] in offered else None


def _mention(name: str) -> re.Pattern[str]:
    """Return the pattern of a text that means a tool by its name, and not by a word: `read` is one."""
    escaped = re.escape(name)
    if "_" in name:
        return re.compile(rf"\b{escaped}\b")
    return re.compile(rf"`{escaped}` (?:function|tool)\b|\b(?:funzione|strumento) `{escaped}`")


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
    label, data = ("", []) if wording.ASKS_FOR_DATA.search(state.request) else _json_values(message)
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
    """Return whether an answer says nothing: it is the placeholder that the prompt shows, or a fence."""
    return not answer.strip(" \t\r\n.…`")


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
