"""Laws of the planner loop, over whatever a model may write, a tool may return and a person may say."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import validate_call
from gbnf.protocols.call_protocols import pop_reasoning
from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool
from gbnf_server.backends.base import Completion
from gbnf_server.backends.reasoning import KNOWN_REASONING_TAGS
from gbnf_server.llama.token_values import ValueProbability
from gbnf_server.planner.events import (
    AskApproval,
    AskPerson,
    CallBlocked,
    CallModel,
    ExecuteTool,
    HistoryCompacted,
    ModelCalled,
    RunFinished,
    RunStarted,
    SalvageStarted,
    StepStarted,
    ToolCalled,
    ToolDone,
    ToolFailed,
    WarningRaised,
)
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.repeats import MAX_READS, canonical
from gbnf_server.system.errors import (
    BackendUnreachableError,
    ContextOverflowError,
    ExecutorError,
    ExecutorTimeoutError,
    ServerResponseError,
    SetupError,
)
from support.by_hand import ANSWER, BY_NAME, NOW, POOL, Driven, call, completion, drive_by_hand, resolved
from support.effort import scaled

# Good calls, near misses, and noise: what a model may write.
PATHS = st.sampled_from(["a.txt", "b.txt", "notes/c.md", "../out"])
GOOD = st.one_of(
    st.just(NOW),
    st.just(ANSWER),
    st.builds(lambda path: call("create_dirs", paths=[path]), PATHS),
    st.builds(lambda path: call("find_files", base_path=path, pattern="*"), PATHS),
    st.builds(lambda step: call("read_files", from_step=step), st.integers(-1, 13)),
    st.builds(lambda path: call("delete_files", paths=[path]), PATHS),
    st.builds(lambda question: call("ask_user", question=question), st.text(max_size=5)),
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NEAR = st.builds(
    lambda name, arguments, more: json.dumps({"name": name, "arguments": arguments, **more}),
    st.sampled_from([*BY_NAME, "final_answer", "ask_user", "find_file", ""]),
    ANY_JSON
    | st.dictionaries(st.sampled_from(["paths", "title", "message", "from_step"]), ANY_JSON, max_size=3),
    st.just({}) | st.dictionaries(st.text(max_size=3), ANY_JSON, max_size=1),
)
TEXTS = GOOD | NEAR | st.builds(json.dumps, ANY_JSON) | st.text(max_size=20)
COMPLETIONS = st.builds(
    lambda text, finish, violation: completion(text, finish=finish, violation=violation),
    TEXTS,
    st.sampled_from(["stop", "stop", "stop", "stop", "length"]),
    st.sampled_from([None, None, None, None, "character 3: expected '}'"]),
)
FAULTS = st.sampled_from(
    [
        BackendUnreachableError("no server"),
        ServerResponseError(500, "empty stack"),
        ContextOverflowError(2000, 1024),
    ]
)
NOBODY = ExecutorError("nobody is there to approve")
REPLIES = st.one_of(
    st.builds(lambda entries: {"entries": entries}, st.lists(st.text(max_size=4), max_size=3)),
    st.just({"value": 1}),
    st.sampled_from(
        [ExecutorError("no such file"), ExecutorTimeoutError("find_files", 3), SetupError("disk full")]
    ),
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[ResolvedOptions, Driven]:
    """A run over the bundled tools, with any text of the model, any results and any answers of the person."""
    chosen = resolved(
        max_steps=draw(st.integers(1, 8)),
        max_blocked=draw(st.integers(1, 4)),
        ask_user=draw(st.booleans()),
        constrained=draw(st.booleans()),
        salvage=draw(st.booleans()),
        reasoning=draw(st.sampled_from(["off", "off", "field", "free"])),
        reasoning_tags=draw(st.sampled_from([None, KNOWN_REASONING_TAGS[0]])),
    )
    driven = drive_by_hand(
        POOL,
        draw(st.lists(COMPLETIONS | COMPLETIONS | COMPLETIONS | FAULTS, min_size=1, max_size=9)),
        query=draw(st.sampled_from(["do something", "delete the files"])),  # offered only if it is asked for
        replies=draw(st.lists(REPLIES, max_size=8)),
        approvals=draw(st.lists(st.booleans() | st.just(NOBODY), max_size=8)),
        answers=draw(st.lists(st.text(max_size=5), max_size=3)),
        options=chosen,
    )
    return chosen, driven


@settings(max_examples=scaled(300))
@given(runs())
def test_laws_of_runs(case: tuple[ResolvedOptions, Driven]) -> None:
    chosen, driven = case
    only_whole_valid_calls_are_executed(chosen, driven)
    events_are_well_formed(driven)
    every_run_ends_within_its_limits(chosen, driven)
    a_call_is_let_through_at_most_twice(driven)
    what_needs_approval_is_never_executed_without(driven)
    the_history_grows_by_one_call_and_one_result(chosen, driven)
    the_system_message_stays_the_same_while_the_grammar_narrows(driven)
    an_answer_is_salvaged_where_results_are_there_and_nothing_is_pending(chosen, driven)
    only_steps_with_entries_are_offered(driven)
    events_and_run_are_json(driven)


def only_whole_valid_calls_are_executed(chosen: ResolvedOptions, driven: Driven) -> None:
    for step in driven.run.steps:
        if step.call is not None and step.name != FINAL_ANSWER.name:
            called = next(event for event in driven.of(ToolCalled) if event.step == step.number)
            assert called.name == step.name
    begun: StepStarted | None = None
    written: ModelCalled | None = None
    violated = {event.step for event in driven.of(CallBlocked) if event.refusal == "ungrammatical"}
    for request in driven.requests:
        match request:
            case StepStarted():
                begun, written = request, None
            case ModelCalled(purpose="call"):
                assert written is None
                written = request
            case ExecuteTool() | AskPerson():
                assert begun is not None
                assert written is not None, "nothing is executed before the model wrote it, and only once"
                assert written.finish_reason == "stop"
                assert begun.step not in violated
                value = json.loads(written.text)
                if chosen.reasoning == "field":
                    _, value = pop_reasoning(value)
                offered = [tool for tool in (*POOL, ASK_USER) if tool.name in begun.tools]
                assert validate_call(value, offered, steps=begun.refers_to).ok
                if isinstance(request, ExecuteTool):
                    assert request.tool.name == value["name"]
                written = None


def events_are_well_formed(driven: Driven) -> None:
    letters = {
        RunStarted: "(", StepStarted: "s", ModelCalled: "m", CallBlocked: "b", ToolCalled: "t",
        ToolDone: "d", ToolFailed: "f", WarningRaised: "", SalvageStarted: "v", RunFinished: ")",
        HistoryCompacted: "c",
    }  # fmt: skip
    spelled = "".join(
        "o" if isinstance(event, ModelCalled) and event.purpose == "reasoning" else letters[type(event)]
        for event in driven.events
    )
    assert re.fullmatch(r"\((s[oc]*m(b|td|tf))*(s[oc]*m?)?(vm?)?\)", spelled), spelled
    assert re.search("oo|vc", spelled) is None
    [finished] = driven.of(RunFinished)
    assert finished.run == driven.run
    moments = [event.at for event in driven.events]
    assert moments == sorted(moments)
    numbers = [event.step for event in driven.of(StepStarted)]
    assert numbers == list(range(1, len(numbers) + 1))


def every_run_ends_within_its_limits(chosen: ResolvedOptions, driven: Driven) -> None:
    run = driven.run
    asked = Counter(effect.purpose for effect in driven.of(CallModel))
    most = chosen.max_steps + len(driven.of(HistoryCompacted))  # after each, the model is asked again
    assert asked["call"] <= most
    assert asked["salvage"] <= chosen.salvage
    assert asked["reasoning"] <= (most if chosen.reasoning == "free" else 0)
    in_a_row = longest = 0
    for step in run.steps:
        in_a_row = 0 if step.refusal is None else in_a_row + 1
        longest = max(longest, in_a_row)
    assert longest <= chosen.max_blocked
    ended = run.outcome
    for event in driven.of(SalvageStarted):
        ended = event.ended
    last = [(step.refusal, step.text) for step in run.steps[-2:]]
    is_stuck = len(last) == 2 and last[0] == last[1] and last[0][0] == "truncated"
    assert (ended == "blocked") == (in_a_row == chosen.max_blocked or is_stuck)
    assert (run.outcome == "answered") == (run.error is None)
    assert (run.outcome in {"answered", "salvaged"}) == (run.answer is not None)
    if run.outcome == "answered":
        assert run.steps[-1].name == FINAL_ANSWER.name
    if ended == "exhausted":
        assert len(run.steps) == chosen.max_steps


def a_call_is_let_through_at_most_twice(driven: Driven) -> None:
    made = Counter(canonical(step.call) for step in driven.run.steps if step.call is not None)
    assert not made or max(made.values()) <= MAX_READS


def what_needs_approval_is_never_executed_without(driven: Driven) -> None:
    asked: dict[str, Any] | None = None
    for request in driven.requests:
        if isinstance(request, AskApproval):
            asked = dict(request.call)
        elif isinstance(request, ExecuteTool):
            if request.tool.run.confirm:
                assert asked == {"name": request.tool.name, "arguments": request.arguments}
            asked = None
    denied = {event.step for event in driven.of(ToolFailed) if event.fault == "denied"}
    assert not denied & {event.step for event in driven.of(ToolDone)}


DELETING = st.builds(lambda path: completion(call("delete_files", paths=[path])), PATHS)


@settings(max_examples=scaled(60))
@given(
    st.lists(DELETING | DELETING | COMPLETIONS, min_size=1, max_size=6),
    st.lists(st.booleans() | st.just(NOBODY), min_size=6),
    st.booleans(),
)
def test_nobody_is_asked_to_approve_other_values(
    completions: list[Completion], approvals: list[Any], repeats: bool
) -> None:
    chosen = resolved(max_steps=7, repeat_calls=repeats)
    driven = drive_by_hand(POOL, completions, approvals=approvals, options=chosen, query="delete the files")
    events_are_well_formed(driven)
    what_needs_approval_is_never_executed_without(driven)
    if not repeats:
        nobody_is_asked_again(driven)


def nobody_is_asked_again(driven: Driven) -> None:
    absent: set[str] = set()
    last = ""
    for event in driven.events:
        match event:
            case StepStarted():
                assert not absent.intersection(event.tools)
            case ToolCalled(asks=True):
                assert event.name not in absent
                last = event.name
            case ToolFailed(error=error) if error == str(NOBODY):
                absent.add(last)


def the_history_grows_by_one_call_and_one_result(chosen: ResolvedOptions, driven: Driven) -> None:
    if driven.of(HistoryCompacted):
        return  # the laws of what it shows then are in `test_compaction.py`
    before: list[Any] = []
    for number, effect in enumerate(each for each in driven.of(CallModel) if each.purpose == "call"):
        messages = list(effect.request.messages)
        if chosen.reasoning == "free" and chosen.model.reasoning_tags is not None:
            assert messages.pop()["thinking"] == "closed"
        elif messages[-1]["content"] == "Now write the next call.":
            assert chosen.reasoning == "free"
            del messages[-2:]
        roles = [message["role"] for message in messages]
        assert roles == ["system", "user"] + ["assistant", "tool"] * number
        if chosen.reasoning != "free":
            assert messages[: len(before)] == before
        before = messages


def the_system_message_stays_the_same_while_the_grammar_narrows(driven: Driven) -> None:
    effects = [effect for effect in driven.of(CallModel) if effect.purpose != "salvage"]
    assert len({effect.request.messages[0]["content"] for effect in effects}) <= 1


def an_answer_is_salvaged_where_results_are_there_and_nothing_is_pending(
    chosen: ResolvedOptions, driven: Driven
) -> None:
    run = driven.run
    results = {event.step for event in driven.of(ToolDone)}
    pending: set[str] = set()
    for event in driven.events:
        match event:
            case ToolCalled():
                called = canonical({"name": event.name, "arguments": event.arguments})
                pending -= {called} if event.asks else set()
            case ToolFailed(error=error) if error == str(NOBODY):
                pending.add(called)
    ready = run.outcome != "answered" and bool(results) and not pending
    assert (run.outcome == "salvaged") == (chosen.salvage and ready)
    assert (run.outcome == "salvaged") == (run.salvage is not None) == bool(driven.of(SalvageStarted))
    after = False
    for request in driven.requests:
        after = after or isinstance(request, SalvageStarted)
        assert not (after and isinstance(request, ExecuteTool | AskPerson | AskApproval | StepStarted))
    if run.salvage is not None:
        assert run.answer == run.salvage.text
        assert run.answer
        assert run.salvage.steps
        assert set(run.salvage.steps) <= results
        assert run.error is not None


def only_steps_with_entries_are_offered(driven: Driven) -> None:
    having: set[int] = set()
    for event in driven.events:
        match event:
            case StepStarted():
                assert set(event.refers_to) == having
            case ToolDone() if event.result.get("entries"):
                having.add(event.step)


def events_and_run_are_json(driven: Driven) -> None:
    for event in driven.events:
        value = event.to_json()
        assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert driven.run.to_json()["outcome"] == driven.run.outcome


NAMES = {"type": "array", "items": {"type": "string", "maxLength": 2}, "maxItems": 2}
UNCERTAIN_POOL = tuple(
    Tool.from_mapping({"name": name, "description": name, "args": args, "run": {"effect": effect}})
    for name, effect, args in (
        ("look", "read", {}),
        ("take", "read", {"properties": {"step": {"type": "integer", "fills": "names"}, "names": NAMES}}),
        ("paint", "write", {"properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"]}),
    )
)
CHOICES = {"step": ["1", "2", "3"], "color": ['"red"', '"blue"']}


def _uncertain(name: str, argument: str, text: str) -> Completion:
    shares = tuple((each, 1 / len(CHOICES[argument])) for each in CHOICES[argument])
    value = ValueProbability(f"/arguments/{argument}", shares[0][1], shares)
    written = completion(f'{{"name": "{name}", "arguments": {{"{argument}": {text}}}}}')
    return replace(written, probabilities=(value,))


def _choosing(index: int) -> Callable[[AskPerson], str]:
    return lambda asked: (*asked.options[:2], "neither")[index]


@settings(max_examples=scaled(100))
@given(
    st.lists(
        st.builds(lambda text: _uncertain("take", "step", text), st.sampled_from(CHOICES["step"]))
        | st.builds(lambda text: _uncertain("paint", "color", text), st.sampled_from(CHOICES["color"])),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.sampled_from([["a"], ["long"]]).map(lambda entries: {"entries": entries}), min_size=3),
    st.lists(st.integers(0, 2).map(_choosing), min_size=5, max_size=5),
    st.booleans(),
)
def test_what_a_person_chooses_is_checked_as_what_the_model_writes(
    completions: list[Completion], replies: list[Any], answers: list[Any], repeats: bool
) -> None:
    chosen = resolved(ask_user=True, confirm_below=0.6, max_steps=7, repeat_calls=repeats)
    driven = drive_by_hand(
        UNCERTAIN_POOL,
        [completion(call("look"))] * 2 + [*completions, completion(ANSWER)],
        replies=replies,
        answers=answers,
        options=chosen,
    )
    events_are_well_formed(driven)
    only_steps_with_entries_are_offered(driven)
    for step in driven.run.steps:
        if step.call is not None and step.result is not None:
            refers_to = [event.refers_to for event in driven.of(StepStarted) if event.step == step.number]
            assert validate_call(step.call, UNCERTAIN_POOL, steps=refers_to[0]).ok
    for effect in driven.of(ExecuteTool):
        assert all(len(name) <= 2 for name in effect.arguments.get("names", ()))
    written = [step.call for step in driven.run.steps if step.name == "paint" and step.result is not None]
    assert repeats or len(set(map(canonical, filter(None, written)))) == len(written)


@settings(max_examples=scaled(40))
@given(st.lists(COMPLETIONS, min_size=1, max_size=5), st.lists(REPLIES, max_size=4))
def test_the_same_replies_make_the_same_run(completions: list[Completion], replies: list[Any]) -> None:
    first, second = (drive_by_hand(POOL, completions, replies=replies) for _ in range(2))
    assert first == second


@settings(max_examples=scaled(40))
@given(st.lists(COMPLETIONS, min_size=1, max_size=5))
def test_a_hook_that_raises_only_warns(completions: list[Completion]) -> None:
    quiet = drive_by_hand(POOL, completions)
    loud = drive_by_hand(POOL, completions, hook=lambda event: (f"hook failed at {type(event).__name__}",))
    assert [step.text for step in loud.run.steps] == [step.text for step in quiet.run.steps]
    assert loud.run.outcome == quiet.run.outcome
    assert {"hook failed at RunStarted", "hook failed at RunFinished"} <= set(loud.run.warnings)
    assert isinstance(loud.events[-1], RunFinished)
