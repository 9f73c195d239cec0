"""A small model's run ends soon if its calls fail or are refused; a number is no reason to send again."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.planner.events import ExecuteTool, StepStarted
from gbnf_server.system.errors import ExecutorError
from support.by_hand import Driven
from support.small_models import LARGE, SMALL, drive, written

READ = written({"name": "read_files", "arguments": {"paths": ["a.txt"]}})
MAIL = written({"name": "send_messages", "arguments": {"to": ["me"], "subject": "slots", "body": "at nine"}})
ASK = written(
    {
        "name": "get_inputs",
        "arguments": {"title": "x", "dialog": [{"var": "x", "prompt": "x", "schema": {"kind": "text"}}]},
    }
)
QUERY = "read a.txt, b.txt and c.txt, then find the files in d and tell me the time"


def without_result(driven: Driven) -> int:
    return len(list(takewhile(lambda step: step.result is None, reversed(driven.run.steps))))


@given(st.lists(st.sampled_from(["works", "fails", "is refused"]), max_size=12))
def test_a_run_ends_after_four_steps_without_a_result(outcomes: list[str]) -> None:
    texts, replies = list[str](), list[Any]()
    for index, outcome in enumerate(outcomes):
        read = {"name": "read_files", "arguments": {"paths": [f"{index}.txt"]}}
        texts.append("```json\n{" if outcome == "is refused" else written(read))
        if outcome != "is refused":
            replies.append({"entries": ["x"]} if outcome == "works" else ExecutorError("no such file"))
    failing = [*replies, *[ExecutorError("no such file")] * 20]
    driven = drive(QUERY, *texts, READ, options={**SMALL, "max_blocked": 9}, replies=failing)
    assert without_result(driven) <= 4
    if driven.run.outcome == "blocked":
        assert driven.run.error


def test_a_large_model_may_go_on() -> None:
    texts = [written({"name": "read_files", "arguments": {"paths": [f"{index}.txt"]}}) for index in range(6)]
    driven = drive(QUERY, *texts, "None exists.", options=LARGE, replies=[ExecutorError("no such file")] * 6)
    assert without_result(driven) > 4
    assert driven.run.outcome == "answered"


def test_what_sends_is_not_called_again_for_a_number() -> None:
    query = "propose 3 slots next week, ask me which one I pick, and email me the choice"
    driven = drive(query, MAIL, ASK, MAIL, "Done.", replies=[{}, ExecutorError("nobody answers")])
    sent = [each.tool.name for each in driven.of(ExecuteTool)].count("send_messages")
    offered = [each.tools for each in driven.of(StepStarted)]
    first = next(index for index, tools in enumerate(offered) if "send_messages" in tools)
    assert sent == 1
    assert not any("send_messages" in tools for tools in offered[first + 1 :])
