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

from gbnf import Grammar
from gbnf.tools import Tool
from gbnf_server.backends.base import Completion
from gbnf_server.backends.call_odds import LEAST_CALL_ODDS
from gbnf_server.llama.token_values import ValueProbability
from gbnf_server.planner.events import CallBlocked, CallModel, ExecuteTool, StepStarted
from gbnf_server.planner.guidance import GUIDED, UNGUIDED
from gbnf_server.planner.preference import choice_grammar, is_clear, near_best, preference, read_choice
from gbnf_server.system.errors import ConversationRefusedError, ExecutorError
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import LARGE, SMALL, drive, odds, written

NAMES = tuple(tool.name for tool in BUNDLED)
ASKED = {**SMALL, "gives_logprobs": True, "max_tools": 16}
BILL = "dinner was 289.80 and there were 7 of us"
LEAVES = "Why do leaves turn red?"
SQUEEZE = "could I squeeze Ann in?"
SPOKEN = {"name": "final_answer", "arguments": {"message": "It is late."}}
COMPUTE = {"name": "compute", "arguments": {"expression": "289.80 / 7"}}

shares = st.dictionaries(st.sampled_from(NAMES), st.floats(1e-5, 1), min_size=2)


def chosen(shares: dict[str, float]) -> Completion:
    """The answer of a model that chooses among tools with these probabilities."""
    ranked = tuple((json.dumps(name), share) for name, share in sorted(shares.items(), key=lambda x: -x[1]))
    text = f'{{"name": {ranked[0][0]}}}'
    return replace(completion(text), probabilities=(ValueProbability("/name", ranked[0][1], ranked),))


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
    texts: list[Any] = [chosen({"compute": 0.9, "get_now": 0.1}), odds(9), written(COMPUTE)]
    driven = drive(BILL, *texts, "41.40 each.", options=ASKED, replies=[{"value": 41.4}])
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
    driven = drive("what time is it on Mars?", *texts, options=ASKED, replies=[{"time": "12:00"}])
    assert [effect.purpose for effect in driven.of(CallModel)][:2] == ["choice", "call"]


def test_all_requests_share_what_they_are_chosen_by() -> None:
    requests = []
    for query in (BILL, SQUEEZE, "it has to be bigger"):
        driven = drive(
            query, chosen({"compute": 0.9, "get_now": 0.1}), odds(-9), "Well.", "No.", options=ASKED
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
    driven = drive(SQUEEZE, *texts, options=ASKED)
    assert ("find_events_empty" in driven.of(StepStarted)[0].tools) == calls
    assert [effect.purpose for effect in driven.of(CallModel)] == ["tool", "choice", "tool", "call"]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("You can use the `find_events_empty` function to find free slots.", True),
        ("I can call find_events_empty, create_events and create_dirs.", False),
        ("You could use create_dirs.", False),  # it is not offered
        ("I cannot use find_events_empty without a day.", False),
        ("She is free at ten.", False),
    ],
)
def test_a_text_that_proposes_the_tool_is_no_answer(text: str, calls: bool) -> None:
    found = {"name": "find_events_empty", "arguments": {"period": "today"}}
    texts: list[Any] = [chosen({"find_events_empty": 0.9, "compute": 0.1}), odds(-9), text]
    driven = drive(
        SQUEEZE, *texts, written(found), "At ten.", options=ASKED, replies=[{"entries": ["10:00/11:00"]}]
    )
    assert bool(driven.of(ExecuteTool)) == calls
    if calls:
        assert driven.of(StepStarted)[1].tools == ("find_events_empty",)
    assert driven.run.outcome == "answered"


