"""The order of tools in a run: laws over random orders and models, then tables of orders and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.errors import PoolError
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf.tools.prerequisites import with_prerequisites
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.planner import Planner, PlannerOptions
from gbnf_server.planner.events import (
    CallBlocked,
    CallModel,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolDone,
    WarningRaised,
)
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.prerequisites import answer_of, order_tools
from gbnf_server.system.errors import ExecutorError
from support.backends import FakeBackend
from support.by_hand import ANSWER, Driven, call, completion, drive_by_hand, resolved
from support.executors import world
from support.toys import make_tool

NAMES = ("alpha", "beta", "gamma", "delta")


def tool(name: str, *after: str, **offer: Any) -> Tool:
    count = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return Tool.from_mapping({"name": name, "args": count, "offer": {"after": list(after), **offer}})


@st.composite
def orders(draw: st.DrawFn) -> tuple[tuple[Tool, ...], ResolvedOptions]:
    """A pool with any order, and what a run requires of it."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    some = st.lists(st.sampled_from(names), max_size=2, unique=True)
    pool = tuple(
        tool(name, *draw(some | st.just(["nothing"])), terminal=draw(st.sampled_from([False, False, True])))
        for name in names
    )
    return pool, resolved(
        required=tuple(draw(some)),
        terminal=tuple(draw(st.just([]) | some)),
        max_steps=draw(st.integers(1, 7)),
        call_format=draw(st.sampled_from(["json", "text"])),
        constrained=draw(st.booleans()),
        ask_user=draw(st.booleans()),
        filter=draw(st.booleans()),
    )


CALLS = st.builds(lambda name, n: call(name, n=n), st.sampled_from(NAMES), st.integers(0, 2)) | st.just(
    ANSWER
)
REPLIES = st.sampled_from([{"entries": ["x"]}, {"answer": "that's it"}, {}, ExecutorError("it failed")])


def endings(pool: Sequence[Tool], chosen: ResolvedOptions) -> Iterator[int]:
    """Try every run in which all calls succeed: yield the steps of each that ends with an answer."""
    terminal = {each.name for each in pool if each.offer.terminal} | set(chosen.terminal)
    seen: set[frozenset[str]] = set()
    pending = [frozenset[str]()]
    while pending:
        succeeded = pending.pop()
        if succeeded in seen:
            continue
        seen.add(succeeded)
        if succeeded >= set(chosen.required):
            yield len(succeeded) + 1
        for each in pool:
            if each.name in succeeded or not succeeded >= set(each.offer.after):
                continue
            if each.name not in terminal:
                pending.append(succeeded | {each.name})
            elif succeeded | {each.name} >= set(chosen.required):
                yield len(succeeded) + 1


def possible(pool: Sequence[Tool], chosen: ResolvedOptions) -> bool:
    unblocked = any(not each.offer.after for each in pool)  # else not even one tool can be called
    return unblocked and any(steps <= chosen.max_steps for steps in endings(pool, chosen))


@given(orders(), st.lists(CALLS, min_size=1, max_size=7), st.lists(REPLIES, max_size=7))
def test_laws_of_ordered_runs(
    order: tuple[tuple[Tool, ...], ResolvedOptions], texts: list[str], replies: list[Any]
) -> None:
    pool, chosen = order
    try:
        driven = drive_by_hand(pool, map(completion, texts), replies=replies, options=chosen)
    except PoolError:
        assert not possible(pool, chosen)
        return
    assert possible(pool, chosen)
    calls_come_after_their_prerequisites(driven, pool, chosen)
    answers_come_after_the_required_tools(driven, pool, chosen)
    the_grammar_and_the_checks_agree(driven, pool)
    assert len({effect.request.messages[0]["content"] for effect in driven.of(CallModel)}) == 1
    assert len(driven.run.steps) <= chosen.max_steps


def calls_come_after_their_prerequisites(
    driven: Driven, pool: Sequence[Tool], chosen: ResolvedOptions
) -> None:
    by_name = {each.name: each for each in pool}
    succeeded: set[str] = set()
    for event in driven.events:
        match event:
            case StepStarted():
                for name in event.tools:
                    if name in by_name:
                        assert set(by_name[name].offer.after) <= succeeded
                    elif name == FINAL_ANSWER.name:
                        assert set(chosen.required) <= succeeded
            case ToolCalled() if event.name in by_name:
                assert set(by_name[event.name].offer.after) <= succeeded
            case ToolDone():
                succeeded.add(event.name)


