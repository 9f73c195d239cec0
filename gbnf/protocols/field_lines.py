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
from gbnf.protocols.readers import FENCE, AnswerReader, Unread, looks_like_call, without_fences
from gbnf.requests.values import dates_in
from gbnf.schema.locations import Location
from gbnf.strict_json import json_of, parse_json
from gbnf.tools import Tool

_LABEL = re.compile(r"\W*(?:\d+[.)]\s+\W*)?([^\W_][^:=]{0,80}?)[*_`>\"\s]*[:=][*_`]*(.*)")
_MARK = re.compile(r"(?:([-*•+])|(\d{1,3})[.)])\s+(?=\S)")
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+|,\d\d?)?)"
_NUMBER = re.compile(
    rf"(?<![\w.,:'’/+−-])(?<!\d\s)(?P<sign>[+−-]?)(?:[$€£]\s?)?(?P<digits>{_DIGITS})"
    r"(?![\w%])(?![.,:'’/–-]\d|\s*[–/&-]\s*\d|\s\d)(?!\s*(?:k|m|bn|thousand|m?illions?|mil\w*|mrd)\b)"
    r"(?!\s+(?:or|and|to|o|e|ed|oppure|a|vs)\s(?:\w+\s)?\d)"
)
"""A whole numeral that is not one of two; of "1.120,50" and "2 million", nothing is."""
_NUMERIC_DATE = re.compile(r"\D*\d{4}[-/]\d{1,2}[-/]\d{1,2}\D*")
_NEGATION = re.compile(r"\b(?:not?|non|none|never|neither|nor|né|than)\b|n['’]t\b", re.IGNORECASE)
_BESIDE = re.compile(r"\b(?:before|after|until|prima|dopo)\b", re.IGNORECASE)
_BEFORE_REST = " \t.):*]_`,;–—-"
_BRACKETED = re.compile(r"<\s*([^<>:]+?)\s*(?::\s*([^<>]*?))?\s*>?")
_PLACEHOLDER = re.compile(r"\s*<[.…]+>\s*")
_TAGGED = re.compile(r"<([^<>/:]+)>(.*)</\1>")
_SEPARATOR = re.compile(r"[,;]\s+")
_NOTHING = frozenset({"", "-", "–", "—", "none", "null", "n/a"})
_MOST_LINES = 10
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("«", "»"), ("**", "**"), ("`", "`"))


@dataclass(frozen=True, slots=True)
class _LineField:
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
    def is_date(self) -> bool:
        schemas = (schema for choice in self.location.choices for schema in choice)
        return any(isinstance(schema, Mapping) and schema.get("format") == "date" for schema in schemas)

    @property
    def takes_lines(self) -> bool:
        """Whether a value may have several lines."""
        return self.is_list or ("string" in self.location.types and not self.location.listed)


def _fields(tool: Tool) -> tuple[_LineField, ...]:
    args = tool.model_args()
    arguments, required = Location.of(args), args.get("required", ())
    return tuple(
        _LineField(name, schema, arguments.property(name), name in required)
        for name, schema in args.get("properties", {}).items()
    )


def fits_lines(tool: Tool) -> bool:
    """Return whether the arguments of a tool fit lines: scalars, and at most one list of scalars."""
    fields = _fields(tool)
    lists = [field for field in fields if field.is_list]
    items = [field.location.item(0).types <= _SCALARS for field in lists]
    scalars = [field.location.types <= _SCALARS for field in fields if not field.is_list]
    return bool(fields) and len(lists) <= 1 and all(items) and all(scalars)


