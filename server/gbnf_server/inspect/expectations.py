"""What may come next after a text: the texts that the grammar accepts, and words for all of them.

The grammar alone decides. What the schema declares at the end of the text gives the texts that are tried, and
the types that the words mention. A text may be JSON, or calls in the tool-call format of a chat template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gbnf.errors import clip
from gbnf.grammar.match import MatchState
from gbnf.partial_json import JsonPosition, after_scalar, locate
from gbnf.schema.keywords import path_pointer
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
from gbnf_server.inspect.declarations import Declared

END = "the end of the text"
MOST_OPTIONS = 50
_MOST_TRIED = 2000
_MOST_LISTED = 8
_MOST_CHARACTERS = 70
"""Characters that may come next, where they are named; more are those of a text."""
_MOST_BRANCHES = 20
LONGEST_LABEL = 60
_LONGEST_INSERTED = 4000
_FORCED = 200
_DIGITS = "0123456789"
_LITERALS = ("true", "false", "null")
_CLASSES = (
    ("a hexadecimal digit", f"{_DIGITS}abcdefABCDEF"),
    ("a lowercase hexadecimal digit", f"{_DIGITS}abcdef"),
    ("a digit", _DIGITS),
    ("a letter", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ("a lowercase letter", "abcdefghijklmnopqrstuvwxyz"),
    ("an uppercase letter", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
)


@dataclass(frozen=True, slots=True)
class Continuation:
    """A text that the grammar accepts after the accepted one. `words` say what it is, `label` shows it."""

    text: str
    label: str
    words: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a grammar expects after a text, in words, and the texts among it that can be inserted."""

    following: str
    options: tuple[Continuation, ...] = ()


class JsonExpectations:
    """What may come after a JSON text that ends in `state` at `position`.

    `text`: from the beginning of the JSON on. `declared_at`: what the schema declares at a position's path.
    `prefix`: of the paths in the words.
    """

    def __init__(
        self,
        state: MatchState,
        text: str,
        position: JsonPosition,
        declared_at: Callable[[JsonPosition], Declared],
        prefix: str = "",
    ) -> None:
        self._state, self._text, self._position = state, text, position
        self._declared_at, self._prefix = declared_at, prefix
        self._declared = declared_at(position)
        self._begun = text[position.start :] if position.where in ("inside", "key") else ""
        self._last = text.rstrip()[-1:]
        self._options: list[Continuation] = []
        self._others: list[str] = []
        """Words for what may come besides the options."""

    def expectation(self) -> Expectation:
        """Return what may come next."""
        match self._position.where:
            case "value":
                self._value()
            case "inside" if self._begun.startswith('"'):
                self._inside_string(self._declared.values, "" if self._begun == '"' else "the rest of ")
            case "inside":
                return self._inside_bare()
            case "key" if self._begun:
                self._inside_string(self._declared.names, "the property ")
            case "key":
                self._names("")
                if self._last == "{":
                    self._offer("}", "the end of the object")
            case "colon":
                self._offer(":", "the colon")
            case "after" if self._position.index is None:
                self._names(",")
                self._offer("}", "the end of the object")
            case "after":
                self._offer(",", "another item")
                self._offer("]", "the end of the array")
            case "end":
                return Expectation(END if self._state.can_end else "nothing that is allowed here")
        return self._found()

    def _found(self) -> Expectation:
        if not self._options and not self._others:
            self._options, others = branches(self._state)
            self._others = [others] if others else []
        where = f"{self._prefix}{path_pointer(self._position.path)}" or "the top level"
        is_listed = {option.label for option in self._options} <= {*self._declared.values, "]"}
        is_value = self._position.where in ("value", "inside") and (self._others or not is_listed)
        types = self._declared.types if is_value else ""
        following = f"{in_words(self._options, self._others)} at {where}{types and f' ({types})'}"
        return Expectation(following, tuple(self._options[:MOST_OPTIONS]))

    def _value(self) -> None:
        for text in dict.fromkeys((*self._declared.values[:_MOST_TRIED], *_LITERALS)):
            self._offer(text, text)
        values = [option.label for option in self._options]
        self._offer_string("a string", values)
        starts = {value[0] for value in values}
        if any(self._accepted(start) for start in f"-{_DIGITS}" if start not in starts):
            self._others.append("a number")
        self._offer("{", "an object")
        self._offer("[", "an array")
        if self._last == "[":
            self._offer("]", "the end of the array")

    def _names(self, lead: str) -> None:
        """Offer the properties of an object; `lead`: what comes before them."""
        for name in self._declared.names[:_MOST_TRIED]:
            self._offer(name, f"the property {name}", lead)
        self._offer_string("another property", [option.label for option in self._options], lead)

    def _offer_string(self, words: str, others: Sequence[str], lead: str = "") -> None:
        """Offer the beginning of a string, unless only the other ones are allowed."""
        text = self._accepted('"', lead)
        state = self._state.advance(text) if text else None
        if state is not None and _has_others(state, {other[1] for other in others if other[0] == '"'}):
            self._add(text, '"', words)

    def _inside_string(self, whole: Sequence[str], what: str) -> None:
        """Offer the ends of a string that has begun; `whole`: the strings that are known."""
        begun = self._begun
        if (len(begun) - len(begun.rstrip("\\"))) % 2:  # within an escape
            return
        ends = [
            text[len(begun) :] for text in whole[:_MOST_TRIED] if text.startswith(begun) and text != begun
        ]
        for end in filter(self._accepted, ends):
            self._add(end, begun + end, f"{what}{begun + end}")
        if not self._options and self._state.advance('"') is None:
            return
        starts = {option.text[0] for option in self._options} | {'"'}
        if _has_others(self._state, starts):
            characters = _allowed(self._state)
            self._others.append("more characters" if characters is None else _named(characters - starts))
        if '"' not in ends and self._state.advance('"') is not None:
            self._add('"', '"', "the closing quote")

    def _inside_bare(self) -> Expectation:
        """Return what may come inside a number or a literal, or after it."""
        begun = self._begun
        for text in dict.fromkeys((*self._declared.values[:_MOST_TRIED], *_LITERALS)):
            if text.startswith(begun) and text != begun and self._accepted(text[len(begun) :]):
                self._add(text[len(begun) :], text, f"the rest of {text}")
        characters = (_allowed(self._state) or set()).intersection(f"+-.eE{_DIGITS}")
        if begun[0] in f"-{_DIGITS}" and characters - {option.text[0] for option in self._options}:
            self._others.append(_named(characters))
        if not may_end_number(self._state):
            return self._found()
        position = after_scalar(self._position)
        after = JsonExpectations(
            self._state, self._text, position, self._declared_at, self._prefix
        ).expectation()
        if not self._options and not self._others:
            return after
        inner = self._found()
        return Expectation(f"{inner.following}, or {after.following}", (*inner.options, *after.options))

    def _accepted(self, token: str, lead: str = "") -> str:
        """Return a token with the whitespace that the grammar wants before it, "" if it is refused."""
        spaces: tuple[str, ...] = ("",) if self._begun else ("", " ", "\n")
        if not self._begun and (lead or self._last) in (",", ":"):
            spaces = (" ", "")
        texts = (lead + space + token for space in spaces)
        return next((text for text in texts if self._state.advance(text) is not None), "")

    def _offer(self, token: str, words: str, lead: str = "") -> None:
        if text := self._accepted(token, lead):
            self._add(text, token, words)

    def _add(self, text: str, label: str, words: str) -> None:
        self._options.append(
            Continuation(inserted(self._state, text), clip(label, LONGEST_LABEL), clip(words, LONGEST_LABEL))
        )