def answers_come_after_the_required_tools(
    driven: Driven, pool: Sequence[Tool], chosen: ResolvedOptions
) -> None:
    terminal = {each.name for each in pool if each.offer.terminal} | set(chosen.terminal)
    succeeded = {event.name for event in driven.of(ToolDone)}
    ended = succeeded & terminal
    if driven.run.outcome == "answered":
        last = driven.run.steps[-1]
        assert set(chosen.required) <= succeeded
        assert last.name in {*ended, FINAL_ANSWER.name}
        if last.name != FINAL_ANSWER.name:
            assert last.result is not None
            assert driven.run.answer == answer_of(last.result)
    else:
        assert not ended, "a terminal tool ends the run"
        assert driven.run.error
    assert isinstance(driven.events[-1], RunFinished)


def the_grammar_and_the_checks_agree(driven: Driven, pool: Sequence[Tool]) -> None:
    begun: StepStarted | None = None
    for request in driven.requests:
        match request:
            case StepStarted():
                begun = request
            case CallModel(Request(grammar=Grammar() as grammar)):
                assert begun is not None
                for each in pool:
                    assert grammar.match(call(each.name, n=1)).complete == (each.name in begun.tools)
                answer = grammar.match(ANSWER)
                assert answer.complete == (FINAL_ANSWER.name in begun.tools)
            case CallBlocked(refusal="invalid"):
                assert begun is not None
                name = json.loads(request.text)["name"]
                if name in begun.tools:
                    assert "only after" not in request.error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_model_of_random_weights_keeps_the_order(tmp_path: Path, backend: InProcess, seed: int) -> None:
    """It has no idea of any order: only the grammar keeps it."""
    tools = [
        make_tool(tmp_path / "tools", "publish", 'return {"url": "x"}', offer={"after": ["check"]}),
        make_tool(tmp_path / "tools", "check", offer={"after": ["draft"]}),
        make_tool(tmp_path / "tools", "draft"),
    ]
    options = PlannerOptions(
        required=("check",), terminal=("publish",), temperature=1.0, seed=seed, max_tokens=400, max_steps=9
    )
    run = Planner(tools, backend, options, context=world(tmp_path / "work")).run("go")
    assert {step.refusal for step in run.steps} <= {None, "truncated", "repeated"}
    names = [step.name for step in run.steps if step.result is not None]
    for name, before in (("check", "draft"), ("publish", "check")):
        assert name not in names or before in names[: names.index(name)]
    if run.outcome == "answered":
        assert "check" in names


def run(pool: Sequence[Tool], *texts: str, replies: Sequence[Any] = (), **options: Any) -> Driven:
    return drive_by_hand(pool, map(completion, texts), replies=replies, options=resolved(**options))


def test_an_early_call_is_blocked_and_names_its_prerequisite() -> None:
    pool = (tool("read"), tool("find"), tool("edit", "find", "read"))
    driven = run(pool, call("edit"), call("read"), call("edit"), call("find"), call("edit"), ANSWER)
    errors = [event.error for event in driven.of(CallBlocked)]
    assert errors == [
        "edit is possible only after find and read; call find first",
        "edit is possible only after find; call find first",
    ]
    assert driven.run.outcome == "answered"


def test_an_answer_may_require_whichever_tool() -> None:
    pool = (tool("read"), tool("edit"))
    driven = run(pool, ANSWER, call("edit"), ANSWER, required=("*",), ask_user=True)
    assert [event.error for event in driven.of(CallBlocked)] == [
        "final_answer is possible only after another tool; call another tool first"
    ]
    assert [FINAL_ANSWER.name in event.tools for event in driven.of(StepStarted)] == [False, False, True]
    assert driven.run.outcome == "answered"


def test_a_question_is_no_tool_that_an_answer_requires() -> None:
    driven = run(
        (tool("read"),), call("ask_user", question="What?"), required=("*",), ask_user=True, max_steps=1
    )
    assert "these required tools have not succeeded: any" in str(driven.run.error)


def test_no_answer_before_the_required_tools_not_even_in_the_last_step() -> None:
    pool = (tool("read"), tool("edit"))
    driven = run(pool, call("read"), ANSWER, required=("edit",), max_steps=3, max_blocked=9)
    assert driven.run.outcome == "exhausted"
    assert "these required tools have not succeeded: edit" in str(driven.run.error)
    assert [FINAL_ANSWER.name in event.tools for event in driven.of(StepStarted)] == [False] * 3
    assert driven.of(CallBlocked)[0].error == "final_answer is possible only after edit; call edit first"


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ({"answer": "Sent.", "id": 3}, "Sent."),
        ({"result": "Sent."}, "Sent."),
        ({"id": 3, "to": "Zoë"}, '{"id": 3, "to": "Zoë"}'),
        ({"answer": 3}, '{"answer": 3}'),
        ({}, "{}"),
    ],
)
def test_the_answer_of_a_terminal_tool(result: dict[str, Any], answer: str) -> None:
    driven = run((tool("send", terminal=True),), call("send"), replies=[result])
    assert (driven.run.outcome, driven.run.answer, driven.run.error) == ("answered", answer, None)
    assert driven.run.steps[-1].result == result


