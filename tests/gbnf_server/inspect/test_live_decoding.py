"""Decoding on the page's server: what `gbnf run` would ask first, bounded, and one request at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from gbnf_server.backends.base import BackendEvent, Completion, ModelInfo, Request, Usage
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.inspect.app import create_app
from gbnf_server.inspect.inspection import InspectedSchema, Inspection
from gbnf_server.inspect.live_decoding import STRATEGIES, DecodingOptions, LiveDecoder
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.errors import BackendError, ModelLoadError
from gbnf_server.web.errors import HttpError
from support.backends import FakeBackend
from support.pools import BUNDLED as TOOLS

TOKEN = "token-of-the-test"  # not a secret
ALLOWED = {"Authorization": f"Bearer {TOKEN}"}
BODY: dict[str, Any] = {
    "request": "create a folder trips", "strategies": ["json", "unconstrained"], "max_tokens": 64,
    "temperature": 0, "seed": 0,
}  # fmt: skip


class Slow(FakeBackend):
    """It waits until it is cancelled, or answers with what it was asked."""

    model = ModelInfo(traits=ModelTraits(prompt_style="minimal", answers_by_call_only=True, traces=True))

    def __init__(self, seconds: float = 0.0, fault: BackendError | None = None) -> None:
        self.requests: list[Request] = []
        self.begun = asyncio.Event()
        self.running = self.most_running = self.cancelled = 0
        self._seconds, self._fault = seconds, fault

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        self.requests.append(request)
        self.running += 1
        self.begun.set()
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if self._fault is not None:
            raise self._fault
        yield Completion("{}", "stop", Usage(1, 1))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    decoder = LiveDecoder(lambda: InProcess(model_path(), threads=1), "the model", TOOLS)
    inspection = Inspection("Tools", TOOLS, decoder=decoder)
    with TestClient(create_app(inspection, TOKEN), base_url="http://127.0.0.1:1") as client:
        yield client
    decoder.close()


def test_two_strategies_beside_each_other(client: TestClient) -> None:
    answer = client.post("/decode", json=BODY, headers=ALLOWED)
    assert answer.status_code == 200
    assert answer.text.count("<article") == 2
    assert "create_dirs" in answer.text
    assert "root ::=" in answer.text
    assert STRATEGIES["unconstrained"] in answer.text
    again = client.post("/decode", json={**BODY, "strategies": ["native"]}, headers=ALLOWED)
    assert again.text.count("<article") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"request": " "}, "from 1 to 2000 characters"),
        ({"request": "x" * 3000}, "from 1 to 2000 characters"),
        ({"request": 3}, "'request' must be a str"),
        ({"request": "\ud800"}, "lone surrogate"),
        ({"strategies": []}, "one or two of json"),
        ({"strategies": ["json"] * 3}, "one or two of json"),
        ({"strategies": [["json"]]}, "one or two of json"),
        ({"strategies": "json"}, "'strategies' must be a list"),
        ({"max_tokens": 0}, "from 1 to 2000"),
        ({"max_tokens": 10**9}, "from 1 to 2000"),
        ({"max_tokens": True}, "'max_tokens' must be a int"),
        ({"temperature": -1}, "from 0 to 10"),
        ({"temperature": 10**400}, "temperature"),
        ({"temperature": "0"}, "'temperature' must be a number"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
    ],
)
def test_what_is_refused(client: TestClient, change: dict[str, Any], message: str) -> None:
    answer = client.post("/decode", content=json.dumps({**BODY, **change}), headers=ALLOWED)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_the_address_and_the_form_need_the_token_and_a_model(client: TestClient) -> None:
    page = client.get(f"/?token={TOKEN}").text
    assert 'id="decode"' in page
    assert "the model" in page
    assert client.post("/decode", json=BODY).status_code == 401
    with TestClient(create_app(Inspection("Tools", TOOLS), TOKEN), base_url="http://127.0.0.1:1") as other:
        assert other.post("/decode", json=BODY, headers=ALLOWED).status_code == 404
        assert 'id="decode"' not in other.get(f"/?token={TOKEN}").text


def test_a_schema_is_decoded_with_its_grammar_and_without() -> None:
    backend = Slow()
    schema = InspectedSchema("s", {"type": "integer"})
    decoder = LiveDecoder(lambda: backend, "m", schema=schema.schema)
    assert list(decoder.strategies) == ["json", "unconstrained"]
    found = asyncio.run(decoder.decode(DecodingOptions("a number", ("json", "unconstrained"), seed=4)))
    assert [bool(each.grammar) for each in found] == [True, False]
    assert [request.trace for request in backend.requests] == [True, True]
    assert [request.seed for request in backend.requests] == [4, 4]
    assert '{"type": "integer"}' in backend.requests[0].messages[0]["content"]


def test_one_request_is_decoded_at_a_time_and_can_be_cancelled() -> None:
    backend = Slow(0.01)
    decoder = LiveDecoder(lambda: backend, "m", TOOLS)
    options = DecodingOptions("go", ("json", "text"))

    async def several() -> None:
        await asyncio.gather(*(decoder.decode(options) for _ in range(3)))

    asyncio.run(several())
    assert (backend.most_running, len(backend.requests)) == (1, 6)

    slow = Slow(3600)

    async def cancelled() -> None:
        waiting = asyncio.ensure_future(LiveDecoder(lambda: slow, "m", TOOLS).decode(options))
        await slow.begun.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(cancelled())
    assert slow.cancelled == 1


def test_decoding_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gbnf_server.inspect.live_decoding._MOST_S", 0.2)
    slow = Slow(3600)
    with pytest.raises(HttpError, match=r"more than 0\.2 s"):
        asyncio.run(LiveDecoder(lambda: slow, "m", TOOLS).decode(DecodingOptions("go", ("lines",))))
    assert slow.cancelled == 1


def test_errors_of_the_model_are_shown() -> None:
    options = DecodingOptions("go", ("json",))
    [found] = asyncio.run(
        LiveDecoder(lambda: Slow(fault=BackendError("it is broken")), "m", TOOLS).decode(options)
    )
    assert found.error == "it is broken"

    def missing() -> FakeBackend:
        raise ModelLoadError("there is no model")

    with pytest.raises(HttpError, match="there is no model"):
        asyncio.run(LiveDecoder(missing, "m", TOOLS).decode(options))
    with pytest.raises(HttpError, match="has no tools"):
        asyncio.run(LiveDecoder(Slow, "m", TOOLS).decode(DecodingOptions("go", ("native",))))
