"""Requests of several parts, which a small model carries out one after the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gbnf.prompts.messages import Message
from gbnf.requests.parts import parts_of
from gbnf_server.backends.base import Completion
from gbnf_server.planner.events import CallModel, ExecuteTool, RunStarted, StepStarted
from support.pools import BUNDLED
from support.small_models import ASKED_FIRST, LARGE, NO_CHOICE, SMALL, chosen, drive, odds, written

FIRST, SECOND, THIRD = (
    "create the folder trips/rome",
    "write 'two tickets' to trips/rome/list.txt",
    "delete old/a.txt",
)
REQUEST = f"{FIRST}, {SECOND} and {THIRD}"
CALLS = (
    {"name": "create_dirs", "arguments": {"paths": ["trips/rome"]}},
    {
        "name": "write_files",
        "arguments": {"files": [{"path": "trips/rome/list.txt", "content": "two tickets"}]},
    },
    {"name": "delete_files", "arguments": {"paths": ["old/a.txt"]}},
)
ANSWERS = ("The folder is there.", "The tickets are listed.", "It is gone.")
REPLIES = ({"entries": ["trips/rome"]}, {"entries": ["trips/rome/list.txt"]}, {"entries": ["old/a.txt"]})
TEXTS = [text for call, answer in zip(CALLS, ANSWERS, strict=True) for text in (written(call), answer)]


def test_each_part_is_asked_for_alone_after_the_answer_to_the_one_before() -> None:
    driven = drive(REQUEST, *TEXTS, replies=REPLIES)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == [call["name"] for call in CALLS]
    run = driven.run
    assert (run.outcome, run.query) == ("answered", REQUEST)
    assert run.answer == "\n".join(ANSWERS)
    names = [name for call in CALLS for name in (call["name"], "final_answer")]
    assert [step.name for step in run.steps] == names
    assert [step.number for step in run.steps] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in driven.of(StepStarted)] == [1, 2, 3, 4, 5, 6]
    (started,) = driven.of(RunStarted)
    assert started.query == REQUEST
    calls = [effect for effect in driven.of(CallModel) if effect.purpose == "call"]
    asked = [effect.request.messages[-1]["content"] for effect in calls]
    assert [text.partition("\n")[0] for text in asked] == [FIRST, SECOND, THIRD]
    assert [message["role"] for message in calls[-1].request.messages] == ["system", "user"]
    answers = [effect.request.messages[-1]["content"] for effect in driven.of(CallModel)[1::2]]
    for part, text in zip((FIRST, SECOND, THIRD), answers, strict=True):
        assert [other for other in (FIRST, SECOND, THIRD) if other in text] == [part]


def test_each_part_is_offered_the_tools_that_it_asks_for() -> None:
    driven = drive(REQUEST, *TEXTS, replies=REPLIES)
    offered = [set(event.tools) for event in driven.of(StepStarted) if set(event.tools) - {"final_answer"}]
    for call, names in zip(CALLS, offered, strict=True):
        assert call["name"] in names
    assert "delete_files" not in offered[0] | offered[1]
    assert "final_answer" not in offered[0] | offered[1] | offered[2]


def test_the_tool_of_each_part_is_chosen_by_its_own_message() -> None:
    request = "list what is in notes/rome.md, and put 'lunch at 1' somewhere in b.txt"
    parts = parts_of(request, BUNDLED)
    texts: list[str | Completion] = [
        chosen({"read_files": 0.9, "write_files": 0.1}),
        odds(5.0),
        *TEXTS[:2],
        NO_CHOICE,
        odds(5.0),
        *TEXTS[2:4],
    ]
    driven = drive(request, *texts, options=ASKED_FIRST, replies=REPLIES)
    asked = [effect.request.messages for effect in driven.of(CallModel) if effect.purpose == "tool"]
    assert [messages[-1]["content"] for messages in asked] == list(parts)[: len(asked)]
    assert all(len(messages) == 2 for messages in asked)


@pytest.mark.parametrize("options", [LARGE, {**SMALL, "required": ("create_dirs",)}])
def test_a_large_model_and_a_run_that_requires_a_tool_read_the_whole_request(options: dict[str, Any]) -> None:
    driven = drive(REQUEST, *TEXTS, options=options, replies=REPLIES)
    assert driven.of(CallModel)[0].request.messages[-1]["content"].startswith(REQUEST)


def test_a_part_whose_answer_cannot_be_used_is_done_all_the_same() -> None:
    useless = json.dumps({"step": 1})
    texts = [written(CALLS[0]), useless, useless, *TEXTS[2:]]
    driven = drive(REQUEST, *texts, replies=REPLIES)
    assert driven.run.outcome == "answered"
    assert driven.run.answer == "\n".join(ANSWERS[1:])
    assert len(driven.of(ExecuteTool)) == len(CALLS)


def test_a_part_that_is_blocked_ends_the_run_with_the_results_of_all_parts() -> None:
    nonsense = written({"name": "write_files", "arguments": {"files": []}})
    options = {**SMALL, "salvage": True}
    driven = drive(
        REQUEST, *TEXTS[:2], *[nonsense] * 3, "Only the folder was made.", options=options, replies=REPLIES
    )
    run = driven.run
    assert (run.outcome, run.query) == ("salvaged", REQUEST)
    assert run.answer == "Only the folder was made."
    assert run.salvage is not None
    assert run.salvage.steps == (1,)
    asked = driven.of(CallModel)[-1].request.messages[-1]["content"]
    assert REQUEST in asked
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["create_dirs"]


def test_what_an_earlier_part_has_made_is_not_deleted() -> None:
    delete = written({"name": "delete_files", "arguments": {"paths": ["trips/rome"]}})
    request = f"{FIRST}, and delete the log 1"
    driven = drive(request, *TEXTS[:2], *[delete] * 3, replies=REPLIES)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["create_dirs"]


def test_a_part_for_which_nothing_was_called_ends_the_run() -> None:
    nonsense = written({"name": "create_dirs", "arguments": {"paths": 5}})
    driven = drive(REQUEST, nonsense, "The folder is there.", *TEXTS[2:], replies=REPLIES)
    assert driven.run.outcome == "blocked"
    assert driven.run.error is not None
    assert FIRST in driven.run.error
    assert f"not begun: {SECOND}; {THIRD}" in driven.run.error
    assert not driven.of(ExecuteTool)


def test_what_a_part_has_read_is_told_if_its_answer_cannot_be_used() -> None:
    request = "read notes/rome.md and write 'x' to b.txt"
    read = {"name": "read_files", "arguments": {"paths": ["notes/rome.md"]}}
    write = {"name": "write_files", "arguments": {"files": [{"path": "b.txt", "content": "x"}]}}
    useless = json.dumps({"step": 1})
    replies = [{"entries": ["rain all day"]}, {"entries": ["b.txt"]}]
    texts = [written(read), useless, written(write), "It is written."]
    driven = drive(request, *texts, replies=replies)
    assert driven.run.answer == "rain all day\nIt is written."


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_files", {"files": [{"path": "notes/rome.md", "content": "x"}]}),
        ("delete_files", {"paths": ["notes/rome.md"]}),
    ],
)
def test_a_part_changes_nothing_that_only_another_part_names(tool: str, arguments: dict[str, Any]) -> None:
    other = "write 'x' to b.txt" if tool == "write_files" else "delete old/b.txt"
    read = {"name": "read_files", "arguments": {"paths": ["notes/rome.md"]}}
    wrong = written({"name": tool, "arguments": arguments})
    texts = [written(read), "It rains.", *[wrong] * 3]
    driven = drive(f"read notes/rome.md, and {other}", *texts, replies=[{"entries": ["rain"]}])
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["read_files"]
    assert driven.run.outcome == "blocked"


def test_a_limit_says_which_parts_were_not_begun() -> None:
    driven = drive(REQUEST, *TEXTS, options={**SMALL, "max_steps": 2}, replies=REPLIES)
    assert driven.run.outcome == "exhausted"
    assert driven.run.error is not None
    assert driven.run.error.endswith(f"not begun: {THIRD}")


def test_earlier_exchanges_are_shown_with_each_part() -> None:
    history: tuple[Message, ...] = (
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello!"},
    )
    driven = drive(REQUEST, *TEXTS, replies=REPLIES, history=history)
    calls = [effect.request.messages for effect in driven.of(CallModel) if effect.purpose == "call"]
    assert len(calls) == len(CALLS)
    assert all([message["content"] for message in messages[1:3]] == ["hi", "Hello!"] for messages in calls)
    assert all(len(messages) == 4 for messages in calls)


def test_a_part_reads_again_what_it_adds_to() -> None:
    request = "read notes/rome.md and append 'milk' to notes/rome.md"
    read = written({"name": "read_files", "arguments": {"paths": ["notes/rome.md"]}})
    write = {
        "name": "write_files",
        "arguments": {"files": [{"path": "notes/rome.md", "content": "oats\nmilk"}]},
    }
    replies = [{"entries": ["oats"]}, {"entries": ["oats"]}, {"entries": ["notes/rome.md"]}]
    texts = [read, "There are oats.", read, written(write), "Milk is there."]
    driven = drive(request, *texts, replies=replies)
    names = [effect.tool.name for effect in driven.of(ExecuteTool)]
    assert names == ["read_files", "read_files", "write_files"]  # it does not see what another part has read