@dataclass(frozen=True, kw_only=True)
class FieldLines(CallsInText):
    """The arguments, as lines, of the only tool that the model may call."""

    tool: Tool
    lines: bool = True

    @cached_property
    def _fields(self) -> tuple[_LineField, ...]:
        return _fields(self.tool)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {fold(field.name): index for index, field in enumerate(self._fields)}

    def prompt(self, language: str) -> str:
        """Return the system prompt: what is wanted, how many lines, and a placeholder for each."""
        args, wanted = self.tool.model_args(), self.tool.description(language)
        shown: list[str] = []
        for field in self._fields:
            line = field_placeholder(field.name, field.schema, args, language)
            shown += [line] * (_item_count(field.schema) or 1)
        lists = (field.name for field in self._fields if field.is_list and not _item_count(field.schema))
        return field_lines_prompt(wanted, shown, open_list=next(lists, ""), language=language)

    def read(
        self, text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
    ) -> ParsedCall:
        """Read a whole text. Raises UnreadableCallError for one without the fields, or with a placeholder."""
        step = parse_tool_calls(text, (self.tool,))
        is_call = isinstance(step, ToolCalls) and any(call.arguments for call in step.calls)
        if is_call:
            parsed = super().read(text, tools, steps=steps, truncated=truncated)
        elif truncated:
            raise UnreadableCallError("the answer was truncated by the token limit; write shorter lines")
        else:
            content = step.content if isinstance(step, FinalAnswer) else text
            arguments = self._of_json(content)
            if arguments is None:
                arguments = self._one_text(content) or self._of_lines(content)
            call = {"name": self.tool.name, "arguments": arguments}
            parsed = repaired_call(call, (self.tool,), steps, clamp=self.clamp)
        for field in self._fields:
            for part in _parts(parsed.call["arguments"].get(field.name)):
                if isinstance(part, str) and not field.location.listed:
                    self._check_text(part, field, in_lines=not is_call)
        return parsed

    def outcome_message(self, content: str, name: str, number: int) -> Message:
        """Return the message of an error, as text: a model would copy {"step": 1, "error": …}."""
        error = parse_json(content).get("error", content)
        names = ", then ".join(field.name for field in self._fields)
        hint = f"Write {names}, each on a line of its own, and nothing else."
        return {"role": "user", "content": f"{error}. {hint}"}

    def answer_reader(self, tools: Sequence[Tool] = ()) -> AnswerReader:
        """Return a reader that finds no answer: all of the text is a call."""
        return Unread()

    def call_message(self, call: Mapping[str, Any], number: int) -> Message:
        """Return the message of a call, as lines."""
        arguments = call["arguments"]
        if call["name"] != self.tool.name:
            return super().call_message(call, number)
        shown = [_line(part) for field in self._fields for part in _parts(arguments.get(field.name))]
        return {"role": "assistant", "content": "\n".join(shown)}

    def _filled(self, text: str) -> str:
        """Return a line, or what the model has written into a placeholder or between tags, with its label.

        Raises UnreadableCallError for a placeholder that it has copied.
        """
        if (tagged := _TAGGED.fullmatch(text)) and fold(tagged[1]) in self._places:
            return f"{tagged[1]}: {tagged[2]}"
        match = _BRACKETED.fullmatch(text)
        if match is None or fold(match[1]) not in self._places:
            begin = re.match(r"</?\s*([^<>:]+?)\s*[:>]", text)
            if begin is None or fold(begin[1]) not in self._places:
                return text
            raise UnreadableCallError(f"{text!r} has brackets; write the value alone")
        field = self._fields[self._places[fold(match[1])]]
        shown = _SEPARATOR.split(
            field_placeholder(field.name, field.schema, self.tool.model_args(), "")[1:-1]
        )
        facts = {*shown, shown[0].partition(": ")[2]}  # "integer, 17" for "<best: integer, 1 to 3>"
        value = ", ".join(part for part in _SEPARATOR.split(match[2] or "") if part not in facts)
        if not value:
            raise UnreadableCallError(f"{text!r} is a placeholder, and no value")
        return f"{match[1]}: {value}"

    def _check_text(self, text: str, field: _LineField, *, in_lines: bool) -> None:
        """Raise UnreadableCallError for a blank value, a placeholder, or one with another field's label."""
        if field.is_required and text and not text.strip(" \t\n.…"):
            raise UnreadableCallError(f"{field.name} is blank")
        if _PLACEHOLDER.fullmatch(text):
            raise UnreadableCallError(f"{text!r} is a placeholder, and no value")
        if not in_lines:
            return
        self._filled(text)
        for label in re.findall(r"(?:^|[\s,;(])([^\W\d][\w -]*?)\s*[:=]\s", text):
            if len(self._fields) > 1 and fold(label) in self._places:
                raise UnreadableCallError(f"{label!r} is not on a line of its own")

    def _of_json(self, content: str) -> dict[str, Any] | None:
        """Return the arguments in JSON, also between prose; None for a text without any.

        Raises UnreadableCallError for other JSON.
        """
        value = load_complete(without_fences(content))
        keys = map(fold, re.findall(r'[{,]\s*"([^"]*)"\s*:', content))
        if value is None and not self._places.keys().isdisjoint(keys):
            value = load_complete(content[content.find("{") : content.rfind("}") + 1]) or {}
        lists = [field.name for field in self._fields if field.is_list]
        if isinstance(value, list) and lists and not any(isinstance(item, list | dict) for item in value):
            return {lists[0]: value}
        if isinstance(value, dict) and not self._places.keys().isdisjoint(map(fold, value)):
            return value
        if value is not None or (looks_like_call(content) and not content.lstrip().startswith("<")):
            raise UnreadableCallError("the text has none of the fields")
        return None

    def _one_text(self, content: str) -> dict[str, Any]:
        """Return the only argument, if any text is one: unchanged, but for its label, quotes or fences."""
        [field, *others] = self._fields
        if others or field.location.types != {"string"} or field.location.listed or field.is_date:
            return {}
        for line in content.splitlines():
            filled = self._filled(line.strip())
            content = filled if filled != line.strip() else content
        text = without_fences(content).strip("\n")
        first, _, rest = text.partition("\n")
        label = _LABEL.fullmatch(first)
        if fold(label[1] if label else first) in self._places and (label or rest):
            text = f"{label[2].strip() if label else ''}\n{rest}".strip("\n")
        return {field.name: text if "\n" in text else _unquoted(text.strip())} if text.strip() else {}

    def _labelled(self, lines: list[str]) -> list[str]:
        """Return lines; a single one with labels for all fields, "<best: 2; reason: vivid>", at these."""
        names = "|".join(re.escape(field.name) for field in self._fields)
        text = lines[0].removeprefix("<").removesuffix(">") if len(lines) == 1 < len(self._fields) else ""
        parts = re.split(rf"\s*;\s*(?=(?:{names})\s*[:=])", text, flags=re.IGNORECASE)
        labels = {fold(re.split("[:=]", part)[0]) for part in parts}
        return parts if len(parts) == len(self._fields) and labels == self._places.keys() else lines

    def _of_lines(self, content: str) -> dict[str, Any]:
        """Return the arguments in lines: by their labels, or in the requested order."""
        stripped = [line.strip() for line in content.splitlines() if not FENCE.fullmatch(line)]
        written = self._labelled([line for line in stripped if line])
        lines = [self._filled(_unquoted(line)) for line in written]
        if not lines:
            raise UnreadableCallError("the text is empty")
        parts: list[tuple[int, list[str]]] = [(0, [])]
        for line in lines:
            label = _LABEL.fullmatch(line)
            index = self._places.get(fold(label[1] if label else line))
            if index is not None and all(index != begin for begin, _ in parts[1:]):
                parts.append((index, [rest] if label and (rest := _unquoted(label[2].strip())) else []))
            else:
                parts[-1][1].append(line)
        if len(parts) == 1:
            return _placed(lines, self._fields)
        if len(parts[0][1]) != parts[1][0]:  # a preface, and no values of the fields before the first label
            parts[0] = (0, [])
        labelled, arguments = {begin for begin, _ in parts[1:]}, dict[str, Any]()
        for (begin, part), (end, _) in pairwise([*parts, (len(self._fields), [])]):
            others = [index for index in range(begin + 1, end) if index not in labelled]
            fields = [self._fields[index] for index in (begin, *others)]
            if part:
                arguments |= _placed(part, fields if len(part) > 1 else fields[:1])
        return arguments


