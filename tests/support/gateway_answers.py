"""The gateway in tests: its engine and its application, in front of a real model in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from gbnf_server.backends.base import Backend, Completion, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.gateway.answers import AnswerEvent, ArgumentsDelta, CallStarted, Finished, TextDelta
from gbnf_server.gateway.chat import ChatRequest, FunctionTool
from gbnf_server.gateway.engine import Engine

USER: Any = {"role": "user", "content": "hello"}


class Ignoring(InProcess):
    """A backend that ignores the grammar of its first requests, as many servers do."""

    ignored = 0

    async def agenerate(self, request: Request) -> Completion:
        if not self.ignored:
            return await super().agenerate(request)
        self.ignored -= 1
        return await super().agenerate(replace(request, grammar=None))


def function(name: str, required: Sequence[str] = (), **properties: Any) -> FunctionTool:
    return FunctionTool(name, "", {"type": "object", "properties": properties, "required": list(required)})


def answer(request: ChatRequest, backend: Backend, engine: Engine | None = None) -> list[AnswerEvent]:
    """All events of a request."""

    async def collect() -> list[AnswerEvent]:
        used = engine or Engine()
        try:
            async with aclosing(used.answer(request, backend)) as events:
                return [event async for event in events]
        finally:
            if engine is None:
                used.close()

    return asyncio.run(collect())


def end(events: Sequence[AnswerEvent]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


def text(events: Sequence[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def calls(events: Sequence[AnswerEvent]) -> list[tuple[str, str]]:
    """The names and arguments of the calls, truncated ones too."""
    names = [event.name for event in events if isinstance(event, CallStarted)]
    pieces: list[list[str]] = [[] for _ in names]
    for event in events:
        if isinstance(event, ArgumentsDelta):
            pieces[event.index].append(event.json_text)
    return list(zip(names, map("".join, pieces), strict=True))
