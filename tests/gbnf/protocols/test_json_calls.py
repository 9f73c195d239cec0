"""The project's own format of calls: what is a call, what a text, and that chunks do not matter."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.calls import FinalAnswer, parse_tool_calls
from gbnf.protocols.call_protocols import JsonCalls, JsonCallStream, json_grammar
from gbnf.protocols.protocol import Offered
from gbnf.tool_formats import CallEnded, CallStarted, Delta, TextDelta
from gbnf.tools import FINAL_ANSWER, Tool
from support.deltas import calls, text
from support.effort import scaled
from support.oracle import engine
from support.pools import POOL, texts, tool

PAIR = (tool("get_now", timezone={"type": "string"}), tool("note", ("a",), a={"type": "integer"}))
strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def read(
    written: str, cuts: list[int], tools: tuple[Tool, ...] = PAIR, *, final_answer: bool = False
) -> list[Delta]:
    stream = JsonCallStream(tools, final_answer=final_answer)
    places = sorted({min(cut, len(written)) for cut in cuts} | {0, len(written)})
    deltas = [delta for a, b in pairwise(places) for delta in stream.feed(written[a:b])]
    return deltas + stream.close()


@st.composite
def written_calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    one = st.fixed_dictionaries({}, optional={"timezone": strings}).map(
        lambda arguments: {"name": "get_now", "arguments": arguments}
    )
    other = st.integers(-9, 9).map(lambda value: {"name": "note", "arguments": {"a": value}})
    return draw(st.lists(one | other, min_size=1, max_size=3))


@given(written=written_calls(), ascii_only=st.booleans(), cuts=st.lists(st.integers(0, 120), max_size=5))
def test_calls_are_accepted_and_read_back_in_any_chunks(
    written: list[dict[str, Any]], ascii_only: bool, cuts: list[int]
) -> None:
    lines = "\n".join(json.dumps(call, ensure_ascii=ascii_only) for call in written)
    grammar = json_grammar(Offered(PAIR, parallel=True))
    assert engine().match(grammar, lines).complete
    deltas = read(lines, cuts)
    found = [{"name": name, "arguments": json.loads(arguments)} for name, arguments in calls(deltas)]
    assert found == written
    assert sum(isinstance(delta, CallEnded) for delta in deltas) == len(written)
    assert not text(deltas)


@given(said=texts, cuts=st.lists(st.integers(0, 60), max_size=4))
def test_a_text_is_accepted_unless_it_begins_with_a_space(said: str, cuts: list[int]) -> None:
    grammar = json_grammar(Offered(PAIR))
    expected = not said.startswith((" ", "\t", "\n", "\r")) and "\0" not in said
    assert grammar.match(said).complete == expected
    if said and "\0" not in said:
        assert engine().match(grammar, said).complete == expected
    if expected and isinstance(parse_tool_calls(said, PAIR), FinalAnswer):  # no call in another syntax
        assert text(read(said, cuts)) == said
        assert not calls(read(said, cuts))


@settings(max_examples=scaled(50))
@given(said=strings, cuts=st.lists(st.integers(0, 60), max_size=4))
def test_the_message_of_a_final_answer_is_the_text(said: str, cuts: list[int]) -> None:
    call = json.dumps({"name": FINAL_ANSWER.name, "arguments": {"message": said}})
    grammar = json_grammar(Offered(PAIR, parallel=True), also_final_answer=True)
    assert grammar.match(call).complete
    deltas = read(call, cuts, final_answer=True)
    assert text(deltas) == said
    assert all(isinstance(delta, TextDelta) for delta in deltas)


@pytest.mark.parametrize("is_answer", [True, False])
def test_a_tool_of_the_client_named_final_answer_is_a_tool(is_answer: bool) -> None:
    mine = tool(FINAL_ANSWER.name, ("n",), n={"type": "integer"})
    grammar = json_grammar(Offered((mine,), is_answer), also_final_answer=True)
    assert grammar.match('{"name": "final_answer", "arguments": {"n": 1}}').complete
    assert not grammar.match('{"name": "final_answer", "arguments": {"message": "x"}}').complete


@pytest.mark.parametrize(
    ("written", "complete"),
    [
        ("", False),
        ("hello", False),
        ('{"name": "get_now", "arguments": {}}', True),
        ('{"name": "get_now", "arguments": {}}\n{"name": "get_now", "arguments": {}}', False),
        ('{"name": "note", "arguments": {"timezone": "x"}}', False),
        ('{"name": "other", "arguments": {}}', False),
    ],
)
def test_a_required_call_is_one_call(written: str, complete: bool) -> None:
    grammar = json_grammar(Offered(PAIR, answer=False), also_final_answer=True)
    assert grammar.match(written).complete is complete


def test_the_readers_of_this_project_agree() -> None:
    written = '{"name": "write_note", "arguments": {"title": "a \\"}{ b", "tags": ["}"]}}'
    ((name, arguments),) = calls(read(written, list(range(100)), POOL))
    parsed = parse_tool_calls(written, POOL)
    assert parsed.kind == "tool_calls"
    assert (name, json.loads(arguments)) == (parsed.calls[0].name, dict(parsed.calls[0].arguments))


def test_a_truncated_call_has_no_end() -> None:
    deltas = read('{"name": "get_now", "arguments": {"timezone": "E', [])
    assert [type(delta) for delta in deltas if isinstance(delta, CallStarted | CallEnded)] == [CallStarted]


@pytest.mark.parametrize(("content", "shown"), [('{"n": 1}', {"n": 1}), ("done", "done")])
def test_json_in_a_result_is_not_quoted_again(content: str, shown: Any) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "go", "arguments": {}}}
    said: Any = {"role": "assistant", "content": "", "tool_calls": [call]}
    result: Any = {"role": "tool", "tool_call_id": "a", "content": content}
    *_, last = JsonCalls().messages([said, result], "")
    assert json.loads(last["content"]) == {"step": 1, "result": shown}
