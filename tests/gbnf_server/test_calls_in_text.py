"""A real model that writes its calls as JSON in its text: here they are calls, for planner and clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.backends.in_process import InProcess
from gbnf_server.cli import main
from gbnf_server.executors import Context
from gbnf_server.planner import Planner, PlannerOptions
from support.clients import gateway_process
from support.executors import world
from support.pools import BUNDLED
from support.qwen import MODEL, requires_qwen

pytestmark = [pytest.mark.slow, requires_qwen]

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city"}},
        "required": ["city"],
    },
}
QUESTION, SMALL_TALK = "What is the weather in Paris?", "Who wrote the play Hamlet?"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = ("--model", str(MODEL), "--threads", "1", "--ctx-size", "2048")
    with gateway_process(tmp_path_factory.mktemp("serve"), *options) as address:
        yield address


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.timeout(300)
def test_openais_client_gets_a_call_and_no_text(url: str, streams: bool) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    asked: dict[str, Any] = {
        "model": "m",
        "max_tokens": 60,
        "temperature": 0,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": WEATHER}],
    }
    if streams:
        deltas = [
            chunk.choices[0].delta
            for chunk in client.chat.completions.create(stream=True, **asked)
            if chunk.choices
        ]
        text = "".join(delta.content or "" for delta in deltas)
        pieces = [call.function for delta in deltas for call in delta.tool_calls or ()]
        name, arguments = pieces[0].name, "".join(piece.arguments or "" for piece in pieces)
    else:
        message = client.chat.completions.create(**asked).choices[0].message
        [call] = message.tool_calls
        text, name, arguments = message.content or "", call.function.name, call.function.arguments
    assert (text, name, json.loads(arguments)) == ("", "get_weather", {"city": "Paris"})


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.timeout(300)
def test_anthropics_client_gets_a_call_and_no_text(url: str, streams: bool) -> None:
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    schema = {
        "name": WEATHER["name"],
        "description": WEATHER["description"],
        "input_schema": WEATHER["parameters"],
    }
    asked: dict[str, Any] = {
        "model": "m", "max_tokens": 60, "extra_body": {"temperature": 0},
        "messages": [{"role": "user", "content": QUESTION}], "tools": [schema],
    }  # fmt: skip
    if streams:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked)
    [block] = message.content
    assert (block.type, block.name, block.input) == ("tool_use", "get_weather", {"city": "Paris"})


@pytest.mark.timeout(300)
def test_a_question_that_no_tool_fits_is_answered(url: str) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(
        model="m",
        max_tokens=30,
        temperature=0,
        messages=[{"role": "user", "content": SMALL_TALK}],
        tools=[{"type": "function", "function": WEATHER}],
    )
    message = answer.choices[0].message
    assert not message.tool_calls
    assert "Shakespeare" in message.content
    assert answer.x_gbnf["call_odds"] < 0


@pytest.mark.timeout(300)
def test_a_job_that_is_done_ends_with_an_answer(tmp_path: Path) -> None:
    context: Context = world(tmp_path)
    with InProcess(MODEL, threads=1, context_length=4096) as model:
        run = Planner(BUNDLED, model, PlannerOptions(max_tokens=120), context=context).run(
            "create a folder called invoices"
        )
    assert [step.name for step in run.steps if step.result is not None] == ["create_dirs"]
    assert (run.outcome, (context.workspace.root / "invoices").is_dir()) == ("answered", True)
    assert run.answer is not None
    assert "invoices" in run.answer
    assert not run.answer.startswith(("{", "["))


@pytest.mark.timeout(300)
def test_the_doctor_says_how_the_model_writes_its_calls(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--model", str(MODEL), "--json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert "in the text, not in the format of its chat template" in checks["written calls"]["found"]
