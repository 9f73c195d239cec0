"""Calls inside a text, which no grammar holds, are valid when they leave, or said to be invalid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf.tool_formats import TextDelta, detect
from gbnf_server.backends.base import Completion, Dialect, ModelInfo, Request, Usage
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.gateway.answers import ReplyEvent
from gbnf_server.gateway.chat import ChatRequest, FunctionTool, Sampling
from support.backends import FakeBackend
from support.deltas import calls, text
from support.effort import scaled
from support.gateway_answers import answer, end
from support.tool_templates import JSON_IN_TAGS

FORMAT = detect(JSON_IN_TAGS, eos_token="<|end|>")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = FunctionTool("get_weather", "Get the weather of a city.", SCHEMA)
BEFORE = "Sure, I will look:\n"
VALID, REPAIRED = {"city": "Paris"}, {"city": "Paris", "days": 2}


def written(arguments: Any) -> str:
    return json.dumps({"name": "get_weather", "arguments": arguments})


def block(arguments: Any) -> str:
    return f"{BEFORE}```json\n{written(arguments)}\n```"


class Model(FakeBackend):
    """A model that writes these texts in turn, in pieces, and keeps what it was asked."""

    def __init__(self, *texts: str, native: bool = True, dialect: Dialect = "gbnf") -> None:
        self.model = ModelInfo(
            traits=ModelTraits(tool_format=FORMAT if native else None, parameters=8_000_000_000)
        )
        self.dialect, self.texts = dialect, list(texts)
        self.asked: list[Request] = []

    async def generate(self, request: Request) -> Any:
        self.asked.append(request)
        said = self.texts.pop(0)
        for at in range(0, len(said), 7):
            yield TextDelta(said[at : at + 7])
        yield Completion(said, "stop", Usage(1, 1))


def ask(model: Model, **more: Any) -> list[ReplyEvent]:
    sampling = Sampling(temperature=0, max_tokens=100)
    messages: Any = ({"role": "user", "content": "what is the weather in Paris?"},)
    return answer(ChatRequest("m", messages, tools=(WEATHER,), sampling=sampling, **more), model)


ARGUMENTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["city", "City", "town", "days"]), st.sampled_from(["Paris", "2", 2, 0, None, ["Paris"]])
)


@settings(max_examples=scaled(40))
@given(ARGUMENTS, ARGUMENTS, st.booleans(), st.booleans())
def test_a_call_is_valid_or_the_answer_is_not_verified(
    first: Any, second: Any, native: bool, stream: bool
) -> None:
    again = f"<tool_call>\n{written(second)}\n</tool_call>" if native else written(second)
    model = Model(block(first), again, native=native)
    events = ask(model, stream=stream)
    [(name, arguments)] = calls(events)
    is_valid = Draft202012Validator(SCHEMA).is_valid(json.loads(arguments))
    enforcement = end(events).enforcement
    assert (name, text(events)) == ("get_weather", BEFORE)
    assert enforcement.verified is (not enforcement.invalid) is is_valid
    assert end(events).reason == "tool_calls"
    if not is_valid:  # neither by repair nor with a grammar
        assert json.loads(arguments) == first
        assert not Draft202012Validator(SCHEMA).is_valid(second)


@pytest.mark.parametrize("dialect", ["gbnf", "none"])
@pytest.mark.parametrize("stream", [False, True])
def test_arguments_that_their_schema_determines_are_repaired(dialect: Dialect, stream: bool) -> None:
    model = Model(block({"City": "Paris", "days": "2", "units": "C"}), dialect=dialect)
    events = ask(model, stream=stream)
    assert [json.loads(arguments) for _, arguments in calls(events)] == [REPAIRED]
    assert end(events).enforcement.invalid == ()


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_repaired_is_asked_for_with_a_grammar(stream: bool) -> None:
    model = Model(block({"town": 5}), f"<tool_call>\n{written(VALID)}\n</tool_call>")
    events = ask(model, stream=stream)
    assert (text(events), calls(events)) == (BEFORE, [("get_weather", json.dumps(VALID))])
    assert (end(events).enforcement.retries, end(events).enforcement.verified) == (1, True)
    first, second = model.asked
    assert first.messages == second.messages
    assert not second.grammar.match("Sure.").accepted  # type: ignore[union-attr]  # the dialect is gbnf


def test_without_a_grammar_nothing_is_asked_again() -> None:
    model = Model(block({"town": 5}), dialect="none")
    events = ask(model)
    assert calls(events) == [("get_weather", json.dumps({"town": 5}))]
    assert end(events).enforcement.invalid
