"""What a small model that calls natively is offered, and shown of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar, Tool
from gbnf.calls.validation import validate_call
from gbnf.prompts.descriptions import declare_tool
from gbnf.requests.pool_filter import filter_pool
from gbnf.testing import calls
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.backends.base import SMALL_MODEL, SMALL_NATIVE_MODEL, ModelInfo, default_prompt_style
from gbnf_server.backends.call_odds import LEAST_CALL_ODDS
from gbnf_server.planner.events import (
    CallModel,
    ModelCalled,
    StepStarted,
)
from gbnf_server.planner.requested_arguments import narrowed
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import FORMAT, LARGE, SMALL, drive, odds, written

NO_CHOICE = completion("{}")  # among the tools, of a server that gives no probabilities


def test_after_a_refusal_a_small_model_is_offered_what_fits() -> None:
    find = {"name": "find_files", "arguments": {"base_path": "measurements", "pattern": "*.csv"}}
    query = "find the csv files in the folder measurements, then tell the current state"
    driven = drive(query, *map(written, (find, find)), "These.", replies=[{"entries": ["a.csv"], "count": 1}])
    first, second, *_ = driven.of(StepStarted)
    assert "find_events_empty" in first.tools
    assert "find_events_empty" in second.tools
    assert "find_events_empty" not in driven.of(StepStarted)[2].tools


@pytest.mark.parametrize(
    ("query", "offered"),
    [
        ("what does recipes/soup.txt say?", False),
        ("print notes/plan.txt", False),
        ("put oats on list.txt", True),
        ("registra la frase ciao in diario.txt", True),
        ("which files are in notes?", False),
        ("quali note ci sono?", False),
        ("show me the notes", False),
        ("please list my notes", False),
        ("find the notes and write them to a.txt", True),
        ("what is 3 * 4? write it to a.txt", True),
        ("could you put this into a note?", True),
    ],
)
def test_what_changes_something_is_offered_for_a_word_of_it(query: str, offered: bool) -> None:
    [started, *_] = drive(query, "I cannot.").of(StepStarted)
    assert ("write_files" in started.tools) is offered
    assert "read_files" in started.tools


def test_a_tool_without_an_affinity_may_be_meant_by_any_request() -> None:
    weather = Tool.from_mapping({"name": "weather", "description": "Tell the weather.", "args": {}})
    for query in ("what is it like in Paris?", "hello"):
        driven = drive_by_hand([weather], [completion("Well.")], query=query, options=resolved(**SMALL))
        assert "weather" in driven.of(StepStarted)[0].tools


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
    ("query", "offered"),
    [
        ("remind me what is in notes/rome.md", False),
        ("remind me to call mom", False),
        ("remind me to call mom at noon", True),
        ("ricordami di chiamare la mamma domani", True),
        ("add gym to my calendar, 3 March", True),
        ("book a meeting in half an hour", True),
    ],
)
def test_an_event_is_offered_for_a_request_that_may_name_a_time(query: str, offered: bool) -> None:
    [started, *_] = drive(query, "I cannot.").of(StepStarted)
    assert ("create_events" in started.tools) is offered


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
    ("query", "declared"),
    [
        ("find the csv files in the folder data", False),
        ("create the folder data", True),
        ("delete the log files in the folder data", False),  # it asks for one thing, and for another tool
        ("delete the log files and create the folder data", True),
    ],
)
def test_a_tool_that_is_not_offered_in_the_run_is_not_declared(query: str, declared: bool) -> None:
    for options in (SMALL, LARGE):
        asked = drive(query, "Well.", options=options).of(CallModel)[0].request
        names = {tool["function"]["name"] for tool in asked.tools}
        assert ("create_dirs" in names) == (declared or options is LARGE)
        assert "find_files" in names


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


@pytest.mark.parametrize("ask", ["after I pick one, email me the choice", "email me the one that I pick"])
def test_what_needs_approval_comes_after_what_else_is_asked_for(ask: str) -> None:
    find = {"name": "find_events_empty", "arguments": {"period": "next_week"}}
    slots = {"entries": ["2026-11-24T09:00", "2026-11-24T10:00"]}
    driven = drive(f"propose 3 slots next week, {ask}", written(find), "9:00.", replies=[slots])
    second = driven.of(StepStarted)[1]
    assert "get_inputs" in second.tools
    assert {"send_messages", "final_answer"}.isdisjoint(second.tools)


@pytest.mark.parametrize(("query", "about"), [("hello", False), ("what time is it on Mars?", True)])
@pytest.mark.parametrize("above", [-0.1, 0.1])
def test_a_small_model_that_means_to_answer_is_offered_no_call(query: str, about: bool, above: float) -> None:
    options = {**SMALL, "gives_logprobs": True}
    driven = drive(
        query, *[NO_CHOICE] * (not about), odds(LEAST_CALL_ODDS[about] + above), "Hello!", options=options
    )
    *_, choice, answer = driven.of(CallModel)
    assert (choice.purpose, choice.request.grammar, choice.request.max_tokens) == ("choice", None, 1)
    told = {each.purpose: each.to_json()["call_odds"] for each in driven.of(ModelCalled)}
    assert told["choice"] == round(LEAST_CALL_ODDS[about] + above, 2)
    assert {told[purpose] for purpose in told.keys() - {"choice"}} == {None}
    [started] = driven.of(StepStarted)
    assert (started.tools == ("final_answer",)) == (above < 0)
    grammar = answer.request.grammar
    assert isinstance(grammar, Grammar)
    now = written({"name": "get_now", "arguments": {}})
    assert grammar.match(now).complete == (above > 0)
    assert driven.run.answer == "Hello!"
    for other in (LARGE | {"gives_logprobs": True}, options | {"reasoning": "free"}):
        asked = drive("hello", "Hi.", options=other).of(CallModel)
        assert "choice" not in {effect.purpose for effect in asked}


@pytest.mark.parametrize(
    ("parameters", "style", "small"),
    [
        (500_000_000, "full", True),
        (SMALL_NATIVE_MODEL, "full", False),
        (None, "full", False),
        (1, "minimal", False),
    ],
)
def test_which_models_are_small(parameters: int | None, style: Any, small: bool) -> None:
    info = ModelInfo(prompt_style=style, tool_format=FORMAT, parameters=parameters)
    assert info.is_small(native=True) == small
    assert info.is_small(native=False) == (small and parameters is not None and parameters < SMALL_MODEL)


@pytest.mark.parametrize(
    ("names", "style"),
    [
        (("gbnf-planner-demo",), "minimal"),
        (("somebody/gbnf-planner-demo:latest",), "minimal"),
        ((r"models\gbnf-planner-demo.gguf",), "minimal"),
        (("", "{#- gbnf-planner-demo -#}{{ messages }}"), "minimal"),
        (("gbnf-planner-demo-2",), "full"),
        (("my-gbnf-planner-demo:latest",), "full"),
        (("gbnf-planner-demo/another",), "full"),
        (("", "{# gbnf-planner-demo-2 #}"), "full"),
        (("", "{{ 'not gbnf-planner-demo' }}"), "full"),
        (("Qwen3-4B",), "full"),
        (("",), "full"),
    ],
)
def test_the_bundled_model_is_known_by_its_name(names: tuple[str, ...], style: str) -> None:
    info = ModelInfo(prompt_style=default_prompt_style(*names), takes_evidence=True)
    assert info.prompt_style == style
    assert info.answers_by_call_only != info.uses_evidence


@pytest.mark.parametrize(
    ("name", "request_text", "arguments"),
    [
        ("get_now", "what time is it?", set()),
        ("get_now", "what time is it in the timezone of Tokyo?", {"timezone"}),
        ("create_events", "add lunch on 2026-12-03", {"title", "starts"}),
        ("create_events", "add lunch, the duration is 45 minutes", {"title", "starts", "duration_minutes"}),
        ("find_files", "find the text files", {"base_path", "pattern"}),
        ("write_files", "save this", {"files"}),
        ("find_events_empty", "when am I free tomorrow?", {"period"}),
        ("find_events_empty", "when am I free on Tuesday?", {"start_date"}),
    ],
)
def test_a_small_model_is_shown_the_arguments_that_a_request_mentions(
    name: str, request_text: str, arguments: set[str]
) -> None:
    tool = next(tool for tool in BUNDLED if tool.name == name)
    assert set(narrowed(tool, request_text).args.get("properties", {})) == arguments


@given(st.sampled_from(BUNDLED), st.data())
def test_calls_of_a_narrowed_tool_are_calls_of_the_tool(tool: Any, data: st.DataObject) -> None:
    narrow = narrowed(tool, "do it")
    call = data.draw(calls([narrow]))
    assert validate_call(call, [tool]).ok
    declared = declare_tool(narrow, guiding=True)["function"]["parameters"]
    assert call["arguments"].keys() <= declared["properties"].keys()
    assert not {"pattern", "minItems", "minLength", "allOf"} & set(declared)
    text = json.dumps(declared)
    assert '"pattern": "^' not in text
    assert "from_step" not in declared["properties"]


@pytest.mark.parametrize(
    ("query", "offered"),
    [
        ("delete the file old.txt", {"delete_files"}),
        ("get rid of the logs", {"delete_files"}),
        ("take the old logs away", {"delete_files"}),
        ("what is left if I take 348 away from 1200?", set()),
        ("elimina i file csv", {"delete_files"}),
        ("which csv files are in the folder data?", set()),
        ("find the text files in trips and tell me what they contain", set()),
        ("let me know what time it is", set()),
        ("write anna@example.com that we are late", {"send_messages"}),
        ("email the list to Anna", {"send_messages"}),
        ("avvisa marta@example.com", {"send_messages"}),
        ("what is 12*31?", set()),
    ],
)
def test_what_deletes_or_sends_is_offered_if_the_request_says_so(query: str, offered: set[str]) -> None:
    kept = {tool.name for tool in filter_pool(BUNDLED, query).kept}
    assert kept & {"delete_files", "send_messages"} == offered