@pytest.mark.parametrize(("name", "is_told"), [("find_events_empty", True), ("compute", False)])
def test_the_date_of_a_day_is_told_if_the_tool_that_is_chosen_takes_it(name: str, is_told: bool) -> None:
    texts: list[Any] = [chosen({name: 0.9, "get_now": 0.1}), odds(9), "Well."]
    driven = drive("could I squeeze Ann in on tuesday?", *texts, options=ASKED)
    asked = driven.of(CallModel)[-1].request.messages[-1]["content"]
    assert ("tuesday: 2026-03-10" in asked) == is_told


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("oops, wrong folder! bring it back please", "undo_last_turn"),
        ("it can go in the bin", "delete_files"),
    ],
)
def test_a_marker_counts_as_much_as_the_best_words(query: str, name: str) -> None:
    texts: list[Any] = [chosen({name: 0.5, "create_dirs": 0.5}), odds(9), "Well."]
    [started] = drive(query, *texts, options=ASKED).of(StepStarted)[:1]
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
        driven = drive(SQUEEZE + " tomorrow", chosen(choice), odds(9), "Well.", options=ASKED)
        assert ("create_events" in driven.of(StepStarted)[0].tools) == (share > 0.5)


@pytest.mark.parametrize("required", [("get_now",), ("get_now", "create_dirs")])
def test_required_tools_are_offered_whatever_the_model_prefers(required: tuple[str, ...]) -> None:
    texts: list[Any] = [chosen({"compute": 0.9999, "undo_last_turn": 0.0001}), odds(9), written(COMPUTE)]
    calls_of_required = {
        "get_now": {"name": "get_now", "arguments": {}},
        "create_dirs": {"name": "create_dirs", "arguments": {"paths": ["a"]}},
    }
    texts += [written(calls_of_required[name]) for name in required]
    driven = drive(BILL, *texts, "41.40 each.", options=ASKED | {"required": required})
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["compute", *required]
    assert driven.run.outcome == "answered"


def test_a_prerequisite_is_offered_with_the_tool_that_is_preferred() -> None:
    tools = [
        replace(tool, offer=replace(tool.offer, after=("get_now",))) if tool.name == "compute" else tool
        for tool in BUNDLED
    ]
    said = [chosen({"compute": 0.9999, "create_dirs": 0.0001}), odds(9), completion("Well.")]
    driven = drive_by_hand(tools, said, query=BILL, options=resolved(**ASKED))
    assert driven.of(StepStarted)[0].tools[0] == "get_now"


def test_of_more_tools_than_can_be_scored_the_model_is_asked_about_the_best() -> None:
    more = [replace(BUNDLED[0], name=f"tool_{number}") for number in range(20)]
    options = resolved(**ASKED | {"max_tools": None})
    driven = drive_by_hand([*BUNDLED, *more], [completion("{}")], query=BILL, options=options)
    asked = driven.of(CallModel)[0]
    assert (asked.purpose, len(asked.request.tools)) == ("tool", 16)


@pytest.mark.parametrize("scores", [(-1.0, -1.1), (0.01, -1.0), (0.0, 0.0)])
def test_scores_that_are_not_positive_leave_it_to_the_model(scores: tuple[float, float]) -> None:
    class Negative:
        def rank(self, _query: str, tools: Sequence[Tool], /) -> list[float]:
            return [scores[tool.name != "get_now"] for tool in tools]

    texts: list[Any] = [chosen({"compute": 0.98, "get_now": 0.02}), odds(9), "Well."]
    driven = drive("the bill of the day", *texts, options=ASKED | {"ranker": Negative()})
    assert driven.of(CallModel)[0].purpose == "tool"


def test_an_answer_that_repeats_the_request_after_a_result_is_asked_for_from_the_results() -> None:
    query = f"{BILL}. What then?"
    texts: list[Any] = [chosen({"compute": 0.9, "get_now": 0.1}), odds(9), written(COMPUTE), query]
    driven = drive(query, *texts, "41.40 each.", options=ASKED, replies=[{"value": 41.4}])
    assert driven.run.answer == "41.40 each."


