"""Laws of repeated calls, over models that choose whatever the grammar allows, and tables of loops."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.errors import GbnfError
from gbnf.tools import RunPolicy, Tool
from gbnf_server.backends.base import Completion
from gbnf_server.planner.events import (
    CallBlocked,
    CallModel,
    Event,
    ExecuteTool,
    Run,
    RunFinished,
    StepStarted,
    ToolDone,
    ToolFailed,
)
from gbnf_server.planner.loop import plan
from gbnf_server.planner.repeats import canonical
from gbnf_server.system.errors import BackendError, ExecutorError
from support.by_hand import ANSWER, call, completion, drive_by_hand, resolved
from support.effort import scaled
from support.json_values import json_values
from support.oracle import engine

_SIDES = {"type": "object", "properties": {"sides": {"enum": [6, 20]}, "note": {"type": "string"}}}
READ, WRITE, POLL = (
    Tool("look", args=_SIDES, run=RunPolicy("read")),
    Tool("pay", args=_SIDES, run=RunPolicy("write")),
    Tool("poll", args={"type": "object"}, run=RunPolicy("read", repeatable=True)),
)
POOL = (READ, WRITE, POLL)
CALLS = [
    *(
        call(name, **arguments)
        for name in ("look", "pay")
        for arguments in (
            {},
            {"sides": 6},
            {"sides": 6, "note": "a"},
            {"note": "a", "sides": 6},
            {"sides": 20.0},
        )
    ),
    call("poll"),
    call("look", sides=7),
]
FAILED = ExecutorError("no luck")
REPLIES = st.sampled_from([FAILED, FAILED, {"value": 1}, {"value": 1}, {"value": 2}])


def same(some: Any, other: Any) -> bool:
    return jsonschema.Draft202012Validator({"const": some}).is_valid(other)


def choosing(picks: list[int], *, obedient: bool) -> Iterator[Callable[[CallModel], Completion]]:
    """A model that writes any of the calls that the grammar allows; any call at all if not `obedient`."""

    def choose(pick: int) -> Callable[[CallModel], Completion]:
        def write(effect: CallModel) -> Completion:
            grammar = effect.request.grammar
            assert isinstance(grammar, Grammar)
            allowed = [text for text in CALLS if not obedient or engine().match(str(grammar), text).complete]
            return completion(allowed[pick % len(allowed)] if allowed else ANSWER)

        return write

    return map(choose, itertools.cycle(picks))


@settings(max_examples=scaled(60), deadline=None)
@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=8),
    st.lists(REPLIES, min_size=1, max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_nothing_is_repeated_without_need(
    picks: list[int], replies: list[Any], obedient: bool, required: bool
) -> None:
    options = resolved(max_steps=10, required=("pay",) if required else ())
    driven = drive_by_hand(POOL, choosing(picks, obedient=obedient), replies=replies, options=options)
    assert driven.run.outcome in {"answered", "blocked", "exhausted"}
    failed: list[tuple[str, Any]] = []
    written: list[tuple[str, Any]] = []
    read: list[tuple[str, Any]] = []
    results: list[Any] = []
    effect: ExecuteTool | None = None

    def count(made: list[tuple[str, Any]]) -> int:
        assert effect is not None
        return sum(name == effect.tool.name and same(effect.arguments, args) for name, args in made)

    for request in driven.requests:
        match request:
            case ExecuteTool() if request.tool.name != "poll":
                effect = request
                assert count(failed) == count(written) == 0
                assert count(read) < 2
            case ExecuteTool():
                effect = request
            case ToolFailed():
                assert effect is not None
                failed.append((effect.tool.name, effect.arguments))
            case ToolDone():
                assert effect is not None
                key = (effect.tool.name, effect.arguments)
                if effect.tool.name == "pay":
                    written.append(key)
                    read.clear()
                else:
                    read.append(key)
                outcome = [*key, request.result]
                if not any(same(outcome, other) for other in results):
                    results.append(outcome)
                    failed.clear()


def test_a_call_that_failed_is_not_in_the_grammar_until_another_has_succeeded() -> None:
    texts = [call("look", sides=6), call("look", sides=20), call("pay"), ANSWER]
    driven = drive_by_hand(POOL, map(completion, texts), replies=[FAILED, {"value": 1}])
    asked = [effect.request.grammar for effect in driven.of(CallModel)]
    allowed = [engine().match(str(grammar), texts[0]).complete for grammar in asked]
    assert allowed == [True, False, True, True]
    assert [event.excluded for event in driven.of(StepStarted)] == [
        (),
        ('{"arguments": {"sides": 6}, "name": "look"}',),
        (),
        (),
    ]


def test_a_tool_whose_only_call_has_failed_is_not_offered() -> None:
    args = {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    once = Tool("once", args=args, run=RunPolicy("read"))
    texts = [call("once", a=1), call("pay"), ANSWER]
    driven = drive_by_hand([*POOL, once], map(completion, texts), replies=[FAILED, {"value": 1}])
    assert ["once" in event.tools for event in driven.of(StepStarted)] == [True, False, True]


def test_a_tool_that_fails_twice_is_left_out_of_one_step_and_the_model_reads_why() -> None:
    texts = [call("look", sides=6), call("look"), call("look", note="a"), call("look", note="b"), ANSWER]
    driven = drive_by_hand(POOL, map(completion, texts), replies=[FAILED] * 4)
    offered = ["look" in event.tools for event in driven.of(StepStarted)]
    assert offered == [True, True, False, True, False]
    said = [json.loads(effect.request.messages[-1]["content"]) for effect in driven.of(CallModel)[1:]]
    assert said[0]["error"] == "no luck"
    assert said[1]["error"] == (
        "no luck. look is not possible in the next step, after 2 such calls; call another tool, or answer"
    )
    assert driven.run.steps[1].error == "no luck"
    assert driven.run.steps[2].refusal == "invalid"
    assert "look cannot be called again now" in str(driven.run.steps[2].error)


def test_the_same_invalid_text_counts_as_a_failure() -> None:
    wrong = completion(call("look", sides=7))
    driven = drive_by_hand(POOL, [wrong, wrong, completion(ANSWER)])
    assert ["look" in event.tools for event in driven.of(StepStarted)] == [True, True, False]
    assert driven.run.outcome == "answered"


def test_a_write_is_refused_so_that_the_model_does_not_write_the_nearest_one_that_is_left() -> None:
    texts = [call("pay", sides=6), call("pay", sides=6), call("look"), ANSWER]
    driven = drive_by_hand(POOL, map(completion, texts))
    [_, second, third, _] = driven.of(CallModel)
    assert engine().match(str(second.request.grammar), texts[1]).complete
    assert not engine().match(str(third.request.grammar), call("pay", sides=20)).complete
    assert "pay has already been done" in third.request.messages[-1]["content"]
    assert "pay is not possible in the next step" in third.request.messages[-1]["content"]
    assert driven.run.outcome == "answered"


def test_what_was_read_twice_is_read_again_after_a_write() -> None:
    texts = [call("look")] * 2 + [call("pay"), call("look"), ANSWER]
    driven = drive_by_hand(POOL, map(completion, texts))
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["look", "look", "pay", "look"]


def test_what_was_paid_is_paid_once_unless_that_is_wanted() -> None:
    texts = [call("pay", sides=6), call("look"), call("pay", sides=6.0), ANSWER]
    once = drive_by_hand(POOL, map(completion, texts))
    assert [event.refusal for event in once.of(CallBlocked)] == ["repeated"]
    twice = drive_by_hand(POOL, map(completion, texts), options=resolved(repeat_calls=True))
    assert [effect.tool.name for effect in twice.of(ExecuteTool)] == ["pay", "look", "pay"]


@pytest.mark.parametrize(
    "more", [{"dialect": "json_schema"}, {"constrained": False}, {"call_format": "text"}]
)
def test_without_a_grammar_for_it_the_repetition_is_refused(more: dict[str, Any]) -> None:
    texts = [call("look"), call("pay"), call("pay"), ANSWER]
    driven = drive_by_hand(POOL, map(completion, texts), replies=[FAILED], options=resolved(**more))
    assert not any(event.excluded for event in driven.of(StepStarted))
    [blocked] = driven.of(CallBlocked)
    assert blocked.refusal == "repeated"
    assert blocked.error.startswith("pay has already been done")
    assert driven.run.outcome == "answered"


def test_a_run_ends_if_only_repetitions_are_left() -> None:
    args = {"type": "object", "properties": {}, "description": "None."}
    tool = Tool("ring", args=args, run=RunPolicy("write"))
    driven = drive_by_hand(
        [tool], [completion(call("ring"))], replies=[FAILED], options=resolved(required=("ring",))
    )
    assert (driven.run.outcome, len(driven.of(CallModel))) == ("blocked", 1)
    assert "every call that is left would repeat an earlier one" in str(driven.run.error)
    assert str(driven.run.error).endswith("required tools have not succeeded: ring")


class _Timed:
    """A loop under a clock that moves while effects are performed."""

    def __init__(self, seconds: list[float], max_seconds: float | None, **more: Any) -> None:
        self.now = datetime(2026, 3, 5, tzinfo=UTC)
        self.generating = 0.0
        options = resolved(max_seconds=max_seconds, max_steps=30, salvage=True, **more)
        loop = plan("go", POOL, options, turn="t", clock=lambda: self.now)
        durations = itertools.cycle(seconds)
        numbers = itertools.count()
        reply: Any = None
        error: GbnfError | None = None
        while True:
            request = loop.send(reply) if error is None else loop.throw(error)
            reply = error = None
            if isinstance(request, RunFinished):
                self.run: Run = request.run
                return
            if isinstance(request, CallModel):
                took = next(durations)
                if request.request.timeout_s is not None and took > request.request.timeout_s:
                    took, error = request.request.timeout_s, BackendError("the call was cancelled")
                self.now += timedelta(seconds=took)
                text = "It is 5." if request.purpose == "salvage" else call("look", note=f"{next(numbers)}")
                reply = completion(text) if error is None else None
            elif isinstance(request, ExecuteTool):
                reply = {"value": next(numbers)}
            else:
                assert isinstance(request, Event)


@settings(max_examples=scaled(60), deadline=None)
@given(st.lists(st.floats(0.1, 500), min_size=1, max_size=5), st.floats(1, 400))
def test_a_run_ends_soon_after_its_seconds(seconds: list[float], limit: float) -> None:
    timed = _Timed(seconds, limit)
    assert timed.run.duration_s <= 1.1 * limit + 0.1
    assert timed.run.outcome in {"salvaged", "exhausted"}
    if timed.run.duration_s < limit - 0.1:
        assert len(timed.run.steps) == 30
    else:
        assert f"no final answer within {limit:g} seconds" in str(timed.run.error)
    if any(step.result for step in timed.run.steps):
        assert timed.run.answer


def test_without_a_limit_of_seconds_only_the_steps_count() -> None:
    timed = _Timed([1000.0], None)
    assert len(timed.run.steps) == 30
    assert timed.run.answer == "It is 5."


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_the_order_of_keys_makes_no_other_call(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical(value) == canonical(backwards)
    assert json.loads(canonical(value)) == value
