"""The whole gateway with the bundled model, and requests that ask for too much."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from random import Random
from typing import Any

import pytest

from gbnf_server.backends.base import BackendEvent, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.llama.demo_model import model_path
from support.gateways import Connection, Served, in_event_loop, served, until
from support.hostile_schemas import hostile_schema

CHAT = "/v1/chat/completions"
SEEDS = 8
LARGEST = 100_000


@pytest.fixture(scope="module")
def backend() -> Iterator[InProcess]:
    with InProcess(model_path(), parallel=2) as opened:
        yield opened


def gateway_of(backend: Any, *, compile_s: float = 10) -> Gateway:
    upstreams = Upstreams([Upstream(backend, 2)])
    return Gateway(Engine(compile_s=compile_s), upstreams, model="demo")


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def chat(*tools: dict[str, Any], **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "go"}]
    return {"model": "demo", "messages": messages, "tools": tools, "max_tokens": 16, **fields}


async def ask(server: Served, body: Any, path: str = CHAT) -> tuple[int, Any]:
    client = await server.connect()
    content = json.dumps(body).encode()
    client.send_head(f"Content-Length: {len(content)}", "Connection: close", path=path)
    client.writer.write(content)
    head = await client.read_until("\r\n\r\n")
    return int(head.split(" ")[1]), json.loads(await client.reader.read())


async def is_healthy(server: Served) -> bool:
    client = await server.connect()
    client.send_head("Connection: close", method="GET", path="/health")
    return await client.status() == 200


def text_of(schema: Any) -> str | None:
    """The JSON of a schema; None if it is endless, or has what JSON has not."""
    pieces, size = [], 0
    try:
        for piece in json.JSONEncoder(allow_nan=False, check_circular=True).iterencode(schema):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST:
                return None
    except (ValueError, RecursionError):
        return None
    return "".join(pieces)


@pytest.mark.slow
@in_event_loop
async def test_no_schema_is_an_internal_error(backend: InProcess) -> None:
    schemas = [text for seed in range(SEEDS) if (text := text_of(hostile_schema(Random(seed))))]
    assert len(schemas) > SEEDS / 2
    gateway = gateway_of(backend)
    async with served(gateway) as server:
        for text in schemas:
            schema = json.loads(text)
            output = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            for body in (
                chat(tool("x", schema), tool_choice="required"),
                {**chat(response_format=output), "tools": None},
            ):
                asking = asyncio.create_task(ask(server, body))
                assert await is_healthy(server)
                status, answer = await asking
                assert status in {200, 400, 502, 503}, (text, answer)
                if status == 502:
                    assert answer["error"]["code"] != "upstream_ignored_grammar", (text, answer)
        await until(lambda: not gateway.open_requests)
    assert (gateway.queue.running, gateway.budget.reserved) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "code"), [(5000, "invalid_request"), (600, "context_length_exceeded")])
@in_event_loop
async def test_too_many_tools(backend: InProcess, count: int, code: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    body = chat(*(tool(f"tool_{number}", schema) for number in range(count)))
    gateway = gateway_of(backend, compile_s=600)  # they take seconds, and a busy machine more
    async with served(gateway) as server:
        asking = asyncio.create_task(ask(server, body))
        while not asking.done():
            assert await is_healthy(server)
        status, answer = await asking
    assert (status, answer["error"]["code"]) == (400, code)


@in_event_loop
async def test_strange_requests_are_answered_or_refused_in_the_shape_of_their_api(backend: InProcess) -> None:
    plain = {"model": "x", "messages": [{"role": "user", "content": "a"}]}
    requests: list[tuple[str, Any]] = [
        ("/v1/responses", {"model": "x", "input": [{"type": "message", "role": "user", "content": 3}]}),
        ("/v1/responses", {"model": "x", "input": "x", "previous_response_id": "resp_none"}),
        ("/v1/messages", {"model": "x", "max_tokens": 0, "messages": []}),
        ("/v1/messages/count_tokens", {"model": "x"}),
        (CHAT, {"model": "x", "messages": [{"role": "user", "content": "x" * 100_000}]}),
        (CHAT, [1]),
        (CHAT, {**plain, "max_tokens": 10**30}),
        (CHAT, {**plain, "n": 10**6}),
        (CHAT, {**plain, "seed": -(10**30)}),
        (CHAT, {**plain, "grammar": "root ::= root"}),
    ]
    async with served(gateway_of(backend)) as server:
        for path, body in requests:
            status, answer = await ask(server, body, path)
            assert status < 500, (body, answer)
            if status >= 400:
                assert answer["error"]["message"], body
                assert ("type" in answer) == path.startswith("/v1/messages"), body


class Watched:
    """A backend that counts the pieces of text of its answers."""

    def __init__(self, backend: InProcess) -> None:
        self._backend = backend
        self.pieces = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        async with aclosing(self._backend.generate(request)) as events:
            async for event in events:
                self.pieces += 1
                yield event


@pytest.mark.parametrize("stream", [True, False])
@in_event_loop
async def test_a_client_that_leaves_ends_the_decoding_within_a_token(
    backend: InProcess, stream: bool
) -> None:
    watched = Watched(backend)
    gateway = gateway_of(watched)
    endless = {
        "model": "x",
        "messages": [{"role": "user", "content": "go"}],
        "grammar": "root ::= [ab]{2000}",
        "max_tokens": 4000,
        "stream": stream,
        "temperature": 2,
    }
    async with served(gateway) as server:
        client: Connection = await server.connect()
        client.send(endless)
        await until(lambda: watched.pieces > 3)
        client.reset()
        await until(lambda: not gateway.open_requests)
        before = watched.pieces
        status, _ = await ask(server, {**endless, "grammar": 'root ::= "a"', "stream": False})
        assert status == 200
        assert watched.pieces <= before + 2 + 1
    assert gateway.queue.running == 0
