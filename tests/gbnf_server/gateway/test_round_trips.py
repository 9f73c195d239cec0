"""Tool round trips of the packages openai and anthropic with the gateway and a model in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import anyio
import httpx2
import openai
import pytest

from gbnf_server.backends.base import Backend, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.gateway.app import create_app
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.gateway.upstreams import Upstream, Upstreams, always
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.errors import RequestNotSupportedError
from gbnf_server.web.access import Access
from support.clients import CREATED, PATHS, QUESTION, declared

CHAT_TOOL: Any = {"type": "function", "function": {"name": "create_dirs", "parameters": PATHS}}
FUNCTION: Any = {"type": "function", "name": "create_dirs", "parameters": PATHS}
TOOL: Any = {"name": "create_dirs", "description": "Create folders.", "input_schema": PATHS}
ASK: Any = {"role": "user", "content": QUESTION}


@pytest.fixture(scope="module")
def demo() -> Iterator[InProcess]:
    with InProcess(model_path(), context_length=2048) as model:
        yield model


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> Iterator[InProcess]:
    with InProcess(tiny_model, threads=1) as loaded:
        yield loaded


class Uncounting(InProcess):
    """A backend that cannot count tokens, as most servers."""

    def count_tokens(self, request: Request) -> int:
        del request
        raise RequestNotSupportedError(self.name, "counting tokens", "")


@asynccontextmanager
async def served(backend: Backend) -> AsyncIterator[httpx2.AsyncClient]:
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


def open_ai(backend: Backend, work: Callable[[openai.AsyncOpenAI], Awaitable[None]]) -> None:
    async def run() -> None:
        async with served(backend) as http:
            url = "http://localhost/v1"
            await work(openai.AsyncOpenAI(api_key="any", base_url=url, http_client=http, max_retries=0))

    anyio.run(run)


def claude(backend: Backend, work: Callable[[anthropic.AsyncAnthropic], Awaitable[None]]) -> None:
    async def run() -> None:
        async with served(backend) as http:
            url = "http://localhost"
            await work(anthropic.AsyncAnthropic(api_key="any", base_url=url, http_client=http, max_retries=0))

    anyio.run(run)


@pytest.mark.parametrize("stream", [False, True])
def test_a_round_trip_of_chat(demo: InProcess, stream: bool) -> None:
    async def work(client: openai.AsyncOpenAI) -> None:
        async def complete(*messages: Any) -> Any:
            cold: Any = {"model": "demo", "temperature": 0, "max_completion_tokens": 100}
            body: Any = {"messages": messages, "tools": [CHAT_TOOL], **cold}
            if not stream:
                return await client.chat.completions.create(**body)
            usage: Any = {"stream_options": {"include_usage": True}}
            async with client.chat.completions.stream(**body, **usage) as events:
                return await events.get_final_completion()

        first = await complete(ASK)
        (choice,) = first.choices
        (call,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls"
        assert json.loads(call.function.arguments) == {"paths": ["trips"]}
        result = {"role": "tool", "tool_call_id": call.id, "content": CREATED}
        last = await complete(ASK, choice.message.to_dict(), result)
        assert last.choices[0].finish_reason == "stop"
        assert "trips" in last.choices[0].message.content
        assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens > 20

    open_ai(demo, work)


@pytest.mark.parametrize("stream", [False, True])
def test_a_round_trip_of_responses(demo: InProcess, stream: bool) -> None:
    async def work(client: openai.AsyncOpenAI) -> None:
        options: Any = {"model": "demo", "tools": [FUNCTION], "temperature": 0, "max_output_tokens": 100}

        async def respond(**body: Any) -> Any:
            if not stream:
                return await client.responses.create(**options, **body)
            async with client.responses.stream(**options, **body) as events:
                return await events.get_final_response()

        first = await respond(input=QUESTION, tool_choice="required")
        assert first.x_gbnf["verified"]
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": CREATED}
            for item in first.output
        ]
        assert json.loads(first.output[0].arguments) == {"paths": ["trips"]}
        second = await respond(previous_response_id=first.id, input=results, tool_choice="none")
        assert [item.type for item in second.output] == ["message"]

    open_ai(demo, work)


@pytest.mark.parametrize("stream", [False, True])
def test_a_round_trip_of_messages(demo: InProcess, stream: bool) -> None:
    async def work(client: anthropic.AsyncAnthropic) -> None:
        options: Any = {"model": "demo", "tools": [TOOL], "max_tokens": 100}
        options["extra_body"] = {"temperature": 0}  # the package has no such parameter any more

        async def respond(**body: Any) -> Any:
            if not stream:
                return await client.messages.create(**options, **body)
            async with client.messages.stream(**options, **body) as events:
                return await events.get_final_message()

        first = await respond(messages=[ASK], tool_choice={"type": "any"})
        assert first.stop_reason == "tool_use"
        assert first.content[0].input == {"paths": ["trips"]}
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": CREATED} for call in first.content
        ]
        said: Any = {"role": "assistant", "content": [block.model_dump() for block in first.content]}
        answered: Any = {"role": "user", "content": results}
        second = await respond(messages=[ASK, said, answered], tool_choice={"type": "none"})
        assert second.stop_reason in {"end_turn", "max_tokens"}
        assert [block.type for block in second.content] in ([], ["text"])

    claude(demo, work)


def test_a_truncated_call_is_no_call(demo: InProcess) -> None:
    async def message(client: anthropic.AsyncAnthropic) -> None:
        forced: Any = {"tools": [TOOL], "tool_choice": {"type": "any"}}
        made = await client.messages.create(model="demo", max_tokens=3, messages=[ASK], **forced)
        assert (made.stop_reason, made.content) == ("max_tokens", [])

    async def response(client: openai.AsyncOpenAI) -> None:
        forced: Any = {"tools": [FUNCTION], "tool_choice": "required"}
        made = await client.responses.create(model="demo", max_output_tokens=3, input=QUESTION, **forced)
        assert (made.status, made.output) == ("incomplete", [])

    claude(demo, message)
    open_ai(demo, response)


def test_tokens_are_counted(demo: InProcess) -> None:
    async def work(client: anthropic.AsyncAnthropic) -> None:
        body: Any = {"model": "demo", "messages": [ASK], "system": "Hi."}
        count = declared(await client.messages.count_tokens(**body))
        usage = (await client.messages.create(**body, max_tokens=1)).usage
        assert count.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
        more = await client.messages.count_tokens(**body, tools=[TOOL])
        assert more.input_tokens > count.input_tokens
        long: Any = [{"role": "user", "content": QUESTION * 1000}]
        assert (await client.messages.count_tokens(model="demo", messages=long)).input_tokens > 2048
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await client.messages.create(model="demo", messages=long, max_tokens=1)

    claude(demo, work)


def test_a_backend_that_cannot_count_evaluates_the_prompt(demo: InProcess) -> None:
    counts = []

    async def work(client: anthropic.AsyncAnthropic) -> None:
        counts.append((await client.messages.count_tokens(model="demo", messages=[ASK])).input_tokens)

    with Uncounting(model_path(), context_length=2048) as uncounting:
        claude(uncounting, work)
    claude(demo, work)
    assert counts[0] == counts[1]


def test_several_answers_with_logprobs_are_streamed(tiny: InProcess) -> None:
    async def work(client: openai.AsyncOpenAI) -> None:
        many: Any = {"model": "m", "n": 2, "seed": 1, "max_tokens": 6, "logprobs": True, "top_logprobs": 2}
        # what is cached is computed in other batches, and the last digits depend on them: so cache it first
        await client.chat.completions.create(messages=[ASK], **many)
        whole = await client.chat.completions.create(messages=[ASK], **many)
        assert [choice.index for choice in whole.choices] == [0, 1]
        async with client.chat.completions.stream(messages=[ASK], **many) as stream:
            async for _ in stream:
                pass
            snapshot = stream.current_completion_snapshot
        for ours, theirs in zip(snapshot.choices, whole.choices, strict=True):
            assert ours.message.content == theirs.message.content
            assert ours.logprobs == theirs.logprobs
            assert ours.logprobs
            assert ours.logprobs.content
            assert len(ours.logprobs.content[0].top_logprobs) == 2

    open_ai(tiny, work)


def test_the_enforcement_and_warnings_are_headers_and_a_field(tiny: InProcess) -> None:
    async def work(client: openai.AsyncOpenAI) -> None:
        body: Any = {"model": "m", "messages": [ASK], "tools": [CHAT_TOOL], "tool_choice": "required"}
        body |= {"max_tokens": 60, "user": "me"}
        for stream in (False, True):
            raw = await client.chat.completions.with_raw_response.create(stream=stream, **body)
            assert raw.headers["x-gbnf"].startswith('grammar="sha256:')
            assert raw.headers["x-gbnf-warning"] == "without effect: user"
        whole = await client.chat.completions.create(**body)
        enforcement: Any = whole.to_dict()["x_gbnf"]
        assert enforcement["verified"]
        assert enforcement["exact"]
        assert whole.usage
        assert enforcement["forced_tokens"] + enforcement["sampled_tokens"] == whole.usage.completion_tokens

    open_ai(tiny, work)


def test_errors_are_those_of_the_client(tiny: InProcess) -> None:
    async def work(client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=[ASK], logit_bias={"1": 1})
        assert (caught.value.param, caught.value.code) == ("logit_bias", "unsupported_parameter")
        grammar: Any = {"grammar": "root ::= ("}
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=[ASK], extra_body=grammar)
        assert (caught.value.param, caught.value.code) == ("grammar", "invalid_grammar")

    open_ai(tiny, work)
