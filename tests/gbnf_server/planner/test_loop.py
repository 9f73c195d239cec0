"""The planner loop, fed by hand: a table of cases. Its laws are in `test_loop_laws.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from gbnf.calls import CALL_SYNTAXES, CallSyntaxName, ToolCall, render_tool_calls
from gbnf.compiler.layout import Whitespace
from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.backends.base import Completion
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.planner.events import (
    AskApproval,
    AskPerson,
    CallBlocked,
    CallModel,
    ExecuteTool,
    ModelCalled,
    StepStarted,
    ToolCalled,
    ToolDone,
    ToolFailed,
)
from gbnf_server.planner.options import PlannerOptions
from gbnf_server.planner.run_state import RunState
from gbnf_server.planner.runs.fingerprints import digest, options_identity
from gbnf_server.planner.small_models.requested_tools import due_tools
from gbnf_server.planner.tool_offer import grammar_of_step
from gbnf_server.system.errors import (
    BackendUnreachableError,
    ContextOverflowError,
    ExecutorError,
    ExecutorTimeoutError,
    SetupError,
)
from support.by_hand import ANSWER, BY_NAME, NOW, POOL, Driven, call, completion, drive_by_hand, resolved
from support.oracle import engine
from support.small_models import drive_in, written
from support.tool_formats import FAMILIES, Family


def drive(*texts: str | Completion | GbnfError, **given: Any) -> Driven:
    said = [completion(text) if isinstance(text, str) else text for text in texts]
    return drive_by_hand(POOL, said, **given)


def test_a_plan_to_its_answer() -> None:
    driven = drive(
        call("find_files", base_path=".", pattern="*.txt"),
        call("read_files", from_step=1),
        ANSWER,
        replies=[{"entries": ["a.txt", "b.txt"], "count": 2}, {"entries": ["one", "two"]}],
    )
    assert (driven.run.outcome, driven.run.answer, driven.run.error) == ("answered", "done", None)
    assert [effect.arguments for effect in driven.of(ExecuteTool)] == [
        {"base_path": ".", "pattern": "*.txt"},
        {"paths": ["a.txt", "b.txt"]},
    ]
    assert [event.refers_to for event in driven.of(StepStarted)] == [(), (1,), (1, 2)]
    assert driven.run.prompt_tokens == 300
    assert driven.run.completion_tokens == 21
    assert driven.run.cached_tokens == 270


@pytest.mark.parametrize(
    ("text", "finish", "violation", "refusal", "error"),
    [
        (NOW, "length", None, "truncated", "cut after 7 tokens"),
        (NOW, "stop", "character 3: expected '}'", "ungrammatical", "expected '}'"),
        ("I will look it up.", "stop", None, "unparsed", "not one JSON call"),
        (call("create_dirs"), "stop", None, "invalid", "paths"),
        (call("find_file", base_path=".", pattern="*"), "stop", None, "invalid", "find_files"),
        (call("read_files", from_step=1), "stop", None, "invalid", "from_step"),
        ("null", "stop", None, "invalid", ""),
    ],
)
def test_refusals(text: str, finish: str, violation: str | None, refusal: str, error: str) -> None:
    driven = drive(completion(text, finish=finish, violation=violation), options=resolved(max_blocked=1))
    [blocked] = driven.of(CallBlocked)
    assert blocked.refusal == refusal
    assert error in blocked.error
    assert (driven.run.outcome, driven.effects[1:]) == ("blocked", [])
    assert error in str(driven.run.error)
    assert bool(driven.run.warnings) == (violation is not None)


@pytest.mark.parametrize("required", [(), ("*",)])
@pytest.mark.parametrize("message", ["", " \n\t", "…", "...", "```"])
def test_a_blank_answer_is_refused(message: str, required: tuple[str, ...]) -> None:
    blank = completion(call("final_answer", message=message))
    driven = drive(NOW, blank, ANSWER, options=resolved(required=required))
    assert [event.error for event in driven.of(CallBlocked)] == [
        "the message of final_answer is blank; write the answer"
    ]
    assert (driven.run.outcome, driven.run.answer) == ("answered", "done")


@pytest.mark.parametrize("message", ["The text is not one JSON call", "One call is the text"])
def test_an_answer_that_repeats_the_error_of_a_refused_text_is_refused_each_time(message: str) -> None:
    echo = completion(call("final_answer", message=message))
    driven = drive("?", echo, echo)
    assert [event.refusal for event in driven.of(CallBlocked)] == ["unparsed", "invalid", "invalid"]
    assert driven.run.outcome == "blocked"


def test_a_call_that_no_grammar_has_enforced_is_repaired() -> None:
    empty = call("find_files", base_path=".", pattern="*.md", patterns=[])
    driven = drive(empty, ANSWER, options=resolved(call_format="text"))
    [executed] = driven.of(ExecuteTool)
    assert executed.arguments == {"base_path": ".", "pattern": "*.md"}
    assert driven.run.steps[0].repairs == ("patterns: dropped []",)


def test_the_refusal_is_what_the_model_reads_next() -> None:
    driven = drive("x" * 5000, NOW, ANSWER)
    second = driven.of(CallModel)[1]
    assert len(second.request.messages[2]["content"]) < 1000
    assert json.loads(second.request.messages[3]["content"])["error"] == driven.of(CallBlocked)[0].error
    assert [event.in_a_row for event in driven.of(CallBlocked)] == [1]


@pytest.mark.parametrize(
    ("error", "fault"),
    [(ExecutorError("no clock"), "error"), (ExecutorTimeoutError("get_now", 10), "timeout")],
)
def test_a_failing_tool_is_no_refusal_and_the_model_reads_why(error: ExecutorError, fault: str) -> None:
    driven = drive("?", "?", NOW, "?", ANSWER, replies=[error])
    assert driven.run.outcome == "answered"
    [failed] = driven.of(ToolFailed)
    assert (failed.fault, failed.error) == (fault, str(error))
    assert json.loads(driven.of(CallModel)[3].request.messages[-1]["content"]) == {
        "step": 3,
        "error": str(error),
    }


def test_a_denied_call_is_not_executed_and_asked_once() -> None:
    driven = drive(call("delete_files", paths=["a"]), query="delete a", approvals=[False, False])
    assert driven.of(ExecuteTool) == []
    assert len(driven.of(AskApproval)) == 1
    assert [event.fault for event in driven.of(ToolFailed)] == ["denied"]
    assert driven.run.outcome == "blocked"


def test_the_person_approves_what_will_really_be_done() -> None:
    driven = drive(
        call("find_files", base_path=".", pattern="*"),
        call("delete_files", from_step=1),
        ANSWER,
        query="find all files and delete them",
        replies=[{"entries": ["a", "b"]}],
    )
    [asked] = driven.of(AskApproval)
    assert asked.call == {"name": "delete_files", "arguments": {"paths": ["a", "b"]}}


@pytest.mark.parametrize(
    "error", [BackendUnreachableError("nobody at 127.0.0.1:1"), ContextOverflowError(2000, 1024)]
)
def test_a_backend_error_ends_the_run_with_its_message(error: GbnfError) -> None:
    driven = drive(NOW, error)
    assert (driven.run.outcome, driven.run.error) == ("failed", str(error))
    assert len(driven.run.steps) == 1


def test_a_machine_that_cannot_run_tools_ends_the_run() -> None:
    driven = drive(NOW, replies=[SetupError("the workspace is gone")])
    assert (driven.run.outcome, driven.run.error) == ("failed", "the workspace is gone")
    assert [step.error for step in driven.run.steps] == ["the workspace is gone"]


def test_a_pool_without_grammar_ends_the_run_before_the_model_is_asked() -> None:
    twins = (BY_NAME["get_now"], BY_NAME["get_now"])
    driven = drive_by_hand(twins, [completion(NOW)])
    assert driven.run.outcome == "failed"
    assert driven.of(CallModel) == []


def test_the_person_is_asked_and_the_answer_may_bring_tools() -> None:
    driven = drive(
        call("ask_user", question="Where?", options=["Drive", "disk"]),
        ANSWER,
        answers=["in google drive"],
        query="find my report",
        options=resolved(ask_user=True),
    )
    assert driven.of(AskPerson) == [AskPerson("Where?", ("Drive", "disk"))]
    offered = [event.tools for event in driven.of(StepStarted)]
    assert "find_files_google_workspace" not in offered[0]
    assert "find_files_google_workspace" in offered[1]
    first, second = (effect.request.messages for effect in driven.of(CallModel))
    assert second[0] == first[0]
    assert "find_files_google_workspace" not in first[0]["content"]
    assert "find_files_google_workspace(" in second[-1]["content"]
    assert ["oogle" in str(grammar) for grammar in driven.grammars] == [False, True]
    assert driven.run.steps[0].result == {"answer": "in google drive", "entries": ["in google drive"]}


def test_without_grammar_none_is_sent() -> None:
    without = drive(NOW, ANSWER, options=resolved(call_format="json", constrained=False))
    assert [effect.request.grammar for effect in without.of(CallModel)] == [None, None]
    assert without.run.outcome == "answered"


def test_the_grammar_offers_the_answer_in_every_step_and_the_steps_in_time() -> None:
    driven = drive(NOW, ANSWER, replies=[{"entries": ["x"]}], options=resolved(max_steps=2))
    first, second = driven.grammars
    reading = [call("read_files", from_step=step) for step in (1, 2)]
    texts = [NOW, ANSWER, *reading]
    assert [first.match(text).complete for text in texts] == [True, True, False, False]
    assert [second.match(text).complete for text in texts] == [True, True, True, False]


@pytest.mark.parametrize("whitespace", get_args(Whitespace))
def test_the_grammar_has_the_layout_of_the_options(whitespace: Whitespace) -> None:
    texts = {"compact": (",", ":"), "spaced": (", ", ": "), "indented": None}
    call_and_answer = [
        {layout: json.dumps(json.loads(text), separators=separators, indent=None if separators else 2)
         for layout, separators in texts.items()}
        for text in (call("create_dirs", paths=["a"]), ANSWER)
    ]  # fmt: skip
    accepted = {"default": {"compact", "spaced"}, "free": set(texts)}.get(whitespace, {whitespace})
    for layout in accepted:
        driven = drive(*(text[layout] for text in call_and_answer), options=resolved(whitespace=whitespace))
        assert [each.arguments for each in driven.of(ExecuteTool)] == [{"paths": ["a"]}]
        assert (driven.run.outcome, driven.run.answer) == ("answered", "done")
        for layouts, grammar in zip(call_and_answer, driven.grammars, strict=True):
            matching = {name for name in texts if engine().match(grammar, layouts[name]).complete}
            assert matching == accepted


@pytest.mark.parametrize("name", ["max_steps", "max_blocked", "max_tokens", "reasoning_budget", "max_tools"])
def test_limits_below_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        resolved(**{name: 0})


def test_the_clock_gives_the_durations() -> None:
    driven = drive(NOW, ANSWER)
    [done] = driven.of(ToolDone)
    assert done.duration_s > 0
    assert driven.run.duration_s == (driven.events[-1].at - driven.run.started_at).total_seconds() - 1


TEXT = resolved(call_format="text")


@pytest.mark.parametrize("shape", ["fenced", "yaml"])
def test_a_text_call_is_a_call(shape: CallSyntaxName) -> None:
    arguments = {"paths": ["trips/rome"]}
    text = "Sure!\n" + render_tool_calls(ToolCall("1", "create_dirs", arguments), shape)
    driven = drive(text, "All done.", options=TEXT)
    [called] = driven.of(ToolCalled)
    assert (called.name, called.arguments) == ("create_dirs", arguments)
    assert driven.run.steps[0].repairs
    assert (driven.run.outcome, driven.run.answer) == ("answered", "All done.")
    strict = drive(text, options=replace(TEXT, call_format="json", constrained=False))
    assert (strict.run.outcome, strict.of(ToolCalled)) == ("blocked", [])


@pytest.mark.parametrize(
    ("text", "executed"), [(NOW, ["get_now"]), (call("create_dirs", paths=["tri"]), []), (ANSWER, [])]
)
@pytest.mark.parametrize(("repeated", "told"), [("", "write a shorter one"), ("trip", '"trip" again')])
def test_a_shortened_call_is_executed_unless_it_writes_or_repeats(
    text: str, executed: list[str], repeated: str, told: str
) -> None:
    executed = [] if repeated else executed
    shortened = replace(completion(text), shortened_at=30, repeated=repeated)
    driven = drive(shortened, ANSWER, options=resolved(max_blocked=1))
    assert [called.name for called in driven.of(ToolCalled)] == executed
    blocked = [(event.refusal, told in event.error) for event in driven.of(CallBlocked)]
    assert blocked == ([] if executed else [("truncated", True)])
    assert (driven.of(ModelCalled)[0].shortened_at, driven.of(ModelCalled)[0].repeated) == (30, repeated)


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_text_that_repeats_is_no_answer(form: str) -> None:
    text = ANSWER[:-3] + "github." * 80
    runaway = replace(completion(text, finish="length"), shortened_at=len(text), repeated="github.")
    options = resolved() if form == "json" else TEXT
    driven = drive(runaway, ANSWER, options=options)
    (blocked,) = driven.of(CallBlocked)
    assert (blocked.refusal, '"github." again and again' in blocked.error) == ("truncated", True)
    assert driven.run.outcome == "answered"


@pytest.mark.parametrize("others", [[], ["a"], ["b"], ["a", "b"]])
def test_the_same_truncated_text_twice_in_a_row_ends_a_run(others: list[str]) -> None:
    texts = [*others, "a", "a"]
    driven = drive(*(completion(text, finish="length") for text in texts))
    assert driven.run.outcome == "blocked"
    assert len(driven.run.steps) == (2 if others[-1:] == ["a"] else min(len(texts), 3))


def test_a_call_before_text_that_repeats_is_whole() -> None:
    text = call("create_dirs", paths=["tri"]) + "\n" * 600
    runaway = replace(completion(text, finish="length"), shortened_at=len(text), repeated="\n")
    driven = drive(runaway, ANSWER, options=TEXT)
    assert [called.name for called in driven.of(ToolCalled)] == ["create_dirs"]


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_text_call_that_was_truncated_is_not_executed(finish: str) -> None:
    whole = call("create_dirs", paths=["trips", "rome"])
    for end in range(1, len(whole) - 1):  # with the arguments whole, only the last brace is missing
        driven = drive(completion(whole[:end], finish=finish), options=TEXT)
        assert driven.of(ToolCalled) == []


@pytest.mark.parametrize("text", ["tool: create_dirs\nargs:\n  paths: [tri]\n", "CALL get_now"])
def test_a_text_call_without_an_end_is_only_executed_where_the_text_was_not_truncated(text: str) -> None:
    for finish, executed in (("stop", 1), ("length", 0)):
        driven = drive(completion(text, finish=finish), ANSWER, options=TEXT)
        assert len(driven.of(ToolCalled)) == executed


@pytest.mark.parametrize("shape", [shape.name for shape in CALL_SYNTAXES])
def test_a_text_call_inside_truncated_prose_may_be_reasoning_and_is_not_executed(
    shape: CallSyntaxName,
) -> None:
    """Chat servers do not report that a template opened reasoning whose end tag never arrived."""
    drafted = render_tool_calls(ToolCall("1", "create_dirs", {"paths": ["trips"]}), shape)
    for text, executed in (
        (f"I could begin:\n{drafted}\n\nBut no, they rather", 0),
        (f"I could begin:\n{drafted}\n\nBut no, rather:\n{drafted[:-9]}", 0),
        (f"I begin:\n{drafted}", 1),
        (f"{drafted}\n\nThis is becau", 1),
    ):
        for finish in ("length", "stop"):
            driven = drive(completion(text, finish=finish), ANSWER, options=TEXT)
            endless = shape == "yaml" and finish == "length"
            expected = 1 if finish == "stop" else 0 if endless else executed
            assert [called.name for called in driven.of(ToolCalled)] == ["create_dirs"] * expected, text


@pytest.mark.parametrize("text", ["", "Hello there."])
def test_prose_is_no_text_call_where_there_can_be_no_answer_yet(text: str) -> None:
    driven = drive(text, options=replace(TEXT, required=("get_now",)))
    assert driven.of(ToolCalled) == []
    assert driven.run.steps[0].refusal == ("invalid" if text else "unparsed")


LINES = resolved(call_format="lines")


@pytest.mark.parametrize("language", ["en", "it"])
def test_calls_in_lines_are_asked_for_shown_and_read(language: str) -> None:
    written = [
        'tool: create_dirs\nargs:\n  paths: ["trips"]',
        "tool: final_answer\nargs:\n  message: Made it.",
    ]
    driven = drive(*written, options=replace(LINES, language=language))
    assert (driven.run.outcome, driven.run.answer) == ("answered", "Made it.")
    first, second = driven.of(CallModel)
    assert first.request.grammar is None
    system = first.request.messages[0]["content"]
    assert "tool: …\nargs:\n" in system
    assert '{"name"' not in system
    assert second.request.messages[2] == {"role": "assistant", "content": written[0]}
    in_json = drive(ANSWER, options=resolved(language=language)).of(CallModel)[0]
    assert '{"name"' in in_json.request.messages[0]["content"]


def test_entries_that_a_tool_does_not_take_are_refused_before_it_is_called() -> None:
    args = BY_NAME["read_files"].args
    properties = args["properties"]
    one_path = {**properties, "paths": {**properties["paths"], "maxItems": 1}}
    strict = replace(BY_NAME["read_files"], args={**args, "properties": one_path})
    driven = drive_by_hand(
        [BY_NAME["find_files"], strict],
        [
            completion(call("find_files", base_path=".", pattern="*")),
            completion(call("read_files", from_step=1)),
            completion(call("read_files", paths=["a"])),
            completion(ANSWER),
        ],
        replies=[{"entries": ["a", "b"]}, {}],
    )
    assert [effect.arguments for effect in driven.of(ExecuteTool)][1:] == [{"paths": ["a"]}]
    [blocked] = driven.of(CallBlocked)
    assert blocked.refusal == "invalid"
    assert "'paths' of tool 'read_files' must have at most 1 item" in blocked.error
    assert driven.run.outcome == "answered"


@pytest.mark.parametrize("depth", [63, 64, 2000])
def test_a_result_that_is_too_deep_is_an_error_of_its_call(depth: int) -> None:
    """Whoever executes the tool: `run_executor` refuses it already."""
    nested: Any = 1
    for _ in range(depth):
        nested = [nested]
    result = {"x": nested}
    driven = drive(NOW, ANSWER, replies=[result])
    [first, _] = driven.run.to_json()["steps"]
    assert driven.run.outcome == "answered"
    assert ("nested deeper than 64" in str(first["error"])) == (depth > 63)
    assert json.dumps(first["result"]) == (json.dumps(result) if depth == 63 else "null")


@pytest.mark.parametrize("depth", [62, 63, 5000])
@pytest.mark.parametrize("call_format", ["json", "text"])
def test_a_call_that_is_too_deep_is_refused(depth: int, call_format: str) -> None:
    anything = Tool.from_mapping({"name": "any", "description": "x", "args": {"properties": {"x": {}}}})
    text = '{"name": "any", "arguments": {"x": ' + "[" * depth + "]" * depth + "}}"
    options = resolved(call_format=call_format)
    driven = drive_by_hand([anything], [completion(text), completion(ANSWER)], options=options)
    json.dumps(driven.run.to_json())
    assert driven.run.outcome == "answered"
    assert (driven.run.steps[0].refusal is None) == (depth == 62)


def test_a_truncated_text_and_the_error_that_it_gets_are_no_answers() -> None:
    options = replace(TEXT, max_blocked=4)
    error = "The text did not end within the limit of tokens."
    driven = drive(completion("The weather is", finish="length"), error, "It is sunny.", options=options)
    assert [event.refusal for event in driven.of(CallBlocked)] == ["truncated", "invalid"]
    assert driven.run.answer == "It is sunny."


@pytest.mark.parametrize("family", [None, *FAMILIES[::4]])  # each is tested by itself
@pytest.mark.parametrize("max_depth", [0, 4, 5])
def test_nested_arguments_are_constrained_down_to_the_depth(family: Family | None, max_depth: int) -> None:
    args: dict[str, Any] = {"type": "string"}
    arguments: Any = 0  # no string
    for _ in range(6):
        args = {"type": "object", "properties": {"x": args}, "required": ["x"]}
        arguments = {"x": arguments}
    options = resolved(max_depth=max_depth)
    if family is not None:
        options = replace(options, call_format="native", model=ModelTraits(tool_format=family.form))
    driven = drive_by_hand([Tool("deep", args=args)], [completion(ANSWER)], options=options)
    text = call("deep", **arguments) if family is None else family.write([("deep", arguments)])
    assert engine().match(driven.grammars[0], text).complete == (max_depth < 5)
    [started] = driven.of(StepStarted)
    again = grammar_of_step(started, {"deep": Tool("deep", args=args)}, options)
    assert str(again) == str(driven.grammars[0])


def test_a_negative_depth_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_depth is -1; it must be at least 0"):
        PlannerOptions(max_depth=-1)


def variants(*names: str) -> tuple[Tool, ...]:
    return tuple(
        Tool.from_mapping(
            {"name": name, "description": "Find files.", "args": {}, "run": {"effect": "write"}}
        )
        for name in names
    )


@pytest.mark.parametrize(
    ("query", "offered"),
    [
        ("find my notes in my acme", {"find_files_acme"}),
        ("find my notes on Acme", {"find_files", "find_files_acme"}),
        ("find my notes", {"find_files"}),
        ("find my notes in notion", {"find_files", "find_files_notion"}),
    ],
)
def test_variants_of_a_provider_of_the_options_are_offered_as_those_of_the_package(
    query: str, offered: set[str]
) -> None:
    pool = variants("find_files", "find_files_acme", "find_files_notion")
    providers = {**PROVIDERS, "_acme": Provider(("acme",), ("in my acme",))}
    providers["_notion"] = Provider(("notion",))  # by itself no place
    driven = drive_by_hand(pool, [completion(ANSWER)], query=query, options=resolved(providers=providers))
    [started] = driven.of(StepStarted)
    assert set(started.tools) - {"final_answer"} == offered
    state = RunState(query, "turn-1", datetime.now(UTC), resolved(providers=providers))
    assert {tool.name for tool in due_tools(pool, state)} == offered


def test_other_providers_are_another_run() -> None:
    few = {"_acme": Provider(("acme",))}
    identities = [options_identity(resolved(**given)) for given in ({}, {"providers": few}, {"max_depth": 2})]
    assert len({digest(identity) for identity in identities}) == 3


@pytest.mark.parametrize(("mode", "is_read"), [("large", True), ("small", False)])
def test_a_model_reads_what_it_has_said_before_a_call_of_its_template(mode: str, is_read: bool) -> None:
    text = f"I look at the clock.\n{written(json.loads(call('get_now')))}"
    driven = drive_in(mode, text, "It is nine.", query="what time is it?", replies=[{"time": "9:00"}])
    messages = driven.of(CallModel)[1].request.messages
    said = [each["content"] for each in messages if each.get("tool_calls")]
    assert ("I look at the clock." in said) == is_read
    assert ("clock" in str(messages)) == is_read
    assert driven.run.answer == "It is nine."


@pytest.mark.parametrize("mode", ["text", "lines"])
@pytest.mark.parametrize("after", ["", "\nObservation: 12:00"])
def test_a_model_reads_what_it_has_said_before_a_call(mode: str, after: str) -> None:
    text = f"I look at the clock.\n{call('get_now')}{after}"
    driven = drive_in(mode, text, "It is nine.", query="what time is it?", replies=[{"time": "9:00"}])
    said, outcome = driven.of(CallModel)[1].request.messages[-2:]
    shown = call("get_now") if mode == "text" else "tool: get_now\nargs: {}"
    assert (said["role"], said["content"]) == ("assistant", f"I look at the clock.\n\n{shown}")
    assert "Observation" not in outcome["content"]
    assert driven.run.steps[0].text == text
    assert driven.run.answer == "It is nine."
