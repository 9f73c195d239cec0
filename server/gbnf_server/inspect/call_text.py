"""Where a text ends that is being written in the tool-call format of a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gbnf.errors import clip
from gbnf.grammar.match import MatchState
from gbnf.partial_json import locate
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
from gbnf_server.inspect.expectations import (
    END,
    LONGEST_LABEL,
    MOST_OPTIONS,
    Continuation,
    Expectation,
    branches,
    either,
    in_words,
    inserted,
)


@dataclass(frozen=True, slots=True)
class CallText:
    """The end of a text in a format. `name`: of the call that it is in, "" outside of calls.

    `arguments`: those of this call as JSON, as far as they are read. `json_at`: where the arguments begin, if
    they are JSON in which the text ends; None elsewhere.
    """

    name: str
    arguments: str
    json_at: int | None


def read_call_text(tool_format: ToolFormat, tools: Sequence[Tool], text: str) -> CallText:
    """Return where a text ends."""
    name, arguments = "", ""
    stream = tool_format.stream(tools)
    for delta in [*stream.feed(text), *stream.close(truncated=True)]:
        match delta:
            case CallStarted(_, _, name):
                arguments = ""
            case ArgumentsDelta(_, piece):
                arguments += piece
            case CallEnded():
                name, arguments = "", ""
    if not any(tool.name == name for tool in tools):
        return CallText("", "", None)
    form = tool_format.arguments
    is_json = isinstance(form, JsonArguments) and not form.quoted and arguments and text.endswith(arguments)
    is_inside = is_json and locate(arguments).where != "end"
    return CallText(name, arguments, len(text) - len(arguments) if is_inside else None)


def outside_json(
    tool_format: ToolFormat, tools: Sequence[Tool], text: str, state: MatchState, call: CallText
) -> Expectation:
    """Return what may come next outside of arguments in JSON: text, a call, an end."""
    calls: list[Continuation] = []
    for tool in () if call.arguments else tools:
        head = _head(tool_format, tool.name)
        rest = _rest(head, text, state)
        if rest is None or (rest == head and call.name):  # text of an argument
            continue
        words = f"{'a call' if rest == head else 'the rest of a call'} of "
        calls.append(Continuation(inserted(state, rest), clip(rest, LONGEST_LABEL), words + tool.name))
    options, characters = branches(state)
    if characters == "more characters" and call.name:
        ends = (_rest(literal, text, state) for literal in _ends(tool_format, in_value=bool(call.arguments)))
        end = next((end for end in ends if end and end.strip()), "")
        shown = clip(end, LONGEST_LABEL)
        options = [Continuation(inserted(state, end), shown, shown)] if end else []
        characters = "more text"
    parts = []
    if characters and not (calls and characters != "more characters"):
        parts.append("text" if characters == "more characters" else characters)
    if calls:
        what = calls[0].words.rpartition(" ")[0]
        parts.append(f"{what} {either(option.words.rpartition(' ')[2] for option in calls)}")
    if state.can_end:
        parts.append(END)
    return Expectation(in_words([] if calls else options, parts), tuple((calls or options)[:MOST_OPTIONS]))


def _ends(tool_format: ToolFormat, *, in_value: bool) -> list[str]:
    """Return the literals that may end the value of an argument, or a call."""
    arguments = tool_format.arguments
    if in_value and isinstance(arguments, ElementArguments):
        forms = arguments.forms
        parts = [form.after for form in (*forms.string, *forms.number, *forms.object)]
        return ["".join(part for part in after if isinstance(part, str)) for after in parts]
    return [part for part in (*tool_format.tail, tool_format.end) if isinstance(part, str)]


def _rest(literal: str, text: str, state: MatchState) -> str | None:
    """Return what is missing of a literal that the text may end in, if the grammar accepts that."""
    for length in range(min(len(literal) - 1, len(text)), -1, -1):
        if text.endswith(literal[:length]) and state.advance(literal[length:]) is not None:
            return literal[length:]
    return None


def _head(tool_format: ToolFormat, name: str) -> str:
    """Return what begins a call of a tool, up to the first thing that its name does not decide."""
    parts = [tool_format.begin]
    for part in tool_format.head:
        if isinstance(part, Placeholder) and part.kind != "name":
            break
        parts.append(name if isinstance(part, Placeholder) else part)
    return "".join(parts)
