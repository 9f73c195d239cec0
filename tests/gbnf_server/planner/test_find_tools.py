"""Large pools in the planner: the tools that fit best are offered, and `find_tools` adds others."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.prompts.messages import PromptStyle
from gbnf.requests.ranking import BM25
from gbnf.tools import FIND_TOOLS, Tool
from gbnf_server.backends.base import ModelInfo
from gbnf_server.backends.embeddings import EmbeddingRanker, ServerEmbeddings
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.planner import Planner, PlannerOptions
from gbnf_server.planner.events import (
    CallModel,
    ExecuteTool,
    RunStarted,
    StepStarted,
    ToolDone,
    WarningRaised,
)
from gbnf_server.planner.guidance import GUIDED, UNGUIDED
from gbnf_server.planner.options import MAX_TOOLS, SMALL_MODEL_MARGIN, SMALL_MODEL_TOOLS, ResolvedOptions
from gbnf_server.planner.runs.fingerprints import digest, options_identity
from gbnf_server.planner.tool_offer import FOUND_AT_ONCE
from gbnf_server.system.errors import BackendUnreachableError
from support.backends import FakeBackend
from support.by_hand import ANSWER, POOL, Driven, call, completion, drive_by_hand, resolved
from support.effort import scaled
from support.executors import world
from support.smollm2 import model_file, requires_smollm2

ANIMALS = [
    "ant", "bear", "cat", "dog", "eel", "fox", "goat", "hen", "ibex", "jay", "kiwi", "lion", "mole", "newt",
    "owl", "pig", "quail", "rat", "seal", "toad", "urial", "vole", "wolf", "yak",
]  # fmt: skip


def make_tool(name: str, description: str, **offer: Any) -> Tool:
    return Tool.from_mapping({"name": name, "description": description, "args": {}, "offer": offer})


ZOO = tuple(make_tool(f"feed_{animal}", f"Give the {animal} its food.") for animal in ANIMALS)
HERD = resolved(max_tools=4, max_steps=8, repeat_calls=True)


def drive(*texts: str, query: str = "feed the wolf", **given: Any) -> Driven:
    options = given.pop("options", HERD)
    return drive_by_hand(ZOO, [completion(text) for text in texts], query=query, options=options, **given)


def offered(driven: Driven) -> list[tuple[str, ...]]:
    return [event.tools for event in driven.of(StepStarted)]


def prompts(driven: Driven) -> list[list[Mapping[str, Any]]]:
    return [list(effect.request.messages) for effect in driven.of(CallModel)]


class Similar:
    """A ranker that finds one tool similar, and the others half as much."""

    def rank(self, _query: str, tools: Sequence[Tool], /) -> list[float]:
        return [0.2 if tool.name == "feed_wolf" else 0.1 for tool in tools]


class Unfit:
    """A ranker that finds one tool bad, and the others worse."""

    def rank(self, _query: str, tools: Sequence[Tool], /) -> list[float]:
        return [-float(1 + (tool.name != "feed_wolf")) for tool in tools]


def test_the_best_tools_are_offered_in_the_order_of_the_pool() -> None:
    driven = drive(call("feed_wolf"), ANSWER)
    [started] = driven.of(RunStarted)
    assert started.tools == ("feed_ant", "feed_bear", "feed_cat", "feed_wolf")
    assert started.dropped["feed_dog"] == "ranked 5th of 24 for this request, and the limit is 4"
    assert offered(driven)[0] == (*started.tools, "find_tools", "final_answer")
    assert driven.run.outcome == "answered"
    system = prompts(driven)[0][0]["content"]
    assert "find_tools(query: string)" in system
    assert "feed_dog" not in system


@pytest.mark.parametrize(
    ("query", "options", "suggested"),
    [
        ("feed the wolf", {"guidance": GUIDED.in_prompt()}, True),
        ("feed the wolf", {}, False),
        ("feed the wolf", {"guidance": GUIDED.in_prompt(), "filter": False}, False),
        ("feed the wolf and the toad", {"guidance": GUIDED.in_prompt()}, False),
        ("sing", {"guidance": GUIDED.in_prompt()}, False),
        ("find tools to feed the wolf", {"guidance": GUIDED.in_prompt()}, True),
        ("feed the wolf", {"guidance": GUIDED.in_prompt(), "ranker": Unfit()}, False),
        ("feed the wolf", {"guidance": GUIDED.in_prompt(), "ranker": Similar()}, True),
    ],
)
def test_the_best_tool_is_suggested_to_a_small_model(
    query: str, options: dict[str, Any], suggested: bool
) -> None:
    driven = drive(call("feed_wolf"), ANSWER, query=query, options=resolved(max_tools=4, **options))
    assert [prompt[1]["content"] for prompt in prompts(driven)] == [
        f"{query}\n\nThe tool that fits best: feed_wolf" if suggested else query
    ] * 2


def test_a_call_is_required_before_the_answer_and_a_search_is_none() -> None:
    options = resolved(max_tools=4, max_steps=8, required=("*",))
    driven = drive(call("find_tools", query="food"), call("feed_wolf"), ANSWER, options=options)
    assert ["final_answer" in tools for tools in offered(driven)] == [False, False, True]
    assert "only after" not in prompts(driven)[0][0]["content"]
    assert driven.run.outcome == "answered"


def test_found_tools_are_described_once_and_can_be_called() -> None:
    driven = drive(call("find_tools", query="food for a lion"), call("feed_lion"), ANSWER)
    [first, second, third] = offered(driven)
    assert "feed_lion" not in first
    assert second[: len(first) - 2] == first[:-2]
    assert "feed_lion" in second
    assert third == second
    found = driven.run.steps[0].result
    assert found is not None
    assert found["tools"][0] == "feed_lion"
    assert len(found["tools"]) == FOUND_AT_ONCE
    assert driven.run.steps[1].result == {}
    before, after = driven.grammars[:2]
    assert not before.match(call("feed_lion")).complete
    assert after.match(call("feed_lion")).complete
    described = [message["content"] for message in prompts(driven)[-1] if "feed_lion()" in message["content"]]
    assert len(described) == 1
    assert described[0].startswith(json.dumps({"step": 1, "result": found}))


def test_found_tools_are_offered_with_their_prerequisites() -> None:
    pool = (
        *ZOO,
        make_tool("tame_tiger", "Tame it.", after=["open_cage"]),
        make_tool("open_cage", "Open it."),
    )
    texts = [call("find_tools", query="tiger"), call("open_cage"), call("tame_tiger"), ANSWER]
    driven = drive_by_hand(pool, map(completion, texts), query="feed the wolf", options=HERD)
    first, second, third, _ = offered(driven)
    assert {"open_cage", "tame_tiger"}.isdisjoint(first)
    assert "open_cage" in second
    assert "tame_tiger" not in second
    assert "tame_tiger" in third
    assert driven.run.outcome == "answered"
    assert all(step.error is None for step in driven.run.steps)


def test_the_same_words_find_the_next_tools_until_none_is_left() -> None:
    searching = call("find_tools", query="food")
    driven = drive(searching, call("find_tools", query="foods"), call("find_tools", query="the food"), ANSWER)
    found = [event.result["tools"] for event in driven.of(ToolDone)]
    assert len({name for names in found for name in names}) == 3 * FOUND_AT_ONCE
    everything = [call("find_tools", query=f"food {number}") for number in range(7)]
    driven = drive(*everything, ANSWER, options=resolved(max_tools=4, max_steps=9))
    assert driven.of(ToolDone)[-1].result == {"tools": []}
    assert set(offered(driven)[-1]) >= {tool.name for tool in ZOO}


def test_a_call_of_a_tool_that_is_not_offered_is_refused() -> None:
    driven = drive(
        call("feed_lion"),
        call("feed_wolf"),
        ANSWER,
        options=resolved(max_tools=4, call_format="json", constrained=False),
    )
    assert driven.run.steps[0].refusal == "invalid"
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["feed_wolf"]


def test_an_answer_of_the_person_adds_the_tools_that_it_calls_for() -> None:
    driven = drive(
        call("ask_user", question="Which one?"), call("feed_yak"), ANSWER,
        query="please", answers=["the yak"], options=resolved(max_tools=4, ask_user=True),
    )  # fmt: skip
    first, second = offered(driven)[:2]
    assert "feed_yak" not in first
    assert set(first) | {"feed_yak"} <= set(second)
    assert driven.run.outcome == "answered"


STEPS = st.one_of(
    st.builds(lambda animal: call("find_tools", query=animal), st.sampled_from([*ANIMALS, "food", "x"])),
    st.builds(lambda animal: call(f"feed_{animal}"), st.sampled_from(ANIMALS)),
    st.builds(lambda animal: call("ask_user", question=animal), st.sampled_from(ANIMALS)),
    st.just("nonsense"),
)


@settings(max_examples=scaled(50), deadline=None)
@given(
    st.lists(STEPS, max_size=7),
    st.lists(st.sampled_from(["the rat", "no", "eel and fox"]), max_size=3),
    st.integers(1, 26),
    st.sampled_from(["feed the wolf", "food for dog, cat and seal", "hm"]),
)
def test_each_prompt_begins_with_the_one_before(
    texts: list[str], answers: list[str], limit: int, query: str
) -> None:
    """What a server has cached stays valid; and no tool that was offered is taken away."""
    options = resolved(
        max_tools=limit,
        max_steps=8,
        max_blocked=9,
        ask_user=True,
        call_format="json",
        constrained=False,
        repeat_calls=True,
    )
    driven = drive(*texts, ANSWER, query=query, answers=answers, options=options)
    asked = prompts(driven)
    for before, after in itertools.pairwise(asked):
        assert after[: len(before)] == before
    steps = [set(names) for names in offered(driven)]
    for earlier, later in itertools.pairwise(steps):
        assert earlier <= later
    assert all(("find_tools" in names) == (limit < len(ZOO)) for names in steps)
    called = {effect.tool.name for effect in driven.of(ExecuteTool)}
    assert called <= set().union(*steps)


def test_a_pool_within_the_limit_is_offered_as_it_was() -> None:
    limited, unlimited = (
        drive_by_hand(POOL, [completion(ANSWER)], options=resolved(max_tools=limit))
        for limit in (MAX_TOOLS, None)
    )
    assert prompts(limited) == prompts(unlimited)
    assert all(FIND_TOOLS.name not in names for names in offered(limited))


def test_the_filter_off_offers_everything() -> None:
    [first, *_] = offered(drive(ANSWER, options=resolved(max_tools=4, filter=False)))
    assert first == (*(tool.name for tool in ZOO), "final_answer")


def test_a_ranker_that_fails_is_replaced_and_named() -> None:
    def unreachable(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise BackendUnreachableError("no llama-server answers")

    options = resolved(max_tools=4, ranker=EmbeddingRanker(unreachable))
    driven = drive(call("find_tools", query="lion"), call("feed_lion"), ANSWER, options=options)
    assert "feed_wolf" in offered(driven)[0]
    assert driven.run.outcome == "answered"
    [warning] = driven.of(WarningRaised)
    assert "no llama-server answers" in warning.message


def test_a_ranker_with_a_connection_does_not_hinder_a_fingerprint() -> None:
    embeddings = ServerEmbeddings("http://127.0.0.1:9")
    identities = [
        digest(options_identity(resolved(ranker=ranker)))
        for ranker in (BM25, EmbeddingRanker(embeddings), EmbeddingRanker(embeddings.__call__))
    ]
    embeddings.close()
    assert identities[0] != identities[1] == identities[2]


class Sized(FakeBackend):
    """A backend whose model has so many parameters."""

    def __init__(self, parameters: int | None, style: PromptStyle) -> None:
        self.model = ModelInfo(
            traits=ModelTraits(style, answers_by_call_only=style == "minimal", parameters=parameters)
        )


@pytest.mark.parametrize(
    ("parameters", "style", "given", "limit"),
    [
        (135_000_000, "full", "auto", (SMALL_MODEL_TOOLS, SMALL_MODEL_MARGIN, True)),
        (8_000_000_000, "full", "auto", (MAX_TOOLS, 0, False)),
        (None, "full", "auto", (MAX_TOOLS, 0, False)),  # a server does not say
        (4_000_000, "minimal", "auto", (MAX_TOOLS, 0, False)),  # trained on its pools
        (135_000_000, "full", 3, (3, 0, True)),
        (135_000_000, "full", None, (None, 0, True)),
    ],
)
def test_a_small_model_is_offered_fewer_tools(
    parameters: int | None, style: PromptStyle, given: Any, limit: tuple[int | None, float, bool]
) -> None:
    chosen = ResolvedOptions.resolve(PlannerOptions(max_tools=given), Sized(parameters, style))
    assert (chosen.max_tools, chosen.margin, chosen.guidance != UNGUIDED) == limit
    plain = ResolvedOptions.resolve(PlannerOptions(max_tools=given, hints=False), Sized(parameters, style))
    assert (plain.margin, plain.guidance) == (0, UNGUIDED)


def test_a_margin_leaves_the_other_tools_to_find_tools() -> None:
    small = resolved(max_tools=SMALL_MODEL_TOOLS, margin=SMALL_MODEL_MARGIN)
    driven = drive(call("find_tools", query="lion"), call("feed_lion"), ANSWER, options=small)
    first, second, _ = offered(driven)
    assert "feed_wolf" in first
    assert len(first) <= SMALL_MODEL_TOOLS + 2
    assert "feed_lion" in second
    assert driven.run.outcome == "answered"


SMALL = resolved(
    max_tools=SMALL_MODEL_TOOLS, margin=SMALL_MODEL_MARGIN, guidance=GUIDED.in_prompt(), evidence="all"
)
KENNEL = (
    make_tool("feed_dog", "Give the dog its food."),
    make_tool("weigh_dog", "Put the dog on a scale."),
    make_tool("forecast", "Tell the weather."),
    make_tool("send_mail", "Send a letter."),
)


def test_a_small_model_chooses_among_the_best_tools_first_and_among_more_after_a_call() -> None:
    texts = [completion(call(name)) for name in ("feed_dog", "weigh_dog")]
    driven = drive_by_hand(
        KENNEL, [*texts, completion(ANSWER)], query="feed the dog food, then weigh it", options=SMALL
    )
    first, second, _ = offered(driven)
    assert set(first) == {"feed_dog", "find_tools", "final_answer"}
    assert {"weigh_dog", "forecast", "send_mail", "find_tools", "final_answer"} == set(second)
    evidence = [started.evidence or {} for started in driven.of(StepStarted)]
    assert [each["unlikely"] for each in evidence] == [("find_tools",), (), ("find_tools",)]
    assert driven.run.outcome == "answered"


@pytest.mark.parametrize(
    ("query", "texts", "ends"),
    [
        ("give the dog its food", [call("feed_dog")], [False, True]),
        ("feed the dog 3 times", [call("feed_dog")], [False, False]),
        ("feed the dog of Rex", [call("feed_dog")], [False, False]),
        ("feed the dog, weigh the dog", [call("feed_dog"), call("weigh_dog")], [False, False, True]),
        ("give the dog its food", [call("forecast")], [False, False]),
        ("give the dog its food", ["nothing"], [False, False]),
        ("what is the meaning of life?", [], [True]),
        ("what is the meaning of life?", [call("forecast")], [True, False]),
        ("il senso della vita", [], [False]),
    ],
)
def test_an_answer_is_likely_when_nothing_of_the_request_is_left_or_fits_a_tool(
    query: str, texts: list[str], ends: list[bool]
) -> None:
    options = replace(SMALL, margin=0.0)
    driven = drive_by_hand(
        KENNEL, [completion(text) for text in [*texts, ANSWER]], query=query, options=options
    )
    evidence = [started.evidence or {} for started in driven.of(StepStarted)]
    assert [each["likely"] == ("final_answer",) for each in evidence] == ends
    unaided = replace(options, evidence="none")
    plain = drive_by_hand(
        KENNEL, [completion(text) for text in [*texts, ANSWER]], query=query, options=unaided
    )
    assert {started.evidence for started in plain.of(StepStarted)} == {None}


@requires_smollm2
def test_a_small_model_tells_its_size(tmp_path: Path) -> None:
    path = model_file()
    assert path is not None
    with InProcess(path, context_length=256, threads=1) as model:
        assert model.info().traits.parameters == 134_515_008
        planner = Planner(ZOO, model, PlannerOptions(), context=world(tmp_path))
    assert planner.options.margin == SMALL_MODEL_MARGIN
