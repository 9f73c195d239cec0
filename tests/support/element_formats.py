"""Tool-call formats with one element per parameter, by hand: the value, and how it writes calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf.tool_formats import (
    ElementArguments,
    NestedElements,
    Part,
    Placeholder,
    TextFormat,
    ToolFormat,
    ValueForm,
    ValueForms,
)
from gbnf.tools import Tool

NAME, KEY = Placeholder("name"), Placeholder("key")
Calls = Sequence[tuple[str, Any]]

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


@dataclass(frozen=True)
class ElementFamily:
    """A format with its own writer. `ends`: what a string must not contain to be read back."""

    name: str
    form: ToolFormat
    write: Callable[[Calls], str]
    ends: tuple[str, ...]
    tools: tuple[Tool, ...] = TOOLS

    def __repr__(self) -> str:
        return self.name


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _forms(string: ValueForm, other: ValueForm, **forms: ValueForm) -> ValueForms:
    kinds = ("number", "boolean", "null", "array", "object")
    return ValueForms(string=(string,), **{kind: (forms.get(kind, other),) for kind in kinds})


def _form(
    head: tuple[Part, ...], arguments: ElementArguments, tail: str, marker: str, **fields: Any
) -> ToolFormat:
    given: dict[str, Any] = {
        "template": "", "bos_token": "", "eos_token": "", "begin": "", "head": head, "other_heads": (),
        "arguments": arguments, "tail": (tail,), "separator": None, "end": "", "marker": marker,
    }  # fmt: skip
    return ToolFormat(**(given | fields))


def _text(value: Any, python: tuple[type, ...] = ()) -> str:
    return value if isinstance(value, str) else repr(value) if isinstance(value, python) else _json(value)


def _elements(arguments: Any, element: str, python: tuple[type, ...] = ()) -> str:
    return "".join(
        element.replace("KEY", key).replace("VALUE", _text(value, python)) for key, value in arguments.items()
    )


_LINE = ((">\n",), ("\n</parameter>\n",))
FUNCTIONS = ElementFamily(
    "function and parameter",
    _form(
        ("<tool_call>\n<function=", NAME, ">\n"),
        ElementArguments(
            "",
            "",
            "",
            "<parameter=",
            _forms(
                ValueForm("raw", *_LINE),
                ValueForm("json", *_LINE),
                boolean=ValueForm("python", *_LINE),
                null=ValueForm("python", *_LINE),
            ),
        ),
        "</function>\n</tool_call>",
        "<tool_call>",
        separator="\n",
        end_of_turn=("<|im_end|>",),
    ),
    lambda calls: "\n".join(
        f"<tool_call>\n<function={name}>\n"
        + _elements(given, "<parameter=KEY>\nVALUE\n</parameter>\n", (bool, type(None)))
        + "</function>\n</tool_call>"
        for name, given in calls
    ),
    ("</parameter>",),
)
_PAIR = (("</arg_key>\n<arg_value>",), ("</arg_value>\n",))
PAIRS = ElementFamily(
    "keys and values",
    _form(
        ("<tool_call>", NAME, "\n"),
        ElementArguments(
            "", "", "", "<arg_key>", _forms(ValueForm("raw", *_PAIR), ValueForm("json", *_PAIR))
        ),
        "</tool_call>",
        "<tool_call>",
        separator="\n",
    ),
    lambda calls: "\n".join(
        f"<tool_call>{name}\n"
        + _elements(given, "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n")
        + "</tool_call>"
        for name, given in calls
    ),
    ("</arg_value>",),
)
TYPED = ElementFamily(
    "typed parameters",
    _form(
        ('<｜DSML｜invoke name="', NAME, '">\n'),
        ElementArguments(
            "",
            "",
            "",
            '<｜DSML｜parameter name="',
            _forms(
                ValueForm("raw", ('" string="true">',), ("</｜DSML｜parameter>\n",)),
                ValueForm("json", ('" string="false">',), ("</｜DSML｜parameter>\n",)),
            ),
        ),
        "</｜DSML｜invoke>",
        "<｜DSML｜function_calls>",
        begin="\n\n<｜DSML｜function_calls>\n",
        separator="\n",
        end="\n</｜DSML｜function_calls>",
        end_of_turn=("<｜end▁of▁sentence｜>",),
    ),
    lambda calls: (
        "\n\n<｜DSML｜function_calls>\n"
        + "\n".join(
            f'<｜DSML｜invoke name="{name}">\n'
            + "".join(
                f'<｜DSML｜parameter name="{key}" string="{_json(isinstance(value, str))}">{_text(value)}'
                "</｜DSML｜parameter>\n"
                for key, value in given.items()
            )
            + "</｜DSML｜invoke>"
            for name, given in calls
        )
        + "\n</｜DSML｜function_calls>"
    ),
    ("</｜DSML｜parameter>",),
)
_QUOTE = '<|"|>'


def _braced_forms(before: tuple[str, ...]) -> ValueForms:
    return _forms(
        ValueForm("raw", (*before, _QUOTE) if not before else (before[0] + _QUOTE,), (_QUOTE,)),
        ValueForm("json", before),
        null=ValueForm("python", before),
        array=ValueForm("nested", before),
        object=ValueForm("nested", before),
    )


def _braced(value: Any) -> str:
    match value:
        case str():
            return f"{_QUOTE}{value}{_QUOTE}"
        case None:
            return "None"
        case dict():
            return "{" + ",".join(f"{key}:{_braced(member)}" for key, member in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_braced, value)) + "]"
        case _:
            return _json(value)


BRACES = ElementFamily(
    "braces",
    _form(
        ("<|tool_call>call:", NAME, "{"),
        ElementArguments(
            "",
            ",",
            "",
            "",
            _braced_forms((":",)),
            NestedElements("{", ",", "}", "[", ",", "]", _braced_forms(())),
        ),
        "}<tool_call|>",
        "<|tool_call>",
        separator="",
        end_of_turn=("<turn|>",),
    ),
    lambda calls: "".join(f"<|tool_call>call:{name}{_braced(given)}<tool_call|>" for name, given in calls),
    (_QUOTE,),
)
_MARK = "]<]m[>["


def _tagged(key: str, value: Any) -> str:
    match value:
        case dict():
            inner = "".join(_tagged(*each) for each in value.items())
        case list():
            inner = "".join(_tagged("item", each) for each in value)
        case _:
            inner = _text(value)
    return f"{_MARK}<{key}>{inner}{_MARK}</{key}>"


def _tag_forms(before: str, after: tuple[Part, ...]) -> ValueForms:
    nested = ValueForm("nested", (before,), after)
    plain = ValueForm("json", (before,), after)
    return _forms(ValueForm("raw", (before,), after), plain, array=nested, object=nested)


TAGS = ElementFamily(
    "nested tags",
    _form(
        (f'{_MARK}<invoke name="', NAME, '">'),
        ElementArguments(
            "",
            "",
            "",
            f"{_MARK}<",
            _tag_forms(">", (f"{_MARK}</", KEY, ">")),
            NestedElements("", "", "", "", "", "", _tag_forms(f"{_MARK}<item>", (f"{_MARK}</item>",))),
        ),
        f"{_MARK}</invoke>\n",
        f"{_MARK}<tool_call>",
        begin=f"{_MARK}<tool_call>\n",
        separator="",
        end=f"{_MARK}</tool_call>",
    ),
    lambda calls: (
        f"{_MARK}<tool_call>\n"
        + "".join(
            f'{_MARK}<invoke name="{name}">'
            + "".join(_tagged(*each) for each in given.items())
            + f"{_MARK}</invoke>\n"
            for name, given in calls
        )
        + f"{_MARK}</tool_call>"
    ),
    (_MARK,),
)
PYTHON = ElementFamily(
    "Python calls",
    _form(
        (NAME, "("),
        ElementArguments("", ", ", "", "", _forms(ValueForm("python", ("=",)), ValueForm("python", ("=",)))),
        ")",
        "<|tool_call_start|>",
        begin="<|tool_call_start|>[",
        separator=", ",
        end="]<|tool_call_end|>",
        text=TextFormat(),
    ),
    lambda calls: (
        "<|tool_call_start|>["
        + ", ".join(
            f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
            for name, given in calls
        )
        + "]<|tool_call_end|>"
    ),
    (),
)

ELEMENT_FAMILIES = (FUNCTIONS, PAIRS, TYPED, BRACES, TAGS, PYTHON)


def _parameter(key: str, value: str) -> str:
    return f"<tool_call>\n<function=set>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"


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
        ]
    ),
    (
        FUNCTIONS,
        "<tool_call><function=set><parameter=text>x</parameter></function></tool_call>",
        [("set", {"text": "x"})],
    ),
    (FUNCTIONS, "<tool_call>\n<function=set>\n</function>\n</tool_call><|im_end|>\n", [("set", {})]),
    (
        FUNCTIONS,
        "<function=set>\n<parameter=text>\nx\n</parameter>\n</function>\n</tool_call>",
        [("set", {"text": "x"})],
    ),
    (PAIRS, "<tool_call>set</tool_call>", [("set", {})]),
    (
        PAIRS,
        "<tool_call>set<arg_key>count</arg_key><arg_value>5</arg_value></tool_call>",
        [("set", {"count": 5})],
    ),
    (
        BRACES,
        "<|tool_call>call:set{count: 5, none:null,list:[ ]}<tool_call|>",
        [("set", {"count": 5, "none": None, "list": []})],
    ),
    (
        TAGS,
        f'{_MARK}<tool_call>{_MARK}<invoke name="set">{_MARK}<list>{_MARK}</list>{_MARK}</invoke>',
        [("set", {"list": []})],
    ),
    (
        PYTHON,
        '<|tool_call_start|>[set(text="a, b)", list=[1, (2, 3)], done=true)]<|tool_call_end|>',
        [("set", {"text": "a, b)", "list": [1, [2, 3]], "done": True})],
    ),
    (PYTHON, "<|tool_call_start|>[set()]<|tool_call_end|>", [("set", {})]),
]
