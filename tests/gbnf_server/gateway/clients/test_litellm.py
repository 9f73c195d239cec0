"""LiteLLM over the gateway's APIs."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.clients import CREATED, PATHS, QUESTION, Weather

litellm: Any = pytest.importorskip("litellm")
# pydantic warns of types of LiteLLM's own
pytestmark = pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class:UserWarning")
TOOL = {"type": "function", "function": {"name": "create_dirs", "parameters": PATHS, "strict": True}}
ASK = {"role": "user", "content": QUESTION}


@pytest.fixture(scope="module", autouse=True)
def what_nobody_closes() -> Iterator[None]:
    """Close the event loop that LiteLLM asks for, and the clients that it keeps."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    for client in litellm.in_memory_llm_clients_cache.cache_dict.values():
        closing = client.close()
        if inspect.isawaitable(closing):
            loop.run_until_complete(closing)
    asyncio.set_event_loop(None)
    loop.close()


def complete(url: str, api: str, *, stream: bool, **body: Any) -> Any:
    base = f"{url}/v1" if api == "openai" else url
    options = {
        "model": f"{api}/demo",
        "api_base": base,
        "api_key": "any",
        "temperature": 0,
        "max_tokens": 100,
    }
    answer = litellm.completion(**options, stream=stream, **body)
    return litellm.stream_chunk_builder(list(answer)) if stream else answer


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_round_trip(gateway_url: str, api: str, stream: bool) -> None:
    first = complete(gateway_url, api, stream=stream, messages=[ASK], tools=[TOOL]).choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("create_dirs", {"paths": ["trips"]})
    result = {"role": "tool", "tool_call_id": call.id, "content": CREATED}
    history = [ASK, first.message, result]
    last = complete(gateway_url, api, stream=stream, messages=history, tools=[TOOL]).choices[0]
    assert last.finish_reason == "stop"
    assert "trips" in last.message.content


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_structured_output(gateway_url: str, api: str) -> None:
    answer = complete(gateway_url, api, stream=False, messages=[ASK], response_format=Weather)
    Weather.model_validate_json(answer.choices[0].message.content)
