"""What clients read of the whole gateway, with a model in this process; `clients` has the round trips."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from gbnf_server.backends.base import Backend, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.app import create_app
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.errors import RequestNotSupportedError
from gbnf_server.web.access import Access
from support.clients import PATHS, QUESTION, declared
from support.gateways import in_event_loop

CHAT_TOOL: Any = {"type": "function", "function": {"name": "create_dirs", "parameters": PATHS}}
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

    async def count_tokens(self, request: Request) -> int:
        del request
        raise RequestNotSupportedError(self.name, "counting tokens", "")


@asynccontextmanager
async def client_of(backend: Backend, package: Any) -> AsyncGenerator[Any, None]:
    """Yield a client of a gateway in front of the model: of openai or of anthropic."""
    engine = Engine()
    gateway = Gateway(engine, Upstreams([Upstream(backend, 1)]), model="demo")
    transport = httpx2.ASGITransport(create_app(gateway, Access()))
    try:
        async with httpx2.AsyncClient(transport=transport) as http:
            url = f"http://localhost{'/v1' if package is openai.AsyncOpenAI else ''}"
            yield package(api_key="any", base_url=url, http_client=http, max_retries=0)
    finally:
        await gateway.close()
        engine.close()


@in_event_loop
async def test_tokens_are_counted(demo: InProcess) -> None:
    async with client_of(demo, anthropic.AsyncAnthropic) as client:
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


@in_event_loop
async def test_a_backend_that_cannot_count_evaluates_the_prompt(demo: InProcess) -> None:
    counts = []
    with Uncounting(model_path(), context_length=2048) as uncounting:
        for backend in (uncounting, demo):
            async with client_of(backend, anthropic.AsyncAnthropic) as client:
                count = await client.messages.count_tokens(model="demo", messages=[ASK])
                counts.append(count.input_tokens)
    assert counts[0] == counts[1]


@in_event_loop
async def test_several_answers_with_logprobs_are_streamed(tiny: InProcess) -> None:
    async with client_of(tiny, openai.AsyncOpenAI) as client:
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


@in_event_loop
async def test_the_enforcement_and_warnings_are_headers_and_a_field(tiny: InProcess) -> None:
    async with client_of(tiny, openai.AsyncOpenAI) as client:
        body: Any = {"model": "m", "messages": [ASK], "tools": [CHAT_TOOL], "tool_choice": "required"}
        body |= {"max_tokens": 60, "user": "me"}
        for stream in (False, True):
            raw = await client.chat.completions.with_raw_response.create(stream=stream, **body)
            assert raw.headers["x-gbnf"].startswith('grammar="sha256:')
            assert raw.headers["x-gbnf-warning"] == "without effect: user"
        whole = await client.chat.completions.create(**body)
        enforcement: Any = whole.to_dict()["x_gbnf"]
        assert enforcement["ignored"] == ["user"]
        assert enforcement["verified"]
        assert enforcement["exact"]
        assert whole.usage
        assert enforcement["forced_tokens"] + enforcement["sampled_tokens"] == whole.usage.completion_tokens
