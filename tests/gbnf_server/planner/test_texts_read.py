"""No text that the planner, or a failing tool, has written for the model is the answer of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.planner.events import CallBlocked, CallModel
from gbnf_server.system.errors import ExecutorError
from support.by_hand import BY_NAME, Driven, call
from support.effort import scaled
from support.small_models import LARGE, SMALL, drive, written

OPTIONS: Mapping[str, dict[str, Any]] = {
    "small": SMALL,
    "large": LARGE,
    "json": {"call_format": "json"},
    "small json": {"call_format": "json", "is_small": True},
    "text": {"call_format": "text"},
    "lines": {"call_format": "lines"},
}
QUERY = "put lunch with Marta in my calendar tomorrow at 13:00"
ERROR = "there is no folder 'trips'; \".\" is the workspace, and it has 'calendar.ics', 'invoices'"
WRONG = {"name": "create_events", "arguments": {"title": "lunch"}}
EVENT = {"name": "create_events", "arguments": {"title": "lunch", "starts": ["2026-03-06T13:00"]}}
HONEST = "I could not do that."


def run(mode: str, *texts: str, query: str = QUERY, replies: Any = ()) -> Driven:
    """A run in which the model writes calls, as JSON, and answers, as text."""
    native, by_call = mode in ("small", "large"), mode.endswith("json")
    said = []
    for text in texts:
        if text.startswith('{"name"'):
            said.append(written(json.loads(text)) if native else text)
        else:
            said.append(call("final_answer", message=text) if by_call else text)
    return drive(query, *said, options=OPTIONS[mode], replies=replies)


CASES: Mapping[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "nothing yet": ((), ()),
    "invalid twice": ((json.dumps(WRONG), json.dumps(WRONG)), ()),
    "failed": ((json.dumps(EVENT),), (ExecutorError(ERROR),)),
    "failed twice": ((json.dumps(EVENT), json.dumps(EVENT)), (ExecutorError(ERROR),)),
    "done twice": ((json.dumps(EVENT), json.dumps(EVENT)), ({"entries": ["calendar.ics"]},)),
}


@cache
def texts_read(mode: str, case: str) -> list[str]:
    """All that the model has read when it writes the answer: whole messages, their paragraphs and errors."""
    calls, replies = CASES[case]
    driven = run(mode, *calls, HONEST, HONEST, HONEST, replies=replies)
    messages = driven.of(CallModel)[min(len(calls), len(driven.of(CallModel)) - 1)].request.messages
    read = [tool.description() for tool in BY_NAME.values() if tool.name == "create_events"]
    for message in messages:
        if message["role"] == "assistant":
            continue
        first, *paragraphs = message["content"].split("\n\n")
        whole = [] if message["role"] == "user" and first == QUERY else [message["content"], first]
        read += [*whole, *paragraphs]
        if first.startswith('{"step"') and "error" in json.loads(first):
            read.append(json.loads(first)["error"])
    read += [step.error for step in driven.run.steps[: len(calls)] if step.error]
    left_out = "create_events is not possible in the next step"
    read += [text[text.index(left_out) :] for text in read if left_out in text]
    return [text for text in dict.fromkeys(read) if len(text.split()) > 2]


@pytest.mark.slow
@settings(max_examples=scaled(100))
@given(
    st.sampled_from([*OPTIONS]),
    st.sampled_from([*CASES]),
    st.data(),
    st.sampled_from(["", "It did not work: ", "Error: ", "The answer is:\n"]),
    st.sampled_from(["", ".", " !"]),
    st.booleans(),
)
def test_what_the_model_has_read_is_no_answer(
    mode: str, case: str, data: st.DataObject, label: str, end: str, in_capitals: bool
) -> None:
    text = data.draw(st.sampled_from(texts_read(mode, case)))
    answer = label + (text.upper() if in_capitals and not text.startswith("{") else text) + end
    calls, replies = CASES[case]
    run_of_it = run(mode, *calls, answer, HONEST, HONEST, HONEST, HONEST, replies=replies).run
    assert answer.strip() not in (run_of_it.answer or "")


@pytest.mark.parametrize("mode", OPTIONS)
@pytest.mark.parametrize(
    "answer",
    [
        "I could not find trips: that folder does not exist.",
        "There is no folder 'trips'.",
        "The workspace has calendar.ics and invoices, and no folder 'trips'.",
    ],
)
def test_an_error_in_other_words_is_an_answer(mode: str, answer: str) -> None:
    driven = run(mode, json.dumps(EVENT), answer, replies=[ExecutorError(ERROR)])
    assert (driven.run.outcome, driven.run.answer) == ("answered", answer)


@pytest.mark.parametrize("mode", OPTIONS)
@pytest.mark.parametrize("fragment", ["tool: compute", "```\ntool: nosuch\nargs:\n```", "[1]", "[1] 4.4"])
def test_a_part_of_a_call_or_of_a_citation_is_no_answer(mode: str, fragment: str) -> None:
    asked = "compute 2+2.4, and tell the 7 dwarfs"
    driven = run(
        mode,
        call("compute", expression="2+2.4"),
        fragment,
        "It is 4.4.",
        query=asked,
        replies=[{"value": 4.4}],
    )
    assert (driven.run.outcome, driven.run.answer) == ("answered", "It is 4.4.")


@pytest.mark.parametrize("mode", ["large", "json", "text", "lines"])
@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ({"entries": ["Meet Marta at the old bridge at nine."]}, "Meet Marta at the old bridge at nine."),
        ({"time": "10:32", "date": "2026-03-05"}, "Time: 10:32, date: 2026-03-05"),
    ],
)
def test_what_a_tool_has_returned_is_an_answer(mode: str, result: dict[str, Any], answer: str) -> None:
    driven = run(mode, call("get_now"), answer, query="what time is it?", replies=[result])
    assert (driven.run.outcome, driven.run.answer) == ("answered", answer)


@pytest.mark.parametrize("mode", ["large", "json", "text", "lines"])
def test_the_day_that_the_system_prompt_has_is_an_answer(mode: str) -> None:
    answer = "Today is Thursday, 2026-03-05."
    driven = run(mode, answer, query="what day is it?")
    assert (driven.run.answer, driven.of(CallBlocked)) == (answer, [])


@pytest.mark.parametrize("mode", ["large", "json", "text"])
def test_parts_of_a_refusal_with_a_label_each_are_no_answer(mode: str) -> None:
    parts = "It did not work: the message repeats an …. It did not work: the message repeats an or …"
    driven = run(mode, json.dumps(EVENT), ERROR, parts, HONEST, replies=[ExecutorError(ERROR)])
    assert (driven.run.answer, len(driven.of(CallBlocked))) == (HONEST, 2)
