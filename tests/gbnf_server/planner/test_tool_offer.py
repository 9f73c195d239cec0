"""What a step offers a small model, and what is declared to it."""

from __future__ import annotations

import pytest

from gbnf import Grammar
from gbnf_server.backends.call_odds import LEAST_CALL_ODDS
from gbnf_server.planner.events import CallModel, ModelCalled, StepStarted
from support.small_models import LARGE, NO_CHOICE, SMALL, drive, odds, written


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
