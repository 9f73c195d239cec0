"""What holds for every call and every text."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls import CallStream, Final, ToolCalls, parse, render
from gbnf.validation import validate_call
from support.pools import POOL, call_lists, model_texts, shape_names, valid_calls

NAMES = {tool.name for tool in POOL}


@given(valid_calls, shape_names)
def test_a_rendered_call_is_read_back_with_nothing_repaired(call: Any, shape: Any) -> None:
    assert validate_call(call.as_call(), POOL).ok
    step = parse(render(call, shape), POOL)
    assert step == ToolCalls((call,), shape)


@given(call_lists, shape_names)
def test_rendered_calls_are_read_back_in_order(calls: Any, shape: Any) -> None:
    assert parse(render(calls, shape), POOL) == ToolCalls(tuple(calls), shape)


@given(
    valid_calls, shape_names, st.sampled_from(["Sure!\n", '<think>hm {"name": 1}</think>', "\n\n", "a\n\n"])
)
def test_what_stands_before_a_call_changes_nothing_but_the_list_of_repairs(
    call: Any, shape: Any, before: Any
) -> None:
    step = parse(f"{before}{render(call, shape)}\n\nThat is all.\n", POOL)
    assert isinstance(step, ToolCalls)
    assert (step.calls, step.shape) == ((call,), shape)
    kinds = {repair.kind for repair in step.repairs}
    assert kinds == {"prose"} | ({"thoughts"} if "<think>" in before else set())


@given(model_texts)
def test_any_text_is_a_step(text: Any) -> None:
    step = parse(text, POOL)
    if isinstance(step, Final):
        assert step.thoughts or step.content == text
        return
    assert step.calls or step.refused
    assert {call.name for call in step.calls} <= NAMES
    assert all(refused.nearest is None or refused.nearest in NAMES for refused in step.refused)
    if any(call.cut for call in step.calls):
        assert "cut" in {repair.kind for repair in step.repairs}


@given(st.text(st.characters(categories=["L", "N", "Zs"], include_characters=",.!?\n"), max_size=200))
def test_a_text_without_a_sign_of_a_call_is_an_answer_unchanged(text: Any) -> None:
    assert parse(text, ()) == Final(text)


@given(
    st.data(),
    model_texts | st.builds(render, call_lists, shape_names).map(lambda text: f"So:\n{text}\nDone."),
)
def test_a_stream_shows_no_call_and_ends_like_the_whole_text(data: Any, text: Any) -> None:
    stream, left = CallStream(POOL), text
    while left:
        size = data.draw(st.integers(1, 12))
        before = stream.shown
        given_now = stream.feed(left[:size])
        assert stream.shown == before + given_now
        left = left[size:]
    step = stream.close()
    assert step == parse(text, POOL)
    if "</think>" in text.partition("<think>")[0] or "</think>" in text.rpartition("</think>")[0]:
        return  # thoughts that a template opened are known by their end alone
    if isinstance(step, Final):
        assert step.content.startswith(stream.shown)
    else:
        assert step.content.startswith(stream.shown.strip())
