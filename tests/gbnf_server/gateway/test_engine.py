"""The gateway's engine with real models in this process: what an answer guarantees, whatever the model."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf import Grammar
from gbnf.prompts.messages import Image
from gbnf.protocols.call_protocols import CallsInText, JsonCalls, NativeCalls, SchemaCalls
from gbnf.tool_formats import CallEnded, CallStarted, TextDelta
from gbnf_server.backends.base import BackendEvent, Completion, Dialect, ModelInfo, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.gateway.answers import Finished, Started
from gbnf_server.gateway.chat import (
    ChatRequest,
    FunctionTool,
    GbnfText,
    JsonObject,
    JsonSchema,
    Sampling,
    ToolChoice,
)
from gbnf_server.gateway.compiling import GatewayCallFormat, Target
from gbnf_server.gateway.engine import Engine
from gbnf_server.llama import server_build as build
from gbnf_server.system.errors import RequestNotSupportedError
from gbnf_server.web.errors import HttpError
from support.backends import FakeBackend
from support.deltas import calls, text
from support.effort import scaled
from support.gateway_answers import (
    PLACE,
    SCHEMAS,
    TOOLS,
    USER,
    Ignoring,
    answer,
    check_guarantees,
    end,
    function,
)
from support.models import make_model
from support.oracle import engine
from support.scripts import Script
from support.server import require_llama_server
from support.tool_formats import FAMILIES
from support.tool_templates import TEMPLATES

HOT = Sampling(max_tokens=120, temperature=2.0, seed=1)


@pytest.fixture(scope="module")
def backend(tiny_model: Path) -> Iterator[InProcess]:
    with InProcess(tiny_model, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module", params=sorted(TEMPLATES))
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A model whose chat template has a format of calls."""
    path = tmp_path_factory.mktemp("native") / "tiny.gguf"
    make_model(path, template=TEMPLATES[request.param], context=2048)
    with InProcess(path, threads=1) as loaded:
        yield loaded


def ask(**given: Any) -> ChatRequest:
    return ChatRequest(**{"model": "m", "messages": (USER,), "sampling": HOT, **given})


def valid(name: str, arguments: str) -> bool:
    return Draft202012Validator(SCHEMAS[name]).is_valid(json.loads(arguments))


requests = st.builds(
    lambda mode, names, **given_: ask(tools=TOOLS, tool_choice=ToolChoice(mode, names), **given_),
    st.sampled_from(["auto", "required"]),
    st.none() | st.sets(st.sampled_from(sorted(SCHEMAS)), min_size=1).map(tuple),
    parallel=st.none() | st.booleans(),
    max_calls=st.none() | st.integers(1, 3),
    stream=st.booleans(),
    reasoning=st.booleans(),
    sampling=st.builds(
        Sampling, max_tokens=st.just(120), temperature=st.sampled_from([1.0, 2.0]), seed=st.integers(0, 2**31)
    ),
)


@settings(max_examples=scaled(40))
@given(request=requests)
def test_every_complete_call_is_of_an_allowed_tool_and_satisfies_its_schema(
    backend: InProcess, request: ChatRequest
) -> None:
    check_guarantees(request, answer(request, backend))


@pytest.mark.slow
@settings(max_examples=scaled(20))
@given(request=requests)
def test_so_it_is_in_the_formats_of_chat_templates(native: InProcess, request: ChatRequest) -> None:
    events = answer(request, native)
    check_guarantees(request, events)
    assert end(events).enforcement.format == "native"


@pytest.mark.slow
def test_so_it_is_behind_a_real_llama_server(native: InProcess) -> None:
    require_llama_server()
    path = Path(native._model.path)
    answered, too_long = 0, []
    with build.start(path, threads=1) as running, LlamaServer(running.url) as server:
        for seed, mode in enumerate(["auto", "required"] * 2):
            sampling = Sampling(max_tokens=100, temperature=2.0, seed=seed)
            choice = ToolChoice(mode)  # type: ignore[arg-type]  # one of the two
            request = ask(tools=TOOLS, tool_choice=choice, sampling=sampling, stream=bool(seed % 2))
            try:
                events = answer(request, server)
            except HttpError as error:
                # llama.cpp counts bytes that are no UTF-8 as one character, and sends several U+FFFD: at this
                # temperature, random weights write strings that are longer than maxLength.
                too_long.append(str(error))
                continue
            check_guarantees(request, events)
            assert end(events).enforcement.format == "native"
            answered += 1
    assert answered
    assert all(error.endswith('expected "\\"".') for error in too_long)


