"""Readers of answers: as text, as calls in text, as one JSON call, or in one of two formats. Pure.

Each returns the characters of an answer that is still being written as soon as they are certain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gbnf import Grammar
from gbnf.calls import CallStream, ToolCall, ToolCalls
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.compiler.rules import prefixed
from gbnf.errors import GbnfError
from gbnf.grammar.ir import Ref, Rules, alt
from gbnf.grammar.match import MatchState
from gbnf.prompts.messages import call_text
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tool_formats.cursor import Stripped
from gbnf.tool_formats.deltas import Delta, ReasoningDelta, TextDelta, call_deltas
from gbnf.tools import FINAL_ANSWER, Tool

REASONING_KEY = "thought"
"""The property of a call that has reasoning, before the others."""

_MESSAGE = (
    rf'\s*\{{\s*(?:"{REASONING_KEY}"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*)?"name"\s*:\s*"{FINAL_ANSWER.name}"'
    r'\s*,\s*"arguments"\s*:\s*\{\s*"message"'
)
_WHOLE = re.compile(
    r'(?:[^"\\]'
    r'|\\["\\/bfnrt]'
    r"|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""The complete characters of a JSON string."""
_CALL_LIKE = re.compile(r"\W{0,8}?(?:\{|\[\s*\{|<\w)")
"""Plain text does not begin like that, but malformed calls do."""
_BROKEN_CALL = re.compile(
    r"""\W{0,8}?(?:
        (?:`{3}\w*\s*+)?\[?\s*+\{[\s"':]{0,8}(?:\w++["']?\s*+:?\s*+\[?\s*+\{[\s"':]{0,8}){0,3}
        (?:(?:tool|function)[_-]?calls?\b["']?\s*+:?\s*+(?:[\[{]|null\b|\Z)
            |name\s+"[^"]*",?\s*+:(?:arg|param|input)\w*\s|(?:name|tool|function)["']?\s*+:?\s*+\Z)
        |(?:<(?:tool_?calls?|function_?calls?)>|\[tool_calls\])\s*+(?:[\[{<]|[\w.-]+\s*+[\[{(<]|\Z)
        |<(?:tool_?calls?|function_?calls?|invoke)(?:\s+\w+\s*+=|\Z)|<(?:function|tool)=|`{3}tool(?:_?call|_?code)?[^\S\n]*+\n
        |(?:tool|action)\s*+:\s*+(?:\Z|\S+[^\S\n]*+\n\s*+arg(?:ument)?s?\s*+(?:\Z|:\s*+(?:\{|\Z)))
        |[^\W\d]\w*\(\w+\s*+=[^()]{0,80}\Z
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""The beginning of a malformed call. A bare JSON call is excluded: the request may ask for it."""


FENCE = re.compile(r"[ \t]*(?:```|~~~)[\w-]*[ \t]*")
"""A line before or after a block of code."""


class AnswerReader(Protocol):
    """Reads an answer piece by piece."""

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return what they tell."""

    def close(self, *, truncated: bool = False) -> list[Delta]:
        """End the answer; return the rest, by default none. `truncated`: a limit of tokens ended it."""
        return []


class PlainText(AnswerReader):
    """An answer that is text, whatever it says."""

    def feed(self, chunk: str) -> list[Delta]:
        """Return the characters as text."""
        return [TextDelta(chunk)] if chunk else []


def looks_like_call(text: str) -> bool:
    """Return whether a text begins like a call, malformed or not, or with brackets as JSON escapes them."""
    return _CALL_LIKE.match(text.replace("\\u003c", "<")) is not None


def without_fences(text: str) -> str:
    """Return what is in a block of code that is the whole text."""
    lines = text.strip().splitlines()
    is_block = len(lines) > 1 and FENCE.fullmatch(lines[0]) and FENCE.fullmatch(lines[-1])
    return "\n".join(lines[1:-1]) if is_block else text


def begins_call(text: str) -> bool:
    """Return whether a text in which no call is read begins like one, and like nothing else."""
    return _BROKEN_CALL.match(text) is not None


class StringMember(AnswerReader):
    """The string that is the value of a key of a JSON text; nothing of any other text.

    `key`: the pattern of the text up to the end of the key.
    """

    def __init__(self, key: str) -> None:
        self._head = re.compile(rf'{key}\s*:\s*"')
        self._text = ""
        self._position: int | None = None

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return those of the string."""
        self._text += chunk
        if self._position is None:
            # the head ends with a quote; without this test, each piece would match long reasoning again
            head = self._head.match(self._text) if '"' in chunk else None
            if head is None:
                return []
            self._position = head.end()
        characters = _WHOLE.match(self._text, self._position)
        assert characters is not None
        self._position = characters.end()
        answer: str = json.loads(f'"{characters[0]}"', strict=False)
        return [TextDelta(answer)] if answer else []


class FinalAnswerText(StringMember):
    """The message of a call of `final_answer` that is written as JSON; nothing of any other text."""

    def __init__(self) -> None:
        super().__init__(_MESSAGE)


CALL_MARK = "\x1e"
"""What begins a call in the text of an answer with a server's own calls (RFC 7464)."""


class AnswerInText(AnswerReader):
    """The answer in a text where calls are text: its prose up to a call, or the message of a `final_answer`.

    Spaces at the beginning and at the end do not belong to it. Whether a call follows is not known.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._stream, self._message = CallStream(tools), FinalAnswerText()
        self._deltas: list[Delta] = []
        self._prose = Stripped(lambda text: self._deltas.append(TextDelta(text)))

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return those that are no call whatever follows."""
        self._prose(self._stream.feed(chunk))
        deltas, self._deltas = self._deltas, []
        return deltas if self._prose.has_begun else self._message.feed(chunk)


class SpokenText(AnswerReader):
    """A text that is an answer, unless it begins like a call: then nothing of it is. `end`: what ends it."""

    def __init__(self, end: str | None = None) -> None:
        self._end = end
        self._text = ""
        self._is_call: bool | None = None

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return those that are certain."""
        chunk, ended, _ = (chunk, "", "") if self._end is None else chunk.partition(self._end)
        if self._is_call is None:
            self._text += chunk
            bare = self._text.lstrip()
            if not bare or bare.rstrip() in {"[", "<"}:
                return []
            self._is_call, chunk = looks_like_call(bare), self._text
        deltas: list[Delta] = [TextDelta(chunk)] if chunk and not self._is_call else []
        self._is_call = bool(ended) or self._is_call
        return deltas


class Unread(AnswerReader):
    """A text that is no part of an answer, such as reasoning before a call."""

    def feed(self, chunk: str) -> list[Delta]:
        """Return nothing."""
        return []


class AnswerNotAllowedError(GbnfError):
    """The text is no answer that the request allows."""


class TextCalls:
    """Calls in the text of a model that nothing constrains, in any syntax, and text.

    JSON that names no offered tool is text, unless a call is required. `required`: the answer must have a
    call. `parallel`: it may have several. `optional`: invalid calls are text, and no error, and a call that
    the text has twice is one.
    """

    def __init__(
        self, tools: Sequence[Tool], *, required: bool = False, parallel: bool, optional: bool = False
    ) -> None:
        self._stream, self._names = CallStream(tools), ToolNames(tools)
        self._required, self._parallel, self._optional = required, parallel, optional
        self._text = ""

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return those that are no call whatever follows."""
        self._text += chunk
        text = self._stream.feed(chunk)
        return [TextDelta(text)] if text else []

    def close(self, *, truncated: bool = False) -> list[Delta]:
        """Return the rest.

        Raises AnswerNotAllowedError for an invalid or broken call, unless `optional`, and without a call if
        `required`.
        """
        result = self._stream.close()
        shown, text = self._stream.shown, result.content
        is_text = isinstance(result, ToolCalls) and self._is_text(result, truncated)
        if is_text:
            answer = self._text.partition(result.reasoning)[2].lstrip() if result.reasoning else self._text
            text = answer if answer.startswith(shown) else text
        deltas: list[Delta] = [TextDelta(text[len(shown) :])] if text[len(shown) :] else []
        calls: tuple[ToolCall, ...] = ()
        if isinstance(result, ToolCalls):
            if result.invalid and not truncated and not is_text:
                raise AnswerNotAllowedError(result.invalid[0].error)
            calls = tuple(call for call in result.calls if not call.truncated)
            if self._optional:
                calls = tuple({f"{call.name} {call_text(call.arguments)}": call for call in calls}.values())
        elif begins_call(text) and not (self._optional or truncated):
            raise AnswerNotAllowedError("its answer begins like a call, and none can be read")
        if self._required and not (calls or truncated):
            raise AnswerNotAllowedError("it takes none, and its answer has no call of the tools")
        for index, call in enumerate(calls if self._parallel else calls[:1]):
            deltas += call_deltas(index, call.id, call.name, call_text(call.arguments))
        return deltas

    def _is_text(self, result: ToolCalls, truncated: bool) -> bool:
        """Return whether invalid calls are text, or calls that the model has not ended, within its limit."""
        if result.calls:
            return all(call.truncated for call in result.calls) and not (truncated or self._required)
        is_json = result.syntax in ("bare", "openai")  # the other syntaxes have no other meaning
        names_none = is_json and all(self._names.find(invalid.name) is None for invalid in result.invalid)
        return self._optional or (names_none and not self._required)


class WholeJsonCall:
    """One call as JSON in any layout, from servers that take a schema instead of a grammar.

    `answer`: the name of the tool whose message is the answer, None if there is none.
    """

    def __init__(self, answer: str | None = FINAL_ANSWER.name) -> None:
        self._text: list[str] = []
        self._answer = answer

    def feed(self, chunk: str) -> list[Delta]:
        """Keep the characters: only the whole call can be read."""
        self._text.append(chunk)
        return []

    def close(self, *, truncated: bool = False) -> list[Delta]:
        """Return the call, or the message of a final answer. A truncated call is left out."""
        try:
            call = parse_json("".join(self._text))
            name, arguments = call["name"], call["arguments"]
            if name == self._answer:
                return [TextDelta(arguments["message"])]
        except (InvalidJsonError, LookupError, TypeError):
            return []
        return call_deltas(0, "call_1", name, call_text(arguments))


@dataclass(slots=True)
class _Way:
    """One of the formats in which an answer may be, and what its reader has found so far."""

    state: MatchState
    stream: AnswerReader
    deltas: list[Delta] = field(default_factory=list)


class EitherReader:
    """An answer in the language of one of several grammars, each with its reader.

    What the readers find counts when only one of them is left, or at the end: then that of the first whose
    language has the answer. Only reasoning, which all find alike, comes at once.
    """

    def __init__(self, ways: Iterable[tuple[Grammar, Callable[[], AnswerReader]]]) -> None:
        self._open = [_Way(grammar.matcher.start(), stream()) for grammar, stream in ways]

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return what they tell."""
        if len(self._open) == 1:
            return self._open[0].stream.feed(chunk)
        remaining = []
        for way in self._open:
            if (state := way.state.advance(chunk)) is not None:
                way.state = state
                remaining.append(way)
        self._open = remaining or self._open[:1]
        for way in self._open:
            way.deltas += way.stream.feed(chunk)
        return self._open[0].deltas if len(self._open) == 1 else self._shared()

    def close(self, *, truncated: bool = False) -> list[Delta]:
        """End the answer; return the rest."""
        if len(self._open) == 1:
            return self._open[0].stream.close(truncated=truncated)
        chosen = next((way for way in self._open if way.state.can_end), self._open[0])
        return chosen.deltas + chosen.stream.close(truncated=truncated)

    def _shared(self) -> list[Delta]:
        """Return the reasoning at the beginning of what all readers have found."""
        shared: list[Delta] = []
        for same in zip(*(way.deltas for way in self._open), strict=False):
            if not isinstance(same[0], ReasoningDelta) or any(other != same[0] for other in same):
                break
            shared.append(same[0])
        for way in self._open:
            del way.deltas[: len(shared)]
        return shared


def either_grammar(first: Grammar, second: Grammar) -> Grammar:
    """Return the grammar of the texts in either language."""
    one_rules, other_rules = prefixed("first", first.rules, ()), prefixed("second", second.rules, ())
    root = alt(Ref(one_rules.root), Ref(other_rules.root))
    return Grammar(
        Rules({"root": root, **one_rules.productions, **other_rules.productions}),
        (*first.report, *second.report),
        first.is_parsed or second.is_parsed,
    )
