"""After the results of its calls, a small model ends when the request is done, and repeats no call."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.tool_formats import TextDelta, detect
from gbnf_server.backends.base import Completion, ModelInfo, Request, Usage
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.gateway.answers import ReplyEvent
from gbnf_server.gateway.chat import ChatRequest, FunctionTool, JsonObject, Sampling, ToolChoice
from gbnf_server.gateway.engine import Engine
from gbnf_server.llama.token_values import TokenLogprob
from support.backends import FakeBackend
from support.deltas import calls, text
from support.gateway_answers import answer, end
from support.tool_templates import JSON_IN_TAGS

FORMAT = detect(JSON_IN_TAGS, eos_token="<|end|>")
TEXT = {"type": "string"}


def tool(name: str, description: str, *arguments: str) -> FunctionTool:
    parameters = {"type": "object", "properties": dict.fromkeys(arguments, TEXT), "required": list(arguments)}
    return FunctionTool(name, description, parameters)


TOOLS = (
    tool("list_files", "List my files."),
    tool("read_file", "Read a file.", "path"),
    tool("get_weather", "Get the weather of a city.", "city"),
)


def called(name: str, **arguments: str) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


class Small(FakeBackend):
    """A small model that writes these texts in turn, and keeps what it was asked."""

    model = ModelInfo(traits=ModelTraits(tool_format=FORMAT, parameters=500_000_000))

    def __init__(self, *texts: str | dict[str, Any], parameters: int = 500_000_000) -> None:
        self.model = ModelInfo(traits=ModelTraits(tool_format=FORMAT, parameters=parameters))
        self.texts = [
            each if isinstance(each, str) else f"<tool_call>\n{json.dumps(each)}\n</tool_call>"
            for each in texts
        ]
        self.asked: list[Any] = []

    async def generate(self, request: Request) -> Any:
        self.asked.append(request)
        written = self.texts.pop(0)
        yield TextDelta(written)
        yield Completion(written, "stop", Usage(1, 1))


def conversation(query: str, *done: tuple[dict[str, Any], str]) -> tuple[Any, ...]:
    messages: list[Any] = [{"role": "user", "content": query}]
    for number, (function, result) in enumerate(done):
        call = {"id": f"call{number}", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call{number}", "content": result})
    return tuple(messages)


def ask(model: Small, query: str, *done: tuple[dict[str, Any], str], **more: Any) -> list[ReplyEvent]:
    options = {"tools": TOOLS, "sampling": Sampling(temperature=0, max_tokens=100), **more}
    return answer(ChatRequest("m", conversation(query, *done), **options), model)


WEATHER = "what is the weather in Paris?", (called("get_weather", city="Paris"), "Paris: 21 degrees")


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_is_done_is_answered_from_its_results(stream: bool) -> None:
    model = Small("It is 21 degrees in Paris.")
    events = ask(model, *WEATHER, stream=stream)
    assert (text(events), calls(events)) == ("It is 21 degrees in Paris.", [])
    assert end(events).reason == "stop"
    assert end(events).enforcement.from_results
    [asked] = model.asked
    assert not asked.tools
    assert "Paris: 21 degrees" in asked.messages[-1]["content"]


def test_a_small_model_that_calls_in_json_answers_in_its_conversation() -> None:
    model = Small("It is 21 degrees in Paris.")
    model.model = ModelInfo(traits=ModelTraits(parameters=135_000_000))
    assert text(ask(model, *WEATHER)) == "It is 21 degrees in Paris."
    [asked] = model.asked
    assert [message["role"] for message in asked.messages] == ["system", "user", "assistant", "tool"]
    assert not asked.grammar.match('{"name": "get_weather", "arguments": {"city": "Paris"}}').complete


def test_what_an_answer_does_not_say_of_the_result_follows() -> None:
    events = ask(Small("I have it."), *WEATHER)
    assert text(events) == "I have it.\n\nParis: 21 degrees"


@pytest.mark.parametrize("useless", ["", '{"a": 1}', "hm hm hm hm hm hm hm hm hm hm hm hm"])
def test_without_an_answer_the_results_are_returned(useless: str) -> None:
    assert text(ask(Small(useless), *WEATHER)) == "Paris: 21 degrees"


LISTED = called("list_files"), '["a.txt", "b.txt"]'


def test_a_call_that_is_left_is_made() -> None:
    read = called("read_file", path="b.txt")
    events = ask(Small(read), "which files are there, and what does b.txt say?", LISTED)
    assert calls(events) == [("read_file", '{"path": "b.txt"}')]
    assert not end(events).enforcement.from_results


@pytest.mark.parametrize(
    "again",
    [
        called("list_files"),
        '{"step": 1, "result": ["a.txt"]}',
        'Here it is:\n\n{"name": "list_files", "arguments": {}}\n{"content": "a.txt"}',
    ],
)
def test_a_call_that_is_done_is_not_made_again(again: Any) -> None:
    events = ask(Small(again, "a.txt and b.txt."), "which files are there, and is it cold in Rome?", LISTED)
    assert (calls(events), text(events)) == ([], "a.txt and b.txt.")


@pytest.mark.parametrize(
    ("query", "next_", "made"),
    [
        ("what does b.txt say?", called("read_file", path="b.txt"), True),
        ("what does b.txt say?", called("read_file", path="c.txt"), False),
        ("what does it say?", None, False),
    ],
)
def test_in_place_of_a_repetition_the_file_that_a_request_names_is_read(
    query: str, next_: Any, made: bool
) -> None:
    model = Small(called("list_files"), *([next_] if next_ else []), "a.txt and b.txt.")
    events = ask(model, query, LISTED)
    assert calls(events) == [("read_file", '{"path": "b.txt"}')] * made
    assert text(events) == "" if made else "a.txt and b.txt."
    assert end(events).enforcement.from_results is not made


@pytest.mark.parametrize(
    "more",
    [
        {"tool_choice": ToolChoice("required")},
        {"tool_choice": ToolChoice("required", ("get_weather",))},
        {"output": JsonObject()},
        {"sampling": Sampling(temperature=0, logprobs=1)},
    ],
)
def test_a_client_that_wants_a_call_gets_it(more: Any) -> None:
    again = called("get_weather", city="Paris")
    events = ask(Small(again), *WEATHER, **more)
    assert [name for name, _ in calls(events)] == ["get_weather"]


TEXT_FIRST = ((b"You", -0.001), (b"`", -9.0))


def test_a_large_model_and_one_without_hints_may_repeat() -> None:
    again = called("get_weather", city="Paris")
    request = ChatRequest("m", conversation(*WEATHER), tools=TOOLS, sampling=Sampling(temperature=0))
    large = Small(again, parameters=8_000_000_000)
    for model, engine in ((large, Engine()), (Small(again), Engine(hints=False))):
        assert [name for name, _ in calls(answer(request, model, engine))] == ["get_weather"]
        engine.close()


def answering(answer: str, top: tuple[tuple[bytes, float], ...] = TEXT_FIRST) -> Small:
    """A model that means to answer, by the odds of its first token."""
    model = Small("", answer)
    first = model.generate

    async def generate(request: Request) -> Any:
        async for event in first(request):
            is_last = isinstance(event, Completion) and request.max_tokens == 1
            if isinstance(event, TextDelta):
                for at in range(0, len(event.text), 10):
                    yield TextDelta(event.text[at : at + 10])
            else:
                yield replace(event, logprobs=(TokenLogprob(b"You", -0.001, top),)) if is_last else event

    model.generate = generate  # type: ignore[method-assign]
    return model


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", ["", "\n\nIt shows the file."])
@pytest.mark.parametrize(("name", "made"), [("read_file", True), ("Anna", False)])
def test_a_call_that_an_answer_proposes_is_made(name: str, made: bool, after: str, stream: bool) -> None:
    proposed = json.dumps(called(name, path="b.txt"))
    model = answering(f"You can do this:\n\n```json\n{proposed}\n```{after}")
    events = ask(model, "read b.txt to me", stream=stream)
    assert calls(events) == [("read_file", '{"path": "b.txt"}')] * made
    assert text(events).startswith("You can do this:")
    assert ("arguments" in text(events)) is not made
    assert end(events).reason == ("tool_calls" if made else "stop")


BETWEEN = f"I will read it:\n\n```json\n{json.dumps(called('read_file', path='b.txt'))}\n```\n\nIt is short."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "top", [((b"`", -0.01), (b"I", -5.0)), ((b"`", -0.47), (b"I", -0.97)), ((b"I", -0.01), (b"`", -5.0))]
)
def test_however_sure_a_small_model_is_its_call_between_prose_is_made(top: Any, stream: bool) -> None:
    events = ask(answering(BETWEEN, top), "read b.txt to me", stream=stream)
    assert calls(events) == [("read_file", '{"path": "b.txt"}')]
    assert text(events).split() == ["I", "will", "read", "it:", "It", "is", "short."]


@pytest.mark.parametrize(
    ("query", "texts", "parameters"),
    [
        ("read b.txt to me", [BETWEEN], 8_000_000_000),
        ("read b.txt to me, in JSON", ["", BETWEEN], 500_000_000),
    ],
)
def test_a_call_between_prose_of_a_large_model_or_in_requested_json_is_an_example(
    query: str, texts: list[str], parameters: int
) -> None:
    events = ask(Small(*texts, parameters=parameters), query)
    assert (calls(events), text(events)) == ([], BETWEEN)


def test_a_call_between_prose_of_a_small_model_without_a_format_is_made() -> None:
    model = Small(BETWEEN)
    model.model = ModelInfo(traits=ModelTraits(parameters=135_000_000))
    assert calls(ask(model, "read b.txt to me")) == [("read_file", '{"path": "b.txt"}')]


JAZZ = "what is the history of jazz?"
CALL_IN_TEXT = f"You can do this:\n\n```json\n{json.dumps(called('read_file', path='b.txt'))}\n```"
ABOUT_JAZZ = "Jazz began in New Orleans, around 1900. "


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "text_",
    [
        CALL_IN_TEXT,
        "To find this out, I need to use the `get_weather` function.",
        "I will call get_weather with the city Jazz. " + ABOUT_JAZZ * 20,
    ],
)
def test_a_tool_that_is_proposed_for_something_else_is_not_mentioned(text_: str, stream: bool) -> None:
    model = answering(text_)
    model.texts.append(ABOUT_JAZZ)
    events = ask(model, JAZZ, stream=stream)
    assert (calls(events), text(events)) == ([], ABOUT_JAZZ)
    assert (model.asked[-1].tools, model.asked[-1].messages) == ((), conversation(JAZZ))


@pytest.mark.parametrize("stream", [False, True])
@given(st.text("ab .", max_size=300), st.sampled_from(["", "get_weather"]))
def test_an_answer_about_something_else_leaves_whole(stream: bool, begin: str, then: str) -> None:
    answer = f"A{begin}" if not then else f"A{begin}".ljust(130, ".") + then
    events = ask(answering(answer), JAZZ, stream=stream)
    assert (calls(events), text(events)) == ([], answer)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("begin", ["", ABOUT_JAZZ * 5])
@pytest.mark.parametrize(("query", "made"), [("is it warm in Oslo?", True), ("is it warm?", False)])
def test_a_call_that_is_proposed_late_is_made_with_values_of_the_user_only(
    query: str, made: bool, begin: str, stream: bool
) -> None:
    call = json.dumps(called("get_weather", city="Oslo"))
    model = answering(f"{begin}Here it is:\n{call}\n```json\n{call}\n```")
    model.texts.append("I do not know.")
    events = ask(model, query, stream=stream)
    assert calls(events) == [("get_weather", '{"city": "Oslo"}')] * made
    assert text(events).startswith(begin)
    assert "Oslo" not in text(events)
    assert end(events).reason == ("tool_calls" if made else "stop")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("query", "proposed", "call", "made"),
    [
        ("which files do I have?", "list_files", called("list_files"), True),
        ("read my file b.txt", "read_file", called("read_file", path="b.txt"), True),
        ("how do I read a file?", "read_file", called("read_file", path="b.txt"), False),
    ],
)
def test_a_tool_that_an_answer_only_proposes_is_called(
    query: str, proposed: str, call: Any, made: bool, stream: bool
) -> None:
    said = f"For this, you can use the `{proposed}` function."
    model = answering(said)
    model.texts.append(f"<tool_call>\n{json.dumps(call)}\n</tool_call>")
    events = ask(model, query, stream=stream)
    assert [name for name, _ in calls(events)] == [proposed] * made
    assert text(events) == said
    assert end(events).reason == ("tool_calls" if made else "stop")


def test_an_error_is_no_result() -> None:
    again, failed = called("get_weather", city="Paris, France"), called("get_weather", city="P")
    events = ask(Small(again), "what is the weather in Paris?", (failed, "Error: no"))
    assert [name for name, _ in calls(events)] == ["get_weather"]


@pytest.mark.parametrize(
    ("query", "parameters", "is_text"),
    [
        ("what does a.txt say?", 500_000_000, False),
        ("what does a.txt say? Answer in JSON", 500_000_000, True),
        ("what does a.txt say?", 8_000_000_000, True),
    ],
)
def test_a_small_model_writes_no_call_of_another_name_as_text(
    query: str, parameters: int, is_text: bool
) -> None:
    model = Small("Well.", "Well.", parameters=parameters)
    ask(model, query)
    grammar = model.asked[-1].grammar
    for written in ('{"name": "a.txt", "arguments": {}}', '```json\n{"name": "a.txt"}\n```'):
        assert grammar.match(written).complete is is_text
    for written in ("Hello.", '{"city": 1}'):
        assert grammar.match(written).complete


@given(st.permutations(TOOLS))
def test_the_tool_that_fits_best_is_declared_first(tools: list[FunctionTool]) -> None:
    model = Small(called("get_weather", city="Paris"))
    ask(model, WEATHER[0], tools=tuple(tools), tool_choice=ToolChoice("required"))
    names = [each["function"]["name"] for each in model.asked[-1].tools]
    assert names[0] == "get_weather"
    assert sorted(names) == sorted(each.name for each in tools)
