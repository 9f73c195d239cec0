"""Several API keys: none learns of another's prompts, nor reads its stored responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.backends.base import Backend, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer, ServerSlots
from gbnf_server.backends.openai_compatible import OpenAICompatible, ServerKind
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.llama import server_build as build
from gbnf_server.llama.demo_model import model_path
from gbnf_server.web.access import Access
from support.gateways import client_of, in_event_loop
from support.server import Reply, require_llama_server, scripted

KEYS = ("key-a", "key-b")
SECRET = "My PIN is 4071, and nobody may know it. Remember it well, please, for as long as you can."


@pytest.fixture(scope="module")
def in_process() -> Iterator[Backend]:
    with InProcess(model_path(), context_length=1024, parallel=2) as model:
        yield model


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[Backend]:
    """A server of several slots, which keeps no prompts in main memory."""
    require_llama_server()
    with build.start(tiny_model, threads=1, slots=2) as running, LlamaServer(running.url) as backend:
        yield backend


@pytest.fixture(scope="module")
def remembering_server(tiny_model: Path) -> Iterator[Backend]:
    """A server of one slot, which keeps prompts in main memory, as llama-server does by default."""
    require_llama_server()
    with build.start(tiny_model, threads=1, slots=1) as running, LlamaServer(running.url) as backend:
        yield backend


@asynccontextmanager
async def clients(
    backend: Backend, keys: tuple[str, ...] = KEYS, **options: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, ...]]:
    """A client for each key of a gateway in front of the model."""
    upstreams = Upstreams([Upstream(backend, 2)])
    gateway = Gateway(Engine(), upstreams, model="m", **options)
    async with client_of(gateway, Access(keys)) as client:
        made = []
        for key in KEYS:
            headers = {"authorization": f"Bearer {key if key in keys else keys[0]}"}
            made.append(
                httpx.AsyncClient(transport=client._transport, base_url=client.base_url, headers=headers)
            )
        yield tuple(made)


async def cached(client: httpx.AsyncClient, text: str) -> int:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 1, "temperature": 0}
    response = await client.post("/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    found: int = response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["in_process", "server"])
@in_event_loop
async def test_the_cached_tokens_of_a_key_tell_nothing_of_others(
    name: str, request: pytest.FixtureRequest
) -> None:
    backend: Backend = request.getfixturevalue(name)
    async with clients(backend) as (first, second):
        await cached(first, SECRET)
        await cached(second, "0 one")
        # what the template puts before any text; a slot of the server may be empty
        head = max([await cached(second, f"{number} two") for number in range(1, 6)])
        assert await cached(second, SECRET) <= head
        assert await cached(first, SECRET) > head, "a key has its own cache"
        assert await cached(second, SECRET) > head


@in_event_loop
async def test_a_server_that_keeps_prompts_elsewhere_evaluates_them_whole(
    remembering_server: Backend,
) -> None:
    async with clients(remembering_server) as (first, second):
        for client in (first, second, second, first):
            assert await cached(client, SECRET) == 0


@pytest.mark.parametrize("name", ["in_process", "server"])
@pytest.mark.parametrize(("keys", "options"), [(KEYS, {"shares_cache": True}), (KEYS[:1], {})])
@in_event_loop
async def test_one_cache_is_shared_by_one_key_and_if_asked_to(
    name: str, keys: tuple[str, ...], options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    backend: Backend = request.getfixturevalue(name)
    text = f"{SECRET} {keys} {options}"
    async with clients(backend, keys, **options) as (first, second):
        await cached(first, text)
        assert await cached(second, text) > 10


@pytest.mark.parametrize(("kind", "separates"), [("vllm", True), ("sglang", True), ("lm_studio", False)])
def test_other_servers_get_a_salt_or_tell_no_cached_tokens(kind: ServerKind, separates: bool) -> None:
    message = {"message": {"content": "hi"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 7}}
    replies: Any = {"/v1/chat/completions": [Reply(200, {"choices": [message], "usage": usage})]}
    with scripted() as script, OpenAICompatible(script.url, kind, model="m", context_length=99) as backend:
        script.answers |= replies
        salted = backend.complete(Request([{"role": "user", "content": "x"}], cache_salt="a"))
        plain = backend.complete(Request([{"role": "user", "content": "x"}]))
    assert (salted.usage.cached_tokens, plain.usage.cached_tokens) == (7 if separates else 0, 7)
    sent = [body.get("cache_salt") for _, body in script.asked]
    assert sent == ["a" if separates else None, None]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.booleans())))
def test_a_slot_is_reused_only_after_requests_of_the_same_salt(steps: list[tuple[int, str, bool]]) -> None:
    """Each step begins the request of a place, or ends it; one that fails may not have reached the slot."""
    slots = ServerSlots(2)
    slots.are_separate = True
    running: dict[int, tuple[Any, int, str]] = {}
    inside: dict[int, set[str]] = {0: set(), 1: set()}  # the salts of all that a slot's cache may contain
    for place, salt, fails in steps:
        if place not in running:
            taken = slots.taken(salt)
            slot, reuses = taken.__enter__()
            inside[slot] |= {other for _, where, other in running.values() if where == slot}
            assert not reuses or inside[slot] == {salt}
            running[place] = (taken, slot, salt)
            continue
        taken, slot, used = running.pop(place)
        others = {other for _, where, other in running.values() if where == slot}
        if fails:
            inside[slot] |= {used} | others
            with pytest.raises(ValueError, match="x"):
                taken.gen.throw(ValueError("x"))
        else:
            inside[slot] = {used} | others if not others else inside[slot] | {used} | others
            taken.__exit__(None, None, None)


@in_event_loop
async def test_a_key_neither_reads_nor_continues_nor_deletes_the_responses_of_another(
    in_process: Backend,
) -> None:
    async with clients(in_process) as (first, second):
        body = {"model": "m", "input": "hi", "max_output_tokens": 4}
        made = (await first.post("/v1/responses", json=body)).json()
        path = f"/v1/responses/{made['id']}"
        assert (await second.get(path)).status_code == 404
        assert (await second.delete(path)).status_code == 404
        follow = {**body, "previous_response_id": made["id"]}
        assert (await second.post("/v1/responses", json=follow)).status_code == 404
        reference = [
            {"type": "item_reference", "id": made["output"][0]["id"]},
            {"role": "user", "content": "x"},
        ]
        assert (await second.post("/v1/responses", json={**body, "input": reference})).status_code == 404
        assert (await first.get(path)).json()["id"] == made["id"]
        assert (await first.post("/v1/responses", json={**body, "input": reference})).status_code == 200
        assert (await first.post("/v1/responses", json=follow)).status_code == 200
        assert (await first.delete(path)).status_code == 200
