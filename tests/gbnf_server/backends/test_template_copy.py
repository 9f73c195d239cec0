"""Prompts that are rendered here are those that the server renders, and cost no request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_templates import chat_templates
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Request
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.template_copy import TemplateCopy
from gbnf_server.llama import server_build as build
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.system.errors import BackendError
from gbnf_server.system.event_loop import shared_loop
from support.backends import ASK, acomplete
from support.counting_proxy import counting_proxy
from support.effort import scaled
from support.json_values import json_values
from support.llama_client import CALL
from support.models import make_model
from support.server import require_llama_server

ALIKE = ("Qwen-Qwen3-0.6B", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "openai-gpt-oss-120b")
PARTLY = ("google-gemma-4-31B-it", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B")
BY_VERSION = ("poolside-Laguna-S-2.1",)  # of llama.cpp
NEVER = ("StepFun3.5-Flash", "meta-llama-Llama-3.1-8B-Instruct")

texts = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n\t\u3000\x85</think>{%\"'\\")),
    max_size=12,
)
tools = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.just("find"),
            "description": texts,
            "parameters": st.fixed_dictionaries(
                {"type": st.just("object"), "properties": st.dictionaries(texts, st.just({"type": "string"}))}
            ),
        }
    ).map(lambda function: {"type": "function", "function": function}),
    max_size=1,
)
EXCHANGES: dict[str, st.SearchStrategy[list[Message]]] = {
    "text": st.tuples(texts, texts).map(
        lambda said: [{"role": "assistant", "content": said[0]}, {"role": "user", "content": said[1]}]
    ),
    "result": st.tuples(texts, texts).map(
        lambda said: [{"role": "assistant", "content": said[0]}, {"role": "tool", "content": said[1]}]
    ),
    "call": st.tuples(st.dictionaries(texts, json_values, max_size=2), texts).map(
        lambda made: [
            {"role": "assistant", "content": "", "tool_calls": [_call(made[0])]},
            {"role": "tool", "content": made[1], "tool_call_id": "abcdefgh0", "name": "find"},
        ]
    ),
}


def _call(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": "abcdefgh0", "type": "function", "function": {"name": "find", "arguments": arguments}}


@dataclass
class Served:
    """A server whose model has a template, and a client of it. `paths`: of the client's requests."""

    template: str
    client: LlamaServer
    paths: list[str]


@pytest.fixture(scope="module", params=[*ALIKE, *PARTLY, *NEVER, *BY_VERSION])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    require_llama_server()
    if not chat_templates():
        pytest.skip("no sources of llama.cpp")
    path = make_model(
        tmp_path_factory.mktemp("models") / "m.gguf",
        template=chat_templates()[request.param],
        context=4096,
        adds_start=True,
    )
    with (
        build.start(path, threads=1) as process,
        counting_proxy(process.url) as counted,
        LlamaServer(counted.url, api_key=process.api_key) as client,
    ):
        yield Served(request.param, client, counted.paths)


def prompt_of(client: LlamaServer, request: Request, *, by_server: bool = False) -> str | None:
    """The prompt of a request, None if the template refuses it."""

    async def render() -> str:
        async with client._http.session() as session:
            properties = await client._present()
            if by_server:
                properties = replace(properties, template=TemplateCopy("", "", ""))
            return (await client._prompt(request, properties, session))[0]

    try:
        return shared_loop().run(render())
    except BackendError:
        return None


@pytest.mark.slow
@settings(max_examples=scaled(30))
@given(data=st.data(), system=texts, asked=texts, declared=tools, reasoning=st.booleans())
def test_every_prompt_is_that_of_the_server(
    served: Served, data: st.DataObject, system: str, asked: str, declared: list[Any], reasoning: bool
) -> None:
    client = served.client
    has_tools = bool(declared) and client.info().traits.tool_format is not None
    messages: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": asked}]
    options: dict[str, Any] = {"tools": declared if has_tools else (), "reasoning": reasoning}
    kinds = ["text", "result", *(["call"] if has_tools else [])]
    for kind in [None, *data.draw(st.lists(st.sampled_from(kinds), max_size=3))]:
        messages += [] if kind is None else data.draw(EXCHANGES[kind])
        request = Request(messages, **options)
        assert prompt_of(client, request) == prompt_of(client, request, by_server=True)


@pytest.mark.slow
def test_later_prompts_are_rendered_here_where_both_engines_render_alike(served: Served) -> None:
    client, (system, asked) = served.client, ASK
    said: Message = {"role": "assistant", "content": "so"}
    called: Message = {"role": "assistant", "content": "", "tool_calls": [_call({"text": "a"})]}
    result: Message = {"role": "tool", "content": "b", "tool_call_id": "abcdefgh0", "name": "find"}
    tool = {"type": "function", "function": {"name": "find", "description": "d", "parameters": {}}}

    def asks_the_server(messages: list[Message], **options: Any) -> bool:
        before = len(served.paths)
        prompt_of(client, Request(messages, **options))
        return len(served.paths) > before

    assert asks_the_server([system, asked])
    if served.template not in BY_VERSION:
        assert asks_the_server([system, asked, said, asked]) == (served.template in NEVER)
    assert asks_the_server([system, asked], tools=[tool])
    later = asks_the_server([system, asked, called, result], tools=[tool])
    if served.template not in BY_VERSION:
        assert later == (served.template not in ALIKE)
    assert asks_the_server([system, {**asked, "content": "another"}])
    assert asks_the_server([system, asked, said, {**asked, "content": "b\u3000"}])


@pytest.mark.parametrize("way", ["sync", "async"])
def test_each_later_call_of_a_conversation_is_one_request(llama_server: LlamaServerProcess, way: str) -> None:
    more = [Message(role="assistant", content="{}"), Message(role="tool", content='{"step": 1}')]
    requests = [Request([*ASK, *more * count], CALL) for count in range(6)]
    with (
        counting_proxy(llama_server.url) as counted,
        LlamaServer(counted.url, api_key=llama_server.api_key) as client,
    ):

        async def converse() -> None:
            for request in requests:
                begun.append((len(counted.paths), time.monotonic()))
                await acomplete(client, request)
                assert client.info().name  # which it need not ask for

        begun: list[tuple[int, float]] = []
        if way == "async":
            asyncio.run(converse())
        else:
            for request in requests:
                begun.append((len(counted.paths), time.monotonic()))
                client.complete(request)
        later = counted.paths[begun[1][0] :]
        assert [path for path in later if path != "/props"] == ["/completion"] * (len(requests) - 1)
        pauses = sum(after - before > 3 for (_, before), (_, after) in pairwise(begun))
        assert later.count("/props") <= pauses  # an idle connection ends, and says no more of the server
        assert counted.connections == 1 + len(requests) + later.count("/props")  # streams close theirs
