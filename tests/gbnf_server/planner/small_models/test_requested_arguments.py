"""What a request says of arguments: which it mentions, its dates and times."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls.validation import validate_call
from gbnf.prompts.descriptions import declare_tool
from gbnf.testing import calls
from gbnf_server.planner.events import AskApproval, CallModel, ExecuteTool
from gbnf_server.planner.small_models.requested_arguments import narrowed
from support.pools import BUNDLED
from support.small_models import ASKED_FIRST, LARGE, SMALL, chosen, drive, odds, written

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


@pytest.mark.parametrize(("name", "is_told"), [("find_events_empty", True), ("compute", False)])
def test_the_date_of_a_day_is_told_if_the_tool_that_is_chosen_takes_it(name: str, is_told: bool) -> None:
    texts: list[Any] = [chosen({name: 0.9, "get_now": 0.1}), odds(9), "Well."]
    driven = drive("could I squeeze Ann in on tuesday?", *texts, options=ASKED_FIRST)
    asked = driven.of(CallModel)[-1].request.messages[-1]["content"]
    assert ("tuesday: 2026-03-10" in asked) == is_told
