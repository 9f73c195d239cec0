"""Tool-call formats of the families by hand: the value, how it writes calls, and how to read them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from gbnf.calls.parsing.results import ToolCall
from gbnf.tool_formats import (
    ElementArguments,
    JsonArguments,
    Part,
    Placeholder,
    Reasoning,
    TextFormat,
    ToolFormat,
)
from support.native_formats import written_calls
from support.notations import NOTATIONS, forms

NAME, ID, INDEX = Placeholder("name"), Placeholder("id"), Placeholder("index")
Calls = Sequence[tuple[str, Any]]
_DECODER = json.JSONDecoder()

#: Signs of the formats, inside strings.
SIGNS = (
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", '"}}', "```", "\\", "\n", '"', "<|end|>", "]", "é", "🙂",
)  # fmt: skip
_PLACEHOLDERS = {"name": r"(?P<name>\w+)", "id": r"[\w-]+", "index": r"\d+"}


def _pattern(parts: Sequence[Part], before: str | None = None) -> str:
    """Return a pattern of literal texts; without `before`, not of the whitespace at their start."""
    pattern = regex.escape(before or "")
    for part in parts:
        if isinstance(part, str):
            pattern += regex.escape(part if pattern or before is not None else part.lstrip())
        else:
            pattern += (
                "(?P=name)" if "<name>" in pattern and part.kind == "name" else _PLACEHOLDERS[part.kind]
            )
    return pattern


@dataclass(frozen=True)
class Family:
    """A format that writes and reads calls by its literal texts. `first`: a pattern for the first head."""

    name: str
    form: ToolFormat
    first: str = ""

    def __repr__(self) -> str:
        return self.name

    @property
    def has_parallel_calls(self) -> bool:
        return self.form.separator is not None

    def write(self, calls: Calls) -> str:
        """Return the text of calls."""
        made = [ToolCall(f"call{at:05}", name, arguments) for at, (name, arguments) in enumerate(calls)]
        return written_calls(self.form, made)

    def _arguments(self, text: str, start: int, strings: Collection[str]) -> tuple[Any, int]:
        elements = self.form.arguments
        if isinstance(elements, JsonArguments):
            arguments, end = _DECODER.raw_decode(text, start)
            return json.loads(arguments) if elements.quoted else arguments, end
        [value] = elements.forms.string
        before, after = (_pattern(parts, "") for parts in (value.before, value.after))
        element = rf"{regex.escape(elements.before_key)}(?P<key>\w+){before}(?P<value>.*?){after}"
        members = {}
        start += len(elements.begin)
        while found := regex.compile(element, regex.DOTALL).match(text, start):
            key, given = found["key"], found["value"]
            assert key not in members
            members[key] = given if key in strings else json.loads(given)
            start = found.end()
        return members, start + len(elements.end)

    def split(self, text: str, strings: Collection[str] = ()) -> tuple[str, list[tuple[str, Any]]]:
        """Return what is before the calls, and the calls; `strings` are the keys of elements with strings.

        Raises AssertionError if something else follows.
        """
        form = self.form
        first = self.first or "|".join(
            rf"\s*{_pattern([form.begin, *head])}" for head in (form.head, *form.other_heads)
        )
        following = regex.compile(_pattern(form.head, form.separator or ""))
        found = regex.search(first, text)
        if found is None:
            return text, []
        before, calls = text[: found.start()], []
        while found:
            arguments, end = self._arguments(text, found.end(), strings)
            calls.append((found["name"], arguments))
            closing = regex.compile(_pattern(form.tail, "")).match(text, end)
            assert closing, text[end:]
            found = following.match(text, closing.end())
            if not found:
                assert text[closing.end() :] == form.end, text[closing.end() :]
        return before, calls


def made_form(head: tuple[Any, ...], tail: str | tuple[Any, ...], marker: str, **fields: Any) -> ToolFormat:
    """Return a format of no template, with JSON arguments unless `fields` has others."""
    given: dict[str, Any] = {
        "template": "", "bos_token": "", "eos_token": "", "begin": "", "head": head, "other_heads": (),
        "arguments": JsonArguments(), "tail": (tail,) if isinstance(tail, str) else tail, "separator": None,
        "end": "", "marker": marker,
    }  # fmt: skip
    return ToolFormat(**(given | fields))


_THINK = Reasoning("<think>\n", "\n</think>\n\n")

TAGS = Family(
    "JSON in tags",
    made_form(
        ('<tool_call>\n{"name": "', NAME, '", "arguments": '), "}\n</tool_call>", "<tool_call>",
        separator="\n", reasoning=_THINK, end_of_turn=("<|im_end|>",),
    ),
)  # fmt: skip
ARRAY = Family(
    "array in tags",
    made_form(
        ('{"name": "', NAME, '", "arguments": '), "}", "<tool_calls>[",
        begin="\n<tool_calls>[", separator=", ", end="]</tool_calls>",
        reasoning=Reasoning("", "[BEGIN FINAL RESPONSE]", "open"),
    ),
)  # fmt: skip
MISTRAL = Family(
    "[TOOL_CALLS]",
    made_form(("[TOOL_CALLS]", NAME, "[ARGS]"), (), "[TOOL_CALLS]", separator="", text=TextFormat()),
)
IDS = Family(
    "array with ids",
    made_form(
        ('{"name": "', NAME, '", "arguments": '), (', "id": "', ID, '"}'), "[TOOL_CALLS]",
        begin="[TOOL_CALLS][", separator=", ", end="]", id_pattern="[A-Za-z0-9]{9}",
    ),
)  # fmt: skip
KIMI = Family(
    "numbered ids",
    made_form(
        ("<|tool_call_begin|>functions.", NAME, ":", INDEX, "<|tool_call_argument_begin|>"),
        "<|tool_call_end|>", "<|tool_calls_section_begin|>",
        begin="<|tool_calls_section_begin|>", separator="", end="<|tool_calls_section_end|>",
    ),
)  # fmt: skip
ACTIONS = Family(
    "numbered array",
    made_form(
        ('{"tool_call_id": "', INDEX, '", "tool_name": "', NAME, '", "parameters": '), "}",
        "<|START_ACTION|>",
        begin="<|START_ACTION|>[\n    ", separator=",\n    ", end="\n]<|END_ACTION|>",
        text=TextFormat("<|START_RESPONSE|>", "<|END_RESPONSE|>", None),
        reasoning=Reasoning("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
)  # fmt: skip
BARE = Family(
    "bare JSON",
    made_form(
        ('{"name": "', NAME, '", "parameters": '), "}", '{"name": "', text=TextFormat(before_calls=None)
    ),
)
FENCED = Family(
    "fenced",
    made_form(
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", NAME, "\n```json\n"), "\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>",
        begin="<｜tool▁calls▁begin｜>", separator="\n", end="<｜tool▁calls▁end｜>",
        reasoning=Reasoning("<think>\n", "\n</think>\n\n", "open"),
    ),
)  # fmt: skip
HARMONY = Family(
    "Harmony",
    made_form(
        (" to=functions.", NAME, "<|channel|>commentary json<|message|>"), (), "to=functions.",
        other_heads=(("<|channel|>commentary to=functions.", NAME, " <|constrain|>json<|message|>"),),
        text=TextFormat("<|channel|>final<|message|>", "", "<|end|><|start|>assistant"),
        reasoning=Reasoning("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        end_of_turn=("<|return|>", "<|call|>"),
    ),
)  # fmt: skip
ID_FIRST = Family(
    "id before the name",
    made_form(
        ("<|tool_call:begin|>", ID, "<|tool_call:name|>", NAME, "<|tool_call:args|>"), "<|tool_call:end|>",
        "<|tool_calls|>", begin="<|tool_calls|>", separator="",
    ),
)  # fmt: skip
QUOTED = Family(
    "JSON in a string",
    made_form(
        ('<call>{"name": "', NAME, '", "arguments": '), "}</call>", "<call>",
        arguments=JsonArguments(quoted=True), separator="",
    ),
)  # fmt: skip
KEYS = Family(
    "name as key",
    made_form(
        ('{"', NAME, '": '), "}", "<|tools_prefix|>",
        begin="<|tools_prefix|>[", separator=", ", end="]<|tools_suffix|>",
    ),
)  # fmt: skip
RECIPIENTS = Family(
    "recipients",
    made_form((NAME, "\n"), (), ">>>", separator=">>>", text=TextFormat("all\n", "", ">>>")),
    first=r"(?:>>>|\A\s*)(?P<name>(?!all\n)\w+)\n",
)
TWICE = Family(
    "name twice",
    made_form(
        (" to=", NAME, '<|message|><calls>\n<invoke name="', NAME, '">\n'),
        ("\n</invoke:", NAME, "></calls>"), "to=",
        separator="<|eom|>", text=TextFormat("<|message|>", "", "<|eom|>"),
    ),
)  # fmt: skip
XML = Family(
    "XML parameters",
    made_form(
        ("<tool_call>\n<function=", NAME, ">\n"), "\n</tool_call>", "<tool_call>",
        arguments=ElementArguments(
            "", "", "</function>", "<parameter=", forms(">\n", "\n</parameter>\n")
        ),
        separator="\n", reasoning=_THINK,
    ),
)  # fmt: skip
KEY_VALUE = Family(
    "key-value tags",
    made_form(
        ("<tool_call>", NAME), "", "<tool_call>",
        arguments=NOTATIONS["GLM-4.6"],
        separator="\n", reasoning=Reasoning("<think>", "</think>", "open"),
    ),
)  # fmt: skip

FAMILIES = (
    TAGS, ARRAY, MISTRAL, IDS, KIMI, ACTIONS, BARE, FENCED, HARMONY, ID_FIRST, QUOTED, KEYS, RECIPIENTS,
    TWICE, XML, KEY_VALUE,
)  # fmt: skip
