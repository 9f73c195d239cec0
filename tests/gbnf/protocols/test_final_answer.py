"""The part of a text that belongs to the final answer, while the text is written."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.protocols.final_answer import FinalAnswerText, SpokenText, Unread
from gbnf.protocols.protocol import clip
from gbnf.tool_formats import Delta, TextDelta
from support.by_hand import ANSWER, NOW, call


def said(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


MESSAGES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(MESSAGES, st.booleans(), st.none() | MESSAGES, st.lists(st.integers(1, 7), min_size=1))
def test_an_answer_is_read_while_it_is_written(
    message: str, escaped: bool, thought: str | None, sizes: list[int]
) -> None:
    before = {} if thought is None else {"thought": thought}
    text = json.dumps(
        {**before, "name": "final_answer", "arguments": {"message": message}}, ensure_ascii=escaped
    )
    reader = FinalAnswerText()
    told, rest = [], text
    for size in sizes * len(text):
        told.append(said(reader.feed(rest[:size])))
        rest = rest[size:]
    assert "".join(told) == message


@pytest.mark.parametrize(
    "text", [NOW, call("write_files", files=[{"path": "a", "content": ANSWER}]), "Hello", "{}"]
)
def test_a_call_is_no_answer(text: str) -> None:
    assert FinalAnswerText().feed(text) == []
    assert Unread().feed(ANSWER) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [(" It is [1].", " It is [1]."), ("[1] says", "[1] says"), (NOW, ""), ('[ {"name"', ""), ("<tool>", "")],
)
def test_text_from_results_is_streamed_and_calls_are_not(text: str, told: str) -> None:
    for size in (1, 3, 99):
        reader = SpokenText()
        pieces = [said(reader.feed(text[start : start + size])) for start in range(0, len(text), size)]
        assert "".join(pieces) == told


@given(st.text(), st.integers(1, 50))
def test_a_clipped_text_is_short_and_a_short_text_whole(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    assert clipped == text if len(text) <= limit else clipped[:-1] == text[: limit - 1]
