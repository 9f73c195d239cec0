"""Which tools a small model prefers: its choice, the words of the request, and what a step offers by them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf_server.backends.call_odds import LEAST_CALL_ODDS
from gbnf_server.llama.token_values import ValueProbability
from gbnf_server.planner.events import CallModel, ExecuteTool, StepStarted
from gbnf_server.planner.small_models.preference import (
    choice_grammar,
    is_clear,
    near_best,
    preference,
    read_choice,
)
from gbnf_server.system.errors import ConversationRefusedError
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import (
    ASKED_FIRST,
    BILL_CALL,
    BILL_REQUEST,
    LARGE,
    SMALL,
    chosen,
    drive,
    odds,
    written,
)

NAMES = tuple(tool.name for tool in BUNDLED)
SQUEEZE = "could I squeeze Ann in?"
shares = st.dictionaries(st.sampled_from(NAMES), st.floats(1e-5, 1), min_size=2)


@given(shares)
def test_a_choice_is_what_the_model_gives_each_tool(given_shares: dict[str, float]) -> None:
    total = sum(given_shares.values())
    normal = {name: share / total for name, share in given_shares.items()}
    choice = read_choice(chosen(normal), tuple(normal))
    assert choice.keys() == normal.keys()
    assert all(math.isclose(math.exp(choice[name]), share, abs_tol=1e-5) for name, share in normal.items())


@given(st.sampled_from(NAMES), st.floats(0.01, 1))
def test_a_choice_of_which_only_the_best_is_known_leaves_the_rest_to_the_others(
    name: str, share: float
) -> None:
    told = replace(completion(json.dumps({"name": name})), probabilities=(ValueProbability("/name", share),))
    choice = read_choice(told, NAMES)
    assert choice.keys() == set(NAMES)
    assert math.isclose(sum(map(math.exp, choice.values())), 1, abs_tol=1e-3)
    assert read_choice(completion(json.dumps({"name": name})), NAMES) == {}


@given(shares, st.dictionaries(st.sampled_from(BUNDLED), st.floats(0, 20), min_size=1))
def test_words_decide_where_the_model_does_not_and_the_other_way_round(
    given_shares: dict[str, float], scores: dict[Tool, float]
) -> None:
    choice = {name: math.log(share) for name, share in given_shares.items()}
    by_words = preference(scores, dict.fromkeys(NAMES, 0.0))
    by_model = preference(dict.fromkeys(scores, 0.0), choice)
    for one, other in permutations(scores, 2):
        if scores[one] > scores[other]:
            assert by_words[one.name] >= by_words[other.name]
    for one_name, other_name in permutations(choice, 2):
        if choice[one_name] > choice[other_name]:
            assert by_model[one_name] > by_model[other_name]
    assert preference(scores, {}) == {}


@given(st.dictionaries(st.sampled_from(BUNDLED), st.floats(-20, 5), min_size=1), st.floats(0, 9))
def test_the_nearest_are_those_that_are_not_far_below_the_best(
    preferences: dict[Tool, float], within: float
) -> None:
    near = near_best(preferences, within)
    best = max(preferences.values())
    assert preferences[near[0]] == best
    assert set(near) == {tool for tool, score in preferences.items() if score >= best - within}
    assert [preferences[tool] for tool in near] == sorted((preferences[tool] for tool in near), reverse=True)


@given(st.lists(st.sampled_from(NAMES), min_size=1, unique=True), st.sampled_from(NAMES))
def test_a_choice_is_one_of_the_names(names: list[str], name: str) -> None:
    grammar = choice_grammar(tuple(names))
    assert grammar.match(json.dumps({"name": name})).complete == (name in names)


def test_what_words_do_not_say_the_model_chooses() -> None:
    texts: list[Any] = [chosen({"compute": 0.9, "get_now": 0.1}), odds(9), written(BILL_CALL)]
    driven = drive(BILL_REQUEST, *texts, "41.40 each.", options=ASKED_FIRST, replies=[{"value": 41.4}])
    choice, _, call, _ = driven.of(CallModel)
    assert (choice.purpose, call.purpose) == ("tool", "call")
    assert driven.of(StepStarted)[0].tools == ("compute", "final_answer")
    # what is chosen now and then is declared for later steps, too
    declared = {each["function"]["name"] for each in call.request.tools}
    assert {"compute", "get_now"} <= declared < {each["function"]["name"] for each in choice.request.tools}
    assert "undo_last_turn" not in declared
    assert driven.run.answer == "41.40 each."


def test_what_words_say_clearly_is_not_asked() -> None:
    texts: list[Any] = [odds(9), written({"name": "get_now", "arguments": {}}), "Noon."]
    driven = drive("what time is it on Mars?", *texts, options=ASKED_FIRST, replies=[{"time": "12:00"}])
    assert [effect.purpose for effect in driven.of(CallModel)][:2] == ["choice", "call"]


def test_all_requests_share_what_they_are_chosen_by() -> None:
    requests = []
    for query in (BILL_REQUEST, SQUEEZE, "it has to be bigger"):
        driven = drive(
            query, chosen({"compute": 0.9, "get_now": 0.1}), odds(-9), "Well.", "No.", options=ASKED_FIRST
        )
        requests.append(driven.of(CallModel)[0].request)
    first, *others = requests
    for other in others:
        assert (other.tools, other.messages[0]) == (first.tools, first.messages[0])
        assert "parameters" not in other.tools[0]["function"]


@pytest.mark.parametrize(("for_greeting", "calls"), [(0.02, True), (0.9, False)])
def test_a_clear_choice_is_called_though_no_word_says_so(for_greeting: float, calls: bool) -> None:
    choice = {"find_events_empty": 0.9, "compute": 0.1}
    greeting = {"find_events_empty": for_greeting, "compute": 1 - for_greeting}
    between = (LEAST_CALL_ODDS[None] + LEAST_CALL_ODDS[False]) / 2
    texts: list[Any] = [chosen(choice), odds(between), chosen(greeting), "On Monday."]
    driven = drive(SQUEEZE, *texts, options=ASKED_FIRST)
    assert ("find_events_empty" in driven.of(StepStarted)[0].tools) == calls
    assert [effect.purpose for effect in driven.of(CallModel)] == ["tool", "choice", "tool", "call"]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("oops, wrong folder! bring it back please", "undo_last_turn"),
        ("it can go in the bin", "delete_files"),
    ],
)
def test_a_marker_counts_as_much_as_the_best_words(query: str, name: str) -> None:
    texts: list[Any] = [chosen({name: 0.5, "create_dirs": 0.5}), odds(9), "Well."]
    [started] = drive(query, *texts, options=ASKED_FIRST).of(StepStarted)[:1]
    assert name in started.tools


@given(shares, shares)
def test_a_clear_choice_is_that_of_one_tool_and_for_this_request(
    one: dict[str, float], other: dict[str, float]
) -> None:
    choice, neutral = ({name: math.log(share) for name, share in each.items()} for each in (one, other))
    assert not is_clear(choice, choice)
    if is_clear(choice, neutral):
        assert max(one.values()) > 0.5


def test_what_the_model_is_not_sure_of_changes_nothing() -> None:
    """A tool without a word of the request may change something only if the model is sure of it."""
    others = dict.fromkeys((name for name in NAMES if name != "create_events"), 0.05)
    for share in (0.2, 0.9):
        choice = {"create_events": share} | {name: (1 - share) / len(others) for name in others}
        driven = drive(SQUEEZE + " tomorrow", chosen(choice), odds(9), "Well.", options=ASKED_FIRST)
        assert ("create_events" in driven.of(StepStarted)[0].tools) == (share > 0.5)


@pytest.mark.parametrize("required", [("get_now",), ("get_now", "create_dirs")])
def test_required_tools_are_offered_whatever_the_model_prefers(required: tuple[str, ...]) -> None:
    texts: list[Any] = [chosen({"compute": 0.9999, "undo_last_turn": 0.0001}), odds(9), written(BILL_CALL)]
    calls_of_required = {
        "get_now": {"name": "get_now", "arguments": {}},
        "create_dirs": {"name": "create_dirs", "arguments": {"paths": ["a"]}},
    }
    texts += [written(calls_of_required[name]) for name in required]
    driven = drive(BILL_REQUEST, *texts, "41.40 each.", options=ASKED_FIRST | {"required": required})
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["compute", *required]
    assert driven.run.outcome == "answered"


def test_a_prerequisite_is_offered_with_the_tool_that_is_preferred() -> None:
    tools = [
        replace(tool, offer=replace(tool.offer, after=("get_now",))) if tool.name == "compute" else tool
        for tool in BUNDLED
    ]
    said = [chosen({"compute": 0.9999, "create_dirs": 0.0001}), odds(9), completion("Well.")]
    driven = drive_by_hand(tools, said, query=BILL_REQUEST, options=resolved(**ASKED_FIRST))
    assert driven.of(StepStarted)[0].tools[0] == "get_now"


def test_of_more_tools_than_can_be_scored_the_model_is_asked_about_the_best() -> None:
    more = [replace(BUNDLED[0], name=f"tool_{number}") for number in range(20)]
    options = resolved(**ASKED_FIRST | {"max_tools": None})
    driven = drive_by_hand([*BUNDLED, *more], [completion("{}")], query=BILL_REQUEST, options=options)
    asked = driven.of(CallModel)[0]
    assert (asked.purpose, len(asked.request.tools)) == ("tool", 16)


@pytest.mark.parametrize("scores", [(-1.0, -1.1), (0.01, -1.0), (0.0, 0.0)])
def test_scores_that_are_not_positive_leave_it_to_the_model(scores: tuple[float, float]) -> None:
    class Negative:
        def rank(self, _query: str, tools: Sequence[Tool], /) -> list[float]:
            return [scores[tool.name != "get_now"] for tool in tools]

    texts: list[Any] = [chosen({"compute": 0.98, "get_now": 0.02}), odds(9), "Well."]
    driven = drive("the bill of the day", *texts, options=ASKED_FIRST | {"ranker": Negative()})
    assert driven.of(CallModel)[0].purpose == "tool"


def test_a_template_that_needs_arguments_leaves_it_to_the_words() -> None:
    texts: list[Any] = [ConversationRefusedError("no parameters"), odds(9), written(BILL_CALL), "41.40 each."]
    driven = drive(BILL_REQUEST, *texts, options=ASKED_FIRST, replies=[{"value": 41.4}])
    assert {"compute", "get_now"} < set(driven.of(StepStarted)[0].tools)
    assert driven.run.answer == "41.40 each."


@pytest.mark.parametrize(
    "options",
    [
        LARGE | {"gives_logprobs": True},
        SMALL,
        ASKED_FIRST | {"reasoning": "free"},
        ASKED_FIRST | {"filter": False},
    ],
)
def test_who_is_not_asked(options: dict[str, Any]) -> None:
    driven = drive("hello", "Hello!", "Hello!", "Hello!", options=options)
    assert "tool" not in {effect.purpose for effect in driven.of(CallModel)}
    assert "tool" in {
        effect.purpose for effect in drive("hello", "Hi.", "Hi.", "Hi.", options=ASKED_FIRST).of(CallModel)
    }


@pytest.mark.parametrize(
    ("query", "sent"),
    [("what is the sum? Mail it to ann@example.com: hi", True), ("thank you, goodbye", False)],
)
def test_a_text_that_proposes_a_tool_which_the_request_asks_for_is_no_answer(query: str, sent: bool) -> None:
    proposed = "You can call the `send_messages` function to send it."
    mail = {"name": "send_messages", "arguments": {"to": ["ann@example.com"], "subject": "hi", "body": "hi"}}
    shares = {"compute": 0.4, "find_files": 0.3, "send_messages": 0.3}
    texts: list[Any] = [chosen(shares), odds(9), proposed, written(mail), "It is sent."]
    driven = drive(query, *texts, options=ASKED_FIRST, replies=[{"sent_to": ["ann@example.com"]}])
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["send_messages"] * sent
