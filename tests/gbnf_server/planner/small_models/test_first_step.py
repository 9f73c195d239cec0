"""What a small model may call first, before it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gbnf_server.planner.events import ExecuteTool, StepStarted
from gbnf_server.planner.guidance import GUIDED, UNGUIDED
from support.small_models import ASKED_FIRST, LARGE, SMALL, chosen, drive, odds, written


@pytest.mark.parametrize(
    ("query", "answers"),
    [
        ("what does a.txt say?", False),
        ("read notes/rome.md, please", False),
        ("what do you say?", True),
        ("what is 12/3?", True),
        ("is support there 24/7, and/or a manual?", True),
        ("who owns example.com, or mail.example.org?", True),
        ("write to ann@example.com", True),
        ("write to ann.lee@example.com", True),
    ],
)
def test_what_is_in_a_file_is_not_answered_without_a_call(query: str, answers: bool) -> None:
    for options, may_answer in ((SMALL, answers), (LARGE, True)):
        [started, *_] = drive(query, "I cannot.", options=options).of(StepStarted)
        assert ("final_answer" in started.tools) is may_answer
        assert ("compute" in started.tools) is may_answer


def test_what_is_to_be_sent_is_read_before() -> None:
    driven = drive("send anna@example.com what is in the report", "I can't.", "I can't.", "I can't.")
    first, *_ = driven.of(StepStarted)
    assert {"find_files", "read_files"} <= set(first.tools)
    assert {"final_answer", "send_messages", "get_inputs"}.isdisjoint(first.tools)
    read = {"name": "read_files", "arguments": {"paths": ["report.txt"]}}
    driven = drive(
        "send anna@example.com what is in the report", written(read), "Up.", replies=[{"entries": ["up"]}]
    )
    assert driven.of(StepStarted)[1].tools == ("send_messages",)


SPOKEN = {"name": "final_answer", "arguments": {"message": "It is late."}}


def test_a_file_is_read_before_something_is_added_to_it() -> None:
    texts: list[Any] = [chosen({"write_files": 0.9, "compute": 0.1}), odds(9), "Well.", "Well.", "Well."]
    driven = drive("add a line with oat milk to notes/todo.txt", *texts, options=ASKED_FIRST)
    assert driven.of(StepStarted)[0].tools == ("read_files",)


@pytest.mark.parametrize(
    ("query", "called"),
    [
        ("what time is it?", True),
        ("che ore sono", True),
        ("che ore sono a Tokyo?", True),
        ("what time is it in New York", True),
        ("what is the time complexity of quicksort?", False),
        ("what is the time in Python?", True),  # the tool returns an error
        ("what is the complexity in Python?", False),
        ("what time is it on Mars?", False),
        ("read a file", False),
        ("hello", False),
        ("how are you today?", False),
        ("what can you do today?", False),
        ("what do I have to do today?", False),
        ("che giornata!", False),
        ("not today", False),
    ],
)
def test_what_one_call_without_arguments_answers_is_not_made_up(query: str, called: bool) -> None:
    now = written({"name": "get_now", "arguments": {}})
    texts = (
        [now, "It is late."]
        if called
        else [chosen({"compute": 0.5, "get_now": 0.5}), odds(-9), "It is late."]
    )
    driven = drive(query, *texts, options=ASKED_FIRST, replies=[{"time": "9:00"}])
    assert (driven.of(StepStarted)[0].tools == ("get_now",)) == called
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["get_now"] * called
    assert driven.run.outcome == "answered"
    in_json = [json.dumps({"name": "get_now", "arguments": {}}), json.dumps(SPOKEN)][not called :]
    for is_small in (True, False):
        driven = drive(
            query,
            *in_json,
            options={"guidance": GUIDED.in_prompt() if is_small else UNGUIDED},
            replies=[{"time": "9:00"}],
        )
        assert (driven.of(StepStarted)[0].tools == ("get_now",)) == (called and is_small)