def _placed(lines: Sequence[str], fields: Sequence[_LineField]) -> dict[str, Any]:
    """Assign lines to fields, in the requested order. A list, or the last text, has those that are left."""
    least = sum(_item_count(field.schema) or 1 for field in fields)
    takes_text = len(fields) == 1 and fields[0].takes_lines
    if len(lines) > least and lines[0].endswith(":") and not takes_text:  # "Here is my answer:"
        lines = lines[1:]
    if len(lines) == 1 < len(fields) and all(field.is_number and field.is_required for field in fields):
        numbers = re.split(r"\s*;\s*|,\s+|\s+", lines[0])  # "17 17", also after a word
        numbers = numbers[1:] if numbers[0].isalpha() else numbers
        lines = numbers if len(numbers) == len(fields) else lines
    if len(lines) == len(fields) > 1:
        lines = _unnumbered(lines, fields)
    if len(lines) == len(fields) - 1:
        value, rest = _leading(lines[0], fields[0])
        lines = [value, rest, *lines[1:]] if rest else lines
    texts = [index for index, field in enumerate(fields) if field.takes_lines]
    longest = next((index for index in texts if fields[index].is_list), texts[-1] if texts else len(fields))
    values: dict[str, Any] = {}
    for index, field in enumerate(fields):
        count = max(len(lines) - len(fields) + index + 1, 1) if index == longest else 1
        values |= _value(field, lines[:count])
        lines = lines[count:]
    return values


