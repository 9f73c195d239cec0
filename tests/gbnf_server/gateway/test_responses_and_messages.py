"""Tool round trips of the packages openai and anthropic with the gateway and a model in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import anyio
import httpx2
import openai
import pytest
from pydantic import BaseModel

from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.gateway.app import create_app
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.gateway.upstreams import Upstream, Upstreams, always
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.errors import RequestNotSupportedError
from gbnf_server.web.access import Access

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Rome", "Oslo"]},
        "days": {"type": "integer", "maximum": 9},
    },
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION: Any = {"type": "function", "name": "weather", "description": "The weather.", "parameters": SCHEMA}
TOOL: Any = {"name": "weather", "description": "The weather.", "input_schema": SCHEMA}
QUESTION = "What is the weather in Oslo?"


@pytest.fixture(scope="module")
def backend() -> Iterator[InProcess]:
    with InProcess(model_path(), context_length=2048) as model:
        yield model


class Uncounting(InProcess):
    """A backend that cannot count tokens, as most servers."""

    def count_tokens(self, request: Request) -> int:
        del request
        raise RequestNotSupportedError(self.name, "counting tokens", "")


@asynccontextmanager
async def served(backend: InProcess) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a gateway in front of the model."""
    engine = Engine()
    gateway = Gateway(engine, Upstreams([Upstream(backend, always, 1)]), model="demo")
    transport = httpx2.ASGITransport(create_app(gateway, Access()))
    try:
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client
    finally:
        await gateway.close()
        engine.close()


def open_ai(client: httpx2.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key="none", base_url="http://localhost/v1", http_client=client, max_retries=0
    )


def claude(client: httpx2.AsyncClient) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        api_key="none", base_url="http://localhost", http_client=client, max_retries=0
    )


def check(arguments: Any) -> None:
    assert arguments["city"] in {"Rome", "Oslo"}
    assert arguments.get("days", 0) <= 9
    assert set(arguments) <= {"city", "days"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_round_trip_of_responses(backend: InProcess, stream: bool) -> None:
    async def run() -> None:
        async with served(backend) as http:
            client = open_ai(http)
            options: Any = {"model": "demo", "tools": [FUNCTION], "temperature": 0, "max_output_tokens": 100}

            async def respond(**body: Any) -> Any:
                if not stream:
                    return await client.responses.create(**options, **body)
                async with client.responses.stream(**options, **body) as events:
                    return await events.get_final_response()

            first = await respond(input=QUESTION, tool_choice="required")
            [call] = first.output[-1:]
            check(json.loads(call.arguments))
            assert (call.type, call.name, first.x_gbnf["exact"]) == ("function_call", "weather", True)
            assert first.x_gbnf["verified"]
            results = [
                {"type": "function_call_output", "call_id": item.call_id, "output": "Rain."}
                for item in first.output
                if item.type == "function_call"
            ]
            second = await respond(previous_response_id=first.id, input=results, tool_choice="none")
            assert second.output_text is not None
            assert not [item for item in second.output if item.type == "function_call"]

    anyio.run(run)


class Weather(BaseModel):
    rain: bool
    degrees: int


def test_responses_parse(backend: InProcess) -> None:
    async def run() -> None:
        async with served(backend) as http:
            response = await open_ai(http).responses.parse(
                model="demo", input=QUESTION, text_format=Weather, max_output_tokens=100, temperature=0
            )
            assert isinstance(response.output_parsed, Weather)

    anyio.run(run)


def test_a_response_is_read_and_deleted(backend: InProcess) -> None:
    async def run() -> None:
        async with served(backend) as http:
            client = open_ai(http)
            first = await client.responses.create(model="demo", input="hi", max_output_tokens=5)
            assert (await client.responses.retrieve(first.id)).output == first.output
            await client.responses.delete(first.id)
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(first.id)

    anyio.run(run)


@pytest.mark.parametrize("stream", [False, True])
def test_a_round_trip_of_messages(backend: InProcess, stream: bool) -> None:
    async def run() -> None:
        async with served(backend) as http:
            client = claude(http)
            options: Any = {"model": "demo", "tools": [TOOL], "max_tokens": 100}
            options["extra_body"] = {"temperature": 0}  # the package has no such parameter any more

            async def respond(**body: Any) -> Any:
                if not stream:
                    return await client.messages.create(**options, **body)
                async with client.messages.stream(**options, **body) as events:
                    return await events.get_final_message()

            asked: Any = {"role": "user", "content": QUESTION}
            first = await respond(messages=[asked], tool_choice={"type": "any"})
            assert first.stop_reason == "tool_use"
            calls = [block for block in first.content if block.type == "tool_use"]
            for call in calls:
                check(call.input)
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "Rain."} for call in calls]
            said: Any = {"role": "assistant", "content": [block.model_dump() for block in first.content]}
            answered: Any = {"role": "user", "content": results}
            second = await respond(messages=[asked, said, answered], tool_choice={"type": "none"})
            assert second.stop_reason in {"end_turn", "max_tokens"}
            assert [block.type for block in second.content] in ([], ["text"])

    anyio.run(run)


def test_a_truncated_call_is_no_call(backend: InProcess) -> None:
    async def run() -> None:
        async with served(backend) as http:
            message = await claude(http).messages.create(
                model="demo",
                max_tokens=3,
                tools=[TOOL],
                tool_choice={"type": "any"},
                messages=[{"role": "user", "content": QUESTION}],
            )
            assert (message.stop_reason, message.content) == ("max_tokens", [])
            response = await open_ai(http).responses.create(
                model="demo", max_output_tokens=3, tools=[FUNCTION], tool_choice="required", input=QUESTION
            )
            assert (response.status, response.output) == ("incomplete", [])

    anyio.run(run)


def test_tokens_are_counted(backend: InProcess) -> None:
    async def run() -> None:
        async with served(backend) as http:
            client = claude(http)
            body: Any = {
                "model": "demo",
                "messages": [{"role": "user", "content": QUESTION}],
                "system": "Hi.",
            }
            count = await client.messages.count_tokens(**body)
            message = await client.messages.create(**body, max_tokens=1)
            usage = message.usage
            assert count.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
            more = await client.messages.count_tokens(**body, tools=[TOOL])
            assert more.input_tokens > count.input_tokens
            long: Any = [{"role": "user", "content": QUESTION * 1000}]
            assert (await client.messages.count_tokens(model="demo", messages=long)).input_tokens > 2048
            with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
                await client.messages.create(model="demo", messages=long, max_tokens=1)

    anyio.run(run)


def test_a_backend_that_cannot_count_evaluates_the_prompt(backend: InProcess) -> None:
    async def count(counting: InProcess) -> int:
        async with served(counting) as http:
            asked: Any = [{"role": "user", "content": QUESTION}]
            return (await claude(http).messages.count_tokens(model="demo", messages=asked)).input_tokens

    with Uncounting(model_path(), context_length=2048) as uncounting:
        assert anyio.run(count, uncounting) == anyio.run(count, backend)