def test_a_terminal_tool_that_fails_does_not_end_the_run() -> None:
    driven = run((tool("send"),), call("send"), ANSWER, replies=[ExecutorError("no net")], terminal=("send",))
    assert [step.name for step in driven.run.steps] == ["send", "final_answer"]


def test_where_a_terminal_tool_is_required_no_final_answer_is_described() -> None:
    pool = (tool("read"), tool("send"))
    driven = run(pool, call("read"), call("send"), required=("read", "send"), terminal=("send",))
    assert driven.run.outcome == "answered"
    for effect in driven.of(CallModel):
        assert "final_answer" not in effect.request.messages[0]["content"]
        assert "finish with send." in effect.request.messages[0]["content"]
        assert "only after read; ends the work" in effect.request.messages[0]["content"]


def test_the_filter_keeps_what_is_required_and_what_comes_before() -> None:
    pool = (tool("look"), tool("read", markers=["never"]), tool("edit", "read", markers=["never"]))
    for required in ((), ("edit",)):
        [started] = run(pool, call("look"), required=required, max_steps=3).of(RunStarted)
        assert started.tools == (("look", "read", "edit") if required else ("look",))


def test_a_tool_that_can_never_be_called_is_left_out_with_a_warning() -> None:
    driven = run((tool("read"), tool("edit", "raed")), call("read"), ANSWER)
    reason = "it comes after 'raed', which the pool does not have; did you mean 'read'?"
    assert driven.of(RunStarted)[0].dropped == {"edit": reason}
    assert driven.run.warnings == (f"the tool edit is never offered: {reason}",)
    assert len(driven.of(WarningRaised)) == 1
    assert driven.run.outcome == "answered"


def test_the_person_may_have_to_be_asked() -> None:
    driven = run(
        (tool("send", "ask_user"),), call("ask_user", question="?"), call("send"), ANSWER, ask_user=True
    )
    assert [step.error for step in driven.run.steps] == [None] * 3
    with pytest.raises(PoolError, match="'ask_user', which the pool does not have"):
        run((tool("send", "ask_user"),), ANSWER)


@pytest.mark.parametrize(
    ("pool", "options", "error"),
    [
        ([tool("read")], {"required": ("raed",)}, "required names 'raed'.* Did you mean 'read'"),
        ([tool("read")], {"terminal": ("final_answer",)}, "terminal names 'final_answer'"),
        (
            [tool("a"), tool("b", "c")],
            {"required": ("b",)},
            "'b', which comes after 'c', which the pool does",
        ),
        (
            [tool("a"), tool("b")],
            {"required": ("a", "b"), "terminal": ("a", "b")},
            "each comes after another",
        ),
        ([tool("a"), tool("b", "a")], {"required": ("b",), "max_steps": 2}, "at least 3 steps"),
    ],
)
def test_an_order_in_which_no_run_can_end_is_an_error_before_the_model_is_asked(
    tmp_path: Path, pool: list[Tool], options: dict[str, Any], error: str
) -> None:
    with pytest.raises(PoolError, match=error):
        Planner(pool, FakeBackend(), PlannerOptions(**options), context=world(tmp_path))


def test_a_name_alone_is_no_tuple_of_names() -> None:
    with pytest.raises(ValueError, match="must be a tuple of names"):
        PlannerOptions(required="read_files")  # type: ignore[arg-type]  # that is the point
    assert PlannerOptions(terminal=["send"]).terminal == ("send",)  # type: ignore[arg-type]


def test_endings_that_come_after_the_same_tools_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a pool of endings takes time by the square of its size."""
    looked: list[list[Tool]] = []

    def count(tools: list[Tool], pool: Sequence[Tool]) -> tuple[Tool, ...]:
        looked.append(tools)
        return with_prerequisites(tools, pool)

    monkeypatch.setattr("gbnf_server.planner.prerequisites.with_prerequisites", count)
    endings = [tool(f"end_{number}", terminal=True) for number in range(50)]
    assert len(order_tools(endings, PlannerOptions()).tools) == 50
    assert len(looked) == 1
