"""Damaged calls, in every syntax: each is read as what was meant, or refused, and never another call."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf.calls import CALL_SYNTAXES, CallStream, ToolCall, ToolCalls, parse_tool_calls, render_tool_calls
from gbnf.compiler.notations import ElementArguments
from support.element_formats import ELEMENT_FAMILIES
from support.pools import tool
from support.tool_formats import FAMILIES

STRING = {"type": "string"}
TOOLS = (
    tool(
        "write_file",
        path=STRING,
        content=STRING,
        count={"type": "integer"},
        tags={"type": "array", "items": STRING},
    ),
    tool("bash", command=STRING),
)
PIECES = (
    "a", "5", " ", "\n", "é", "x > y", "None", "{", "}", '"', "'", "\\", "<b>", ":", "# t", "- i", "`", ",",
    "(", ")", "[", "]", "=", "//",
)  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
arguments = st.fixed_dictionaries(
    {"path": texts, "content": texts},
    optional={"count": st.integers(0, 99), "tags": st.lists(texts, max_size=2)},
)
SYNTAXES = {
    "tool_calls": "{[]}", "bare": "{}", "openai": "{}", "tagged": ["<tool_call>", "</tool_call>", "}}"],
    "function": ["<function=", "</function>", "}"], "mistral": ["[TOOL_CALLS]", "]", "}]"], "python": "()=",
    "call": ["CALL", "}"], "fenced": ["```"], "yaml": ["args:"],
}  # fmt: skip
"""The delimiters of each syntax that is read without a chat template."""
NO_END = {"yaml"}  # nothing shows that a call in it is truncated


def delimiters(form: Any) -> list[str]:
    """Return what surrounds calls and values in a format, without what a value may have by chance."""
    parts = [form.begin, form.end, form.separator or "", *form.head, *form.tail]
    elements = form.arguments
    if isinstance(elements, ElementArguments):
        parts += [elements.begin, elements.end, elements.before_key]
        values = [one for kind in ("string", "number", "array") for one in elements.forms.of(kind)]
        parts += [
            part for one in values for side in (one.before, one.after) if len(side) == 1 for part in side
        ]
    stripped = [part.strip() for part in parts if isinstance(part, str)]
    return list(dict.fromkeys(part for part in stripped if len(part) > 1))


def writers() -> list[tuple[str, Any, Any, list[str]]]:
    """Return each format and syntax: its name, its format if it has one, its writer, its delimiters."""
    found: list[tuple[str, Any, Any, list[str]]] = [
        (family.name, family.form, family.write, delimiters(family.form))
        for family in (*FAMILIES, *ELEMENT_FAMILIES)
    ]
    for syntax in CALL_SYNTAXES:

        def write(calls: Any, name: Any = syntax.name) -> str:
            return render_tool_calls([ToolCall("call_1", called, made) for called, made in calls], name)

        found.append((syntax.name, None, write, list(SYNTAXES[syntax.name])))
    return found


def damaged(kind: str, text: str, marks: list[str], data: st.DataObject) -> str:
    """Return a written call with one damage to what is around its values."""
    if kind == "truncated":
        return text[: data.draw(st.integers(0, len(text)))]
    if kind == "raw line breaks":
        return re.sub(r"(?<!\\)((?:\\\\)*)\\n", r"\1" + "\n", text)
    if kind not in ("doubled", "dropped"):
        return text
    inside = [mark for mark in marks if mark in text]
    assume(inside)
    mark = data.draw(st.sampled_from(inside))
    at = data.draw(st.sampled_from([found.start() for found in re.finditer(re.escape(mark), text)]))
    again = mark + data.draw(st.sampled_from(["", " ", "\n"])) + mark if kind == "doubled" else ""
    return text[:at] + again + text[at + len(mark) :]


JSON_SYNTAXES = ("tool_calls", "bare", "openai", "tagged", "mistral", "call")
QUOTED = re.compile(r'"((?:\\.|[^"\\])*)"')


@given(st.sampled_from(JSON_SYNTAXES), arguments)
def test_curly_quotes_are_quotes(syntax: Any, made: dict[str, Any]) -> None:
    text = QUOTED.sub(r"“\1”", render_tool_calls([ToolCall("call_1", "write_file", made)], syntax))
    result = parse_tool_calls(text, TOOLS)
    assert isinstance(result, ToolCalls)
    assert [call.arguments for call in result.calls] == [made], text


@given(arguments)
def test_the_quotes_of_arguments_may_be_curly_or_escaped(made: dict[str, Any]) -> None:
    written = json.dumps(made)
    for damaged_one in (QUOTED.sub(r"“\1”", written), json.dumps(written)[1:-1]):
        for text in ('<tool_call>{"name": "write_file", "arguments": %s}', "[TOOL_CALLS]write_file[ARGS]%s"):
            result = parse_tool_calls(text % damaged_one, TOOLS)
            assert isinstance(result, ToolCalls)
            assert [call.arguments for call in result.calls] == [made], damaged_one


@given(
    st.sampled_from(writers()),
    arguments,
    st.sampled_from(
        ["none", "doubled", "dropped", "truncated", "raw line breaks", "call inside", "part inside"]
    ),
    st.data(),
)
def test_a_damaged_call_is_what_was_meant_or_refused(
    writer: tuple[str, Any, Any, list[str]], made: dict[str, Any], kind: str, data: st.DataObject
) -> None:
    name, form, write, marks = writer
    assume(name not in NO_END or kind not in ("truncated", "raw line breaks"))
    if kind.endswith("inside"):
        inner = write([("bash", {"command": "rm"})])
        if kind == "part inside":
            at = data.draw(st.integers(0, len(inner)))
            inner = data.draw(st.sampled_from([inner[:at], inner[at:], *marks]))
            assume(name != "nested tags" or "/" not in inner)  # ends with the name of another element
        made = made | {"content": data.draw(texts) + inner + data.draw(texts)}
    elif any(mark in value for value in made.values() if isinstance(value, str) for mark in marks):
        kind = "none"  # which of them are delimiters is not known
    text = damaged(kind, write([("write_file", made)]), marks, data)
    results = [parse_tool_calls(text, TOOLS)]
    if form is not None:
        results.append(form.parse(text, TOOLS, truncated=kind == "truncated"))
    for result in results:
        if not isinstance(result, ToolCalls) or any("no end tag" in note.detail for note in result.repairs):
            continue  # a text, or a call with a note on the end that is missing
        read = [(call.name, call.arguments) for call in result.calls if not call.truncated]
        assert read in ([], [("write_file", made)]), (name, kind, text)
    stream = CallStream(TOOLS)
    for char in text[:200]:
        stream.feed(char)
    if len(text) <= 200:
        assert stream.close() == results[0]
