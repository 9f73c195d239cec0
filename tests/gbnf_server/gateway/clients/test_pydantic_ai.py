"""Agents of pydantic-ai, over each of the gateway's APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from support.clients import QUESTION, Weather, folder_tool
from support.examples import run_example

pydantic_ai = pytest.importorskip("pydantic_ai")


def open_ai_chat(client: AsyncOpenAI) -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel("demo", provider=OpenAIProvider(openai_client=client))


def open_ai_responses(client: AsyncOpenAI) -> Any:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIResponsesModel("demo", provider=OpenAIProvider(openai_client=client))


def anthropic_messages(client: AsyncAnthropic) -> Any:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    # the package looks up by name which models have structured output
    profile = {"supports_json_schema_output": True}
    return AnthropicModel("demo", provider=AnthropicProvider(anthropic_client=client), profile=profile)


MODELS: list[Callable[[Any], Any]] = [open_ai_chat, open_ai_responses, anthropic_messages]
COLD: Any = {"temperature": 0, "max_tokens": 100}
Use = Callable[[Any], Awaitable[Any]]


@pytest.fixture(params=MODELS, ids=lambda function: function.__name__)
def use(request: pytest.FixtureRequest, gateway_url: str) -> Callable[[Use], Any]:
    """Return a function that runs another with the model."""

    async def run(work: Use) -> Any:
        client: AsyncAnthropic | AsyncOpenAI = (
            AsyncAnthropic(base_url=gateway_url, api_key="any")
            if request.param is anthropic_messages
            else AsyncOpenAI(base_url=f"{gateway_url}/v1", api_key="any")
        )
        async with client:
            return await work(request.param(client))

    return lambda work: anyio.run(run, work)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_round_trip(use: Callable[[Use], Any], stream: bool) -> None:
    create_dirs, called = folder_tool()

    async def work(model: Any) -> None:
        agent = pydantic_ai.Agent(model, tools=[create_dirs], model_settings=COLD)
        if not stream:
            result = await agent.run(QUESTION)
            assert "trips" in result.output
            assert result.usage.requests == 2
            return
        async with agent.run_stream_events(QUESTION) as events:
            kinds = [event.event_kind async for event in events]
        assert kinds.count("part_delta") > 2
        assert kinds[-1] == "agent_run_result"

    use(work)
    assert called == [["trips"]]


@pytest.mark.slow
def test_an_agent(gateway_url: str, tmp_path: Path) -> None:
    variables = {"OPENAI_BASE_URL": f"{gateway_url}/v1", "OPENAI_API_KEY": "any"}
    called, text = run_example("pydantic_ai_agent.py", tmp_path, **variables).splitlines()
    assert called == "create_dirs ['trips']"
    assert "trips" in text


@pytest.mark.parametrize("form", [pydantic_ai.ToolOutput, pydantic_ai.NativeOutput])
def test_structured_output(use: Callable[[Use], Any], form: Any) -> None:
    async def work(model: Any) -> Any:
        return await pydantic_ai.Agent(model, output_type=form(Weather), model_settings=COLD).run(QUESTION)

    assert isinstance(use(work).output, Weather)