@pytest.mark.slow
def test_calls_in_the_format_of_a_template_are_sent_back_to_it(native: InProcess) -> None:
    sampling = Sampling(max_tokens=400, temperature=1.0, seed=1)
    request = ask(tools=TOOLS, tool_choice=ToolChoice("required", ("set_level",)), sampling=sampling)
    events = answer(request, native)
    ((name, arguments),) = calls(events)
    (identifier,) = (event.id for event in events if isinstance(event, CallStarted))
    for sent in (identifier, "call_of-another-server.0"):
        function_ = {"name": name, "arguments": json.loads(arguments)}
        call: Any = {"id": sent, "type": "function", "function": function_}
        called: Any = {"role": "assistant", "content": "", "tool_calls": [call]}
        result: Any = {"role": "tool", "tool_call_id": sent, "content": "done"}
        later: Any = {"role": "system", "content": "Be brief."}
        messages = (USER, called, result, later)
        assert end(answer(ask(messages=messages, tools=TOOLS), native)).enforcement.format == "native"
        assert end(answer(ask(messages=messages), native)).usage.prompt_tokens


def test_without_calls_a_template_still_declares_the_tools(native: InProcess) -> None:
    for seed in range(4):
        sampling = Sampling(max_tokens=60, temperature=2, seed=seed)
        request = ask(tools=TOOLS, tool_choice=ToolChoice("none"), sampling=sampling)
        events = answer(request, native)
        assert not calls(events)
        assert end(events).enforcement.grammar_hash
        assert end(events).usage.prompt_tokens > 300


@pytest.mark.parametrize("limit", range(1, 40, 6))
def test_an_answer_that_the_limit_truncates_has_no_ended_call(backend: InProcess, limit: int) -> None:
    request = ask(
        tools=TOOLS[1:2],
        tool_choice=ToolChoice("required"),
        sampling=Sampling(max_tokens=limit, temperature=2.0, seed=5),
    )
    events = answer(request, backend)
    finished = end(events)
    ended = sum(isinstance(event, CallEnded) for event in events)
    assert (finished.reason == "tool_calls") == bool(ended)
    if not ended:
        assert finished.reason == "length"


@given(seed=st.integers(0, 2**31))
@settings(max_examples=scaled(15))
def test_an_answer_in_a_schema_satisfies_it(backend: InProcess, seed: int) -> None:
    schema = JsonSchema(PLACE)
    events = answer(ask(output=schema, sampling=Sampling(max_tokens=200, temperature=2, seed=seed)), backend)
    if end(events).reason == "stop":
        assert Draft202012Validator(PLACE).is_valid(json.loads(text(events)))


@pytest.mark.slow
def test_with_tools_and_a_schema_the_answer_is_a_call_or_fits_the_schema(backend: InProcess) -> None:
    kinds = set()
    for seed in range(12):
        sampling = Sampling(max_tokens=200, temperature=2, seed=seed)
        events = answer(ask(tools=TOOLS, output=JsonSchema(PLACE), sampling=sampling), backend)
        reason = end(events).reason
        kinds.add(reason)
        if reason == "stop":
            assert Draft202012Validator(PLACE).is_valid(json.loads(text(events)))
        if reason == "tool_calls":
            assert all(valid(*call) for call in calls(events))
            assert not text(events)
    assert {"stop", "tool_calls"} <= kinds


def test_a_json_object_is_one(backend: InProcess) -> None:
    for seed in range(6):
        sampling = Sampling(max_tokens=300, temperature=0.5, seed=seed)
        events = answer(ask(output=JsonObject(), sampling=sampling), backend)
        if end(events).reason == "stop":
            assert isinstance(json.loads(text(events)), dict)


def test_a_grammar_of_the_client_is_enforced(backend: InProcess) -> None:
    events = answer(ask(output=GbnfText('root ::= ("ab" | "cd"){3}')), backend)
    assert re.fullmatch("(?:ab|cd){3}", text(events))
    assert end(events).enforcement.verified


