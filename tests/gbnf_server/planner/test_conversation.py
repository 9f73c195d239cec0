"""Earlier exchanges of a conversation, as a model and the pool filter see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Completion, Usage
from gbnf_server.executors import Context, Workspace
from gbnf_server.planner import Exchange, Planner, PlannerOptions, RunStarted
from gbnf_server.planner.compaction import message_size
from gbnf_server.planner.planner import earlier_messages
from support.backends import FakeBackend
from support.by_hand import ANSWER, NOW, POOL, resolved

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
exchanges = st.lists(
    st.builds(
        Exchange,
        texts,
        texts,
        st.lists(
            st.just(({"name": "get_now", "arguments": {}}, {"entries": ["a" * 300] * 4, "step": 7})),
            max_size=3,
        ).map(tuple),
    ),
    max_size=4,
)


@given(exchanges, st.integers(0, 3000))
def test_the_last_exchanges_are_shown_whole_within_the_limit(history: list[Exchange], limit: int) -> None:
    def shown(some: Sequence[Exchange]) -> tuple[Message, ...]:
        return earlier_messages(some, resolved(), 1 << 30)

    messages = earlier_messages(history, resolved(), limit)
    assert sum(map(message_size, messages)) <= limit
    assert messages in [shown(history[start:]) for start in range(len(history) + 1)]
    more = len(history) - sum(message["role"] == "user" for message in messages) - 1
    if more >= 0:
        assert sum(map(message_size, shown(history[more:]))) > limit
    for message in shown(history):
        if message["role"] == "tool":
            assert set(json.loads(message["content"])) <= {"result", "left_out"}, "no step number"
            assert len(message["content"]) < 700


class Recorder(FakeBackend):
    """Answers `texts` in turn, and keeps what it was asked."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.asked: list[list[Message]] = []

    def respond(self, messages: Sequence[Message], **_limits: Any) -> Completion:
        self.asked.append(list(messages))
        return Completion(self._texts.pop(0), "stop", Usage(10, 5))


@pytest.mark.slow
def test_a_run_continues_a_conversation(tmp_path: Path) -> None:
    backend = Recorder(NOW, ANSWER, NOW, ANSWER, NOW, ANSWER)
    planner = Planner(POOL, backend, PlannerOptions(), context=Context(Workspace(tmp_path)))
    first = planner.run("what time is it?")
    history = [Exchange.of(first)]
    second = planner.run("in Tokyo?", history=history)
    asyncio.run(planner.arun("and now?", history=[*history, Exchange.of(second)]))
    contents = [message["content"] for message in backend.asked[2]]
    assert [message["role"] for message in backend.asked[2]] == [
        *("system", "user", "assistant", "tool", "assistant", "user")
    ]
    assert contents[1] == "what time is it?"
    assert contents[2] == json.dumps(first.steps[0].call)
    assert json.loads(contents[3]) == {"result": first.steps[0].result}
    assert json.loads(contents[4])["arguments"] == {"message": first.answer}
    assert contents[5] == second.query
    assert backend.asked[4][:6] == backend.asked[2], "the prompt of one run is the beginning of the next"


def test_the_pool_filter_reads_the_whole_conversation(tmp_path: Path) -> None:
    def offered(*history: Exchange) -> tuple[str, ...]:
        planner = Planner(POOL, Recorder(ANSWER), context=Context(Workspace(tmp_path)))
        [started] = [one for one in planner.stream("again", history=history) if isinstance(one, RunStarted)]
        return started.tools

    undo = Exchange("undo that", "done")
    assert "undo_last_turn" in offered(undo)
    assert "undo_last_turn" not in offered()


def test_a_run_without_an_answer_says_why(tmp_path: Path) -> None:
    options = PlannerOptions(max_steps=1, salvage=False)
    run = Planner(POOL, Recorder("no call"), options, context=Context(Workspace(tmp_path))).run("hello")
    assert Exchange.of(run).answer == run.error
    assert run.error


def test_a_request_that_is_no_text(tmp_path: Path) -> None:
    planner = Planner(POOL, Recorder(), context=Context(Workspace(tmp_path)))
    for query in (" ", "\udc80"):
        with pytest.raises(ValueError, match="request"):
            planner.run("go", history=[Exchange(query, "done")])
