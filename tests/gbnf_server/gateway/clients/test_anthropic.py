"""The package anthropic with gateways that run as processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from support.clients import CREATED, PATHS, QUESTION, Weather, declared
from support.examples import run_example

ASK: Any = {"role": "user", "content": QUESTION}
TOOL: Any = {"name": "create_dirs", "description": "Create folders.", "input_schema": PATHS, "strict": True}
WEATHER: Any = {"name": "weather", "input_schema": Weather.model_json_schema(), "strict": True}
COLD: Any = {"model": "demo", "max_tokens": 100, "extra_body": {"temperature": 0}}


@pytest.fixture
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with client_of(url) as opened:
        yield opened


def client_of(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)


def ask(client: anthropic.Anthropic, way: str, **body: Any) -> Any:
    """Return the message: whole, or as the client's helper joins its events."""
    if way == "whole":
        return declared(client.messages.create(**body))
    with client.messages.stream(**body) as stream:
        return stream.get_final_message()


def answered(first: Any, result: str) -> list[Any]:
    """Return the conversation with the results of the calls."""
    calls = [block for block in first.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": result} for call in calls]
    said = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
    return [ASK, said, {"role": "user", "content": results}]


@pytest.mark.parametrize("way", ["whole", "helper"])
def test_a_tool_round_trip(client: anthropic.Anthropic, way: str) -> None:
    first = ask(client, way, messages=[ASK], tools=[TOOL], **COLD)
    (call,) = first.content
    assert (first.stop_reason, call.name, call.input) == ("tool_use", "create_dirs", {"paths": ["trips"]})
    last = ask(client, way, messages=answered(first, CREATED), tools=[TOOL], **COLD)
    assert last.stop_reason == "end_turn"
    assert "trips" in last.content[0].text


def test_the_tool_runner(url: str, tmp_path: Path) -> None:
    variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any"}
    called, last = run_example("anthropic_client.py", tmp_path, **variables).splitlines()
    assert called == "create_dirs ['trips']"
    assert last.startswith("end_turn ")


def test_a_native_tool_round_trip(native_url: str) -> None:
    body: Any = {"model": "tiny", "tools": [WEATHER], "extra_body": {"temperature": 2}}
    single = {"type": "any", "disable_parallel_tool_use": True}
    with client_of(native_url) as client:
        first = ask(client, "helper", messages=[ASK], tool_choice=single, max_tokens=200, **body)
        (call,) = first.content
        Weather.model_validate(call.input)
        more: Any = {"tool_choice": {"type": "none"}, "max_tokens": 20}
        last = ask(client, "whole", messages=answered(first, "Rain."), **more, **body)
        assert last.stop_reason in {"end_turn", "max_tokens"}
        assert [block.type for block in last.content] in ([], ["text"])


ONLY: Any = {
    "name": "stop",
    "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
}


@pytest.mark.parametrize("way", ["whole", "helper"])
def test_one_call_unless_more_are_asked_for_and_none_twice(native_url: str, way: str) -> None:
    choice: Any = {"type": "any", "disable_parallel_tool_use": False}
    body: Any = {"model": "tiny", "max_tokens": 200, "messages": [{"role": "user", "content": "stop it"}]}
    with client_of(native_url) as client:
        for options in ({"type": "any"}, choice):
            made = ask(client, way, tools=[ONLY], tool_choice=options, extra_body={"temperature": 2}, **body)
            assert [block.name for block in made.content] == ["stop"]
            assert made.stop_reason == "tool_use"


@pytest.mark.parametrize(
    "tool", [{**ONLY, "name": "a b"}, {**ONLY, "input_schema": {"type": "objet"}}], ids=["name", "schema"]
)
def test_tools_that_anthropic_refuses_are_refused(client: anthropic.Anthropic, tool: Any) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"tools\[0\]"):
        client.messages.create(messages=[ASK], tools=[tool], **COLD)


def test_structured_output(client: anthropic.Anthropic) -> None:
    parsed = client.messages.parse(messages=[ASK], output_format=Weather, **COLD)
    assert isinstance(parsed.parsed_output, Weather)


def test_an_error_is_one_of_the_package(client: anthropic.Anthropic) -> None:
    long: Any = {"role": "user", "content": QUESTION * 4000}
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(messages=[long], **COLD)
    counted = client.messages.count_tokens(model="demo", messages=[long])
    assert declared(counted).input_tokens > 4000
    assert [declared(model).id for model in client.models.list()]
