"""Where a text ends that is being written in the tool-call format of a chat template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gbnf.grammar.match import MatchState
from gbnf.tool_formats import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    ElementArguments,
    JsonArguments,
    Placeholder,
    ToolFormat,
)
from gbnf.tools import Tool
from gbnf_server.inspect.continuations import DIGITS, characters_in_words, either, inserted
from gbnf_server.inspect.expectations import END, MOST_OPTIONS, Continuation, Expectation, digits_in_words
from gbnf_server.inspect.partial_json import locate

_MOST_NAMES = 8
_MOST_TERMINALS = 6
_MOST_BRANCHES = 20
_MANY = 1000
"""Characters that may come next, where they are those of a text."""
_LONGEST_LABEL = 60


@dataclass(frozen=True, slots=True)
class CallText:
    """The end of a text in a format. `name`: of the call that it is in, "" outside of calls.

    `arguments`: those of this call as JSON, as far as they are read. `json_at`: where the arguments begin, if
    they are JSON in which the text ends; None elsewhere, where `expectation` says what may come next.
    """

    name: str
    arguments: str
    json_at: int | None
    expectation: Expectation


@dataclass(frozen=True, slots=True)
class _Call:
    """The call that a text ends in, if one is open, and what is read of its arguments."""

    is_open: bool
    arguments: str


def read_call_text(tool_format: ToolFormat, tools: Sequence[Tool], text: str, state: MatchState) -> CallText:
    """Return where a text ends. `state`: that of the grammar after it."""
    name, arguments, is_open = "", "", False
    stream = tool_format.stream(tools)
    for delta in [*stream.feed(text), *stream.close(truncated=True)]:
        match delta:
            case CallStarted(_, _, name):
                arguments, is_open = "", True
            case ArgumentsDelta(_, piece):
                arguments += piece
            case CallEnded():
                is_open = False
    is_open = is_open and any(tool.name == name for tool in tools)
    if (
        is_open
        and arguments
        and _is_json(tool_format)
        and text.endswith(arguments)
        and not _is_closed(arguments)
    ):
        return CallText(name, arguments, len(text) - len(arguments), Expectation(""))
    return CallText(
        name if is_open else "",
        arguments if is_open else "",
        None,
        _outside(tool_format, tools, text, state, _Call(is_open, arguments)),
    )


def _outside(
    tool_format: ToolFormat, tools: Sequence[Tool], text: str, state: MatchState, call: _Call
) -> Expectation:
    """Return what may come next outside of arguments in JSON."""
    begun = 0
    heads: dict[str, Continuation] = {}
    for tool in () if call.arguments else tools:
        if (head := _head(tool_format, tool.name)) and (rest := _rest(head, text, state)) is not None:
            if rest == head and call.is_open:  # text of an argument
                continue
            begun = len(head) - len(rest)
            words = f"{'the rest of ' if begun else ''}a call of {tool.name}"
            heads[tool.name] = Continuation(inserted(state, rest), _cut(rest), words)
    options = [*heads.values()]
    parts = []
    if heads:
        names = [*heads][:_MOST_NAMES] + [f"{len(heads) - _MOST_NAMES} more"] * (len(heads) > _MOST_NAMES)
        parts.append(f"{'the rest of ' if begun else ''}a call of {either(names)}")
    elif _number_of(state) <= _MOST_BRANCHES:
        options = _branches(state)
        parts += [option.words for option in options]
    elif call.is_open:
        for literal in _ends(tool_format, in_value=bool(call.arguments)):
            if (rest := _rest(literal, text, state)) and rest.strip():
                options.append(_continuation(inserted(state, rest)))
                break
    if _number_of(state) > _MANY:
        parts.insert(0, "more text" if call.is_open else "text")
    elif not heads:
        digits = digits_in_words(state) or ("a digit" if _has_digits(state) else "")
        parts = [*filter(None, [digits]), *parts]
        if not parts:
            parts = [characters_in_words(state) or " or ".join(state.expected()[:_MOST_TERMINALS])]
    if state.can_end:
        parts.append(END)
    parts += [option.words for option in options if not heads]
    return Expectation(either(dict.fromkeys(filter(None, parts))) or "nothing", tuple(options[:MOST_OPTIONS]))


def _branches(state: MatchState) -> list[Continuation]:
    """Return the continuations by their first characters, each as far as the grammar forces it."""
    ranges = state.allowed().ranges
    characters = [chr(code) for low, high in ranges for code in range(low, high + 1)]
    return [_continuation(inserted(state, each)) for each in characters if each not in DIGITS]


def _continuation(text: str) -> Continuation:
    return Continuation(text, _cut(text), json.dumps(_cut(text), ensure_ascii=False))


def _has_digits(state: MatchState) -> bool:
    return any(state.advance(digit) is not None for digit in DIGITS)


def _ends(tool_format: ToolFormat, *, in_value: bool) -> list[str]:
    """Return the literals that may end the value of an argument, or a call."""
    arguments = tool_format.arguments
    if in_value and isinstance(arguments, ElementArguments):
        forms = arguments.forms
        parts = [form.after for form in (*forms.string, *forms.number, *forms.object)]
        found = ["".join(part for part in after if isinstance(part, str)) for after in parts]
    else:
        found = [part for part in (*tool_format.tail, tool_format.end) if isinstance(part, str)]
    return [*dict.fromkeys(filter(None, found))]


def _rest(literal: str, text: str, state: MatchState) -> str | None:
    """Return what is missing of a literal that the text may end in, if the grammar accepts that."""
    for length in range(min(len(literal) - 1, len(text)), -1, -1):
        if text.endswith(literal[:length]) and state.advance(literal[length:]) is not None:
            return literal[length:]
    return None


def _is_json(tool_format: ToolFormat) -> bool:
    arguments = tool_format.arguments
    return isinstance(arguments, JsonArguments) and not arguments.quoted


def _is_closed(arguments: str) -> bool:
    return locate(arguments).where == "end"


def _head(tool_format: ToolFormat, name: str) -> str | None:
    """Return what begins a call of a tool, up to the first thing that its name does not decide."""
    parts = [tool_format.begin]
    for part in tool_format.head:
        if isinstance(part, Placeholder) and part.kind != "name":
            break
        parts.append(name if isinstance(part, Placeholder) else part)
    return "".join(parts)


def _number_of(state: MatchState) -> int:
    return sum(high - low + 1 for low, high in state.allowed().ranges)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