@pytest.mark.parametrize(
    ("given_", "param", "code", "words"),
    [
        ({"output": GbnfText("root ::= (")}, "grammar", "invalid_grammar", "line 1"),
        ({"output": GbnfText('root ::= root "a"')}, "grammar", "invalid_grammar", "root"),
        (
            {"output": GbnfText('root ::= s "c" s\ns ::= "a" s "a" s | "b" s "b" s | "a" | "b"')},
            "grammar",
            "invalid_grammar",
            "more than 1,024 derivations",
        ),
        ({"output": GbnfText("root ::= missing")}, "grammar", "invalid_grammar", "missing"),
        ({"output": JsonSchema({"type": "strin"}, param="there")}, "there", "invalid_schema", "strin"),
        (
            {"output": JsonSchema({"minimum": 3, "maximum": 2, "type": "integer"})},
            "response_format.json_schema.schema", "invalid_schema", "no JSON value",
        ),
        ({"sampling": Sampling(max_tokens=0)}, "max_tokens", "invalid_request", "at least 1"),
        ({"sampling": Sampling(max_tokens=9, top_p=3.0)}, "top_p", "invalid_request", "top_p"),
        (
            {"tools": (FunctionTool("go", "", {"type": "objet"}, param="tools[0]"),)},
            "tools[0]/type", "invalid_schema", "objet",
        ),
        (
            {"tools": (function("go", a={"properties": []}),)},
            "tools/properties/a/properties", "invalid_schema", "object of schemas",
        ),
        (
            {"tools": (FunctionTool("go", "", {"type": "string"}),)},
            "tools/type", "invalid_schema", "'object'",
        ),
        (
            {"messages": ({"role": "user", "content": "x", "images": [Image(b"x", "image/png")]},)},
            "messages", "unsupported_by_backend", "no images",
        ),
        (
            {"messages": ({"role": "user", "content": "long " * 900},)},
            "messages", "context_length_exceeded", "fit",
        ),
    ],
)  # fmt: skip
def test_what_the_client_has_to_correct_is_a_400(
    backend: InProcess, given_: Any, param: str, code: str, words: str
) -> None:
    with pytest.raises(HttpError) as caught:
        answer(ask(**given_), backend)
    error = caught.value
    assert (error.status, error.code) == (400, code)
    assert (error.param or "").startswith(param)
    assert words in error.message


UNENFORCEABLE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


def test_a_conversation_that_the_template_refuses_is_a_400(tmp_path: Path) -> None:
    """Clients send it again after a 502. The template would make more text than it may."""
    path = make_model(tmp_path / "tiny.gguf", template=next(iter(TEMPLATES.values())), context=2048)
    with InProcess(path, threads=1) as backend, pytest.raises(HttpError, match="refuses") as caught:
        answer(ask(messages=({"role": "user", "content": "x" * 65_000_000},)), backend)
    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_a_strict_tool_with_a_keyword_that_cannot_be_enforced_is_refused(backend: InProcess) -> None:
    properties = {"type": "object", "properties": {"tags": UNENFORCEABLE}, "required": ["tags"]}
    strict = FunctionTool("tag", "", properties, strict=True, param="tools[0].function.parameters")
    with pytest.raises(HttpError) as caught:
        answer(ask(tools=(strict,)), backend)
    assert caught.value.param == "tools[0].function.parameters/properties/tags/uniqueItems"
    assert "uniqueItems" in caught.value.message
    lenient = FunctionTool("tag", "", properties)
    finished = end(answer(ask(tools=(lenient,), tool_choice=ToolChoice("required")), backend))
    assert not finished.enforcement.exact
    assert [finding.keyword for finding in finished.enforcement.findings] == ["uniqueItems"]


def test_arguments_that_the_grammar_cannot_enforce_are_validated(backend: InProcess) -> None:
    letter = {"type": "string", "pattern": "^[ab]$"}
    repeated = {**UNENFORCEABLE, "items": letter, "minItems": 3, "maxItems": 3}
    tag = function("tag", ("tags",), tags=repeated)
    request = ask(tools=(tag,), tool_choice=ToolChoice("required", ("tag",)))
    finished = end(answer(request, backend))
    assert finished.reason == "tool_calls"
    assert finished.enforcement.invalid
    assert "tag" in finished.enforcement.invalid[0]
    retried = end(answer(request, backend, Engine(retries=2)))
    assert retried.enforcement.retries == 2  # three of two letters are never unique
    assert retried.enforcement.invalid


def test_a_tool_that_cannot_be_compiled_is_loosened_and_the_request_goes_on(backend: InProcess) -> None:
    impossible = function("odd", ("a",), a={"type": "string", "minLength": 3, "maxLength": 2})
    finished = end(answer(ask(tools=(impossible, *TOOLS), tool_choice=ToolChoice("required")), backend))
    assert [finding.tool for finding in finished.enforcement.findings if finding.kind == "loosened"] == [
        "odd"
    ]
    assert not finished.enforcement.exact
    assert finished.enforcement.as_json()["loosened"][0]["tool"] == "odd"


