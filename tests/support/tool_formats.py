"""Tool-call formats of the families by hand: the value, how it writes calls, and how to read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf.tool_formats import (
    ElementArguments,
    JsonArguments,
    Placeholder,
    Reasoning,
    TextFormat,
    ToolFormat,
    ValueForm,
    ValueForms,
)

NAME, ID, INDEX = Placeholder("name"), Placeholder("id"), Placeholder("index")
Calls = Sequence[tuple[str, Any]]
_DECODER = json.JSONDecoder()

#: Signs of the formats, inside strings.
SIGNS = (
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    '"}}',
    "```",
    "\\",
    "\n",
    '"',
    "<|end|>",
    "]",
    "é",
    "🙂",
)


@dataclass(frozen=True)
class Family:
    """A format with its own writer.

    `write` returns the text of calls. `head`: what comes before the arguments of one call, with the group
    `name`; `tail`: what comes after them, up to the next call or the end. `element`: one element, if the
    arguments are written so, with the groups `key` and `value`: strings as they are, other values as JSON.
    """

    name: str
    form: ToolFormat
    write: Callable[[Calls], str]
    head: str
    tail: str = ""
    element: str = ""

    def __repr__(self) -> str:
        return self.name

    @property
    def has_parallel_calls(self) -> bool:
        return self.form.separator is not None

    def _arguments(self, text: str, start: int, strings: Collection[str]) -> tuple[Any, int]:
        if not self.element:
            arguments, end = _DECODER.raw_decode(text, start)
            quoted = isinstance(self.form.arguments, JsonArguments) and self.form.arguments.quoted
            return json.loads(arguments) if quoted else arguments, end
        members = {}
        while found := re.compile(self.element, re.DOTALL).match(text, start):
            key, value = found["key"], found["value"]
            assert key not in members
            members[key] = value if key in strings else json.loads(value)
            start = found.end()
        return members, start

    def split(self, text: str, strings: Collection[str] = ()) -> tuple[str, list[tuple[str, Any]]]:
        """Return what is before the calls, and the calls; `strings` are the keys of elements with strings.

        Raises AssertionError if something else follows.
        """
        found = re.search(self.head, text)
        if found is None:
            return text, []
        before, calls = text[: found.start()], []
        while found:
            arguments, end = self._arguments(text, found.end(), strings)
            calls.append((found["name"], arguments))
            closing = re.compile(self.tail).match(text, end)
            assert closing, text[end:]
            found = re.compile(self.head).match(text, closing.end())
            if not found:
                assert closing.end() == len(text), text[closing.end() :]
        return before, calls


def _form(head: tuple[Any, ...], tail: str | tuple[Any, ...], marker: str, **fields: Any) -> ToolFormat:
    given: dict[str, Any] = {
        "template": "", "bos_token": "", "eos_token": "", "begin": "", "head": head, "other_heads": (),
        "arguments": JsonArguments(), "tail": (tail,) if isinstance(tail, str) else tail, "separator": None,
        "end": "", "marker": marker,
    }  # fmt: skip
    return ToolFormat(**(given | fields))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _named(name: str, arguments: Any, key: str = "arguments") -> str:
    return f'{{"name": {_json(name)}, "{key}": {_json(arguments)}}}'


_THINK = Reasoning("<think>\n", "\n</think>\n\n")

TAGS = Family(
    "JSON in tags",
    _form(
        ('<tool_call>\n{"name": "', NAME, '", "arguments": '),
        "}\n</tool_call>",
        "<tool_call>",
        separator="\n",
        reasoning=_THINK,
        end_of_turn=("<|im_end|>",),
    ),
    lambda calls: "\n".join(f"<tool_call>\n{_named(*call)}\n</tool_call>" for call in calls),
    r'\s*<tool_call>\n\{"name": "(?P<name>\w+)", "arguments": ',
    r"\}\n</tool_call>",
)
ARRAY = Family(
    "array in tags",
    _form(
        ('{"name": "', NAME, '", "arguments": '),
        "}",
        "<tool_calls>[",
        begin="\n<tool_calls>[",
        separator=", ",
        end="]</tool_calls>",
        reasoning=Reasoning("", "[BEGIN FINAL RESPONSE]", "open"),
    ),
    lambda calls: f"\n<tool_calls>[{', '.join(_named(*call) for call in calls)}]</tool_calls>",
    r'(?:\s*<tool_calls>\[|, )\{"name": "(?P<name>\w+)", "arguments": ',
    r"\}(?:\]</tool_calls>)?",
)
MISTRAL = Family(
    "[TOOL_CALLS]",
    _form(("[TOOL_CALLS]", NAME, "[ARGS]"), (), "[TOOL_CALLS]", separator="", text=TextFormat()),
    lambda calls: "".join(f"[TOOL_CALLS]{name}[ARGS]{_json(arguments)}" for name, arguments in calls),
    r"\s*\[TOOL_CALLS\](?P<name>\w+)\[ARGS\]",
)
IDS = Family(
    "array with ids",
    _form(
        ('{"name": "', NAME, '", "arguments": '),
        (', "id": "', ID, '"}'),
        "[TOOL_CALLS]",
        begin="[TOOL_CALLS][",
        separator=", ",
        end="]",
        id_pattern="[A-Za-z0-9]{9}",
    ),
    lambda calls: (
        "[TOOL_CALLS]["
        + ", ".join(f'{_named(*call)[:-1]}, "id": "call0000{n}"}}' for n, call in enumerate(calls))
        + "]"
    ),
    r'(?:\s*\[TOOL_CALLS\]\[|, )\{"name": "(?P<name>\w+)", "arguments": ',
    r', "id": "[A-Za-z0-9]{9}"\}\]?',
)
KIMI = Family(
    "numbered ids",
    _form(
        ("<|tool_call_begin|>functions.", NAME, ":", INDEX, "<|tool_call_argument_begin|>"),
        "<|tool_call_end|>",
        "<|tool_calls_section_begin|>",
        begin="<|tool_calls_section_begin|>",
        separator="",
        end="<|tool_calls_section_end|>",
    ),
    lambda calls: (
        "<|tool_calls_section_begin|>"
        + "".join(
            f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
            for n, (name, arguments) in enumerate(calls)
        )
        + "<|tool_calls_section_end|>"
    ),
    r"(?:\s*<\|tool_calls_section_begin\|>)?<\|tool_call_begin\|>functions\.(?P<name>\w+):\d+<\|tool_call_argument_begin\|>",
    r"<\|tool_call_end\|>(?:<\|tool_calls_section_end\|>)?",
)
ACTIONS = Family(
    "numbered array",
    _form(
        ('{"tool_call_id": "', INDEX, '", "tool_name": "', NAME, '", "parameters": '),
        "}",
        "<|START_ACTION|>",
        begin="<|START_ACTION|>[\n    ",
        separator=",\n    ",
        end="\n]<|END_ACTION|>",
        text=TextFormat("<|START_RESPONSE|>", "<|END_RESPONSE|>", None),
        reasoning=Reasoning("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
    lambda calls: (
        "<|START_ACTION|>[\n    "
        + ",\n    ".join(
            f'{{"tool_call_id": "{n}", "tool_name": "{name}", "parameters": {_json(arguments)}}}'
            for n, (name, arguments) in enumerate(calls)
        )
        + "\n]<|END_ACTION|>"
    ),
    r"(?:\s*<\|START_ACTION\|>\[|,)\n    "
    r'\{"tool_call_id": "\d+", "tool_name": "(?P<name>\w+)", "parameters": ',
    r"\}(?:\n\]<\|END_ACTION\|>)?",
)
BARE = Family(
    "bare JSON",
    _form(('{"name": "', NAME, '", "parameters": '), "}", '{"name": "', text=TextFormat(before_calls=None)),
    lambda calls: "".join(_named(*call, "parameters") for call in calls),
    r'\s*\{"name": "(?P<name>\w+)", "parameters": ',
    r"\}",
)
FENCED = Family(
    "fenced",
    _form(
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", NAME, "\n```json\n"),
        "\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>",
        begin="<｜tool▁calls▁begin｜>",
        separator="\n",
        end="<｜tool▁calls▁end｜>",
        reasoning=Reasoning("<think>\n", "\n</think>\n\n", "open"),
    ),
    lambda calls: (
        "<｜tool▁calls▁begin｜>"
        + "\n".join(
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```<｜tool▁call▁end｜>"
            for name, arguments in calls
        )
        + "<｜tool▁calls▁end｜>"
    ),
    r"(?:\s*<｜tool▁calls▁begin｜>|\n)<｜tool▁call▁begin｜>function<｜tool▁sep｜>(?P<name>\w+)\n```json\n",
    r"\n```<｜tool▁call▁end｜>(?:<｜tool▁calls▁end｜>)?",
)
HARMONY = Family(
    "Harmony",
    _form(
        (" to=functions.", NAME, "<|channel|>commentary json<|message|>"),
        (),
        "to=functions.",
        other_heads=(("<|channel|>commentary to=functions.", NAME, " <|constrain|>json<|message|>"),),
        text=TextFormat("<|channel|>final<|message|>", "", "<|end|><|start|>assistant"),
        reasoning=Reasoning("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        end_of_turn=("<|return|>", "<|call|>"),
    ),
    lambda calls: "".join(
        f" to=functions.{name}<|channel|>commentary json<|message|>{_json(arguments)}"
        for name, arguments in calls
    ),
    r"\s*(?:<\|channel\|>commentary )?to=functions\.(?P<name>\w+)"
    r"(?:<\|channel\|>commentary json| <\|constrain\|>json)<\|message\|>",
)
ID_FIRST = Family(
    "id before the name",
    _form(
        ("<|tool_call:begin|>", ID, "<|tool_call:name|>", NAME, "<|tool_call:args|>"),
        "<|tool_call:end|>",
        "<|tool_calls|>",
        begin="<|tool_calls|>",
        separator="",
    ),
    lambda calls: (
        "<|tool_calls|>"
        + "".join(
            f"<|tool_call:begin|>c{n}<|tool_call:name|>{name}<|tool_call:args|>{_json(arguments)}<|tool_call:end|>"
            for n, (name, arguments) in enumerate(calls)
        )
    ),
    r"(?:\s*<\|tool_calls\|>)?<\|tool_call:begin\|>[\w-]+<\|tool_call:name\|>(?P<name>\w+)<\|tool_call:args\|>",
    r"<\|tool_call:end\|>",
)
QUOTED = Family(
    "JSON in a string",
    _form(
        ('<call>{"name": "', NAME, '", "arguments": '),
        "}</call>",
        "<call>",
        arguments=JsonArguments(quoted=True),
        separator="",
    ),
    lambda calls: "".join(f"<call>{_named(name, _json(arguments))}</call>" for name, arguments in calls),
    r'\s*<call>\{"name": "(?P<name>\w+)", "arguments": ',
    r"\}</call>",
)
KEYS = Family(
    "name as key",
    _form(
        ('{"', NAME, '": '),
        "}",
        "<|tools_prefix|>",
        begin="<|tools_prefix|>[",
        separator=", ",
        end="]<|tools_suffix|>",
    ),
    lambda calls: f"<|tools_prefix|>[{', '.join(_json(dict([call])) for call in calls)}]<|tools_suffix|>",
    r'(?:\s*<\|tools_prefix\|>\[|, )\{"(?P<name>\w+)": ',
    r"\}(?:\]<\|tools_suffix\|>)?",
)
RECIPIENTS = Family(
    "recipients",
    _form((NAME, "\n"), (), ">>>", separator=">>>", text=TextFormat("all\n", "", ">>>")),
    lambda calls: ">>>".join(f"{name}\n{_json(arguments)}" for name, arguments in calls),
    r"(?:>>>|\A\s*)(?P<name>(?!all\n)\w+)\n",
)
TWICE = Family(
    "name twice",
    _form(
        (" to=", NAME, '<|message|><calls>\n<invoke name="', NAME, '">\n'),
        ("\n</invoke:", NAME, "></calls>"),
        "to=",
        separator="<|eom|>",
        text=TextFormat("<|message|>", "", "<|eom|>"),
    ),
    lambda calls: "<|eom|>".join(
        f' to={name}<|message|><calls>\n<invoke name="{name}">\n{_json(arguments)}\n</invoke:{name}></calls>'
        for name, arguments in calls
    ),
    r'\s*to=(?P<name>\w+)<\|message\|><calls>\n<invoke name="(?P=name)">\n',
    r"\n</invoke:\w+></calls>(?:<\|eom\|>)?",
)


def _elements(arguments: Any, write: Callable[[str, str], str]) -> str:
    return "".join(
        write(key, value if isinstance(value, str) else _json(value)) for key, value in arguments.items()
    )


def _forms(before: str, after: str) -> ValueForms:
    raw, other = ((ValueForm(encoding, (before,), (after,)),) for encoding in ("raw", "json"))
    return ValueForms(raw, other, other, other, other, other)


XML = Family(
    "XML parameters",
    _form(
        ("<tool_call>\n<function=", NAME, ">\n"),
        "\n</tool_call>",
        "<tool_call>",
        arguments=ElementArguments("", "", "</function>", "<parameter=", _forms(">\n", "\n</parameter>\n")),
        separator="\n",
        reasoning=_THINK,
    ),
    lambda calls: "\n".join(
        f"<tool_call>\n<function={name}>\n"
        + _elements(arguments, lambda key, value: f"<parameter={key}>\n{value}\n</parameter>\n")
        + "</function>\n</tool_call>"
        for name, arguments in calls
    ),
    r"\s*<tool_call>\n<function=(?P<name>\w+)>\n",
    r"</function>\n</tool_call>",
    r"<parameter=(?P<key>\w+)>\n(?P<value>.*?)\n</parameter>\n",
)
KEY_VALUE = Family(
    "key-value tags",
    _form(
        ("<tool_call>", NAME),
        "",
        "<tool_call>",
        arguments=ElementArguments(
            "\n", "", "</tool_call>", "<arg_key>", _forms("</arg_key>\n<arg_value>", "</arg_value>\n")
        ),
        separator="\n",
        reasoning=Reasoning("<think>", "</think>", "open"),
    ),
    lambda calls: "\n".join(
        f"<tool_call>{name}\n"
        + _elements(
            arguments, lambda key, value: f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        )
        + "</tool_call>"
        for name, arguments in calls
    ),
    r"\s*<tool_call>(?P<name>\w+)\n",
    r"</tool_call>",
    r"<arg_key>(?P<key>\w+)</arg_key>\n<arg_value>(?P<value>.*?)</arg_value>\n",
)

FAMILIES = (
    TAGS, ARRAY, MISTRAL, IDS, KIMI, ACTIONS, BARE, FENCED, HARMONY, ID_FIRST, QUOTED, KEYS, RECIPIENTS,
    TWICE, XML, KEY_VALUE,
)  # fmt: skip