def test_a_file_is_read_before_something_is_added_to_it() -> None:
    texts: list[Any] = [chosen({"write_files": 0.9, "compute": 0.1}), odds(9), "Well.", "Well.", "Well."]
    driven = drive("add a line with oat milk to notes/todo.txt", *texts, options=ASKED)
    assert driven.of(StepStarted)[0].tools == ("read_files",)


@pytest.mark.parametrize(
    ("reply", "writes"),
    [
        ({"entries": ["buy milk"], "paths": ["notes/todo.txt"]}, True),
        (ExecutorError("'notes/todo.txt' does not exist"), True),
        (ExecutorError("'notes/todo.txt' is a file, and no folder"), False),
    ],
)
def test_nothing_is_written_over_a_file_that_is_only_added_to(reply: Any, writes: bool) -> None:
    read = {"name": "read_files", "arguments": {"paths": ["notes/todo.txt"]}}
    add = {"name": "write_files", "arguments": {"files": [{"path": "notes/todo.txt", "content": "oat milk"}]}}
    query = "add oat milk to notes/todo.txt"
    driven = drive(query, written(read), written(add), written(add), "Done.", replies=[reply])
    effects = [effect.tool.name for effect in driven.of(ExecuteTool)]
    assert ("write_files" in effects) == writes


@pytest.mark.parametrize(("content", "writes"), [("buy milk\n", False), ("oat milk", True)])
def test_what_was_there_is_no_addition(content: str, writes: bool) -> None:
    read = {"name": "read_files", "arguments": {"paths": ["todo.txt"]}}
    add = {"name": "write_files", "arguments": {"files": [{"path": "todo.txt", "content": content}]}}
    driven = drive(
        "add oat milk to todo.txt",
        written(read),
        written(add),
        "Done.",
        replies=[{"entries": ["buy milk\n"]}],
    )
    written_files = [
        effect.arguments for effect in driven.of(ExecuteTool) if effect.tool.name == "write_files"
    ]
    assert written_files == (
        [{"files": [{"path": "todo.txt", "content": "buy milk\noat milk"}]}] if writes else []
    )


@pytest.mark.parametrize(
    ("query", "made"),
    [
        ("create the folder trips and write hello to trips/a.txt", ["trips"]),
        ("crea la cartella trips e scrivi ciao in trips/a.txt", ["trips"]),
        ("create the folder trips/a.txt", ["trips/a.txt", "trips"]),
    ],
)
def test_a_file_that_is_to_be_written_is_made_no_folder(query: str, made: list[str]) -> None:
    call = {"name": "create_dirs", "arguments": {"paths": ["trips/a.txt", "trips"]}}
    driven = drive(query, written(call), "Done.", "Done.", replies=[{"entries": made}])
    assert driven.of(ExecuteTool)[0].arguments == {"paths": made}


def test_a_template_that_needs_arguments_leaves_it_to_the_words() -> None:
    texts: list[Any] = [ConversationRefusedError("no parameters"), odds(9), written(COMPUTE), "41.40 each."]
    driven = drive(BILL, *texts, options=ASKED, replies=[{"value": 41.4}])
    assert {"compute", "get_now"} < set(driven.of(StepStarted)[0].tools)
    assert driven.run.answer == "41.40 each."


@pytest.mark.parametrize(
    "options",
    [LARGE | {"gives_logprobs": True}, SMALL, ASKED | {"reasoning": "free"}, ASKED | {"filter": False}],
)
def test_who_is_not_asked(options: dict[str, Any]) -> None:
    driven = drive("hello", "Hello!", "Hello!", "Hello!", options=options)
    assert "tool" not in {effect.purpose for effect in driven.of(CallModel)}
    assert "tool" in {
        effect.purpose for effect in drive("hello", "Hi.", "Hi.", "Hi.", options=ASKED).of(CallModel)
    }


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
    driven = drive(LEAVES, *texts, options=ASKED)
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
    driven = drive(LIGHTS, *texts, options=ASKED)
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