def _value(field: _LineField, lines: Sequence[str]) -> dict[str, Any]:
    """Return the value of a field by its name; {} if it has none."""
    if not lines:
        return {}
    text = "\n".join(lines)
    if text.casefold() in _NOTHING:
        if "null" in field.location.types:
            return {field.name: None}
        if field.is_list:
            return {field.name: []}
        if not field.is_required:
            return {}
    if not field.is_list:
        return {field.name: _scalar(field, text)}
    item_field = _LineField(field.name, True, field.location.item(0), True)
    items = [_unquoted(line) for line in _unnumbered(lines)]
    if len(items) == 1:
        if isinstance(value := load_complete(items[0]), list):
            return {field.name: value}
        items = items if item_field.takes_lines else re.split(r",\s+", items[0])
    return {field.name: [_scalar(item_field, item) for item in items]}


def _scalar(field: _LineField, text: str) -> Any:
    """Return the value in a text; the text itself if it is none that the field has."""
    numerals = len(re.findall(r"\d+", text)) if field.is_date else 0  # "5 to 8 March 2026" has three
    is_numeric = _NUMERIC_DATE.fullmatch(text) is not None
    is_alone = len(re.findall(r"[^\W\d]+", text)) <= (1 if is_numeric else 2) and not _BESIDE.search(text)
    if numerals == (3 if is_numeric else 2) and is_alone and not _NEGATION.search(text):
        text = next((day.isoformat() for day in dates_in(text)), text)
    if field.location.types == {"string"} and not field.location.listed:
        return text
    return parse_json(json_of_raw(_leading(text, field)[0], field.location.types, quoted=False))


def _leading(text: str, field: _LineField) -> tuple[str, str]:
    """Return the number, or the listed value, that a text begins with, and the rest of the text.

    One that is the only one in the text, and not denied, counts, too. Otherwise it is the whole text.
    """
    if field.is_number:
        match = _NUMBER.search(text)
        before, rest = (text[: match.start()], text[match.end() :]) if match else (text, "")
        others = before if not re.search(r"\w", before) else before + rest
        if match is None or re.search(r"\d", others) or _NEGATION.search(before):
            return text, ""
        digits = match["digits"].replace(",", "." if re.search(r",\d\d?$", match["digits"]) else "")
        return match["sign"].replace("−", "-") + digits, rest.lstrip(_BEFORE_REST)
    is_boolean = field.location.types - {"null"} == {"boolean"}
    words = [*TRUE, *FALSE] if is_boolean else list(map(_line, field.location.listed))
    if not words:
        return text, ""
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    if match := re.match(rf"[^\w-]*({pattern})(?!\s*\w|[-/.,]\w)(.*)", text, re.IGNORECASE | re.DOTALL):
        return match[1], match[2].lstrip(_BEFORE_REST)
    named = {
        word.casefold() for word in re.findall(rf"(?<![\w/-])({pattern})(?![\w/-])", text, re.IGNORECASE)
    }
    is_clear = len(named) == 1 and not is_boolean and not _NEGATION.search(text)
    return (named.pop(), "") if is_clear else (text, "")


def _unnumbered(lines: Sequence[str], fields: Sequence[_LineField] = ()) -> list[str]:
    """Return lines without bullets, or the numbers 1, 2, …, before all of them; not before a number."""
    marks = [_MARK.match(line) for line in lines]
    numbers = [int(mark[2]) for mark in marks if mark and mark[2]]
    bare = [line[mark.end() :] for line, mark in zip(lines, marks, strict=True) if mark]
    is_list = len(bare) == len(lines) and numbers in ([], [*range(1, len(lines) + 1)])
    is_number = bool(fields) and fields[0].is_number
    return [*lines] if not is_list or (is_number and not _NUMBER.search(bare[0])) else bare


def _unquoted(line: str) -> str:
    for opening, closing in _QUOTES:
        inside = line[len(opening) : -len(closing)]
        if line == f"{opening}{inside}{closing}" and inside and closing not in inside:
            return inside.strip()
    return line


def _item_count(schema: Any) -> int:
    """Return how many items a list has, if its schema says so and they are few; 0 otherwise."""
    facts = schema if isinstance(schema, Mapping) else {}
    count = facts.get("minItems")
    return count if count == facts.get("maxItems") and isinstance(count, int) and count < _MOST_LINES else 0


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _line(value: Any) -> str:
    return value if isinstance(value, str) else json_of(value)
