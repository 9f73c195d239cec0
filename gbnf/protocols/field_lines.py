"""The output contract: the arguments of one tool as lines of text, for models that write no JSON.

A model that nothing constrains writes one thing, or a few, more reliably as lines than as a call:

    Answer with 2 lines, in this order and nothing else:
    <best: integer, 1 to 3>
    <reason: string>

Its text is read as the first of these: a call in any syntax; the arguments as JSON; lines with labels
("best: 2"); lines in the requested order. A number may have text behind it ("2 - my pick"), the last string
has all lines that are left, and a list has a line for each item. The values are repaired, and then validated
as those of every call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from gbnf.calls import FinalAnswer, ToolCalls, parse_tool_calls
from gbnf.calls.parsing.lenient_json import load_complete
from gbnf.calls.parsing.readers import json_of_raw
from gbnf.calls.parsing.tool_names import fold
from gbnf.calls.repair.arguments import FALSE, TRUE
from gbnf.prompts.descriptions import field_placeholder
from gbnf.prompts.messages import Message, field_lines_prompt
from gbnf.protocols.call_protocols import CallsInText, repaired_call
from gbnf.protocols.protocol import ParsedCall, UnreadableCallError
from gbnf.protocols.readers import AnswerReader, Unread, looks_like_call
from gbnf.schema.locations import Location
from gbnf.strict_json import parse_json
from gbnf.tools import Tool

_FENCE = re.compile(r"[ \t]*(?:```|~~~)[\w-]*[ \t]*")
_LABEL = re.compile(r"\W*(?:\d+[.)]\s+)?\W*([^\W_][^:=]{0,80}?)[*_`>\"\s]*[:=][*_`]*(?=\s|$)(.*)")
_MARK = re.compile(r"(?:([-*•+])|(\d{1,3})[.)])\s+(?=\S)")
_DIGITS = r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_NUMBER = re.compile(
    rf"(?:[-*•+]\s+)?[^\w\s+-]*(?:[^\W\d]+\W{{1,3}})?[^\w\s+-]*(?P<value>{_DIGITS})"
    r"(?![\w%]|\s+(?:or|and|to|o|e|a)\s+\d)(?P<rest>.*)",
    re.DOTALL,
)
_ANY_NUMBER = re.compile(rf"(?<![\w.,]){_DIGITS}(?![\w%])")
_BEFORE_REST = " \t.):*]_`,;–—-"
_BRACKETED = re.compile(r"<\s*([^<>:]+?)\s*(?::\s*([^<>]*?))?\s*>?")
_SEPARATOR = re.compile(r"[,;]\s+")
_NOTHING = frozenset({"", "-", "–", "—", "none", "null", "n/a"})
_MOST_LINES = 10
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("«", "»"), ("**", "**"), ("`", "`"))


@dataclass(frozen=True, slots=True)
class _Field:
    """A property of the arguments."""

    name: str
    schema: Any
    location: Location
    is_required: bool

    @property
    def is_list(self) -> bool:
        return "array" in self.location.types

    @property
    def is_number(self) -> bool:
        types = self.location.types - {"null"}
        return bool(types) and types <= {"integer", "number"} and not self.location.listed

    @property
    def takes_lines(self) -> bool:
        """Whether a value may have several lines."""
        return self.is_list or ("string" in self.location.types and not self.location.listed)


def _fields(tool: Tool) -> tuple[_Field, ...]:
    args = tool.model_args()
    whole, required = Location.of(args), args.get("required", ())
    return tuple(
        _Field(name, schema, whole.property(name), name in required)
        for name, schema in args.get("properties", {}).items()
    )


def fits_lines(tool: Tool) -> bool:
    """Return whether lines can tell the arguments of a tool: scalars, and at most one list of scalars."""
    fields = _fields(tool)
    lists = [field for field in fields if field.is_list]
    items = [field.location.item(0).types <= _SCALARS for field in lists]
    scalars = [field.location.types <= _SCALARS for field in fields if not field.is_list]
    return bool(fields) and len(lists) <= 1 and all(items) and all(scalars)


@dataclass(frozen=True, kw_only=True)
class FieldLines(CallsInText):
    """The arguments of one tool, which is all that the model may answer with, as lines."""

    tool: Tool
    lines: bool = True

    @cached_property
    def _fields(self) -> tuple[_Field, ...]:
        return _fields(self.tool)

    @property
    def _names(self) -> set[str]:
        return {fold(field.name) for field in self._fields}

    def prompt(self, language: str) -> str:
        """Return the system prompt: what is wanted, how many lines, and a placeholder for each."""
        args, shown = self.tool.model_args(), []
        for field in self._fields:
            shown += [field_placeholder(field.name, field.schema, args, language)] * _least_lines(field)
        open_list = next(
            (each.name for each in self._fields if each.is_list and not _item_count(each.schema)), ""
        )
        wanted = self.tool.description(language)
        return field_lines_prompt(wanted, shown, open_list=open_list, language=language)

    def read(
        self, text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
    ) -> ParsedCall:
        """Read a whole text. Raises UnreadableCallError for one without the fields, or with a placeholder."""
        step = parse_tool_calls(text, (self.tool,))
        if isinstance(step, ToolCalls) and any(call.arguments for call in step.calls):
            return super().read(text, tools, steps=steps, truncated=truncated)
        content = step.content if isinstance(step, FinalAnswer) else text
        content = "\n".join(line for line in content.splitlines() if not _FENCE.fullmatch(line)).strip()
        if truncated:
            raise UnreadableCallError("the lines did not end within the limit of tokens; write shorter ones")
        if not content:
            raise UnreadableCallError("the text is empty")
        arguments = self._of_json(content)
        if arguments is None:
            arguments = self._of_lines(
                [_unquoted(line) for line in map(str.strip, content.splitlines()) if line]
            )
        for part in (part for value in arguments.values() for part in _parts(value)):
            if isinstance(part, str):
                self._filled(part)
        call = {"name": self.tool.name, "arguments": arguments}
        return repaired_call(call, (self.tool,), steps, clamp=self.clamp)

    def refused_messages(
        self, text: str, call: Mapping[str, Any] | None, error: str, number: int
    ) -> tuple[Message, Message]:
        """Return the messages of refused lines, and of the error, which has no form that a model may copy."""
        refused, _ = super().refused_messages(text, call, error, number)
        return refused, self.outcome_message(error, self.tool.name, number)

    def outcome_message(self, content: str, name: str, number: int) -> Message:
        """Return the message of an error, as text: {"step": 1, "error": …} is copied, too."""
        del name, number
        error = parse_json(content).get("error", content)
        return {"role": "user", "content": f"{error}. {self._hint}"}

    def answer_reader(self, tools: Sequence[Tool] = ()) -> AnswerReader:
        """Return a reader that finds no answer: all of the text is a call."""
        del tools
        return Unread()

    def call_message(self, call: Mapping[str, Any], number: int) -> Message:
        """Return the message of a call, as lines."""
        arguments = call["arguments"]
        if call["name"] != self.tool.name:
            return super().call_message(call, number)
        shown = [_line(part) for field in self._fields for part in _parts(arguments.get(field.name))]
        return {"role": "assistant", "content": "\n".join(shown)}

    @property
    def _hint(self) -> str:
        names = ", then ".join(field.name for field in self._fields)
        return f"Write {names}, each on a line of its own, and nothing else."

    def _filled(self, text: str) -> str:
        """Return a text, or what is in the brackets of a placeholder that the model has filled in, labelled.

        Raises UnreadableCallError for a placeholder that it has copied.
        """
        match = _BRACKETED.fullmatch(text)
        if match is None or fold(match[1]) not in self._names:
            return text
        field = next(each for each in self._fields if fold(each.name) == fold(match[1]))
        shown = _SEPARATOR.split(
            field_placeholder(field.name, field.schema, self.tool.model_args(), "")[1:-1]
        )
        known = {*shown, shown[0].partition(": ")[2]}  # "integer, 17" for "<best: integer, 1 to 3>"
        value = ", ".join(part for part in _SEPARATOR.split(match[2] or "") if part not in known)
        if not value:
            raise UnreadableCallError(f"{text!r} is a placeholder, and no value")
        return f"{match[1]}: {value}"

    def _of_json(self, content: str) -> dict[str, Any] | None:
        """Return the arguments in JSON; None for a text that is none. Raises UnreadableCallError."""
        value = load_complete(content)
        lists = [field.name for field in self._fields if field.is_list]
        if isinstance(value, list) and lists and not any(isinstance(item, list | dict) for item in value):
            return {lists[0]: value}
        if isinstance(value, dict) and set(map(fold, value)) & self._names:
            return value
        if value is not None or (looks_like_call(content) and not content.startswith("<")):
            raise UnreadableCallError("the text has none of the fields")
        return None

    def _of_lines(self, lines: Sequence[str]) -> dict[str, Any]:
        """Return the arguments in lines: between two labels, the fields have the requested order."""
        named = {fold(field.name): index for index, field in enumerate(self._fields)}
        parts: list[tuple[int, list[str]]] = [(0, [])]
        for line in map(self._filled, lines):
            label = _LABEL.fullmatch(line)
            index = named.get(fold(label[1])) if label else None
            if label and index is not None and all(index != begun for begun, _ in parts[1:]):
                parts.append((index, [rest] if (rest := _unquoted(label[2].strip())) else []))
            else:
                parts[-1][1].append(line)
        first = parts[1][0] if len(parts) > 1 else len(self._fields)
        if not first or (len(parts) > 1 and len(parts[0][1]) != first):  # text before the labels
            parts = parts[1:]
        begins = {begin for begin, _ in parts}
        arguments: dict[str, Any] = {}
        for (begin, part), (end, _) in pairwise([*parts, (len(self._fields), [])]):
            others = (at for at in range(begin + 1, end) if at not in begins)
            fields = [self._fields[begin], *(self._fields[at] for at in others)]
            arguments |= _placed(_unnumbered(part, fields), fields, is_labelled=len(parts) > 1)
        return arguments


def _placed(lines: Sequence[str], fields: Sequence[_Field], *, is_labelled: bool) -> dict[str, Any]:
    """Return the values of fields that have so many lines together, in this order."""
    lines = list(lines)
    if len(lines) > len(fields) and lines[0].endswith(":"):  # "Here is my answer:"
        del lines[0]
    while len(lines) > len(fields) and fields[0].is_number and not _is_number_or_none(lines[0]):
        del lines[0]
    if 0 < len(lines) < len(fields) and not is_labelled:
        value, rest = _leading(lines[0], fields[0])
        lines[:1] = [value, rest] if rest else [lines[0]]
    longest = next((at for at, field in enumerate(fields) if field.is_list), len(fields) - 1)
    more = max(len(lines) - len(fields), 0) if fields[longest].takes_lines else 0
    values: dict[str, Any] = {}
    for at, field in enumerate(fields):
        count = 1 + more * (at == longest)
        taken, lines = lines[:count], lines[count:]
        values |= _value(field, taken, is_labelled=is_labelled)
    return values


def _value(field: _Field, lines: Sequence[str], *, is_labelled: bool) -> dict[str, Any]:
    """Return the value of a field by its name; {} if it has none."""
    text = "\n".join(lines)
    if text.casefold() in _NOTHING and (text or not lines):
        if text and "null" in field.location.types:
            return {field.name: None}
        if not field.is_required or not text:
            return {}
    if not field.is_list:
        return {field.name: _scalar(field, text)}
    items = [_unquoted(line) for line in _unnumbered(lines, ())]
    if len(items) == 1 and isinstance(value := load_complete(items[0]), list):
        return {field.name: value}
    item_field = _Field(field.name, True, field.location.item(0), True)
    is_short = is_labelled and all(len(part.split()) < 4 for part in items[0].split(",")) if items else False
    if len(items) == 1 and (is_short or not item_field.takes_lines or _least_lines(field) > 1):
        items = [part.strip() for part in items[0].split(",") if part.strip()]
    return {field.name: [_scalar(item_field, item) for item in items]}


def _scalar(field: _Field, text: str) -> Any:
    """Return the value in a text; the text itself if it is none that the field has."""
    if field.location.types == {"string"} and not field.location.listed:
        return text
    value = _leading(text, field)[0]
    return parse_json(json_of_raw(value, field.location.types, quoted=False))


def _leading(text: str, field: _Field) -> tuple[str, str]:
    """Return the number, or the listed value, that a text begins with, and the rest of the text.

    A number, or a listed value, that is the only one of the text counts, too. Otherwise it is the whole text.
    """
    words = _listed_words(field)
    if field.is_number:
        match = _NUMBER.fullmatch(text)
        if match:
            return match["value"].replace(",", ""), match["rest"].lstrip(_BEFORE_REST)
        numbers = _ANY_NUMBER.findall(text)
        return (numbers[0].replace(",", ""), "") if len(numbers) == 1 else (text, "")
    if not words:
        return text, ""
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    if match := re.match(rf"\W*({pattern})(?!\s*\w)(.*)", text, re.IGNORECASE | re.DOTALL):
        return match[1], match[2].lstrip(_BEFORE_REST)
    named = {each.casefold() for each in re.findall(rf"(?<!\w)({pattern})(?!\w)", text, re.IGNORECASE)}
    return (named.pop(), "") if len(named) == 1 else (text, "")


def _is_number_or_none(line: str) -> bool:
    return line.casefold() in _NOTHING or _ANY_NUMBER.search(line) is not None


def _listed_words(field: _Field) -> list[str]:
    """Return the texts that a field may have, if they are listed, or few by their type."""
    if field.location.types - {"null"} == {"boolean"}:
        return [*TRUE, *FALSE]
    return [each if isinstance(each, str) else json.dumps(each) for each in field.location.listed]


def _unnumbered(lines: Sequence[str], fields: Sequence[_Field]) -> list[str]:
    """Return lines without bullets, or the numbers 1, 2, …, before all of them; not before a number."""
    marks = [_MARK.match(line) for line in lines]
    numbers = [int(mark[2]) for mark in marks if mark and mark[2]]
    bare = [line[mark.end() :] for line, mark in zip(lines, marks, strict=True) if mark]
    is_list = len(bare) == len(lines) > 1 and numbers in ([], [*range(1, len(lines) + 1)])
    has_number = not fields or not fields[0].is_number or (is_list and _NUMBER.fullmatch(bare[0]))
    return bare if is_list and has_number else [*lines]


def _unquoted(line: str) -> str:
    for opening, closing in _QUOTES:
        inside = line[len(opening) : -len(closing)]
        if line == f"{opening}{inside}{closing}" and inside and closing not in inside:
            return inside.strip()
    return line


def _least_lines(field: _Field) -> int:
    return _item_count(field.schema) or 1


def _item_count(schema: Any) -> int:
    """Return how many items a list has, if its schema says so and they are few; 0 otherwise."""
    known = schema if isinstance(schema, Mapping) else {}
    count = known.get("minItems")
    return count if count == known.get("maxItems") and isinstance(count, int) and count < _MOST_LINES else 0


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _line(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
