"""What of a request is done and what is left: when a small model calls again, and when it answers."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.planner.events import CallBlocked, CallModel, ExecuteTool, StepStarted
from gbnf_server.system.errors import ExecutorError
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import FOLDER_CALL, SMALL, drive, written


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
    texts = [written(FOLDER_CALL), wrapper, now, "It is 10:32."]
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


def test_after_a_refusal_a_small_model_is_offered_what_fits() -> None:
    find = {"name": "find_files", "arguments": {"base_path": "measurements", "pattern": "*.csv"}}
    query = "find the csv files in the folder measurements, then tell the current state"
    driven = drive(query, *map(written, (find, find)), "These.", replies=[{"entries": ["a.csv"], "count": 1}])
    first, second, *_ = driven.of(StepStarted)
    assert "find_events_empty" in first.tools
    assert "find_events_empty" in second.tools
    assert "find_events_empty" not in driven.of(StepStarted)[2].tools


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("find the csv files in measurements and sort them", "final_answer"),
        ("find the csv files in measurements and sort them on acme", "sort_acme"),
    ],
)
def test_a_variant_is_left_to_do_only_if_its_provider_is_named(query: str, left: str) -> None:
    variant = Tool.from_mapping({
        "name": "sort_acme", "description": "Sort.", "affinity": ["sort"], "args": {},
        "run": {"effect": "write"},
    })  # fmt: skip
    call = {"name": "find_files", "arguments": {"base_path": "measurements", "pattern": "*.csv"}}
    options = resolved(**SMALL, providers={**PROVIDERS, "_acme": Provider(("acme",))})
    texts = [completion(written(call)), completion("These.")]
    driven = drive_by_hand((*BUNDLED, variant), texts, query=query, options=options)
    assert driven.of(StepStarted)[1].tools == (left,)


@pytest.mark.parametrize(
    ("query", "first", "left"),
    [
        ("what is 137 * 46 and what day is it today", "compute", "get_now"),
        ("what time is it? Mail it to giulia@example.com, please.", "get_now", "send_messages"),
        ("find a free slot tomorrow and put it in my calendar", "find_events_empty", "create_events"),
        ("cancella i file di log nella cartella build", "find_files", "delete_files"),
    ],
)
def test_what_a_request_asks_for_besides_is_offered(query: str, first: str, left: str) -> None:
    arguments: dict[str, Any] = {
        "compute": {"expression": "137 * 46"},
        "get_now": {},
        "find_events_empty": {"period": "tomorrow"},
        "find_files": {"base_path": "build", "pattern": "*.log"},
    }
    call = {"name": first, "arguments": arguments[first]}
    driven = drive(
        query, written(call), "Well.", "Well.", "Well.", replies=[{"entries": ["2026-03-06T09:00"]}]
    )
    assert left in driven.of(StepStarted)[1].tools


@pytest.mark.parametrize(
    ("query", "call", "hidden"),
    [
        (
            "what did I put in diary/monday.txt?",
            ("read_files", {"paths": ["diary/monday.txt"]}),
            "write_files",
        ),
        ("find the csv files in the folder data", ("find_files", {"base_path": "data"}), "create_dirs"),
        ("tell me what time it is", ("get_now", {}), "send_messages"),
        ("what's the time, and can you tell me the date?", ("get_now", {}), "create_events"),
    ],
)
def test_what_a_request_does_not_ask_for_is_not_offered_after_a_result(
    query: str, call: tuple[str, dict[str, Any]], hidden: str
) -> None:
    name, arguments = call
    done = written({"name": name, "arguments": arguments})
    driven = drive(query, done, "Well.", replies=[{"entries": ["milk"]}])
    assert all(hidden not in started.tools for started in driven.of(StepStarted)[1:])


@pytest.mark.parametrize(
    ("query", "may_answer"),
    [
        ("what does mail.txt say, and is the message for me?", True),
        ("read mail.txt and tell me what the record is", True),
        ("read mail.txt and record it in b.txt", False),
    ],
)
def test_questions_make_no_change_due(query: str, may_answer: bool) -> None:
    read = {"name": "read_files", "arguments": {"paths": ["mail.txt"]}}
    driven = drive(
        query, written(read), "For you.", "For you.", "For you.", replies=[{"entries": ["Dear Ada"]}]
    )
    assert ("final_answer" in driven.of(StepStarted)[1].tools) == may_answer


@pytest.mark.parametrize("ask", ["after I pick one, email me the choice", "email me the one that I pick"])
def test_what_needs_approval_comes_after_what_else_is_asked_for(ask: str) -> None:
    find = {"name": "find_events_empty", "arguments": {"period": "next_week"}}
    slots = {"entries": ["2026-11-24T09:00", "2026-11-24T10:00"]}
    driven = drive(f"propose 3 slots next week, {ask}", written(find), "9:00.", replies=[slots])
    second = driven.of(StepStarted)[1]
    assert "get_inputs" in second.tools
    assert {"send_messages", "final_answer"}.isdisjoint(second.tools)