def test_keywords_of_manifests_mean_nothing_in_tools_of_clients(backend: InProcess) -> None:
    tool = FunctionTool(
        "note",
        "",
        {
            "type": "object",
            "properties": {
                "from_step": {"type": "integer", "minimum": 7, "maximum": 7},
                "target": {"enum": ["x"], "runtime_resolved": True},
            },
            "required": ["from_step", "target"],
            "requires_one_of": [["absent"]],
        },
    )
    events = answer(ask(tools=(tool,), tool_choice=ToolChoice("required")), backend)
    name, arguments = calls(events)[0]
    assert (name, json.loads(arguments)) == ("note", {"from_step": 7, "target": "x"})


class Recording(FakeBackend):
    """A small model that calls the last tool, and is not trained for it."""

    model = ModelInfo(traits=ModelTraits(takes_evidence=True))

    def respond(self, *_given: Any, **_limits: Any) -> Completion:
        return Completion('{"name": "play", "arguments": {"title": "Rhapsody"}}', "stop")

    def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        self.evidence, self.grammar = request.evidence, request.grammar
        return super().generate(request)


BOTH = ("Waterloo", "Rhapsody")


@pytest.mark.parametrize(
    ("said", "results", "phrases"),
    [
        (["Play Waterloo and Rhapsody"], {}, BOTH),
        (["Play Waterloo", "Play Rhapsody"], {}, BOTH),
        (["Play Waterloo and Rhapsody"], {"Waterloo": "playing"}, ("Rhapsody",)),
        (["Play Waterloo and Rhapsody"], {"Waterloo": "Error: offline"}, BOTH),
        (
            ["Play Waterloo and Rhapsody"],
            {"Waterloo": "Error: offline", "Rhapsody": "playing"},
            ("Waterloo",),
        ),
        ([""], {}, None),
    ],
)
def test_the_messages_of_the_user_and_the_calls_that_succeeded_are_evidence(
    said: list[str], results: dict[str, str], phrases: tuple[str, ...] | None
) -> None:
    messages: list[Any] = [{"role": "user", "content": text} for text in said]
    for title, result in results.items():
        call = {"name": "play", "arguments": {"title": title}}
        made = [{"id": title, "type": "function", "function": call}]
        messages += [
            {"role": "assistant", "content": "", "tool_calls": made},
            {"role": "tool", "content": result, "tool_call_id": title, "name": "play"},
        ]
    backend = Recording()
    tools = (function("play", ["title"], title={"type": "string"}, loud={"type": "boolean"}),)
    answer(ask(messages=tuple(messages), tools=tools), backend)
    assert (backend.evidence and backend.evidence.phrases) == phrases
    if backend.evidence:
        assert not backend.evidence.arguments["play"]["loud"].is_supported
    asked = [*messages, {"role": "assistant", "content": "How loud?"}, {"role": "user", "content": "Very"}]
    answer(ask(messages=tuple(asked), tools=tools), backend)
    assert backend.evidence is not None
    assert backend.evidence.arguments["play"]["loud"].is_supported  # as far as the messages can tell
    answer(ask(messages=tuple(messages), tools=tools), backend, Engine(evidence="none"))
    assert backend.evidence is None


def test_calls_in_the_format_of_a_template_take_evidence_too() -> None:
    backend = Recording()
    answer(ask(), backend)
    assert backend.evidence is None
    backend.model = ModelInfo(traits=ModelTraits(takes_evidence=True, tool_format=FAMILIES[0].form))
    with suppress(HttpError):  # the answer is in another format
        answer(ask(tools=TOOLS), backend)
    assert backend.evidence is not None


@pytest.mark.parametrize(("max_depth", "is_accepted"), [(0, True), (1, False)])
def test_nested_arguments_are_constrained_down_to_the_depth(max_depth: int, is_accepted: bool) -> None:
    nested = {"type": "object", "properties": {"level": {"enum": [1]}}}
    tools = (function("play", ["title", "how"], title={"type": "string"}, how=nested),)
    text = '{"name": "play", "arguments": {"title": "Rhapsody", "how": {"level": 2}}}'
    backend = Recording()
    with suppress(HttpError):  # the model ignores the grammar
        answer(ask(tools=tools), backend, Engine(max_depth=max_depth))
    assert isinstance(backend.grammar, Grammar)
    assert engine().match(backend.grammar, text).complete == is_accepted


