"""A text in the tool-call format of a chat template: how far it is accepted, and what may come next."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_templates import chat_templates
from gbnf.calls import ToolCall
from gbnf.tool_formats import ToolFormat, detect
from gbnf_server.backends.model_traits import find_tool_format
from gbnf_server.inspect.grammar_choice import GrammarChoice
from gbnf_server.inspect.grammar_view import view_tool
from gbnf_server.inspect.text_view import TextChecker
from support.effort import one_in, scaled
from support.oracle import engine
from support.pools import BUNDLED
from support.tool_templates import TEMPLATES

ARGUMENTS = {"title": "Lunch", "starts": ["2026-01-01"], "duration_minutes": 30, "location": "Rome"}
NATIVE = [*TEMPLATES, *list(chat_templates())[::3]]  # real ones of each family


@cache
def format_of(name: str) -> ToolFormat | None:
    source = TEMPLATES.get(name) or chat_templates()[name]
    return find_tool_format(source, "<s>", "</s>")


@cache
def checker(name: str) -> TextChecker:
    form = format_of(name)
    if form is None:
        pytest.skip("the template has no tools")
    return TextChecker(BUNDLED, choice=GrammarChoice(tool_format=form))


def answer(name: str, **changed: object) -> str:
    form = format_of(name)
    if form is None:
        pytest.skip("the template has no tools")
    return form.render([ToolCall("abcdefghi", "create_events", ARGUMENTS | changed)])


@pytest.mark.parametrize("name", one_in(16, NATIVE))
def test_a_rendered_call_is_accepted_and_read(name: str) -> None:
    view = checker(name).view(answer(name))
    assert view.is_complete
    assert view.judgement.validation == ()
    assert view.judgement.calls[0].startswith("a call of create_events with {")


@pytest.mark.parametrize("name", one_in(16, NATIVE))
@settings(max_examples=scaled(10))
@given(st.floats(0, 1), st.sampled_from(["", "!", '"', "}", "0", "<"]))
def test_what_is_offered_is_accepted(name: str, part: float, more: str) -> None:
    text = answer(name)
    begun = text[: int(part * len(text))] + more
    view = checker(name).view(begun)
    assert view.following
    grammar = checker(name).grammar
    found = engine().match(grammar, begun)
    assert (found.position, found.complete) == (len(view.accepted), view.is_complete)
    offered = [view.accepted + option.text for option in view.options]
    assert all(option.text and option.words for option in view.options)
    assert all(found.accepted for found in engine().match_many(grammar, offered))


@pytest.mark.parametrize("name", one_in(16, NATIVE))
def test_a_wrong_argument_is_refused_in_the_words_of_the_schema(name: str) -> None:
    view = checker(name).view(answer(name, duration_minutes=3))
    assert view.refused
    if not _is_json(name):
        return
    assert "a number at /arguments/duration_minutes (integer, ≥ 5, ≤ 1440)" in view.problem
    assert view.judgement.validation
    assert "must be at least 5" in view.judgement.validation[0]


def _is_json(name: str) -> bool:
    form = format_of(name)
    assert form is not None
    return not getattr(form.arguments, "quoted", True)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_calls_of_all_tools_are_offered_first(name: str) -> None:
    view = checker(name).view("")
    assert {option.words for option in view.options} == {f"a call of {tool.name}" for tool in BUNDLED}
    assert view.following.startswith("text or a call of ")
    assert view.following.endswith(" or 7 more")


def test_a_part_of_a_name_and_the_end_are_continued() -> None:
    check = checker("JSON in tags")
    view = check.view('<tool_call>\n{"name": "create_')
    assert view.following == "the rest of a call of create_dirs or create_events"
    view = check.view(answer("JSON in tags")[:-3])
    assert [option.text for option in view.options] == ["ll>"]
    assert check.view("Hello").following.startswith("text, a call of ")


def test_several_calls_and_text_are_listed() -> None:
    view = checker("JSON in tags").view(f"Yes.\n{answer('JSON in tags')}\n{answer('JSON in tags')}")
    assert view.judgement.calls[0] == "text: Yes."
    assert len(view.judgement.calls) == 3
    assert checker("JSON in tags").view("No, sorry.").judgement.calls == ("text: No, sorry.", "no call")


def test_a_call_with_repairs_is_repaired() -> None:
    text = answer("JSON in tags").replace("30", '"30"')
    view = checker("JSON in tags").view(text)
    assert view.refused
    assert '"duration_minutes": 30' in view.judgement.repaired
    assert view.judgement.repaired_validation == ()


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_grammar_of_a_tool_is_shown(name: str) -> None:
    form = detect(TEMPLATES[name])
    view = view_tool(BUNDLED[0], GrammarChoice(tool_format=form))
    assert view.grammar is not None
    assert any(rule.origins for rule in view.rules)
    own = {rule.name for rule in view.rules if not rule.is_shared}
    other = view_tool(BUNDLED[1], GrammarChoice(tool_format=form))
    shared = {rule.name: rule.text for rule in other.rules if rule.is_shared}
    assert own
    assert all(shared.get(rule.name, rule.text) == rule.text for rule in view.rules if rule.is_shared)
