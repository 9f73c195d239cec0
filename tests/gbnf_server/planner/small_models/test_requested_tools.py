"""Which tools a request means, by its words."""

from __future__ import annotations

import pytest

from gbnf.tools import Tool
from gbnf_server.planner.events import StepStarted
from gbnf_server.planner.run_state import OrderedTools, RunState
from gbnf_server.planner.small_models.requested_tools import permitted_tools
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import ASKED_FIRST, SMALL, chosen, drive, odds, written

FILE_TOOLS = {"read_files", "find_files", "write_files", "delete_files", "create_dirs"}


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
    assert bool(FILE_TOOLS.intersection(tool.name for tool in permitted_tools(BUNDLED, state))) == has_files


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


def test_no_folder_is_made_of_an_address_where_nothing_can_be_mailed() -> None:
    pool = [tool for tool in BUNDLED if tool.name != "send_messages"]
    for query, is_offered in (
        ("email marta@example.com that the train is late", False),
        ("a place for my invoices", True),
        ("lunch with anna@example.com tomorrow at noon", True),
    ):
        name = "create_events" if "lunch" in query else "create_dirs"
        texts = [chosen({name: 0.9, "get_now": 0.1}), odds(9), *[completion("Sorry.")] * 3]
        driven = drive_by_hand(pool, texts, query=query, options=resolved(**ASKED_FIRST))
        assert (name in driven.of(StepStarted)[0].tools) == is_offered
