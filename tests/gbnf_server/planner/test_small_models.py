"""When a run of a small model that calls natively answers or ends, and what a large one may do."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Tool
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.call_odds import (
    call_odds,
    odds_request,
)
from gbnf_server.planner.events import (
    AskApproval,
    CallBlocked,
    CallModel,
    ExecuteTool,
    StepStarted,
)
from gbnf_server.planner.guidance import GUIDED
from gbnf_server.planner.requested_arguments import narrowed
from gbnf_server.planner.requested_tools import meant
from gbnf_server.planner.run_state import OrderedTools, RunState
from gbnf_server.system.errors import ExecutorError
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import LARGE, SMALL, drive, odds, written

NO_CHOICE = completion("{}")  # among the tools, of a server that gives no probabilities
FOLDER = {"name": "create_dirs", "arguments": {"paths": ["invoices"]}}
ASKED = "create a folder invoices"
FILE_TOOLS = {"read_files", "find_files", "write_files", "delete_files", "create_dirs"}


def test_after_all_is_done_the_answer_is_asked_for_from_the_results_alone() -> None:
    driven = drive(ASKED, written(FOLDER), "Done: invoices.", replies=[{"entries": ["invoices"]}])
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["create_dirs"]
    first, last = driven.of(CallModel)
    assert (first.purpose, last.purpose) == ("call", "answer")
    assert first.request.tools
    assert not last.request.tools
    assert "invoices" in last.request.messages[-1]["content"]
    assert (driven.run.outcome, driven.run.answer) == ("answered", "Done: invoices.")


@pytest.mark.parametrize("pattern", ["*.md", "*.txt"])
def test_a_call_of_the_same_tool_again_means_that_nothing_is_left(pattern: str) -> None:
    found, again = (
        {"name": "find_files", "arguments": {"base_path": "notes", "pattern": each}}
        for each in ("*.md", pattern)
    )
    query = "whatever, please"  # no word of a tool, so only the repetition shows it
    driven = drive(query, *map(written, (found, again)), "There.", replies=[{"entries": ["a.md"]}])
    assert len(driven.of(ExecuteTool)) == 1
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["repeated"]
    # an answer that does not mention what was found is followed by it
    assert (driven.run.outcome, driven.run.answer) == ("answered", "There.\n\na.md")


def test_what_the_request_names_and_no_call_has_is_still_done() -> None:
    calls_of_both = [{"name": "create_dirs", "arguments": {"paths": [name]}} for name in ("trips", "notes")]
    driven = drive(
        "create the folders 'trips' and 'notes'", *map(written, calls_of_both), "Both.", replies=[{}, {}]
    )
    assert len(driven.of(ExecuteTool)) == 2
    assert driven.run.answer == "Both."


def test_a_list_of_values_takes_a_call_for_each() -> None:
    compute = [{"name": "compute", "arguments": {"expression": text}} for text in ("3*4", "5*12")]
    driven = drive(
        "compute 3*4 and 5*12", *map(written, compute), "12 and 60.", replies=[{"value": 12}, {"value": 60}]
    )
    first, second, *_ = driven.of(StepStarted)
    assert ("final_answer" in first.tools, "final_answer" in second.tools) == (True, False)
    assert len(driven.of(ExecuteTool)) == 2
    assert driven.run.answer == "12 and 60."


def test_a_value_that_no_call_takes_does_not_keep_a_run_from_its_answer() -> None:
    query = "compute 3*4 and tell the 7 dwarfs and the 99 others"
    texts = [written({"name": "compute", "arguments": {"expression": text}}) for text in ("3*4", "1+1")]
    driven = drive(query, *texts, "Twelve.", replies=[{"value": 12}, {"value": 2}])
    assert len(driven.of(ExecuteTool)) == 1
    assert [("final_answer" in started.tools) for started in driven.of(StepStarted)][:2] == [True, False]
    assert driven.run.answer == "Twelve."


def test_the_wrapper_of_a_result_is_no_answer() -> None:
    driven = drive(
        "create a folder invoices, then find out what is in reports",
        written(FOLDER),
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


@pytest.mark.parametrize("useless", ['{"a": 1}', "This was done, with these results: invoices", ASKED])
def test_an_answer_that_cannot_be_used_is_no_answer_of_the_run(useless: str) -> None:
    options = {**SMALL, "salvage": True}
    driven = drive(ASKED, written(FOLDER), useless, options=options, replies=[{"entries": ["invoices"]}])
    assert driven.run.outcome == "salvaged"
    assert driven.run.answer != useless


def test_a_large_model_may_repeat_and_answers_itself() -> None:
    now = written({"name": "get_now", "arguments": {}})
    driven = drive("what time is it?", now, now, "Noon.", options=LARGE, replies=[{"time": "12"}] * 2)
    assert len(driven.of(ExecuteTool)) == 2
    assert {effect.purpose for effect in driven.of(CallModel)} == {"call"}
    assert driven.run.answer == "Noon."
    assert not driven.of(CallBlocked)


EVENT = {"name": "create_events", "arguments": {"title": "lunch", "starts": ["2025-03-05T13:00"]}}


@pytest.mark.parametrize(
    ("query", "is_asked"),
    [
        ("put lunch in my calendar tomorrow at 13:00", True),
        ("put lunch of 5 March 2025 at 13:00 in my calendar", False),
        ("put lunch on 2025-03-05 at 13:00 in my calendar", False),
    ],
)
@pytest.mark.parametrize("options", [SMALL, LARGE])
def test_a_person_is_asked_before_an_event_in_the_past(
    query: str, is_asked: bool, options: dict[str, Any]
) -> None:
    driven = drive(query, written(EVENT), "Done.", options=options, approvals=[False])
    assert [effect.call["arguments"]["starts"] for effect in driven.of(AskApproval)] == (
        [["2025-03-05T13:00"]] * is_asked
    )
    assert len(driven.of(ExecuteTool)) == (not is_asked)


@pytest.mark.parametrize(
    ("query", "days"),
    [
        ("put lunch in my calendar tomorrow at 13:00", ["tomorrow: 2026-03-06"]),  # it is 2026-03-05
        ("put lunch in my calendar today at 13:00", []),
        ("put lunch in my calendar on 2026-03-09 at 13:00", []),
        ("read tomorrow's paper", []),
        (
            "put lunch in my calendar tomorrow at half past nine",
            ["tomorrow: 2026-03-06", "half past nine: 09:30"],
        ),
    ],
)
def test_a_small_model_is_told_which_day_is_meant(query: str, days: list[str]) -> None:
    for options, said in ((SMALL, days), (LARGE, [])):
        asked = drive(query, "Well.", options=options).of(CallModel)[0].request.messages[-1]["content"]
        told = (line for line in asked.removeprefix(query).splitlines() if re.search("2026|09:30", line))
        assert list(told) == said


@pytest.mark.parametrize(("query", "language"), [("crea una cartella", "it"), ("create a folder", "en")])
def test_tools_are_described_in_the_language_of_the_request(query: str, language: str) -> None:
    driven = drive(query, "Well.", options={**LARGE, "language": "auto"})
    tools = driven.of(CallModel)[0].request.tools
    described = {tool["function"]["description"] for tool in tools}
    assert described <= {tool.description(language) for tool in BUNDLED}


def test_what_was_just_read_is_not_written_over() -> None:
    find = {"name": "find_files", "arguments": {"base_path": "notes", "pattern": "*.md"}}
    read = {"name": "read_files", "arguments": {"paths": ["notes/a.md"]}}
    over = {"name": "write_files", "arguments": {"files": [{"path": "notes/a.md", "content": "x"}]}}
    results = [{"entries": ["notes/a.md"]}, {"entries": ["text"]}]
    texts = [*map(written, (find, read, over)), "Read."]
    driven = drive("find all the markdown files in notes and read them", *texts, replies=results)
    assert "write_files" in driven.of(StepStarted)[0].tools
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["find_files", "read_files"]
    for started in driven.of(StepStarted)[1:]:
        assert "write_files" not in started.tools


@given(st.floats(-8, 8))
def test_the_odds_of_a_call_are_those_of_its_beginnings(log_odds: float) -> None:
    found = call_odds(odds(log_odds))
    assert found is not None
    assert math.isclose(found, log_odds, abs_tol=1e-6)
    assert call_odds(completion("x")) is None
    sure = call_odds(odds(log_odds), "The call:")
    assert sure is not None
    assert sure > 10, "the format's own calls begin with the rest"
    asked = odds_request(
        Request([{"role": "user", "content": "x"}], max_tokens=99, temperature=1.0, stop=["a"])
    )
    assert (asked.grammar, asked.max_tokens, asked.temperature, asked.stop) == (None, 1, 0.0, ())


def test_an_answer_that_proposes_a_call_makes_it() -> None:
    proposed = f"You can use this call:\n\n```json\n{json.dumps(FOLDER)}\n```\n\nIt makes a folder."
    texts: list[str | Completion] = [odds(-5), proposed, written(FOLDER), "Done: invoices."]
    options = {**SMALL, "gives_logprobs": True}
    driven = drive(ASKED, *texts, options=options, replies=[{"entries": ["invoices"]}])
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["create_dirs"]
    assert driven.run.answer == "Done: invoices."


@pytest.mark.parametrize("options", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("query", "call", "made"),
    [
        (ASKED, FOLDER, True),
        (ASKED, {"name": "create_dirs", "arguments": {"paths": "invoices"}}, True),
        (ASKED, {"name": "create_folder", "arguments": {"paths": ["invoices"]}}, False),
    ],
)
def test_a_call_between_prose_is_one_of_a_small_model_only(
    options: Any, query: str, call: Any, made: bool
) -> None:
    text = f"I will make it:\n\n{written(call)}\n\nThen it is there."
    driven = drive(query, text, "Done: invoices.", options=options, replies=[{"entries": ["invoices"]}])
    made = made and options is SMALL
    assert [effect.arguments for effect in driven.of(ExecuteTool)] == [{"paths": ["invoices"]}] * made
    assert driven.run.answer == ("Done: invoices." if options is SMALL else text)


@pytest.mark.parametrize("key", ["arguments", "parameters"])
@pytest.mark.parametrize(("more", "is_answer"), [("", False), (", as JSON", True)])
def test_a_call_of_a_tool_that_does_not_exist_is_no_part_of_an_answer(
    key: str, more: str, is_answer: bool
) -> None:
    text = f'In French:\n\n{{"name": "bonjour", "{key}": {{"message": "Bonjour"}}}}'
    driven = drive(f"translate good morning into French{more}", text, "Bonjour.")
    assert driven.run.answer == (text if is_answer else "Bonjour.")


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


def test_a_call_that_is_not_offered_is_no_answer() -> None:
    call = f">{json.dumps({'name': 'find_files', 'arguments': {'base_path': '.', 'pattern': '*'}})}"
    driven = drive("hello", call, "Hello!", options=LARGE)
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["unparsed"]
    assert driven.run.answer == "Hello!"


@pytest.mark.parametrize(
    ("query", "starts"),
    [
        ("an event on 2026-11-24 at 18:00", 1),
        ("events on 2026-11-24 at 18:00 and on 2026-11-25 at 9:30", 2),
        ("an event every day at 18:00", None),
        ("an event", None),
        ("find a free slot tomorrow and book a visit", 1),
        ("trova un'ora libera domani e prenota il dentista", 1),
        ("find a free hour every day and book the gym", None),
        ("find 2 free slots and book them", None),
        ("find a couple of free hours and book piano practice in them", None),
        ("trova un po' di tempo libero e prenota la palestra", None),
    ],
)
def test_a_list_of_times_has_as_many_as_the_request(query: str, starts: int | None) -> None:
    tool = next(tool for tool in BUNDLED if tool.name == "create_events")
    properties = narrowed(tool, query).args["properties"]
    assert properties["starts"].get("maxItems") == starts
    assert all("maxItems" not in schema for name, schema in properties.items() if name != "starts")


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


@pytest.mark.parametrize(
    ("query", "entries", "reads"),
    [
        ("what is the sum of the numbers in a.txt?", ["a.txt"], True),
        ("what does notes/a.txt say?", ["notes/a.txt"], True),
        ("what does notes/a.txt say?", ["notes/a.txt", "b.txt"], False),
        ("is there a file a.txt?", ["a.txt"], False),
        ("find a.txt", ["a.txt"], False),
    ],
)
def test_a_file_that_was_only_found_is_read_before_the_answer(
    query: str, entries: list[str], reads: bool
) -> None:
    find = written({"name": "find_files", "arguments": {"base_path": ".", "pattern": "a.txt"}})
    read = written({"name": "read_files", "arguments": {"paths": entries}})
    texts = [find, read, "It is 12."] if reads else [find, "It is there."]
    driven = drive(query, *texts, "It is there.", replies=[{"entries": entries}, {"entries": ["3 4 5"]}])
    _, second, *_ = driven.of(StepStarted)
    assert (second.tools == ("read_files",)) is reads
    assert str(driven.run.answer).startswith("It is 12." if reads else "It is there.")


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


def test_an_italian_question_that_is_copied_is_asked_in_english() -> None:
    find = {"name": "find_files", "arguments": {"base_path": "note", "pattern": "*"}}
    copied, answer = "Di' alla persona il risultato, in una o due frasi.", "Ci sono a.md e b.md."
    files = [{"entries": ["note/a.md", "note/b.md"]}]
    driven = drive("trova i file nella cartella note", written(find), copied, answer, replies=files)
    first, again = (effect.request for effect in driven.of(CallModel) if effect.purpose == "answer")
    assert [request.messages[0]["content"].split(":")[0] for request in (first, again)] == [
        "Richiesta", "Request",
    ]  # fmt: skip
    assert driven.run.outcome == "answered"
    assert str(driven.run.answer).startswith(answer)


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        ("tell ann@example.com I'm late", "I'm late"),  # dictated
        ("send a mail to ann@example.com about dinner", None),  # worded by the model
        # words of the request
        ("mail ann@example.com: the tool that fits best is a saw", "the tool that fits best"),
    ],
)
def test_what_the_prompt_adds_to_a_request_is_never_sent(request_: str, sent: str | None) -> None:
    arguments = {"to": ["ann@example.com"], "subject": "late", "body": "the tool that fits best"}
    calls = [json.dumps({"name": "send_messages", "arguments": arguments})] * 4
    ending = json.dumps({"name": "final_answer", "arguments": {"message": "Sent."}})
    driven = drive(
        request_, *(calls if sent is None else calls[:1]), ending, options={"guidance": GUIDED.in_prompt()}
    )
    suggested = driven.of(CallModel)[0].request.messages[-1]["content"]
    assert suggested.startswith(f"{request_}\n\nThe tool that fits best: send_messages")
    executed = [effect.arguments["body"] for effect in driven.of(ExecuteTool)]
    assert executed == ([] if sent is None else [sent])


def test_only_the_file_that_a_request_names_is_deleted() -> None:
    find = {"name": "find_files", "arguments": {"base_path": "old", "pattern": "*.txt"}}
    files = ["old/draft.txt", "old/final.txt"]
    delete, referring, wrong = (
        {"name": "delete_files", "arguments": arguments}
        for arguments in ({"paths": files}, {"from_step": 1}, {"paths": files[1:]})
    )
    request, found = "delete old/draft.txt", [{"entries": files}, {}]
    ending = {"name": "final_answer", "arguments": {"message": "Gone."}}
    in_json = [json.dumps(find), json.dumps(referring), json.dumps(ending)]
    for driven in (
        drive(request, written(find), written(delete), "Gone.", replies=found),
        drive(request, *in_json, options={"guidance": GUIDED.in_prompt()}, replies=found),
    ):
        assert [effect.arguments for effect in driven.of(ExecuteTool)][1:] == [{"paths": files[:1]}]
        assert driven.run.outcome == "answered"
    driven = drive(request, written(find), written(wrong), *["It is not there."] * 5, replies=found)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["find_files"]
    assert driven.of(CallBlocked)[0].error.startswith("the request is not about old/final.txt")
    again = [json.dumps(find), *[json.dumps(delete)] * 2, json.dumps(ending)]
    driven = drive(request, *again, options={"guidance": GUIDED.in_prompt()}, replies=found)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["find_files", "delete_files"]
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["repeated"]


def test_a_call_that_is_invalid_without_other_files_is_refused() -> None:
    paths = {"type": "array", "items": {"type": "string"}, "minItems": 2}
    args = {"type": "object", "required": ["paths"], "properties": {"paths": paths}}
    merge = Tool.from_mapping(
        {
            "name": "delete_both",
            "description": {"en": "Delete files."},
            "args": args,
            "run": {"effect": "write"},
        }
    )
    files = ["old/a.txt", "old/b.txt"]
    find = {"name": "find_files", "arguments": {"base_path": "old", "pattern": "*.txt"}}
    calls = [find, {"name": "delete_both", "arguments": {"paths": files}}]
    texts = [*map(json.dumps, calls), json.dumps({"name": "final_answer", "arguments": {"message": "No."}})]
    driven = drive_by_hand(
        (*BUNDLED, merge),
        map(completion, texts),
        query="delete old/a.txt",
        options=resolved(guidance=GUIDED.in_prompt()),
        replies=[{"entries": files}],
    )
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["find_files"]
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["invalid"]


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
    driven = drive(ASKED, written(FOLDER), ASKED, "Done: invoices.", replies=[{"entries": ["invoices"]}])
    *_, first, second = driven.of(CallModel)
    assert (first.purpose, second.purpose) == ("answer", "answer")
    grammars: list[Any] = [each.request.grammar for each in (first, second)]
    assert [grammar.match("It is there.").complete for grammar in grammars] == [True, False]
    assert grammars[1].match("Done: it is there.").complete
    assert not grammars[1].match("Done: it is there.\nTell the person.").complete
    assert (driven.run.outcome, driven.run.answer) == ("answered", "Done: invoices.")


def test_a_bare_result_with_escaped_brackets_is_no_answer() -> None:
    texts = [written(FOLDER), '\\u003ctool_response>\n{"step": 1}\n\\u003c/tool_response>', "It is there."]
    query = "create a folder invoices, then find out what is in reports"
    assert drive(query, *texts, replies=[{"entries": ["invoices"]}]).run.answer == "It is there."


@pytest.mark.parametrize(
    ("first", "result", "second", "made"),
    [
        (
            "find_files",
            {"entries": ["notes/rome.md", "notes/oslo.md"], "count": 2},
            None,
            3,
        ),  # from the results
        ("find_files", {"entries": [], "count": 0}, {"base_path": ".", "pattern": "*.txt"}, 2),  # elsewhere
        ("find_files", {"entries": ["notes/a.md"], "count": 1}, {"base_path": ".", "pattern": "*.txt"}, 1),
    ],
)
def test_a_further_call_has_more_of_the_request_or_of_the_results(
    first: str, result: dict[str, Any], second: dict[str, Any] | None, made: int
) -> None:
    reads = [
        {"name": "read_files", "arguments": {"paths": [path]}} for path in ("notes/rome.md", "notes/oslo.md")
    ]
    again = [{"name": first, "arguments": second}] if second else reads
    found = {"name": first, "arguments": {"base_path": "notes", "pattern": "*.md"}}
    query = "look into notes and tell me the current state of each of these, then the rest, please"
    texts = [*map(written, [found, *again]), "That is all."]
    driven = drive(query, *texts, replies=[result, {"entries": ["oats"]}, {"entries": ["milk"]}])
    assert len(driven.of(ExecuteTool)) == made


def test_a_result_instead_of_an_answer_leads_to_what_is_left() -> None:
    wrapper = '{"step": 1, "result": {"entries": ["invoices"]}}'
    now = written({"name": "get_now", "arguments": {}})
    query = "create a folder called invoices and tell me what time it is"
    texts = [written(FOLDER), wrapper, now, "It is 10:32."]
    driven = drive(query, *texts, replies=[{"entries": ["invoices"]}, {"time": "10:32"}])
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["create_dirs", "get_now"]
    assert "final_answer" not in driven.of(StepStarted)[2].tools
    assert driven.run.answer == "It is 10:32."


def test_a_guessed_path_is_looked_for_before_a_small_model_apologises() -> None:
    delete = {"name": "delete_files", "arguments": {"paths": ["build/log"]}}
    find = {"name": "find_files", "arguments": {"base_path": "build", "pattern": "*.log"}}
    failed = ExecutorError("'build/log' does not exist")
    texts = [written(delete), written(find), "There are none."]
    driven = drive("delete the log in build", *texts, replies=[failed, {"entries": [], "count": 0}])
    _, second, third, *_ = driven.of(StepStarted)
    assert "find_files" in second.tools
    assert {"final_answer", "delete_files"}.isdisjoint(second.tools)
    assert "final_answer" in third.tools
    assert driven.run.answer == "There are none."


@pytest.mark.parametrize("failures", [1, 2])
def test_a_tool_that_is_due_and_fails_does_not_keep_a_run_from_its_answer(failures: int) -> None:
    compute, now = (
        {"name": name, "arguments": a} for name, a in (("compute", {"expression": "1+1"}), ("get_now", {}))
    )
    failed = [ExecutorError("no clock")] * failures
    texts = [*map(written, [compute, *[now] * failures]), "Two."]
    driven = drive("what is 1+1 and what time is it", *texts, replies=[{"value": 2}, *failed])
    assert (driven.run.outcome, driven.run.answer) == ("answered", "Two.")


def test_a_question_with_words_of_a_tool_without_an_affinity_may_be_answered() -> None:
    get, merge = (
        Tool.from_mapping(
            {"name": f"{verb}_pull_request", "description": text, "args": {}, "run": {"effect": effect}}
        )
        for verb, text, effect in (("get", "Get a request.", "read"), ("merge", "Merge a request.", "write"))
    )
    called = completion(written({"name": get.name, "arguments": {}}))
    driven = drive_by_hand(
        [get, merge],
        [called, completion("The fifth.")],
        query="which pull requests can I merge?",
        options=resolved(**SMALL),
        replies=[{"entries": ["the fifth"]}],
    )
    assert "final_answer" in driven.of(StepStarted)[1].tools


def test_the_best_tool_s_call_ends_a_request_for_one_thing() -> None:
    read = {"name": "read_files", "arguments": {"paths": ["a.md"]}}
    driven = drive("show me what is in a.md", written(read), "A note.", replies=[{"entries": ["oats"]}])
    assert [effect.purpose for effect in driven.of(CallModel)] == ["call", "answer"]
    assert driven.run.answer == "A note.\n\noats"


@pytest.mark.parametrize(
    ("query", "changes"),
    [
        ("any openings in my diary tomorrow afternoon?", False),
        ("did I put the dentist in my calendar?", False),
        ("do I have a meeting in my diary tomorrow at 9.30?", False),
        ("any chance you could book a meeting tomorrow at 9?", True),
        ("is there a way to put the dentist in my calendar tomorrow at 10?", True),
        ("ho un appuntamento domani alle 9, puoi segnarlo in agenda?", True),
        ("c'è modo di segnare una riunione domani alle 9?", True),
        ("any chance of booking a room tomorrow at 9?", True),
    ],
)
def test_a_yes_no_question_changes_nothing(query: str, changes: bool) -> None:
    driven = drive(query, "There are.")
    assert ("create_events" in driven.of(StepStarted)[0].tools) == changes


@pytest.mark.parametrize(
    ("query", "outcomes"),
    [
        ("let ann@example.com know about the dinner at eight", ["invalid", None]),
        ("mail ann@example.com an apology: sorry, we cannot help", [None]),
        ("write to ann@example.com and say that we could not help", [None]),
    ],
)
def test_an_apology_of_the_model_is_sent_to_nobody(query: str, outcomes: list[str | None]) -> None:
    mail = {
        "to": ["ann@example.com"],
        "subject": "Dinner",
        "body": "I'm sorry, but we cannot help you with it.",
    }
    sent = written({"name": "send_messages", "arguments": mail})
    better = written({"name": "send_messages", "arguments": {**mail, "body": "Dinner is at eight."}})
    driven = drive(query, sent, better, "Sent.", replies=[{"sent_to": ["ann@example.com"]}])
    assert [step.refusal for step in driven.run.steps][: len(outcomes)] == outcomes
    bodies = [effect.arguments["body"] for effect in driven.of(ExecuteTool)]
    assert bodies == [mail["body"] if outcomes == [None] else "Dinner is at eight."]


@pytest.mark.parametrize(
    ("query", "is_written"),
    [
        ("mail ann@example.com a list of the notes, and keep it for me", False),
        ("update the notes in wiki, and save them in capitals", True),
        ("find the notes in wiki, then write hello to home.md", True),
        ("find my home page in wiki and write hello", True),
        ("find the notes in wiki and write hello into each", True),
    ],
)
def test_a_file_that_was_only_found_is_not_written_over(query: str, is_written: bool) -> None:
    find = {"name": "find_files", "arguments": {"base_path": "wiki", "pattern": "*.md"}}
    write = {"name": "write_files", "arguments": {"files": [{"path": "wiki/home.md", "content": "hello"}]}}
    replies = [{"entries": ["wiki/home.md"]}, {"entries": ["wiki/home.md"]}]
    driven = drive(query, written(find), written(write), "It is done.", replies=replies)
    assert any(effect.tool.name == "write_files" for effect in driven.of(ExecuteTool)) == is_written


@pytest.mark.parametrize(
    ("request_", "may"),
    [
        ("tidy up, delete drafts", False),
        ("find the drafts, remove them", False),
        ("make a/b, then delete a/b", True),
        ("make a/b, and when done remove it", True),
        ("crea la cartella a/b e poi cancellala", True),
    ],
)
def test_what_a_run_has_made_is_deleted_only_if_the_request_names_it_again(request_: str, may: bool) -> None:
    request_ = request_ if may else f"make the folder a/b and {request_}"
    make = {"name": "create_dirs", "arguments": {"paths": ["a/b"]}}
    delete = {"name": "delete_files", "arguments": {"paths": ["a/b"]}}
    texts = [written(make), *[written(delete)] * 3, *["Done."] * 3]
    driven = drive(request_, *texts, replies=[{"entries": ["a/b"]}] * 4)
    assert ("delete_files" in [effect.tool.name for effect in driven.of(ExecuteTool)]) == may


def test_no_file_has_an_address_for_its_name() -> None:
    request_ = "write ann@example.com that dinner is ready"
    write = {"files": [{"path": "ann@example.com", "content": "dinner is ready"}]}
    texts = [written({"name": "write_files", "arguments": write})] * 3
    driven = drive(request_, *texts, *["No."] * 3)
    assert not driven.of(ExecuteTool)
    assert driven.run.outcome != "failed"
    named = drive("write dinner is ready into the file ann@example.com", *texts, *["Done."] * 3, replies=[{}])
    assert named.of(ExecuteTool)
    save = {"files": [{"path": "contacts.txt", "content": "ann@example.com"}]}
    texts = [written({"name": "write_files", "arguments": save})]
    saved = drive("write ann@example.com to contacts.txt", *texts, *["Done."] * 3, replies=[{}])
    assert saved.of(ExecuteTool)


@pytest.mark.parametrize(
    ("repeated", "rest", "executed"),
    [
        ("\\n", '"}]}}', "milk"),
        (" ", '  "}]}}', "milk"),
        ("\\n", 'x"}]}}', None),  # more was cut than blank lines
        ("\\n", '", "path": "a"}]}}', None),
        ("milk", '"}]}}', None),
    ],
)
def test_a_text_that_goes_on_with_blank_lines_ends_before_them(
    repeated: str, rest: str, executed: str | None
) -> None:
    path = "" if "path" in rest else '"path": "a.txt", '
    begun = f'{{"name": "write_files", "arguments": {{"files": [{{{path}"content": "milk{repeated * 30}'
    cut = replace(completion(begun + rest), shortened_at=len(begun), repeated=repeated)
    none = drive("write a poem to a.txt", cut, *["I have no poem."] * 3)
    assert not none.of(ExecuteTool)  # more of it may come
    driven = drive("write milk to a.txt", cut, *["Done: milk."] * 3, replies=[{"entries": ["a.txt"]}])
    contents = [effect.arguments["files"][0]["content"] for effect in driven.of(ExecuteTool)]
    assert contents == ([] if executed is None else [executed])


def test_what_was_read_is_mailed_after_a_folder_was_made() -> None:
    request_ = (
        "make a folder plans for the file plans/list.xml. Also read boat.xml and email it to ann@example.com"
    )
    calls = [
        {"name": "read_files", "arguments": {"paths": ["boat.xml"]}},
        {"name": "create_dirs", "arguments": {"paths": ["plans/list.xml"]}},
        {
            "name": "send_messages",
            "arguments": {"to": ["ann@example.com"], "subject": "boat", "body": "I cannot help."},
        },
    ]
    replies = [{"entries": ["the oars are wet"]}, {"entries": ["plans"]}, {"sent_to": ["ann@example.com"]}]
    driven = drive(request_, *map(written, calls), "The oars are wet.", replies=replies)
    read, make, send = (effect.arguments for effect in driven.of(ExecuteTool))
    assert read == calls[0]["arguments"]
    assert make == {"paths": ["plans"]}
    assert send["body"] == "the oars are wet"


def test_the_file_of_a_mail_is_not_written_over() -> None:
    mail = {"to": ["ann@example.com"], "subject": "order", "body": "the order is ready"}
    over = {"files": [{"path": "outbox/order.eml", "content": "the order is ready"}]}
    calls = [{"name": "send_messages", "arguments": mail}, {"name": "write_files", "arguments": over}]
    request_ = "mail ann@example.com: the order is ready. Then write the text done to log.txt"
    replies = [{"sent_to": ["ann@example.com"], "file": "outbox/order.eml"}, {"entries": []}]
    driven = drive(request_, *map(written, calls), *["Done."] * 3, replies=replies)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["send_messages"]


def test_a_path_is_completed_from_an_absolute_one_of_the_request() -> None:
    request_ = "/family/merit/north.txt can go, remove it"
    delete = {"name": "delete_files", "arguments": {"paths": ["north.txt"]}}
    driven = drive(request_, written(delete), "It is gone.", replies=[{"entries": []}])
    assert [effect.arguments for effect in driven.of(ExecuteTool)] == [{"paths": ["family/merit/north.txt"]}]


SLOTS = ["2026-11-23T09:00/2026-11-23T10:00", "2026-11-23T10:00/2026-11-23T11:00"]


@pytest.mark.parametrize(
    ("request_", "entries", "has_files"),
    [
        ("search for two time slots next week, then let me choose one", SLOTS, False),
        ("trova il primo momento libero domani e mettici la colazione", SLOTS, False),
        ("find a free slot tomorrow and write it to slots.txt", SLOTS, True),
        ("find a free slot tomorrow and save it in my notes", SLOTS, True),
        ("find a free slot tomorrow and tell me", ["2026-11-23 minutes.txt", "a.txt"], True),
    ],
)
def test_times_that_were_found_are_no_names_of_files(
    request_: str, entries: list[str], has_files: bool
) -> None:
    find = {"name": "find_events_empty", "arguments": {"period": "next_week"}}
    driven = drive(request_, written(find), *["No."] * 4, replies=[{"entries": entries}])
    second = [tool for step in driven.of(StepStarted)[1:] for tool in step.tools]
    assert not (FILE_TOOLS.intersection(second) and not has_files)
    state = RunState(request_, "", driven.run.started_at, resolved(**SMALL), OrderedTools(BUNDLED))
    state.entries[1] = tuple(entries)
    assert bool(FILE_TOOLS.intersection(tool.name for tool in meant(BUNDLED, state))) == has_files
