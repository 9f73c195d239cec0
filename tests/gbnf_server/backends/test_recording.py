"""A recording backend answers as the recorded one does, and reports every call of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from gbnf.prompts.messages import Message
from gbnf_server.backends.base import BackendEvent, Capabilities, Completion, Request
from gbnf_server.backends.recording import RecordingBackend
from gbnf_server.system.errors import BackendUnreachable
from support.backends import FakeBackend, acomplete

ASK: list[Message] = [{"role": "user", "content": "hello"}]


class Answering(FakeBackend):
    """It answers with what it was asked for, or fails."""

    def __init__(self, *, traces: bool = False, fails: BaseException | None = None) -> None:
        self.capabilities = Capabilities(takes_images=True, traces=traces)
        self.requests: list[Request] = []
        self.is_closed = False
        self._fails = fails

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        self.requests.append(request)
        if self._fails is not None:
            raise self._fails
        yield Completion(f"for {request.seed}", "stop", 1, 2, 0, 0.0, 0.0)

    def count_tokens(self, request: Request) -> int:
        return len(request.messages)

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("traces", [False, True])
def test_calls_are_answered_and_reported(*, traces: bool) -> None:
    found: list[tuple[Request, Any]] = []
    asked = Answering(traces=traces)
    with RecordingBackend(asked, lambda *call: found.append(call)) as backend:
        requests = [Request(ASK, seed=number) for number in range(4)]
        answers = [
            backend.complete(requests[0]),
            asyncio.run(acomplete(backend, requests[1])),
            backend.complete(Request(ASK, grammar=None, seed=2)),
            asyncio.run(acomplete(backend, Request(ASK, grammar=None, seed=3))),
        ]
        assert [answer.text for answer in answers] == ["for 0", "for 1", "for 2", "for 3"]
        assert found == list(zip(requests, answers, strict=True))
        assert asked.requests == [replace(request, trace=traces) for request in requests]
    assert asked.is_closed


@pytest.mark.parametrize("fault", [BackendUnreachable("nobody answers"), KeyboardInterrupt()])
def test_a_call_that_fails_is_reported_too(fault: BaseException) -> None:
    found: list[tuple[Request, Any]] = []
    backend = RecordingBackend(Answering(fails=fault), lambda *call: found.append(call))
    with pytest.raises(type(fault)):
        backend.complete(Request(ASK))
    assert found == [(Request(ASK), fault)]
    if isinstance(fault, Exception):
        with pytest.raises(type(fault)):
            asyncio.run(acomplete(backend, Request(ASK)))
        assert len(found) == 2


def test_its_properties_are_those_of_the_other() -> None:
    asked = Answering()
    backend = RecordingBackend(asked, lambda *_: None)
    for name in ("name", "prompt_style", "context_length", "dialect", "capabilities"):
        assert getattr(backend, name) == getattr(asked, name)
    assert backend.count_tokens(Request(ASK)) == 1
    backend.clear_prompt_cache()
