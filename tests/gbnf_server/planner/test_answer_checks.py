"""Which texts are no answer: calls, errors, what the model has read, and bare results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf_server.planner.answer_checks import proposed_tool
from gbnf_server.planner.events import CallBlocked, CallModel, ExecuteTool, StepStarted
from gbnf_server.system.errors import ExecutorError
from support.by_hand import BY_NAME, call
from support.effort import scaled
from support.json_values import SIMPLE, nested
from support.small_models import (
    ASKED_FIRST,
    FOLDER_CALL,
    LARGE,
    MODES,
    chosen,
    drive,
    drive_in,
    odds,
    written,
)

QUERY = "put lunch with Marta in my calendar tomorrow at 13:00"
ERROR = "there is no folder 'trips'; \".\" is the workspace, and it has 'calendar.ics', 'invoices'"
WRONG = {"name": "create_events", "arguments": {"title": "lunch"}}
EVENT = {"name": "create_events", "arguments": {"title": "lunch", "starts": ["2026-03-06T13:00"]}}
HONEST = "I could not do that."
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
    driven = drive_in(mode, *calls, HONEST, HONEST, HONEST, query=QUERY, replies=replies)
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
    st.sampled_from([*MODES]),
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
    run_of_it = drive_in(mode, *calls, answer, *[HONEST] * 4, query=QUERY, replies=replies).run
    assert answer.strip() not in (run_of_it.answer or "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "answer",
    [
        "I could not find trips: that folder does not exist.",
        "There is no folder 'trips'.",
        "The workspace has calendar.ics and invoices, and no folder 'trips'.",
    ],
)
def test_an_error_in_other_words_is_an_answer(mode: str, answer: str) -> None:
    driven = drive_in(mode, json.dumps(EVENT), answer, query=QUERY, replies=[ExecutorError(ERROR)])
    assert (driven.run.outcome, driven.run.answer) == ("answered", answer)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fragment", ["tool: compute", "```\ntool: nosuch\nargs:\n```", "[1]", "[1] 4.4"])
def test_a_part_of_a_call_or_of_a_citation_is_no_answer(mode: str, fragment: str) -> None:
    asked = "compute 2+2.4, and tell the 7 dwarfs"
    driven = drive_in(
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
    driven = drive_in(mode, call("get_now"), answer, query="what time is it?", replies=[result])
    assert (driven.run.outcome, driven.run.answer) == ("answered", answer)


@pytest.mark.parametrize("mode", ["large", "json", "text", "lines"])
def test_the_day_that_the_system_prompt_has_is_an_answer(mode: str) -> None:
    answer = "Today is Thursday, 2026-03-05."
    driven = drive_in(mode, answer, query="what day is it?")
    assert (driven.run.answer, driven.of(CallBlocked)) == (answer, [])


@pytest.mark.parametrize("mode", ["large", "json", "text"])
def test_parts_of_a_refusal_with_a_label_each_are_no_answer(mode: str) -> None:
    parts = "It did not work: the message repeats an …. It did not work: the message repeats an or …"
    driven = drive_in(
        mode, json.dumps(EVENT), ERROR, parts, HONEST, query=QUERY, replies=[ExecutorError(ERROR)]
    )
    assert (driven.run.answer, len(driven.of(CallBlocked))) == (HONEST, 2)


RESULTS = nested(SIMPLE | st.sampled_from(["a.md", "2026-03-05", "ok"]), st.sampled_from("abc"), size=6)
DATA = st.dictionaries(st.sampled_from(["runs", "entries", "n"]), RESULTS, min_size=1, max_size=3)
KINDS = ("whole", "part", "wrapped", "values", "truncated")
AROUND = (
    "{}",
    "Result: {}",
    "Here is the result:\n{}",
    "**Tool result:**\n```json\n{}\n```",
    "<tool_response>{}</tool_response>",
    "{}\n\nDone.",
    "{0}\n{0}",
)


@settings(max_examples=scaled(60))
@given(
    st.sampled_from(["large", "json", "text", "lines"]),
    DATA,
    st.sampled_from(KINDS),
    st.sampled_from(["```json\n{}\n```", *AROUND]),
    st.data(),
)
def test_data_of_a_result_is_no_answer(
    mode: str, result: dict[str, Any], kind: str, around: str, data: st.DataObject
) -> None:
    part = data.draw(st.sampled_from([*result.values()]))
    raw: Any = {"whole": result, "part": part, "wrapped": {"status": "done", "data": result}}.get(
        kind, result
    )
    raw = [*result.values()] if kind == "values" else raw
    answer = json.dumps(raw, indent=data.draw(st.sampled_from([None, 2])))
    assume(isinstance(raw, dict | list) and answer[1:-1].strip())
    assume(kind in ("whole", "wrapped") or any(map(str.isalnum, answer)))
    assume(kind != "truncated" or len(answer) > 20)
    answer = answer[:-1] if kind == "truncated" else answer
    assume(kind != "truncated" or around == "{}")
    assume(kind != "values" or around[0] in "{<`")  # behind a label they may be chosen
    answer = around.format(answer)
    driven = drive_in(mode, call("get_now"), answer, HONEST, query="what time is it?", replies=[result])
    assert driven.run.answer == HONEST
    assert [event.refusal for event in driven.of(CallBlocked)] == ["invalid"]


RUNS = {"runs": [{"id": 7, "state": "failed"}, {"id": 8, "state": "ok"}]}


@pytest.mark.parametrize("mode", ["large", "json", "text", "lines"])
@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("give me the runs as JSON", json.dumps(RUNS)),
        ("mostrami i dati grezzi", json.dumps(RUNS)),
        ("show the raw result", json.dumps(RUNS["runs"])),
        ("what runs are there?", 'There are two: {"id": 7} and {"id": 8}.'),
        ("what runs are there?", '{"summary": "run 7 has failed", "count": 2}'),
        ("what runs are there?", "[7] has failed, and [8] is ok."),
        ("what runs are there?", "The runs are: [7, 8]"),
        ("what runs are there?", "[ok](ok)"),
        ("what runs are there?", "The state is: [ok](failed)"),
        ("what runs are there?", 'Run 8 is ok, and this one is not: {"id": 7, "state": "failed"}'),
        ("what runs are there?", 'One has failed: {"id": 7, "state": "failed"} is that one.'),
    ],
)
def test_data_that_the_request_asks_for_or_that_says_more_is_an_answer(
    mode: str, query: str, answer: str
) -> None:
    driven = drive_in(mode, call("get_now"), answer, query=query, replies=[RUNS])
    assert (driven.run.answer, driven.of(CallBlocked)) == (answer, [])


@pytest.mark.parametrize("mode", ["json", "text", "lines"])
def test_json_without_a_result_is_an_answer(mode: str) -> None:
    answer = json.dumps(RUNS)
    assert drive_in(mode, answer, query="write an example of two runs").run.answer == answer


@pytest.mark.parametrize("mode", ["large", "json", "text"])
def test_a_model_that_answers_with_data_alone_is_salvaged(mode: str) -> None:
    texts = [call("get_now"), *[json.dumps(RUNS)] * 3, "Run 7 has failed."]
    options = MODES[mode] | {"salvage": True}
    said = [
        call("final_answer", message=text) if mode == "json" and text[2] == "r" else text for text in texts
    ]
    said[0] = written(json.loads(said[0])) if mode == "large" else said[0]
    driven = drive("what of a.json?", *said, options=options, replies=[RUNS])
    assert (driven.run.outcome, driven.run.answer) == ("salvaged", "Run 7 has failed.")
    assert "sentence" in (driven.run.error or "")


@pytest.mark.parametrize("mode", ["json", "text", "lines"])
@pytest.mark.parametrize("broken", ['{"tool_calls":[[[', "{:tool_calls [{:name 1/2}]}", '{"toolCalls": []}'])
def test_what_begins_like_a_call_is_no_answer(mode: str, broken: str) -> None:
    driven = drive_in(mode, broken, HONEST, query="what time is it?")
    assert driven.run.answer == HONEST
    assert [event.refusal for event in driven.of(CallBlocked)] == ["unparsed"]


def test_the_wrapper_of_a_result_is_no_answer() -> None:
    driven = drive(
        "create a folder invoices, then find out what is in reports",
        written(FOLDER_CALL),
        '{"step": 1, "result": {"entries": ["invoices"]}}',
        "It is there.",
        replies=[{"entries": ["invoices"]}],
    )
    assert driven.run.answer == "It is there."


@pytest.mark.parametrize("in_json", [False, True])
def test_what_a_model_reads_about_a_refused_text_is_no_answer(in_json: bool) -> None:
    query = "what do you think of all this?"
    error = drive(query, query, "A lot.").of(CallBlocked)[0].error
    repeated = json.dumps({"step": 1, "error": error}) if in_json else error
    driven = drive(query, query, repeated, "A lot.")
    assert len(driven.of(CallBlocked)) == 2
    assert driven.run.answer == "A lot."


def test_the_request_is_no_answer_to_itself() -> None:
    query = "what do you think of all this?"
    driven = drive(query, "What do you think of all this?", "A lot.")
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["invalid"]
    assert driven.run.answer == "A lot."
    assert drive("hello", "Hello!").run.answer == "Hello!"


@pytest.mark.parametrize("key", ["arguments", "parameters"])
@pytest.mark.parametrize(("more", "is_answer"), [("", False), (", as JSON", True)])
def test_a_call_of_a_tool_that_does_not_exist_is_no_part_of_an_answer(
    key: str, more: str, is_answer: bool
) -> None:
    text = f'In French:\n\n{{"name": "bonjour", "{key}": {{"message": "Bonjour"}}}}'
    driven = drive(f"translate good morning into French{more}", text, "Bonjour.")
    assert driven.run.answer == (text if is_answer else "Bonjour.")


def test_a_call_that_is_not_offered_is_no_answer() -> None:
    call = f">{json.dumps({'name': 'find_files', 'arguments': {'base_path': '.', 'pattern': '*'}})}"
    driven = drive("hello", call, "Hello!", options=LARGE)
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["unparsed"]
    assert driven.run.answer == "Hello!"


def test_a_bare_result_with_escaped_brackets_is_no_answer() -> None:
    texts = [
        written(FOLDER_CALL),
        '\\u003ctool_response>\n{"step": 1}\n\\u003c/tool_response>',
        "It is there.",
    ]
    query = "create a folder invoices, then find out what is in reports"
    assert drive(query, *texts, replies=[{"entries": ["invoices"]}]).run.answer == "It is there."


@pytest.mark.parametrize(
    ("text", "is_proposed"),
    [
        ("To read the file, you can use the `read` function. Here's the command:", True),
        ("Puoi usare lo strumento `read`.", True),
        ("I have read the file.", False),
        ("In bash, the command `read` waits for a line.", False),
        ("You cannot use the `read` function.", False),
    ],
)
def test_a_tool_whose_name_is_a_word_is_proposed_as_a_function(text: str, is_proposed: bool) -> None:
    read = Tool.from_mapping({"name": "read", "description": "Read a file.", "args": {"type": "object"}})
    assert (proposed_tool(text, (read,), (read,)) is read) is is_proposed


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("You can use the `find_events_empty` function to find free slots.", True),
        ("I can call find_events_empty, create_events and create_dirs.", False),
        ("You could use create_dirs.", False),  # it is not offered
        ("I cannot use find_events_empty without a day.", False),
        ("She is free at ten.", False),
    ],
)
def test_a_text_that_proposes_the_tool_is_no_answer(text: str, calls: bool) -> None:
    found = {"name": "find_events_empty", "arguments": {"period": "today"}}
    texts: list[Any] = [chosen({"find_events_empty": 0.9, "compute": 0.1}), odds(-9), text]
    driven = drive(
        "could I squeeze Ann in?",
        *texts,
        written(found),
        "At ten.",
        options=ASKED_FIRST,
        replies=[{"entries": ["10:00/11:00"]}],
    )
    assert bool(driven.of(ExecuteTool)) == calls
    if calls:
        assert driven.of(StepStarted)[1].tools == ("find_events_empty",)
    assert driven.run.outcome == "answered"
