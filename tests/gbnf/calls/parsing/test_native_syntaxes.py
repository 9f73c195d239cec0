"""Calls in the syntax of every chat template, read without knowing the template."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chat_templates import templates_with_calls, tool_format
from gbnf.calls import CallStream, FinalAnswer, ToolCall, ToolCalls, parse_tool_calls
from support.effort import scaled
from support.pools import tool

STRING = {"type": "string"}
TOOLS = (
    tool("git_status"),
    tool("write_file", path=STRING, content=STRING),
    tool(
        "find_files2",
        query=STRING,
        limit={"type": "integer"},
        exact={"type": "boolean"},
        ratio={"type": "number"},
        tags={"type": "array", "items": STRING},
        options={"type": "object", "properties": {"unit": STRING, "sizes": {"type": "array"}}},
        cursor={"type": ["string", "null"]},
    ),
)
#: What a string must not contain in a template's calls, since the text has two meanings.
AMBIGUOUS = {
    "ByteDance-Seed-OSS": r"^\n|\n$",  # other models write a line break around each value of this syntax
    "LFM2.5-8B-A1B": r"['\\]",  # in a Python string, without escapes
}
PIECES = (
    "a", "5", "true", "None", " ", "\n", '"', "{", "}", "[", "]", "(", ")", ",", ":", "=", "\\", "é", "<b>",
    "x > y", "```", "//", "#", "- a", "to=", "🙂", "name",
)  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
calls: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.just(("git_status", {})),
    st.tuples(st.just("write_file"), st.fixed_dictionaries({"path": texts, "content": texts})),
    st.tuples(
        st.just("find_files2"),
        st.fixed_dictionaries(
            {"query": texts},
            optional={
                "limit": st.integers(-9, 99),
                "exact": st.booleans(),
                "ratio": st.sampled_from([0.5, -2, 1e30]),
                "tags": st.lists(texts, max_size=3),
                "options": st.fixed_dictionaries(
                    {}, optional={"unit": texts, "sizes": st.lists(st.integers(0, 9), max_size=2)}
                ),
                "cursor": st.none() | st.just("c1"),
            },
        ),
    ),
)


def strings(value: Any) -> list[str]:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for member in members for text in strings(member)]


def complete(result: ToolCalls | FinalAnswer) -> list[tuple[str, Any]]:
    if isinstance(result, FinalAnswer) or result.invalid:
        return []
    return [(call.name, call.arguments) for call in result.calls if not call.truncated]


@pytest.mark.parametrize("name", templates_with_calls())
@settings(max_examples=scaled(20))
@given(made=st.lists(calls, min_size=1, max_size=3), size=st.integers(1, 40))
def test_calls_that_a_template_writes_are_read_without_it(
    name: str, made: list[tuple[str, Any]], size: int
) -> None:
    form = tool_format(name)
    made = made if form.separator is not None else made[:1]
    text = form.render([ToolCall(f"call0000{at}", called, given) for at, (called, given) in enumerate(made)])
    ambiguous = re.compile(AMBIGUOUS.get(name, "(?!)"))
    assume(not any(ambiguous.search(value) for _, given in made for value in strings(given)))
    assume(complete(form.parse(text, TOOLS)) == made)  # some templates write other values
    result = parse_tool_calls(text, TOOLS)
    assert complete(result) == made, text
    stream = CallStream(TOOLS)
    shown = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert stream.close() == result
    assert not any(called in shown for called, _ in made)


def _file(content: str) -> str:
    return (
        f"<tool_call>\n<function=write_file>\n<parameter=content>\n{content}\n</parameter>\n"
        "</function>\n</tool_call>"
    )


@pytest.mark.parametrize(
    ("text", "made"),
    [
        # a call inside a value is part of it
        (_file(f"So:\n{_file('rm')}\nend"), ("write_file", {"content": f"So:\n{_file('rm')}\nend"})),
        # an end tag counts where an end may be
        (
            '<invoke name="write_file"><parameter name="content">a </parameter> b</parameter></invoke>',
            ("write_file", {"content": "a </parameter> b"}),
        ),
        # ends that are missing
        (
            '<invoke name="write_file"><parameter name="path">a\n<parameter name="content">b</invoke>',
            ("write_file", {"path": "a", "content": "b"}),
        ),
        ("<|tool_call_begin|>functions.git_status:0<|tool_call_argument_begin|>{}", ("git_status", {})),
        ("to=functions.git_status<|channel|>commentary json<|message|>{}", ("git_status", {})),
        ("<|channel|>commentary to=git_status<|constrain|>json<|message|>{}<|call|>", ("git_status", {})),
        # values of other types than the schema's first
        (
            '<|tool_call>call:find_files2{tags:["a",\'b\'],-n:true,options:{unit:<|"|>}<|"|>}}<tool_call|>',
            ("find_files2", {"tags": ["a", "b"], "-n": True, "options": {"unit": "}"}}),
        ),
        (
            "<tool_call>find_files2<arg_key>tags</arg_key><arg_value>['a']</arg_value></tool_call>",
            ("find_files2", {"tags": ["a"]}),
        ),
        (
            "<tool_call>find_files2<arg_key>cursor</arg_key><arg_value>None</arg_value></tool_call>",
            ("find_files2", {"cursor": None}),
        ),
        # JSON strings keep what looks like other syntaxes
        (
            '<｜tool▁call▁begin｜>write_file<｜tool▁sep｜>{"content": "call:x{a:<|\\"|>b<|\\"|>}"}',
            ("write_file", {"content": 'call:x{a:<|"|>b<|"|>}'}),
        ),
        # line breaks in Python strings
        (
            "<|tool_call_start|>[write_file(path=\"a\", content='x\ny\\nz')]<|tool_call_end|>",
            ("write_file", {"path": "a", "content": "x\ny\nz"}),
        ),
        ('write_file\n{"path": "a"}', ("write_file", {"path": "a"})),
        # tags of other models
        ("<|python_tag|>write_file.call(path='a')", ("write_file", {"path": "a"})),
        ("<|python_start|>[write_file(path='a')]<|python_end|>", ("write_file", {"path": "a"})),
        ('<|python_tag|>{"name": "git_status", "parameters": {}}', ("git_status", {})),
        ("<function_calls>\ngit_status()\n</function_calls>", ("git_status", {})),
        (
            "<start_function_call>call:write_file{path:<escape>{a}<escape>}<end_function_call>",
            ("write_file", {"path": "{a}"}),
        ),
        (
            '<tool_calls><tool_call>write_file\n```json\n{"path": "a"}\n```\n</tool_call></tool_calls>',
            ("write_file", {"path": "a"}),
        ),
    ],
)
def test_calls_that_models_write_otherwise(text: str, made: tuple[str, Any]) -> None:
    assert complete(parse_tool_calls(text, TOOLS)) == [made]


_PAIR = "<tool_call>write_file\n<arg_key>content</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"
_PARAMETER = '<invoke name="write_file">\n<parameter name="content">{}</parameter>\n</invoke>'
_XML = "<config>\n<parameter>foo</parameter>\n</config>"


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (_PAIR, 'print("</parameter>")'),
        (_PAIR, "`</parameter>`"),
        (_PAIR, "// closes </parameter>\nfoo();"),
        (_PAIR, _XML),
        (_PARAMETER, _XML),
        (_PARAMETER, "<arg_key>k</arg_key>"),
        (_PARAMETER, 'print("</arg_value>")'),
        ("<function=write_file>\n<parameter=content>\n{}\n</parameter>\n</function>", _XML),
    ],
)
def test_tags_of_other_formats_are_part_of_a_text(call: str, value: str) -> None:
    assert complete(parse_tool_calls(call.format(value), TOOLS)) == [("write_file", {"content": value})]


@pytest.mark.parametrize("call", [_PAIR, _PARAMETER, _file("{}")])
@pytest.mark.parametrize(
    "value", ["x > y\n</function></parameter>", "a</invoke> <parameter>\n</parameter>\n"]
)
def test_a_text_with_ends_before_its_own_is_whole_or_refused(call: str, value: str) -> None:
    made = complete(parse_tool_calls(call.format(value), TOOLS))
    assert made in ([], [("write_file", {"content": value})])


_PARTS = ["<![CDATA[", "]]>", "a", " ", "\n", "x"]


@given(
    st.lists(st.sampled_from(_PARTS), min_size=1, max_size=6).map("".join),
    st.sampled_from([_PAIR, _PARAMETER]),
)
def test_cdata_is_part_of_a_text(value: str, call: str) -> None:
    assert complete(parse_tool_calls(call.format(value), TOOLS)) == [("write_file", {"content": value})]


@given(st.lists(st.sampled_from(_PARTS), max_size=6).map("".join))
def test_a_template_with_cdata_writes_one_around_the_value(value: str) -> None:
    call = f'<function name="write_file"><param name="content"><![CDATA[{value}]]></param></function>'
    made = complete(parse_tool_calls(call, TOOLS))
    assert made == ([] if "]]>" in f"{value}]]>"[:-1] else [("write_file", {"content": value})])


@pytest.mark.parametrize("between", ["", "\n", ","])
@pytest.mark.parametrize(
    "call",
    [
        "<tool_call>git_status()</tool_call>",
        "<tool_call>git_status</tool_call>",
        "<tool_call>git_status\n```json\n{}\n```\n</tool_call>",
        "<|tool_call>call:git_status{}<tool_call|>",
        '<tool_call><invoke name="git_status"></invoke></tool_call>',
        "[TOOL_CALLS]git_status[ARGS]{}",
    ],
)
def test_several_calls_are_all_read(call: str, between: str) -> None:
    assert complete(parse_tool_calls(between.join([call] * 3), TOOLS)) == [("git_status", {})] * 3


@pytest.mark.parametrize(
    "text",
    [
        "<|tool_call_begin|>functions.other:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        '<invoke name="other"><parameter name="a">1</parameter></invoke>',
        "<tool_call>other<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
        "<|channel|>commentary to=functions.other <|constrain|>json<|message|>{}<|call|>",
        "[TOOL_CALLS]other[ARGS]{}",
    ],
)
def test_a_call_of_another_tool_is_invalid(text: str) -> None:
    result = parse_tool_calls(text, TOOLS)
    assert isinstance(result, ToolCalls)
    assert [call.name for call in result.invalid] == ["other"]
    assert not result.calls


@pytest.mark.parametrize(
    "text",
    [
        "Wrap it in <tool_call>name</tool_call> tags.",
        "The tag <invoke> has a name, and <parameter> a value.",
        "Send it to=all {now} or to=git_status.",
        '{"git_status": {"branch": "main"}}',
        '[{"find_files2": {"query": "a"}}]',
        "`<tool_call>git_status</tool_call>` asks for the status.",
        '```xml\n<ol>\n<invoke name="git_status"></invoke>\n</ol>\n```',
        ">>> git_status\n{}",
        "other\n{}",
        "The answer:\ngit_status\n{}",
        "<tool> x {y}",
        "> <|tool_call>call:git_status{}<tool_call|>",
        "<|channel|>final<|message|>It is git_status {}.",
        'A { b: <|"|> c }',
    ],
)
def test_texts_about_calls_stay_as_they_are(text: str) -> None:
    assert parse_tool_calls(text, TOOLS) == FinalAnswer(text)
    stream = CallStream(TOOLS)
    for char in text:
        stream.feed(char)
    assert stream.close() == FinalAnswer(text)


@pytest.mark.parametrize("name", templates_with_calls())
def test_no_beginning_of_a_call_is_a_complete_call(name: str) -> None:
    form = tool_format(name)
    given = {"query": "three words here", "tags": ["a b", "c"]}
    text = form.render([ToolCall("call00001", "find_files2", given)])
    for end in range(len(text)):
        for called, arguments in complete(parse_tool_calls(text[:end], TOOLS)):
            assert (called, arguments) == ("find_files2", given), text[:end]
