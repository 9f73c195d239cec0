"""Calls that failed leave their tool out of a step; invalid calls of the right tool can be corrected."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf_server.planner.events import StepStarted
from gbnf_server.system.errors import ExecutorError
from support.by_hand import call
from support.small_models import LARGE, SMALL, drive

QUERY = "add a dentist appointment on 3 December 2026 at 15:30"
OPTIONS: dict[str, dict[str, Any]] = {
    "small": SMALL,
    "large": LARGE,
    "json": {"call_format": "json"},
    "text": {"call_format": "text"},
}


def event(start: str) -> str:
    return call("create_events", title="dentist", starts=[start])


def offered(mode: str, *texts: str, query: str = QUERY, replies: Any = ()) -> list[bool]:
    """Whether each step offers the tool of the first call."""
    name = texts[0].split('"')[3]
    driven = drive(query, *texts, options={**OPTIONS[mode], "max_blocked": 4}, replies=replies)
    return [name in started.tools for started in driven.of(StepStarted)]


@pytest.mark.parametrize("mode", OPTIONS)
def test_the_tool_that_fits_best_stays_after_invalid_calls(mode: str) -> None:
    assert offered(mode, event("3 dec"), event("3/12"), event("2026"), "No.")[:4] == [True] * 4


@pytest.mark.parametrize("mode", ["large", "json", "text"])
def test_a_run_of_invalid_calls_ends(mode: str) -> None:
    texts = [event(str(number)) for number in range(9)]
    assert len(drive(QUERY, *texts, options=OPTIONS[mode]).run.steps) == 3


@pytest.mark.parametrize("mode", ["large", "json", "text"])
@pytest.mark.parametrize(
    ("query", "texts", "replies"),
    [
        (QUERY, [event("3 dec"), event("3 dec")], []),
        (QUERY, [event("2026-12-03T15:30"), event("2026-12-03T16:30")], [ExecutorError("no")] * 2),
        ("what is 2+2.4?", [event("3 dec"), event("3/12")], []),
    ],
    ids=["the same", "failed", "another fits better"],
)
def test_others_are_left_out_of_the_next_step(
    mode: str, query: str, texts: list[str], replies: list[Any]
) -> None:
    assert offered(mode, *texts, "No.", query=query, replies=replies)[2:3] == [False]
