"""Calls that models write as JSON in a text, in spite of their chat template."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_templates import templates_with_calls, tool_format
from gbnf import Grammar, Tool
from gbnf.calls import FinalAnswer, ToolCalls
from gbnf.tool_formats import CallStarted, JsonArguments, TextDelta, ToolFormat
from support.effort import scaled
from support.oracle import engine
from support.text_calls import SPELLINGS, WRAPPERS, spelled
from support.tool_formats import FAMILIES, Family

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city"],
}
TOOLS = (Tool("weather", args=WEATHER), Tool("get_now", args={"type": "object", "properties": {}}))
WEATHER_ARGUMENTS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"city": st.text(max_size=8)}, optional={"days": st.integers(1, 9)}
)
CALLS: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("weather"), WEATHER_ARGUMENTS), st.just(("get_now", {}))
)
SPELLED, WRAPPED = st.sampled_from(sorted(SPELLINGS)), st.sampled_from(sorted(WRAPPERS))
#: The calls of these begin like a bare object; a text has no others.
OBJECTS = [family for family in FAMILIES if family.form.marker.startswith("{")]
QUOTED = [
    family
    for family in FAMILIES
    if isinstance(family.form.arguments, JsonArguments) and family.form.arguments.quoted
]
OTHERS = [family for family in FAMILIES if family not in (*OBJECTS, *QUOTED)]


def complete(grammar: Grammar, text: str) -> bool:
    return engine().match(grammar, text).complete


def framed(form: ToolFormat, text: str) -> str:
    return form.text.begin + text + form.text.end


def made(form: ToolFormat, text: str, cuts: list[int]) -> list[tuple[str, Any]]:
    """Return the calls of an answer: the same in any division, and no character of them is text."""
    parsed = form.parse(text, TOOLS)
    stream = form.stream(TOOLS)
    bounds = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    deltas = [delta for begin, end in pairwise(bounds) for delta in stream.feed(text[begin:end])]
    deltas += stream.close()
    assert not [delta for delta in deltas if isinstance(delta, TextDelta)], text
    assert isinstance(parsed, ToolCalls)
    assert not parsed.invalid
    assert not parsed.content
    names = [delta.name for delta in deltas if isinstance(delta, CallStarted)]
    assert names == [call.name for call in parsed.calls]
    return [(call.name, call.arguments) for call in parsed.calls if not call.truncated]


@settings(max_examples=scaled(60))
@given(
    st.sampled_from(OTHERS),
    st.lists(CALLS, min_size=1, max_size=3),
    SPELLED,
    WRAPPED,
    st.lists(st.integers(0)),
)
def test_calls_in_a_text_are_calls_under_the_grammar(
    family: Family, calls: list[tuple[str, Any]], spelling: str, wrapper: str, cuts: list[int]
) -> None:
    text = framed(family.form, spelled(calls, spelling, wrapper))
    several = len(calls) > 1
    grammar = family.form.grammar(TOOLS, parallel=several)
    assert complete(grammar, text)
    assert several == (not complete(family.form.grammar(TOOLS), text))
    assert made(family.form, text, cuts) == calls


@settings(max_examples=scaled(60))
@given(
    st.sampled_from(OTHERS), SPELLED, WRAPPED,
    st.sampled_from([{"city": 1}, {}, {"city": "Rome", "days": 0}, {"city": "Rome", "x": 1}, "Rome", None]),
)  # fmt: skip
def test_the_grammar_has_no_other_arguments(
    family: Family, spelling: str, wrapper: str, arguments: Any
) -> None:
    text = spelled([("weather", arguments)], spelling, wrapper)
    assert not complete(family.form.grammar(TOOLS), framed(family.form, text))


def test_formats_whose_arguments_are_quoted_have_no_call_in_a_text() -> None:
    assert QUOTED
    for family in QUOTED:
        for spelling in SPELLINGS:
            text = framed(family.form, spelled([("get_now", {})], spelling, "alone"))
            assert not complete(family.form.grammar(TOOLS), text)


DATA = [
    {"name": "Marta", "age": 3}, {"name": "Marta", "arguments": {"city": "Rome"}}, {"city": "Rome"}, [1, 2],
    [{"name": "Rome", "days": 2}], {"weather": "sunny"}, {"name": "weathered", "parameters": {}},
]  # fmt: skip
#: Texts with JSON or code that are no calls, as answers to questions about programs and tools have them.
TEXTS = [
    *(json.dumps(value) for value in DATA),
    *(f"```json\n{json.dumps(value, indent=2)}\n```" for value in DATA),
    'Here is the file:\n```json\n{"name": "demo", "version": "1.0"}\n```\nSave it as package.json.',
    "```python\nprint('weather')\n```", "```\nls -l\n```", "The tool weather takes a city.",
    'Call it like this:\n```json\n{"name": "weather", "arguments": {"city": "Rome"}}\n```\nand read on.',
    '`{"name": "weather", "arguments": {}}` is how a call looks.', "{", "```json", "[", "{{", '{"name": "',
    '> {"name": "weather", "arguments": {"city": "Rome"}}\n\nYou wrote this.',
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_other_texts_stay_texts(text: str) -> None:
    for family in OTHERS[::3]:
        answer = framed(family.form, text)
        parsed = family.form.parse(answer, TOOLS)
        assert isinstance(parsed, FinalAnswer), family
        assert parsed.content.strip() == text
        if text.endswith('{"name": "'):  # which may become a call
            continue
        assert complete(family.form.grammar(TOOLS), answer), family


@settings(max_examples=scaled(40))
@given(
    st.sampled_from(FAMILIES), CALLS, SPELLED, st.sampled_from(["I will look.\n\n", "Sure:\n", "1. First\n"])
)
def test_a_call_after_a_text_is_a_call(
    family: Family, call: tuple[str, Any], spelling: str, before: str
) -> None:
    text = before + spelled([call], spelling, "block")
    parsed = family.form.parse(framed(family.form, text), TOOLS)
    assert isinstance(parsed, ToolCalls)
    assert [(each.name, each.arguments) for each in parsed.calls] == [call]


PROSE = st.text("ab.\n ", min_size=1, max_size=40).map(lambda text: f"{text}\n")


@settings(max_examples=scaled(60))
@given(st.sampled_from(FAMILIES), CALLS, SPELLED, PROSE, PROSE, st.lists(st.integers(0)), st.booleans())
def test_a_call_between_prose_is_one_if_that_is_requested(
    family: Family,
    call: tuple[str, Any],
    spelling: str,
    before: str,
    after: str,
    cuts: list[int],
    in_prose: bool,
) -> None:
    written = before + spelled([call], spelling, "block") + "\n" + after
    text = framed(family.form, written)
    stream = family.form.stream(TOOLS, in_prose=in_prose)
    bounds = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    deltas = [delta for begin, end in pairwise(bounds) for delta in stream.feed(text[begin:end])]
    deltas += stream.close()
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    names = [delta.name for delta in deltas if isinstance(delta, CallStarted)]
    is_call = in_prose or not (before.strip() and after.strip())
    assert names == [call[0]] * is_call
    assert said.split() == ((before + " " + after) if is_call else written).split()


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "weather", "arguments": {"city": "Ro',
        '```json\n{"name": "weather", "arguments": {"city": "Rome"',
    ],
)
def test_a_truncated_call_is_no_text_and_has_no_end(text: str) -> None:
    for family in OTHERS[::3]:
        parsed = family.form.parse(
            framed(family.form, text).removesuffix(family.form.text.end), TOOLS, truncated=True
        )
        assert isinstance(parsed, ToolCalls)
        assert [call.truncated for call in parsed.calls] == [True]
        assert not parsed.content


ROME = {"city": "Rome"}
OTHER_KEYS = [
    {"id": "1", "name": "weather", "arguments": ROME},
    {"arguments": ROME, "name": "weather"},
    {"thought": "It is asked for.", "name": "weather", "arguments": ROME},
    {"action": "weather", "action_input": ROME},
    {"tool_name": "weather", "tool_args": ROME},
    {"tool": "weather", "tool_input": ROME},
    {"id": "1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ROME)}},
    {"tool_calls": [{"name": "weather", "arguments": ROME}]},
]


# Functionary, gpt-oss, and others announce a text, in which calls in another syntax are examples
@pytest.mark.parametrize("name", templates_with_calls())
def test_in_every_format_an_object_may_begin_with_any_key(name: str) -> None:
    form = tool_format(name)
    for value in OTHER_KEYS:
        for text in (json.dumps(value), f"```json\n{json.dumps(value, indent=2)}\n```"):
            assert made(form, framed(form, text), [5, 9]) == [("weather", ROME)], text


@pytest.mark.parametrize("name", templates_with_calls())
def test_in_every_format_an_object_without_a_tool_stays_text(name: str) -> None:
    form = tool_format(name)
    for value in ({"arguments": ROME, "name": "Marta"}, {"id": "1", "city": "weather"}, {"days": 1}):
        text = json.dumps(value) + "\n`weather` takes a city."
        assert isinstance(parsed := form.parse(framed(form, text), TOOLS), FinalAnswer)
        assert parsed.content.strip() == text
    if form.text.begin.strip():
        call = json.dumps({"name": "weather", "arguments": ROME})
        example = f'{{"days": 1}}\n<tool_call>{call}</tool_call>'
        assert isinstance(form.parse(framed(form, example), TOOLS), FinalAnswer)


@pytest.mark.slow
@pytest.mark.parametrize("name", templates_with_calls())
def test_no_template_takes_a_call_for_a_text(name: str) -> None:
    form = tool_format(name)
    grammar = form.grammar(TOOLS)
    for spelling in SPELLINGS:
        for wrapper in WRAPPERS:
            text = framed(form, spelled([("weather", {"city": "Rome"})], spelling, wrapper))
            parsed = form.parse(text, TOOLS)
            is_call = isinstance(parsed, ToolCalls) and [call.arguments for call in parsed.calls] == [
                {"city": "Rome"}
            ]
            assert is_call, text
            assert complete(grammar, text) or form.marker.startswith("{"), text
