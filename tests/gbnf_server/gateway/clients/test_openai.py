"""The package openai with gateways that run as processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from support.clients import CREATED, ENFORCEMENT, PATHS, QUESTION, Weather, declared
from support.examples import run_example

ASK: Any = {"role": "user", "content": QUESTION}
TOOL: Any = {"type": "function", "function": {"name": "create_dirs", "parameters": PATHS, "strict": True}}
FUNCTION: Any = {"type": "function", "name": "create_dirs", "parameters": PATHS, "strict": True}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": Weather.model_json_schema(), "strict": True},
}
COLD: Any = {"model": "demo", "temperature": 0}


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with client_of(url) as opened:
        yield opened


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def chat(client: openai.OpenAI, way: str, **body: Any) -> Any:
    """Return the completion: whole, or as the client's helper joins its chunks."""
    if way == "whole":
        return declared(client.chat.completions.create(**body))
    with client.chat.completions.stream(**body) as stream:
        chunks = [declared(event.chunk) for event in stream if event.type == "chunk"]
        assert getattr(chunks[-1], ENFORCEMENT)["verified"]
        return stream.get_final_completion()


@pytest.mark.parametrize("way", ["whole", "helper"])
def test_a_tool_round_trip_of_chat(client: openai.OpenAI, way: str) -> None:
    first = chat(client, way, messages=[ASK], tools=[TOOL], **COLD)
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("create_dirs", {"paths": ["trips"]})
    result = {"role": "tool", "tool_call_id": call.id, "content": CREATED}
    history = [ASK, choice.message.to_dict(exclude_none=True), result]
    last = chat(client, way, messages=history, tools=[TOOL], **COLD).choices[0]
    assert last.finish_reason == "stop"
    assert "trips" in last.message.content


@pytest.mark.parametrize("way", ["whole", "helper"])
def test_a_tool_round_trip_of_responses(client: openai.OpenAI, way: str) -> None:
    first = respond(client, way, input=QUESTION, tools=[FUNCTION], **COLD)
    (call,) = first.output
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "create_dirs",
        {"paths": ["trips"]},
    )
    result = {"type": "function_call_output", "call_id": call.call_id, "output": CREATED}
    more: dict[str, Any] = {"tools": [FUNCTION], **COLD}
    stored = respond(client, way, input=[result], previous_response_id=first.id, **more)
    said = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
    repeated = respond(client, way, input=[ASK, said, result], store=False, **more)
    assert "trips" in stored.output_text
    assert repeated.output_text == stored.output_text


def respond(client: openai.OpenAI, way: str, **body: Any) -> Any:
    """Return the response: whole, or from the client's helper."""
    if way == "whole":
        return declared(client.responses.create(**body))
    with client.responses.stream(**body) as stream:
        return stream.get_final_response()


def test_structured_output(client: openai.OpenAI) -> None:
    ask: Any = {"messages": [ASK], "response_format": Weather, **COLD}
    assert isinstance(client.chat.completions.parse(**ask).choices[0].message.parsed, Weather)
    with client.chat.completions.stream(**ask) as stream:
        stream.until_done()
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Weather)
    respond: Any = {"input": QUESTION, "text_format": Weather, **COLD}
    assert isinstance(client.responses.parse(**respond).output_parsed, Weather)
    with client.responses.stream(**respond) as events:
        assert isinstance(events.get_final_response().output_parsed, Weather)


def test_tools_of_pydantic_models(url: str, tmp_path: Path) -> None:
    variables = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any"}
    printed = run_example("openai_client.py", tmp_path, **variables)
    assert printed == "create_dirs CreateFolders(paths=['trips'])\n"


def test_a_native_tool_round_trip(native_url: str) -> None:
    with client_of(native_url) as client:
        body: dict[str, Any] = {"model": "tiny", "tools": [WEATHER], "temperature": 2}
        body |= {"parallel_tool_calls": False, "reasoning_effort": "none"}
        first = chat(client, "helper", messages=[ASK], tool_choice="required", **body)
        (call,) = first.choices[0].message.tool_calls
        Weather.model_validate_json(call.function.arguments)
        result = {"role": "tool", "tool_call_id": call.id, "content": "Rain."}
        history = [ASK, first.choices[0].message.to_dict(exclude_none=True), result]
        # a truncated text is an error of the helper
        last = chat(client, "whole", messages=history, tool_choice="none", max_completion_tokens=20, **body)
        assert last.choices[0].message.tool_calls is None
        assert last.choices[0].finish_reason in {"stop", "length"}


ONLY: Any = {
    "name": "stop",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
}
PARALLEL: Any = {"parallel_tool_calls": True}


@pytest.mark.parametrize("way", ["whole", "helper"])
def test_one_call_unless_more_are_asked_for_and_none_twice(native_url: str, way: str) -> None:
    two: Any = [{"type": "function", "function": {**ONLY, "name": name}} for name in ("stop", "go")]
    body: dict[str, Any] = {
        "model": "tiny",
        "tool_choice": "required",
        "temperature": 2,
        "reasoning_effort": "none",
    }
    ask: Any = {"role": "user", "content": "stop it"}
    counts = set()
    with client_of(native_url) as client:
        for seed in range(8):
            for options in ({}, PARALLEL, {**PARALLEL, "extra_body": {"max_tool_calls": 2}}):
                tools = two[: 2 if options else 1]
                made = chat(client, way, messages=[ask], tools=tools, seed=seed, **body, **options)
                calls = [call.function.name for call in made.choices[0].message.tool_calls]
                assert made.choices[0].finish_reason == "tool_calls"
                assert 1 <= len(calls) == len(set(calls)) <= (2 if options else 1)
                counts.add(len(calls))
        assert counts == {1, 2}, "several calls are possible"
        response = respond(
            client, way, input="stop it", tools=[{"type": "function", "strict": True, **ONLY}],
            model="tiny", tool_choice="required", parallel_tool_calls=True, max_tool_calls=5,
            reasoning={"effort": "none"},
        )  # fmt: skip
        assert [item.name for item in response.output if item.type == "function_call"] == ["stop"]
        assert (response.parallel_tool_calls, response.max_tool_calls) == (True, 5)


@pytest.mark.parametrize(
    "function", [{**ONLY, "name": "a b"}, {**ONLY, "parameters": {"type": "objet"}}], ids=["name", "schema"]
)
def test_tools_that_openai_refuses_are_refused(client: openai.OpenAI, function: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=r"tools\[0\]"):
        client.chat.completions.create(
            messages=[ASK], tools=[{"type": "function", "function": function}], **COLD
        )
    given: Any = {"type": "function", "strict": False, **function}
    with pytest.raises(openai.BadRequestError, match=r"tools\[0\]"):
        client.responses.create(input=QUESTION, tools=[given], **COLD)


def test_an_error_is_one_of_the_package(client: openai.OpenAI) -> None:
    long: Any = {"role": "user", "content": QUESTION * 4000}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(messages=[long], **COLD)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(input=[long], stream=True, **COLD)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")
    assert [declared(model).id for model in client.models.list()]
