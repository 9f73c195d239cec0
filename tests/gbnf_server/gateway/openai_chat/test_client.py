"""The chat API with OpenAI's own client, from the request to a model in this process and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from gbnf_server.backends.base import Backend
from gbnf_server.backends.in_process import InProcess
from gbnf_server.gateway.app import create_app
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.gateway.upstreams import Upstream, Upstreams, always
from gbnf_server.llama.demo_model import model_path
from gbnf_server.web.access import Access

PATHS = {
    "type": "object",
    "properties": {"paths": {"type": "array", "items": {"type": "string"}}},
    "required": ["paths"],
}
CREATE: Any = {"type": "function", "function": {"name": "create_dirs", "parameters": PATHS}}
ASK: Any = {"role": "user", "content": "create a folder trips"}
COLD: Any = {"model": "m", "temperature": 0, "max_completion_tokens": 100}

Use = Callable[[AsyncOpenAI], Awaitable[Any]]


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> Iterator[InProcess]:
    with InProcess(tiny_model, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def demo() -> Iterator[InProcess]:
    if not model_path().is_file():
        pytest.skip("there is no embedded model")
    with InProcess(model_path(), threads=1) as loaded:
        yield loaded


def use(backend: Backend, work: Use) -> Any:
    async def run() -> Any:
        gateway = Gateway(Engine(), Upstreams([Upstream(backend, always, 1)]), model="m")
        transport = httpx2.ASGITransport(create_app(gateway, Access()))
        async with httpx2.AsyncClient(transport=transport) as http:
            url = "http://127.0.0.1/v1"
            return await work(AsyncOpenAI(base_url=url, api_key="any", http_client=http, max_retries=0))

    return asyncio.run(run())


def test_a_tool_round_trip(demo: InProcess) -> None:
    async def work(client: AsyncOpenAI) -> None:
        first = await client.chat.completions.create(messages=[ASK], tools=[CREATE], **COLD)
        message = first.choices[0].message
        assert first.choices[0].finish_reason == "tool_calls"
        assert message.tool_calls
        (call,) = message.tool_calls
        assert call.type == "function"
        assert (call.function.name, json.loads(call.function.arguments)) == (
            "create_dirs",
            {"paths": ["trips"]},
        )
        result: Any = {"role": "tool", "tool_call_id": call.id, "content": '{"entries": ["trips"]}'}
        history: Any = [ASK, message, result]
        last = await client.chat.completions.create(messages=history, tools=[CREATE], **COLD)
        assert last.choices[0].finish_reason == "stop"
        assert "trips" in (last.choices[0].message.content or "")
        assert last.usage
        assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens > 20

    use(demo, work)


def test_a_streamed_tool_round_trip(demo: InProcess) -> None:
    async def work(client: AsyncOpenAI) -> None:
        options: Any = {"stream_options": {"include_usage": True}}
        async with client.chat.completions.stream(
            messages=[ASK], tools=[CREATE], **COLD, **options
        ) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_completion()
        assert "tool_calls.function.arguments.delta" in kinds
        assert kinds.count("tool_calls.function.arguments.done") == 1
        message = final.choices[0].message
        assert message.tool_calls
        assert json.loads(message.tool_calls[0].function.arguments) == {"paths": ["trips"]}
        assert final.usage
        call = message.tool_calls[0]
        result: Any = {"role": "tool", "tool_call_id": call.id, "content": "created trips"}
        history: Any = [ASK, message.to_dict(), result]
        async with client.chat.completions.stream(messages=history, tools=[CREATE], **COLD) as stream:
            text = "".join([event.delta async for event in stream if event.type == "content.delta"])
        assert "trips" in text

    use(demo, work)


class Place(BaseModel):
    """A place, as pydantic describes it."""

    name: str
    level: int


@pytest.mark.slow
def test_a_response_is_parsed_as_a_model(tiny: InProcess) -> None:
    async def work(client: AsyncOpenAI) -> None:
        ok = 0
        for seed in range(8):
            with_seed: Any = {"model": "m", "seed": seed, "temperature": 0.6, "max_tokens": 250}
            try:
                parsed = await client.chat.completions.parse(
                    messages=[ASK], response_format=Place, **with_seed
                )
            except openai.LengthFinishReasonError:
                continue
            assert isinstance(parsed.choices[0].message.parsed, Place)
            ok += 1
        assert ok

    use(tiny, work)


def test_several_answers_with_logprobs_are_streamed(tiny: InProcess) -> None:
    async def work(client: AsyncOpenAI) -> None:
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

    use(tiny, work)


def test_the_receipt_and_warnings_are_headers_and_a_field(tiny: InProcess) -> None:
    async def work(client: AsyncOpenAI) -> None:
        more: Any = {"model": "m", "max_tokens": 60, "tool_choice": "required", "user": "me"}
        for stream in (False, True):
            raw = await client.chat.completions.with_raw_response.create(
                messages=[ASK], tools=[CREATE], stream=stream, **more
            )
            assert raw.headers["x-gbnf"].startswith('grammar="sha256:')
            assert raw.headers["x-gbnf-warning"] == "without effect: user"
        whole = await client.chat.completions.create(messages=[ASK], tools=[CREATE], **more)
        receipt: Any = whole.to_dict()["x_gbnf"]
        assert receipt["verified"]
        assert receipt["exact"]
        assert whole.usage
        assert receipt["forced_tokens"] + receipt["sampled_tokens"] == whole.usage.completion_tokens

    use(tiny, work)


def test_errors_are_those_of_the_client(tiny: InProcess) -> None:
    async def work(client: AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=[ASK], logit_bias={"1": 1})
        assert (caught.value.param, caught.value.code) == ("logit_bias", "unsupported_parameter")
        grammar: Any = {"grammar": "root ::= ("}
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="m", messages=[ASK], extra_body=grammar)
        assert (caught.value.param, caught.value.code) == ("grammar", "invalid_grammar")

    use(tiny, work)