@pytest.mark.parametrize(
    ("query", "called"),
    [
        ("what time is it?", True),
        ("che ore sono", True),
        ("che ore sono a Tokyo?", True),
        ("what time is it in New York", True),
        ("what is the time complexity of quicksort?", False),
        ("what is the time in Python?", True),  # the tool returns an error
        ("what is the complexity in Python?", False),
        ("what time is it on Mars?", False),
        ("read a file", False),
        ("hello", False),
        ("how are you today?", False),
        ("what can you do today?", False),
        ("what do I have to do today?", False),
        ("che giornata!", False),
        ("not today", False),
    ],
)
def test_what_one_call_without_arguments_answers_is_not_made_up(query: str, called: bool) -> None:
    now = written({"name": "get_now", "arguments": {}})
    texts = (
        [now, "It is late."]
        if called
        else [chosen({"compute": 0.5, "get_now": 0.5}), odds(-9), "It is late."]
    )
    driven = drive(query, *texts, options=ASKED, replies=[{"time": "9:00"}])
    assert (driven.of(StepStarted)[0].tools == ("get_now",)) == called
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["get_now"] * called
    assert driven.run.outcome == "answered"
    in_json = [json.dumps({"name": "get_now", "arguments": {}}), json.dumps(SPOKEN)][not called :]
    for is_small in (True, False):
        driven = drive(
            query,
            *in_json,
            options={"guidance": GUIDED.in_prompt() if is_small else UNGUIDED},
            replies=[{"time": "9:00"}],
        )
        assert (driven.of(StepStarted)[0].tools == ("get_now",)) == (called and is_small)


def test_a_song_that_does_not_end_becomes_no_call() -> None:
    song = replace(completion("la la la " * 50), finish_reason="length", repeated="la la la ")
    texts: list[Any] = [chosen({"compute": 0.9, "get_now": 0.1}), odds(9), song, "La, la."]
    driven = drive("play some jazz", *texts, options=ASKED)
    assert [blocked.refusal for blocked in driven.of(CallBlocked)] == ["truncated"]
    assert [started.tools for started in driven.of(StepStarted)][1:] == [("final_answer",)]
    assert driven.run.answer == "La, la."
    thoughts = replace(completion("First, I will work " * 50), finish_reason="length", repeated="First")
    fenced = replace(completion('```json\n{"name": "compute", "argu' + "m" * 90), finish_reason="length")
    for truncated in (thoughts, fenced):
        texts = [odds(9), truncated, written(COMPUTE), "41.40."]
        driven = drive("compute 289.80 / 7", *texts, options=ASKED, replies=[{"value": 41.4}])
        assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["compute"]


def test_no_folder_is_made_of_an_address_where_nothing_can_be_mailed() -> None:
    pool = [tool for tool in BUNDLED if tool.name != "send_messages"]
    for query, is_offered in (
        ("email marta@example.com that the train is late", False),
        ("a place for my invoices", True),
        ("lunch with anna@example.com tomorrow at noon", True),
    ):
        name = "create_events" if "lunch" in query else "create_dirs"
        texts = [chosen({name: 0.9, "get_now": 0.1}), odds(9), *[completion("Sorry.")] * 3]
        driven = drive_by_hand(pool, texts, query=query, options=resolved(**ASKED))
        assert (name in driven.of(StepStarted)[0].tools) == is_offered


def test_where_only_the_answer_is_left_a_call_is_followed_by_a_question_without_tools() -> None:
    [send] = [tool for tool in BUNDLED if tool.name == "send_messages"]
    mail = {"name": "send_messages", "arguments": {"to": ["me"], "body": "A canoe."}}
    driven = drive_by_hand(
        (send,),
        [completion(text) for text in (written(mail), "I cannot do that.")],
        query="resize my canoe",
        options=resolved(**ASKED),
    )
    first, again = (effect.request for effect in driven.of(CallModel))
    assert (bool(first.tools), bool(again.tools)) == (True, False)
    assert (driven.run.outcome, driven.run.answer) == ("answered", "I cannot do that.")
