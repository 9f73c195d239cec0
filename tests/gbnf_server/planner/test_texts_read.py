"""No text that the planner, or a failing tool, has written for the model is the answer of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf_server.planner.events import CallBlocked, CallModel
from gbnf_server.planner.guidance import GUIDED
from gbnf_server.system.errors import ExecutorError
from support.by_hand import BY_NAME, Driven, call
from support.effort import scaled
from support.json_values import SIMPLE, nested
from support.small_models import LARGE, SMALL, drive, written

OPTIONS: Mapping[str, dict[str, Any]] = {
    "small": SMALL,
    "large": LARGE,
    "json": {"call_format": "json"},
    "small json": {"call_format": "json", "guidance": GUIDED.in_prompt()},
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
    driven = run(mode, call("get_now"), answer, HONEST, query="what time is it?", replies=[result])
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
    driven = run(mode, call("get_now"), answer, query=query, replies=[RUNS])
    assert (driven.run.answer, driven.of(CallBlocked)) == (answer, [])


@pytest.mark.parametrize("mode", ["json", "text", "lines"])
def test_json_without_a_result_is_an_answer(mode: str) -> None:
    answer = json.dumps(RUNS)
    assert run(mode, answer, query="write an example of two runs").run.answer == answer


@pytest.mark.parametrize("mode", ["large", "json", "text"])
def test_a_model_that_answers_with_data_alone_is_salvaged(mode: str) -> None:
    texts = [call("get_now"), *[json.dumps(RUNS)] * 3, "Run 7 has failed."]
    options = OPTIONS[mode] | {"salvage": True}
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
    driven = run(mode, broken, HONEST, query="what time is it?")
    assert driven.run.answer == HONEST
    assert [event.refusal for event in driven.of(CallBlocked)] == ["unparsed"]


@pytest.mark.parametrize("mode", ["text", "lines", "small", "large"])
@pytest.mark.parametrize("name", ["read_files", "final_answer"])
def test_a_call_with_a_placeholder_is_not_made(mode: str, name: str) -> None:
    copied = call("read_files", paths=["<paths: string>"])
    if name == "final_answer":
        copied = call(name, message="<message: string>") if mode in ("text", "lines") else "<message: string>"
    driven = run(mode, copied, "It is nine.", query="what does a.txt say?")
    assert driven.run.steps[0].refusal == "invalid"
    assert driven.run.answer != "<message: string>"


@pytest.mark.parametrize(("mode", "is_read"), [("large", True), ("small", False)])
def test_a_model_reads_what_it_has_said_before_a_call_of_its_template(mode: str, is_read: bool) -> None:
    text = f"I look at the clock.\n{written(json.loads(call('get_now')))}"
    driven = run(mode, text, "It is nine.", query="what time is it?", replies=[{"time": "9:00"}])
    messages = driven.of(CallModel)[1].request.messages
    said = [each["content"] for each in messages if each.get("tool_calls")]
    assert ("I look at the clock." in said) == is_read
    assert ("clock" in str(messages)) == is_read
    assert driven.run.answer == "It is nine."


@pytest.mark.parametrize("mode", ["text", "lines"])
@pytest.mark.parametrize("after", ["", "\nObservation: 12:00"])
def test_a_model_reads_what_it_has_said_before_a_call(mode: str, after: str) -> None:
    text = f"I look at the clock.\n{call('get_now')}{after}"
    driven = run(mode, text, "It is nine.", query="what time is it?", replies=[{"time": "9:00"}])
    said, outcome = driven.of(CallModel)[1].request.messages[-2:]
    shown = call("get_now") if mode == "text" else "tool: get_now\nargs: {}"
    assert (said["role"], said["content"]) == ("assistant", f"I look at the clock.\n\n{shown}")
    assert "Observation" not in outcome["content"]
    assert driven.run.steps[0].text == text
    assert driven.run.answer == "It is nine."