def in_words(options: Sequence[Continuation], others: Sequence[str] = ()) -> str:
    """Return what may come next as a list in words, of which the properties are named together."""
    what = "the property "
    names = [option.words.removeprefix(what) for option in options if option.words.startswith(what)]
    parts = [option.words for option in options if not option.words.startswith(what)]
    return either([*([what + either(names)] if names else []), *others, *parts])


def branches(state: MatchState) -> tuple[list[Continuation], str]:
    """Return continuations that begin with the characters that may come next, and words for the others."""
    characters = _allowed(state)
    if characters is None:
        return [], "more characters"
    if len(characters) > _MOST_BRANCHES:
        return [], _named(characters)
    texts = [inserted(state, character) for character in sorted(characters.difference(_DIGITS))]
    labels = [clip(text, LONGEST_LABEL) for text in texts]
    options = [
        Continuation(text, label, json.dumps(label, ensure_ascii=False))
        for text, label in zip(texts, labels, strict=True)
    ]
    return options, _named(digits) if (digits := characters.intersection(_DIGITS)) else ""


def inserted(state: MatchState, text: str) -> str:
    """Return a text that may come next, with what the grammar forces then, but for a space after , and :."""
    following = state.advance(text)
    while following is not None and len(text) < _LONGEST_INSERTED:
        more = following.forced(_FORCED)
        if not more and text.endswith((":", ",")) and following.advance(" ") is not None:
            more = " "
        if not more:
            break
        text, following = text + more, following.advance(more)
    return text


def may_end_number(state: MatchState) -> bool:
    """Return whether a number may be complete."""
    return state.can_end or any(state.advance(character) is not None for character in ",]} \n")


def either(parts: Iterable[str]) -> str:
    """Return parts as a list in words, the first of many."""
    shown = [*parts]
    more = [f"{len(shown) - _MOST_LISTED} more"] if len(shown) > _MOST_LISTED else []
    *first, last = [*shown[:_MOST_LISTED], *more] or ["nothing"]
    return f"{', '.join(first)} or {last}" if first else last


def _number_of(state: MatchState) -> int:
    return sum(high - low + 1 for low, high in state.allowed().ranges)


def _allowed(state: MatchState) -> set[str] | None:
    """Return the characters that may come next; None if they are those of a text."""
    if _number_of(state) > _MOST_CHARACTERS:
        return None
    return {chr(code) for low, high in state.allowed().ranges for code in range(low, high + 1)}


def _has_others(state: MatchState, characters: set[str]) -> bool:
    """Return whether other characters may come next."""
    return _number_of(state) > sum(state.advance(character) is not None for character in characters)


def _named(characters: set[str]) -> str:
    """Return characters as words: the classes that are complete, and each other one."""
    unnamed = set(characters)
    parts = []
    for words, members in _CLASSES:
        if unnamed.issuperset(members):
            parts.append(words)
            unnamed -= set(members)
    digits = sorted(unnamed.intersection(_DIGITS))
    if len(digits) > 1 and ord(digits[-1]) - ord(digits[0]) == len(digits) - 1:
        parts.insert(0, f"a digit from {digits[0]} to {digits[-1]}")
        unnamed -= set(digits)
    return either(parts + [json.dumps(character, ensure_ascii=False) for character in sorted(unnamed)])


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
