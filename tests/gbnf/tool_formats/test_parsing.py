"""Answers of each family, parsed: against the family's own writer and the grammar's own texts."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf.calls.parsing.results import FinalAnswer, ToolCalls
from gbnf.compiler.notations import Placeholder
from gbnf.errors import GrammarError
from gbnf.tool_formats import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    ElementArguments,
    ReasoningDelta,
    TextDelta,
    ToolFormat,
)
from gbnf.tool_formats.format import FormatFields
from gbnf.tools import Tool
from support.effort import scaled
from support.element_formats import CLOSED, ELEMENT_FAMILIES, VALUES, ElementFamily
from support.notations import NOTATIONS, forms
from support.oracle import engine
from support.random_texts import generate
from support.text_calls import calls_of
from support.tool_formats import FAMILIES, NAME, RECIPIENTS, SIGNS, TAGS, Family, made_form

NOTE = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 30},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "count": {"type": "integer"},
        "done": {"type": ["boolean", "null"]},
        "meta": {"type": "object", "properties": {"at": {"type": "number"}, "by": {"type": "string"}}},
    },
    "additionalProperties": False,
}
TOOLS = tuple(Tool(name, args=NOTE) for name in ("note", "get_note", "note_all"))
NAMES = [tool.name for tool in TOOLS]

strings = st.lists(st.sampled_from(SIGNS) | st.characters(exclude_categories=["Cs"]), max_size=6).map("".join)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "text": strings,
        "tags": st.lists(strings, max_size=3),
        "count": st.integers(-99, 99),
        "done": st.sampled_from([True, False, None]),
        "meta": st.fixed_dictionaries({}, optional={"at": st.integers(-9, 9) | st.just(0.5), "by": strings}),
    },
)
calls = st.tuples(st.sampled_from(NAMES), arguments)
families = st.sampled_from(FAMILIES)
ALL_FAMILIES = (*FAMILIES, *ELEMENT_FAMILIES)


def joined(deltas: list[Delta]) -> tuple[str, str, list[Any]]:
    """Return the text, the reasoning and the calls that deltas amount to."""
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    made: list[Any] = []
    for delta in deltas:
        match delta:
            case CallStarted(index, identifier, name):
                assert index == len(made)
                made.append([identifier, name, "", False])
            case ArgumentsDelta(index, piece):
                assert index == len(made) - 1
                assert not made[-1][3]
                made[-1][2] += piece
            case CallEnded(index):
                assert index == len(made) - 1
                made[-1][3] = True
    return text, reasoning, made


def streamed(form: Any, chunks: list[str], *, reasoning: bool = False) -> tuple[str, str, list[Any]]:
    stream = form.stream(TOOLS, reasoning=reasoning)
    return joined([delta for chunk in chunks for delta in stream.feed(chunk)] + stream.close())


def divided(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


def literals(form: FormatFields) -> list[str]:
    """Return the texts of which answers in a format are made."""
    found = [form.begin, form.end, form.marker, form.text.begin, form.text.end, *form.end_of_turn]
    found += [form.separator or "", form.text.before_calls or ""]
    found += [form.reasoning.begin, form.reasoning.end] if form.reasoning else []
    for part in (*form.head, *(part for head in form.other_heads for part in head), *form.tail):
        found.append(
            "note"
            if isinstance(part, Placeholder) and part.kind == "name"
            else str(part) * (not isinstance(part, Placeholder))
        )
    return [each for each in found if each]


def answers(family: Any) -> Any:
    """Texts that look like answers of a family: its calls, its literals, and others, in any order."""
    pieces = st.sampled_from([*literals(family.form), *SIGNS, " ", "{", '{"text": "a', "5", "note", "0"])
    most = 1 if family.form.separator is None else 2
    written = st.lists(calls, min_size=1, max_size=most).map(family.write)
    return st.lists(pieces | written, max_size=8).map("".join)


@given(
    st.sampled_from(ALL_FAMILIES).flatmap(lambda family: st.tuples(st.just(family), answers(family))),
    st.lists(st.integers(0), max_size=8),
    st.booleans(),
)
def test_division_into_chunks_changes_nothing(
    made: tuple[Any, str], cuts: list[int], reasoning: bool
) -> None:
    family, text = made
    whole = streamed(family.form, [text], reasoning=reasoning)
    assert streamed(family.form, divided(text, cuts), reasoning=reasoning) == whole
    assert streamed(family.form, list(text), reasoning=reasoning) == whole


@given(
    st.sampled_from(ALL_FAMILIES).flatmap(lambda family: st.tuples(st.just(family), answers(family))),
    st.booleans(),
)
def test_an_answer_is_what_its_stream_says(made: tuple[Any, str], truncated: bool) -> None:
    family, text = made
    parsed = family.form.parse(text, TOOLS, truncated=truncated)
    stream = family.form.stream(TOOLS)
    said, thought, written = joined([*stream.feed(text), *stream.close(truncated=truncated)])
    assert parsed.reasoning == thought
    if isinstance(parsed, FinalAnswer):
        assert not written
        assert parsed.content == said
        return
    assert parsed.syntax == "native"
    assert parsed.content == said.strip()
    assert len(parsed.calls) + len(parsed.invalid) == len(written)
    ended = [call for call in written if call[3]]
    for call in parsed.calls:
        same = [each for each in written if each[:2] == [call.id, call.name]]
        assert call.truncated or any(each in ended for each in same)


@given(families, st.lists(calls, min_size=1, max_size=3), st.sampled_from(["", "Hello.", "a\nb"]))
def test_written_calls_are_read(family: Family, made: list[Any], before: str) -> None:
    made = made if family.has_parallel_calls else made[:1]
    form = family.form
    text = family.write(made)
    if before and form.text.before_calls is not None:
        text = form.text.begin + before + form.text.before_calls + text
    else:
        before = ""
    parsed = form.parse(text, TOOLS)
    assert isinstance(parsed, ToolCalls)
    assert [(call.name, call.arguments, call.truncated) for call in parsed.calls] == [
        (name, given, False) for name, given in made
    ]
    assert parsed.content == before
    assert not parsed.invalid
    assert not parsed.repairs


@settings(max_examples=scaled(50))
@given(families, st.integers(0, 2**32), st.sampled_from(["auto", "required", "none"]), st.booleans())
def test_the_texts_of_the_grammar_are_read(family: Family, seed: int, choice: str, reasoning: bool) -> None:
    form = family.form
    reasoning = reasoning and form.reasoning is not None
    grammar = form.grammar(TOOLS, tool_choice=choice, parallel=True, reasoning=reasoning)
    text = generate(grammar.rules, random.Random(seed))
    parsed = form.parse(text, TOOLS, reasoning=reasoning)
    answer = text
    if reasoning and form.reasoning is not None and form.reasoning.end.strip() in text:
        thought, _, answer = text.partition(form.reasoning.end.strip())
        assert parsed.reasoning == thought.replace(form.reasoning.begin.strip(), "", 1).strip()
    in_text = answer.strip().removeprefix(form.text.begin.strip()).removesuffix(form.text.end.strip())
    calls_in_text = calls_of(in_text) if choice == "auto" else []
    if any(name not in {tool.name for tool in TOOLS} for name, _ in calls_in_text):
        calls_in_text = []
    before, made = ("", calls_in_text) if calls_in_text else family.split(answer, ("text",))
    written = parsed.calls if isinstance(parsed, ToolCalls) else ()
    assert [(call.name, call.arguments, call.truncated) for call in written] == [
        (name, given, False) for name, given in made
    ]
    said = before.strip().removeprefix(form.text.begin.strip())
    said = said.removesuffix((form.text.before_calls or "").strip() if made else "").rstrip()
    assert parsed.content.strip() == said.removesuffix(form.text.end.strip()).strip()


def pieces_of_calls(family: Any) -> Any:
    """Texts of pieces of calls: whole literals, beginnings and ends of them, other whitespace in them."""
    found = [*literals(family.form), *family.write([("note", {"text": "a"})]).split()]
    found += ["".join(each.split()) for each in found] + [" ".join(each.split()) for each in found]
    found += [each[at:] for each in found for at in (1, len(each) // 2)]
    found += [each[: len(each) // 2] for each in found]
    pieces = st.sampled_from([each for each in dict.fromkeys(found) if each])
    return st.lists(pieces | st.sampled_from(["note", " ", "\n", "a", '"', ">", "{"]), max_size=6).map(
        "".join
    )


@settings(max_examples=scaled(50))
@given(
    st.sampled_from(ALL_FAMILIES).flatmap(lambda family: st.tuples(st.just(family), pieces_of_calls(family)))
)
def test_no_text_of_the_grammar_is_read_as_a_call(made: tuple[Any, str]) -> None:
    family, text = made
    form = family.form
    try:
        grammar = form.grammar(TOOLS, tool_choice="none")
    except GrammarError:
        return
    assume(engine().match(grammar, form.text.begin + text + form.text.end).complete)
    found = form.parse(form.text.begin + text + form.text.end, ())  # as where no tool may be called
    assert isinstance(found, FinalAnswer)
    assert found.content.strip() == text.strip()


#: Beginnings of elements, which have no end unless one comes by chance.
OPENERS = (
    "<parameter=", "<parameter=x>", "<parameter=count>", "<parameter>", "<arg_key>x</arg_key><arg_value>",
    "<arg_value>", '<｜DSML｜parameter name="x" string="true">', "]<]m[>[<x>",
)  # fmt: skip
_words = st.lists(st.sampled_from([*SIGNS, *OPENERS, "</parameter>", "'", "a", "5", " "]), max_size=4).map(
    "".join
)
_elements = st.fixed_dictionaries(
    {},
    optional={
        "text": _words,
        "count": st.integers(-99, 99),
        "rate": st.sampled_from([0.5, -1, 1e30]),
        "done": st.booleans(),
        "none": st.none(),
        "list": st.lists(st.sampled_from([5, None, True, "five", "a\nb"]), max_size=3),
        "map": st.fixed_dictionaries({}, optional={"on": _words}),
        "word or number": st.sampled_from([5, "five", "5.5.5"]),
        "word_or_none": st.sampled_from([None, "nothing"]),
        "referred": st.lists(_words, max_size=2),
        "choice": st.sampled_from(["1", "two"]),
    },
)
_element_calls = st.lists(st.tuples(st.just("set"), _elements), min_size=1, max_size=2)


@given(st.sampled_from(ELEMENT_FAMILIES), _element_calls)
def test_written_elements_are_read(family: ElementFamily, made: list[Any]) -> None:
    written = json.dumps(made, ensure_ascii=False)
    assume(not any(json.dumps(end, ensure_ascii=False)[1:-1] in written for end in family.ends))
    parsed = family.form.parse(family.write(made), CLOSED)
    assert isinstance(parsed, ToolCalls)
    assert [(call.name, call.arguments, call.truncated) for call in parsed.calls] == [
        (name, given, False) for name, given in made
    ]
    assert not parsed.content


@pytest.mark.parametrize("family", ELEMENT_FAMILIES[:3], ids=str)
def test_a_beginning_of_a_call_inside_a_text_hides_no_later_call(family: ElementFamily) -> None:
    inner, _, _ = family.write([("set", {"text": "x"})]).partition("x")
    made = [("set", {"text": f"{inner}."}), ("set", {"count": 5}), ("set_all", {"done": True})]
    text = family.write(made)
    parsed = family.form.parse(text, CLOSED)
    assert isinstance(parsed, ToolCalls)
    assert len(parsed.invalid) == 1
    assert [(call.name, call.arguments, call.truncated) for call in parsed.calls] == [
        (name, given, False) for name, given in made[1:]
    ]
    cut = family.form.parse(text, CLOSED, truncated=True)
    assert isinstance(cut, ToolCalls)
    assert all(call.truncated for call in cut.calls)


@given(
    st.sampled_from(ELEMENT_FAMILIES),
    st.lists(st.sampled_from(["set", "set_all", "other"]), min_size=1, max_size=2),
    st.sampled_from(["", "Example:\n"]),
    st.sampled_from(["", "\nend"]),
    st.lists(st.integers(0), max_size=4),
)
def test_a_call_inside_a_text_is_part_of_the_text(
    family: ElementFamily, names: list[str], before: str, after: str, cuts: list[int]
) -> None:
    inner = {"text": "rm", "word or number": "x"}
    given_now = {"text": before + family.write([(name, inner) for name in names]) + after, "count": 5}
    text = family.write([("set", given_now)])
    stream = family.form.stream(CLOSED)
    deltas = [delta for chunk in divided(text, cuts) for delta in stream.feed(chunk)] + stream.close()
    said, _, made = joined(deltas)
    assert [(name, json.loads(written), ended) for _, name, written, ended in made] == [
        ("set", given_now, True)
    ]
    assert not said


@settings(max_examples=scaled(50))
@given(st.sampled_from(ELEMENT_FAMILIES), st.integers(0, 2**32))
def test_the_calls_of_a_grammar_of_elements_are_valid(family: ElementFamily, seed: int) -> None:
    grammar = family.form.grammar(CLOSED, tool_choice="required", parallel=True)
    text = generate(grammar.rules, random.Random(seed), budget=150)
    parsed = family.form.parse(text, CLOSED)
    assert isinstance(parsed, ToolCalls)
    assert not [each for each in parsed.invalid if "occurs twice" not in each.error]  # as the grammar reports
    assert not parsed.truncated
    assert not parsed.content
    for call in parsed.calls:
        jsonschema.Draft202012Validator(CLOSED[0].args).validate(call.arguments)


@given(families, calls, st.integers(1))
def test_what_a_token_limit_cuts_is_no_complete_call(family: Family, made: Any, cut: int) -> None:
    text = family.write([made])
    parsed = family.form.parse(text[: cut % len(text)], TOOLS, truncated=True)
    if isinstance(parsed, ToolCalls):
        assert all(call.truncated or call.arguments == made[1] for call in parsed.calls)


def test_a_call_of_an_unknown_tool_is_invalid_with_the_nearest_name() -> None:
    parsed = TAGS.form.parse(TAGS.write([("notes", {}), ("note", {})]), TOOLS)
    assert isinstance(parsed, ToolCalls)
    assert [(call.name, call.nearest) for call in parsed.invalid] == [("notes", "note")]
    assert [call.id for call in parsed.calls] == ["call_2"]


@pytest.mark.parametrize(("family", "text", "made"), VALUES)
def test_values_in_elements_are_read_by_the_schema(family: Any, text: str, made: Any) -> None:
    parsed = family.form.parse(text, family.tools)
    assert isinstance(parsed, ToolCalls)
    assert [(call.name, json.dumps(call.arguments)) for call in parsed.calls] == [
        (name, json.dumps(given)) for name, given in made
    ]
    assert not parsed.invalid
    assert not parsed.truncated


def test_a_recipient_that_is_no_tool_begins_no_call() -> None:
    assert isinstance(RECIPIENTS.form.parse("Hello\n{}", TOOLS), FinalAnswer)


_HEAD = (NAME, "(")
_PYTHON, _QUOTED = (
    made_form(
        _HEAD, ")", "<calls>", arguments=ElementArguments("", ", ", "", "", values),
        begin="<calls>[", separator=", ", end="]</calls>",
    )
    for values in (forms("=", "", *["python"] * 4), NOTATIONS["LFM2.5"].forms)
)  # fmt: skip


@pytest.mark.parametrize(
    ("form", "written", "value"),
    [
        (_PYTHON, '"a"', "a"),
        (_PYTHON, "'a' 'b'", "ab"),
        (_PYTHON, "'''a\nb'''", "a\nb"),
        (_PYTHON, "ls -la", "ls -la"),
        (_QUOTED, "'a'", "a"),
        (_QUOTED, "''", ""),
        (_QUOTED, "'''a\nb'''", None),
        *[
            (_PYTHON, written, None)
            for written in ('"a" + "b"', 'f"a{x}"', "b'a'", "'a' + x", '"a".upper()', "x.upper()")
        ],
    ],
)
def test_code_is_no_text(form: ToolFormat, written: str, value: str | None) -> None:
    note = Tool("note", args={"type": "object", "properties": {"text": {"type": "string"}}})
    parsed = form.parse(f"<calls>[note(text={written})]</calls>", [note])
    assert isinstance(parsed, ToolCalls)
    assert [call.arguments for call in parsed.calls] == ([] if value is None else [{"text": value}])
    assert len(parsed.invalid) == (value is None)