def test_calls_are_written_in_the_format_that_is_asked_for() -> None:
    form = FAMILIES[0].form
    named = {
        call_format: type(
            Target.of(ModelInfo(traits=ModelTraits(tool_format=form)), "gbnf", call_format).protocols(ask())[
                0
            ]
        )
        for call_format in (None, *get_args(GatewayCallFormat))
    }
    assert named == {None: NativeCalls, "native": NativeCalls, "json": JsonCalls, "text": CallsInText}
    assert Target.of(ModelInfo(), "json_schema", "json").protocols(ask()) == (SchemaCalls(),)
    without: tuple[tuple[ModelInfo, Dialect], ...] = (
        (ModelInfo(), "gbnf"),
        (ModelInfo(traits=ModelTraits(tool_format=form)), "json_schema"),
    )
    for info, dialect in without:
        with pytest.raises(RequestNotSupportedError, match="call format native"):
            Target.of(info, dialect, "native")


def test_a_backend_that_ignores_the_grammar_is_a_502_or_is_asked_again(tiny_model: Path) -> None:
    with Ignoring(tiny_model, threads=1) as ignoring:
        for stream in (False, True):
            request = ask(tools=TOOLS, tool_choice=ToolChoice("required"), stream=stream)
            ignoring.ignored = 1
            with pytest.raises(HttpError) as caught:
                answer(request, ignoring)
            assert (caught.value.status, caught.value.code) == (502, "upstream_ignored_grammar")
            ignoring.ignored = 1
            finished = end(answer(request, ignoring, Engine(retries=1)))
            assert finished.enforcement.retries == 1
            assert finished.reason in {"tool_calls", "length"}


@given(seed=st.integers(0, 2**31), stop=st.lists(st.text(min_size=1, max_size=2), min_size=1, max_size=3))
@settings(max_examples=scaled(25))
def test_nothing_of_a_stop_string_or_after_it_is_in_a_text(
    backend: InProcess, seed: int, stop: list[str]
) -> None:
    sampling = Sampling(max_tokens=60, temperature=2, seed=seed)
    for tools in ((), TOOLS):
        whole = answer(ask(tools=tools, sampling=sampling), backend)
        events = answer(ask(tools=tools, sampling=sampling, stop=tuple(stop)), backend)
        said = text(whole)
        if calls(whole):
            assert calls(events) == calls(whole)
            continue
        places = [said.find(each) for each in stop if each in said]
        expected = said[: min(places)] if places else said
        assert text(events) == expected
        assert (end(events).stop_string is not None) == bool(places)
        assert end(events).usage.prompt_tokens == end(whole).usage.prompt_tokens
        if places:
            assert end(events).reason == "stop"


def test_a_model_of_the_planner_may_answer_by_a_call() -> None:
    said = '{"name": "final_answer", "arguments": {"message": "hi"}}'
    assert text(answer(ask(tools=TOOLS), Script({USER["content"]: [said]}))) == "hi"


def test_several_answers_come_one_after_another(backend: InProcess) -> None:
    events = answer(ask(count=3), backend)
    starts = [event.choice for event in events if isinstance(event, Started)]
    assert starts == [0, 1, 2]
    assert sum(isinstance(event, Finished) for event in events) == 3
    again = answer(ask(count=3), backend)
    assert text(events) == text(again)  # a seed gives the same answers


def test_without_a_seed_answers_differ(backend: InProcess) -> None:
    request = ask(sampling=Sampling(max_tokens=40, temperature=2.0))
    assert len({text(answer(request, backend)) for _ in range(3)}) == 3


def test_ids_of_calls_are_unique_across_answers(backend: InProcess) -> None:
    request = ask(tools=TOOLS, tool_choice=ToolChoice("required"))
    ids = [event.id for _ in range(4) for event in answer(request, backend) if isinstance(event, CallStarted)]
    assert len(set(ids)) == len(ids) >= 4


def test_a_stream_comes_as_it_is_decoded_and_closing_it_ends_the_generation(tiny_model: Path) -> None:
    generating = threading.Semaphore(0)

    class Watched(InProcess):
        async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
            try:
                async with aclosing(super().generate(request)) as events:
                    async for event in events:
                        yield event
            finally:
                generating.release()

    async def read_one(backend: InProcess) -> None:
        request = ask(stream=True, sampling=Sampling(max_tokens=400, temperature=2.0, seed=3))
        async with aclosing(Engine().answer(request, backend)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    assert not generating.acquire(blocking=False)
                    break
        assert generating.acquire(blocking=False)

    with Watched(tiny_model, threads=1) as backend:
        asyncio.run(read_one(backend))
