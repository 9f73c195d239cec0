"""LangChain: `langchain-openai` over both of OpenAI's APIs, and agents of `langchain`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.clients import QUESTION, Weather, folder_tool
from support.examples import run_example

langchain_openai = pytest.importorskip("langchain_openai")


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def model(request: pytest.FixtureRequest, gateway_url: str) -> Iterator[Any]:
    with httpx2.Client() as client:
        yield langchain_openai.ChatOpenAI(
            model="demo",
            base_url=f"{gateway_url}/v1",
            api_key="any",
            temperature=0,
            max_retries=0,
            http_client=client,
            use_responses_api=request.param,
        )


@pytest.mark.slow
def test_an_agent(gateway_url: str, tmp_path: Path) -> None:
    pytest.importorskip("langchain.agents")
    variables = {"OPENAI_BASE_URL": f"{gateway_url}/v1", "OPENAI_API_KEY": "any"}
    called, text = run_example("langchain_agent.py", tmp_path, **variables).splitlines()
    assert called == "create_dirs ['trips']"
    assert "trips" in text


@pytest.mark.slow
def test_an_agent_whose_answer_is_streamed(model: Any) -> None:
    agents = pytest.importorskip("langchain.agents")
    create_dirs, called = folder_tool()
    agent = agents.create_agent(model, [create_dirs])
    pieces = [piece for piece, _ in agent.stream({"messages": [("user", QUESTION)]}, stream_mode="messages")]
    result = [piece.type for piece in pieces].index("tool")
    assert result > 2
    assert called == [["trips"]]
    assert "trips" in "".join(piece.text for piece in pieces[result + 1 :])


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output(model: Any, method: str) -> None:
    if method == "json_mode":  # any object, which the package then validates
        read = model.with_structured_output(None, method=method, include_raw=True).invoke(QUESTION)
        assert isinstance(read["parsed"], dict) or read["parsing_error"]
        return
    read = model.with_structured_output(Weather, method=method).invoke(QUESTION)
    assert isinstance(read, Weather)
