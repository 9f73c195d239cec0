"""When a run of a small model that calls natively answers or ends, and what a large one may do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gbnf import Grammar
from gbnf.tools import Tool
from gbnf_server.planner.events import CallBlocked, CallModel, ExecuteTool, StepStarted
from gbnf_server.planner.guidance import GUIDED
from gbnf_server.system.errors import ExecutorError
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import (
    ASKED_FIRST,
    BILL_CALL,
    BILL_REQUEST,
    FOLDER_CALL,
    FOLDER_REQUEST,
    LARGE,
    NO_CHOICE,
    SMALL,
    chosen,
    drive,
    odds,
    written,
)


def test_after_all_is_done_the_answer_is_asked_for_from_the_results_alone() -> None:
    driven = drive(
        FOLDER_REQUEST, written(FOLDER_CALL), "Done: invoices.", replies=[{"entries": ["invoices"]}]
    )
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["create_dirs"]
    first, last = driven.of(CallModel)
    assert (first.purpose, last.purpose) == ("call", "answer")
    assert first.request.tools
    assert not last.request.tools
    assert "invoices" in last.request.messages[-1]["content"]
    assert (driven.run.outcome, driven.run.answer) == ("answered", "Done: invoices.")


@pytest.mark.parametrize(
    "useless", ['{"a": 1}', "This was done, with these results: invoices", FOLDER_REQUEST]
)
def test_an_answer_that_cannot_be_used_is_no_answer_of_the_run(useless: str) -> None:
    options = {**SMALL, "salvage": True}
    driven = drive(
        FOLDER_REQUEST, written(FOLDER_CALL), useless, options=options, replies=[{"entries": ["invoices"]}]
    )
    assert driven.run.outcome == "salvaged"
    assert driven.run.answer != useless


def test_a_large_model_may_repeat_and_answers_itself() -> None:
    now = written({"name": "get_now", "arguments": {}})
    driven = drive("what time is it?", now, now, "Noon.", options=LARGE, replies=[{"time": "12"}] * 2)
    assert len(driven.of(ExecuteTool)) == 2
    assert {effect.purpose for effect in driven.of(CallModel)} == {"call"}
    assert driven.run.answer == "Noon."
    assert not driven.of(CallBlocked)


@pytest.mark.parametrize(("query", "language"), [("crea una cartella", "it"), ("create a folder", "en")])
def test_tools_are_described_in_the_language_of_the_request(query: str, language: str) -> None:
    driven = drive(query, "Well.", options={**LARGE, "language": "auto"})
    tools = driven.of(CallModel)[0].request.tools
    described = {tool["function"]["description"] for tool in tools}
    assert described <= {tool.description(language) for tool in BUNDLED}


def test_a_form_that_nobody_answers_is_not_shown_again() -> None:
    schema = {"kind": "text"}
    forms = [
        {
            "name": "get_inputs",
            "arguments": {"title": "x", "dialog": [{"var": var, "prompt": "x", "schema": schema}]},
        }
        for var in "xyz"
    ]
    failed = ExecutorError("there is nobody to answer 'x' of 'x': run at a terminal")
    texts = [*map(written, forms), "I need to know which one."]
    driven = drive("ask me which one I want", *texts, replies=[failed] * 3)
    shown = [effect for effect in driven.of(ExecuteTool) if effect.tool.name == "get_inputs"]
    assert len(shown) == 1


def test_a_call_that_is_proposed_for_something_else_is_not_made() -> None:
    proposed = 'Use this:\n\n```json\n{"name": "get_now", "arguments": {}}\n```'
    options = {**SMALL, "gives_logprobs": True}
    driven = drive("play some jazz", NO_CHOICE, odds(0), proposed, "I cannot play music.", options=options)
    assert not driven.of(ExecuteTool)
    *_, first, second = driven.of(CallModel)
    assert (bool(first.request.tools), bool(second.request.tools)) == (True, False)
    assert driven.run.answer == "I cannot play music."


def test_what_an_answer_does_not_say_of_what_was_read_follows() -> None:
    slots = {"name": "find_events_empty", "arguments": {"period": "tomorrow"}}
    query = "when am I free tomorrow, and what else is there?"
    driven = drive(query, written(slots), "Choose one.", replies=[{"entries": ["9:00", "10:00"]}])
    assert driven.run.answer == "Choose one.\n\n9:00\n10:00"


@pytest.mark.parametrize(
    ("query", "answer", "is_added"),
    [
        ("read notes/plan.txt", "The plan was started on Monday.", True),
        ("what does notes/plan.txt say?", "It was started on Monday.", True),
        ("read notes/plan.txt", "It says: start on Monday.", False),
        ("what did I write in notes/plan.txt again?", "You wrote a plan for Monday.", True),
        ("when does notes/plan.txt start?", "It was started on Monday.", False),
        ("read notes/plan.txt and tell me about it", "It was started on Monday.", False),
        ("show me only the first line of notes/plan.txt", "It was started on Monday.", False),
        ("Could you please read me the file notes/plan.txt?", "It was started on Monday.", True),
    ],
)
def test_a_short_text_that_was_asked_for_is_in_the_answer(query: str, answer: str, is_added: bool) -> None:
    read = {"name": "read_files", "arguments": {"paths": ["notes/plan.txt"]}}
    ending = {"name": "final_answer", "arguments": {"message": answer}}
    replies = [{"entries": ["start on Monday"]}]
    for driven in (
        drive(query, written(read), answer, answer, replies=replies),
        drive(
            query,
            json.dumps(read),
            json.dumps(ending),
            options={"guidance": GUIDED.in_prompt()},
            replies=replies,
        ),
    ):
        assert driven.run.answer == (f"{answer}\n\nstart on Monday" if is_added else answer)


@pytest.mark.parametrize(
    "copied", ["Di' alla persona il risultato, in una o due frasi.", "In una o due frasi."]
)
def test_an_italian_question_that_is_copied_is_asked_in_english(copied: str) -> None:
    find = {"name": "find_files", "arguments": {"base_path": "note", "pattern": "*"}}
    answer = "Ci sono a.md e b.md."
    files = [{"entries": ["note/a.md", "note/b.md"]}]
    driven = drive("trova i file nella cartella note", written(find), copied, answer, replies=files)
    first, again = (effect.request for effect in driven.of(CallModel) if effect.purpose == "answer")
    assert [request.messages[0]["content"].split(":")[0] for request in (first, again)] == [
        "Richiesta", "Request",
    ]  # fmt: skip
    assert driven.run.outcome == "answered"
    assert str(driven.run.answer).startswith(answer)


def test_a_call_that_is_done_and_repeated_twice_ends_the_run() -> None:
    period = {"type": "object", "required": ["period"], "properties": {"period": {"enum": ["tomorrow"]}}}
    described = {"en": "List the events of the calendar in a period."}
    events = Tool.from_mapping({"name": "find_events", "description": described, "args": period})
    slots, other = (
        completion(written({"name": name, "arguments": {"period": "tomorrow"}}))
        for name in ("find_events_empty", "find_events")
    )
    driven = drive_by_hand(
        (*BUNDLED, events),
        [slots, slots, other, slots, completion("At 9:00.")],
        query="find 2 free slots tomorrow morning",
        options=resolved(**SMALL),
        replies=[{"entries": ["9:00", "10:00", "11:00"]}, ExecutorError("it does not work")],
    )
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["find_events_empty", "find_events"]
    assert [asked.purpose for asked in driven.of(CallModel)] == [*["call"] * 4, "answer"]
    assert [step.refusal for step in driven.run.steps] == [None, "repeated", None, "repeated", None]
    assert (driven.run.outcome, driven.run.answer) == ("answered", "At 9:00.")


def test_what_is_required_is_not_answered_without_by_repeating_what_is_done() -> None:
    slots = written({"name": "find_events_empty", "arguments": {"period": "tomorrow"}})
    options = {**SMALL, "required": ("send_messages",), "max_steps": 5}
    driven = drive(
        "find slots tomorrow and mail them to ada@example.com",
        *[slots] * 6,
        options=options,
        replies=[{"entries": ["9:00", "10:00"]}],
    )
    assert "answer" not in {asked.purpose for asked in driven.of(CallModel)}
    assert driven.run.outcome in {"blocked", "exhausted"}


def test_an_answer_that_only_repeats_the_request_begins_again() -> None:
    driven = drive(
        FOLDER_REQUEST,
        written(FOLDER_CALL),
        FOLDER_REQUEST,
        "Done: invoices.",
        replies=[{"entries": ["invoices"]}],
    )
    *_, first, second = driven.of(CallModel)
    assert (first.purpose, second.purpose) == ("answer", "answer")
    grammars: list[Any] = [each.request.grammar for each in (first, second)]
    assert [grammar.match("It is there.").complete for grammar in grammars] == [True, False]
    assert grammars[1].match("Done: it is there.").complete
    assert not grammars[1].match("Done: it is there.\nTell the person.").complete
    assert (driven.run.outcome, driven.run.answer) == ("answered", "Done: invoices.")


def test_an_apology_for_what_is_done_begins_again() -> None:
    apology = "I'm sorry, but I can't assist with that request."
    texts = [written(FOLDER_CALL), apology, "Done: invoices."]
    driven = drive(FOLDER_REQUEST, *texts, replies=[{"entries": ["invoices"]}])
    assert (driven.run.outcome, driven.run.answer) == ("answered", "Done: invoices.")


LEAVES = "Why do leaves turn red?"


def test_an_answer_that_repeats_the_request_after_a_result_is_asked_for_from_the_results() -> None:
    query = f"{BILL_REQUEST}. What then?"
    texts: list[Any] = [chosen({"compute": 0.9, "get_now": 0.1}), odds(9), written(BILL_CALL), query]
    driven = drive(query, *texts, "41.40 each.", options=ASKED_FIRST, replies=[{"value": 41.4}])
    assert driven.run.answer == "41.40 each."


@pytest.mark.parametrize(
    "draft",
    [
        "You can use the `find_files` function.",
        written({"name": "find_files", "arguments": {}}),
        LEAVES,
        "I need to search files by glob pattern, recursively.",  # the description of a tool
    ],
)
def test_an_answer_about_tools_to_what_no_tool_is_for_is_asked_for_without_them(draft: str) -> None:
    texts: list[Any] = [
        chosen({"compute": 0.4, "find_files": 0.3}),
        odds(-9),
        draft,
        "They lack chlorophyll.",
    ]
    driven = drive(LEAVES, *texts, options=ASKED_FIRST)
    asked = [each.request for each in driven.of(CallModel) if each.purpose == "call"]
    assert [bool(each.tools) for each in asked] == [True, False]
    assert "tool" not in asked[1].messages[0]["content"]
    assert next(each["content"] for each in asked[1].messages if each["role"] == "user") == LEAVES
    assert (driven.run.outcome, driven.run.answer) == ("answered", "They lack chlorophyll.")
    assert not driven.of(ExecuteTool)


LIGHTS = "turn off the lights in the kitchen"
UNKNOWN = 'Use this:\n```json\n{"name": "turn_off", "arguments": {"room": "kitchen"}}\n```'


@pytest.mark.parametrize(
    "again", [(), ("You answer in text alone: you can write, and nothing can be done.",)]
)
def test_a_call_of_no_tool_is_followed_by_a_question_without_tools_and_refusals(again: tuple[str]) -> None:
    shares = {"compute": 0.4, "find_files": 0.3}
    texts: list[Any] = [chosen(shares), odds(-9), UNKNOWN, *again, "I cannot do that."]
    driven = drive(LIGHTS, *texts, options=ASKED_FIRST)
    _, *asked = (effect.request for effect in driven.of(CallModel) if effect.purpose == "call")
    assert len(asked) == 1 + len(again)
    assert len(asked[0].messages) == 2
    # an equal prompt would have an equal answer
    assert len(asked[-1].messages) == 2 + 4 * len(again)
    for request in asked:
        system, user, *_ = request.messages
        assert (user["content"].split("\n\n")[0], request.tools) == (LIGHTS, ())
        assert "tool" not in system["content"]
        assert isinstance(request.grammar, Grammar)
        assert request.grammar.match("I cannot do that.").complete
        assert not request.grammar.match("```json").accepted
    assert (driven.run.outcome, driven.run.answer) == ("answered", "I cannot do that.")


def test_a_song_that_does_not_end_becomes_no_call() -> None:
    song = replace(completion("la la la " * 50), finish_reason="length", repeated="la la la ")
    texts: list[Any] = [chosen({"compute": 0.9, "get_now": 0.1}), odds(9), song, "La, la."]
    driven = drive("play some jazz", *texts, options=ASKED_FIRST)
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["truncated"]
    assert [started.tools for started in driven.of(StepStarted)][1:] == [("final_answer",)]
    assert driven.run.answer == "La, la."
    thoughts = replace(completion("First, I will work " * 50), finish_reason="length", repeated="First")
    fenced = replace(completion('```json\n{"name": "compute", "argu' + "m" * 90), finish_reason="length")
    for truncated in (thoughts, fenced):
        texts = [odds(9), truncated, written(BILL_CALL), "41.40."]
        driven = drive("compute 289.80 / 7", *texts, options=ASKED_FIRST, replies=[{"value": 41.4}])
        assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["compute"]


def test_where_only_the_answer_is_left_a_call_is_followed_by_a_question_without_tools() -> None:
    [send] = [tool for tool in BUNDLED if tool.name == "send_messages"]
    mail = {"name": "send_messages", "arguments": {"to": ["me"], "body": "A canoe."}}
    driven = drive_by_hand(
        (send,),
        [completion(text) for text in (written(mail), "I cannot do that.")],
        query="resize my canoe",
        options=resolved(**ASKED_FIRST),
    )
    first, again = (effect.request for effect in driven.of(CallModel))
    assert (bool(first.tools), bool(again.tools)) == (True, False)
    assert (driven.run.outcome, driven.run.answer) == ("answered", "I cannot do that.")
