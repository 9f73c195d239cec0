"""Tool-call formats with one element per parameter, by hand, and what models write in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gbnf.tool_formats import ElementArguments, Part, TextFormat
from gbnf.tools import Tool
from support.notations import NOTATIONS, forms, nested_tags
from support.tool_formats import NAME, Family, made_form

TOOLS = (
    Tool(
        "set",
        args={
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "rate": {"type": "number"},
                "done": {"type": "boolean"},
                "none": {"type": "null"},
                "list": {"type": "array", "items": {"type": ["string", "integer", "boolean", "null"]}},
                "map": {
                    "type": "object",
                    "properties": {"on": {"type": "string"}},
                    "additionalProperties": False,
                },
                "word or number": {"type": ["string", "integer"]},
                "word_or_none": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "referred": {"$ref": "#/$defs/words"},
                "choice": {"enum": ["1", "two"]},
            },
            "$defs": {"words": {"type": "array", "items": {"type": "string"}}},
        },
    ),
)
CLOSED = tuple(
    Tool(name, args={**TOOLS[0].args, "additionalProperties": False}) for name in ("set", "set_all")
)
"""Two tools that take no other arguments."""


@dataclass(frozen=True, repr=False)
class ElementFamily(Family):
    """A format of elements. `ends`: what a string must not contain to be read back."""

    ends: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = TOOLS


def _family(name: str, head: tuple[Part, ...], arguments: ElementArguments, *more: str, **fields: Any) -> Any:
    """Return a family; head and tail have what begins and ends arguments. `more`: tail, marker, ends."""
    tail, marker, *ends = more
    form = made_form(head, tail, marker, arguments=replace(arguments, begin="", end=""), **fields)
    return ElementFamily(name, form, ends=tuple(ends))


_MARK = "]<]m[>["
FUNCTIONS = _family(
    "function and parameter",
    ("<tool_call>\n<function=", NAME, ">\n"), NOTATIONS["Qwen3-Coder"], "</function>\n</tool_call>",
    "<tool_call>", "</parameter>",
    separator="\n", end_of_turn=("<|im_end|>",),
)  # fmt: skip
PAIRS = _family(
    "keys and values",
    ("<tool_call>", NAME, "\n"), NOTATIONS["GLM-4.6"], "</tool_call>", "<tool_call>", "</arg_value>",
    separator="\n",
)  # fmt: skip
TYPED = _family(
    "typed parameters",
    ('<｜DSML｜invoke name="', NAME, '">\n'), NOTATIONS["DeepSeek-V3.2"], "</｜DSML｜invoke>",
    "<｜DSML｜function_calls>", "</｜DSML｜parameter>",
    begin="\n\n<｜DSML｜function_calls>\n", separator="\n", end="\n</｜DSML｜function_calls>",
    end_of_turn=("<｜end▁of▁sentence｜>",),
)  # fmt: skip
BRACES = _family(
    "braces",
    ("<|tool_call>call:", NAME, "{"), NOTATIONS["Gemma-4"], "}<tool_call|>", "<|tool_call>", '<|"|>',
    separator="", end_of_turn=("<turn|>",),
)  # fmt: skip
TAGS = _family(
    "nested tags",
    (f'{_MARK}<invoke name="', NAME, '">'), nested_tags(_MARK, null="json"), f"{_MARK}</invoke>\n",
    f"{_MARK}<tool_call>", _MARK,
    begin=f"{_MARK}<tool_call>\n", separator="", end=f"{_MARK}</tool_call>",
)  # fmt: skip
PYTHON = _family(
    "Python calls",
    (NAME, "("), ElementArguments("", ", ", "", "", forms("=", "", *["python"] * 4)), ")",
    "<|tool_call_start|>",
    begin="<|tool_call_start|>[", separator=", ", end="]<|tool_call_end|>", text=TextFormat(),
)  # fmt: skip

ELEMENT_FAMILIES = (FUNCTIONS, PAIRS, TYPED, BRACES, TAGS, PYTHON)


def _parameter(key: str, value: str) -> str:
    return f"<tool_call>\n<function=set>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"


def _pair(key: str, value: str) -> str:
    return f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"


#: Values as models write them, which their templates do not, or not alone: family, text, calls.
VALUES: list[tuple[ElementFamily, str, list[tuple[str, Any]]]] = [
    *(
        (FUNCTIONS, _parameter(key, text), [("set", {key: value})])
        for key, text, value in [
            ("text", "5", "5"),
            ("text", '"quoted"', '"quoted"'),
            ("text", "  indented", "  indented"),
            ("text", "line\n", "line\n"),
            ("text", "a </parameter> b", "a </parameter> b"),
            ("text", "print('<parameter=foo>')", "print('<parameter=foo>')"),
            ("text", "<parameter>\na\n</parameter>\n<b/>", "<parameter>\na\n</parameter>\n<b/>"),
            ("text", "null", "null"),
            ("word or number", "5", 5),
            ("word or number", "5.5", "5.5"),
            ("word or number", "five", "five"),
            ("word or number", '{"a": 1}', '{"a": 1}'),
            ("word_or_none", "None", None),
            ("word_or_none", "null", None),
            ("word_or_none", "nothing", "nothing"),
            ("count", "5.0", 5.0),
            ("rate", " 1e3 ", 1e3),
            ("done", "False", False),
            ("done", "true", True),
            ("done", "maybe", "maybe"),
            ("list", '["</parameter>\\n<parameter=text>"]', ["</parameter>\n<parameter=text>"]),
            ("list", "['a', None]", ["a", None]),
            ("list", "[1, 2", [1, 2]),
            ("map", "{'on': 'x'}", {"on": "x"}),
            ("referred", '["1"]', ["1"]),
            ("choice", "1", "1"),
            ("undeclared", "5", 5),
            ("undeclared", "five", "five"),
            ("count", "5\n</parameter>", 5),
        ]
    ),
    *(
        (family, text, [("set", arguments)])
        for family, text, arguments in [
            (
                FUNCTIONS,
                "<tool_call><function=set><parameter=text>x</parameter></function></tool_call>",
                {"text": "x"},
            ),
            (FUNCTIONS, "<tool_call>\n<function=set>\n</function>\n</tool_call><|im_end|>\n", {}),
            (
                FUNCTIONS,
                "<function=set>\n<parameter=text>\nx\n</parameter>\n</function>\n</tool_call>",
                {"text": "x"},
            ),
            (PAIRS, "<tool_call>set</tool_call>", {}),
            (
                PAIRS,
                "<tool_call>set<arg_key>count</arg_key><arg_value>5</arg_value></tool_call>",
                {"count": 5},
            ),
            (
                BRACES,
                "<|tool_call>call:set{count: 5, none:null,list:[ ]}<tool_call|>",
                {"count": 5, "none": None, "list": []},
            ),
            (
                TAGS,
                f'{_MARK}<tool_call>{_MARK}<invoke name="set">{_MARK}<list>{_MARK}</list>{_MARK}</invoke>',
                {"list": []},
            ),
            (
                PYTHON,
                '<|tool_call_start|>[set(text="a, b)", list=[1, (2, 3)], done=true)]<|tool_call_end|>',
                {"text": "a, b)", "list": [1, [2, 3]], "done": True},
            ),
            (PYTHON, "<|tool_call_start|>[set()]<|tool_call_end|>", {}),
            (
                PYTHON,
                "<|tool_call_start|>[set(text='a\nb\\nc', referred=['d\n'\n])]<|tool_call_end|>",
                {"text": "a\nb\nc", "referred": ["d\n"]},
            ),
            (PAIRS, f"<tool_call>set{_pair('count', '5</arg_value>')}</tool_call>", {"count": 5}),
        ]
    ),
]
