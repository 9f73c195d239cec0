"""The gateway in tests: its engine and its application, in front of a real model in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from jsonschema import Draft202012Validator

from gbnf.tool_formats import CallEnded, ToolFormat
from gbnf_server.backends.base import Backend, BackendEvent, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.gateway.answers import Finished, ReplyEvent, Started
from gbnf_server.gateway.chat import ChatRequest, FunctionTool, call_key
from gbnf_server.gateway.compiler import Compiler
from gbnf_server.gateway.compiling import Compiled, Target
from gbnf_server.gateway.engine import Engine
from support.deltas import calls, text

USER: Any = {"role": "user", "content": "hello"}
TARGET = Target("gbnf", ModelTraits())


class Ignoring(InProcess):
    """A backend that ignores the grammar of its first requests, as many servers do."""

    ignored = 0

    def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        if not self.ignored:
            return super().generate(request)
        self.ignored -= 1
        return super().generate(replace(request, grammar=None))


def function(name: str, required: Sequence[str] = (), **properties: Any) -> FunctionTool:
    return FunctionTool(name, "", {"type": "object", "properties": properties, "required": list(required)})


def answer(request: ChatRequest, backend: Backend, engine: Engine | None = None) -> list[ReplyEvent]:
    """All events of a request."""

    async def collect() -> list[ReplyEvent]:
        used = engine or Engine()
        try:
            async with aclosing(used.answer(request, backend)) as events:
                return [event async for event in events]
        finally:
            if engine is None:
                used.close()

    return asyncio.run(collect())


def compile_all(requests: Sequence[ChatRequest], native: ToolFormat | None = None) -> list[Compiled]:
    """What constrains the answers of the requests, by one compiler. `native`: the format of calls."""
    target = replace(TARGET, tool_format=native)

    async def run() -> list[Compiled]:
        compiler = Compiler(timeout_s=60)
        try:
            return [await compiler.compiled(each, target) for each in requests]
        finally:
            compiler.close()

    return asyncio.run(run())


def end(events: Sequence[ReplyEvent]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


LEVEL = {"type": "string", "enum": ["low", "high"]}
SMALL = {"type": "integer", "minimum": 1, "maximum": 3}
PLACE = {
    "type": "object",
    "properties": {"lat": SMALL, "name": {"type": "string", "maxLength": 4}},
    "required": ["lat"],
    "additionalProperties": False,
}
TOOLS = (
    function("set_level", ("level",), level=LEVEL, count=SMALL),
    function("go", ("place",), place=PLACE, code={"type": "string", "pattern": "^[A-Z]{2}\\d$"}),
    function("stop"),
)
SCHEMAS = {tool.name: {**tool.parameters, "additionalProperties": False} for tool in TOOLS}


def check_guarantees(request: ChatRequest, events: list[ReplyEvent]) -> None:
    """Check what an answer guarantees, whatever the model."""
    choice, finished, made = request.tool_choice, end(events), calls(events)
    ended = sum(isinstance(event, CallEnded) for event in events)
    assert isinstance(events[0], Started)
    assert sum(isinstance(event, Started | Finished) for event in events) == 2
    assert finished.enforcement.verified
    assert finished.enforcement.exact
    assert len(made) - ended <= (finished.reason == "length")
    for name, arguments in made[:ended]:
        assert name in (choice.names or SCHEMAS)
        assert Draft202012Validator(SCHEMAS[name]).is_valid(json.loads(arguments))
    assert len({call_key(name, json.loads(arguments)) for name, arguments in made[:ended]}) == ended
    if finished.reason != "length":
        assert (finished.reason == "tool_calls") == bool(made)
        assert request.several or len(made) <= 1
        assert len(made) <= (request.max_calls or len(made))
        assert made or choice.mode == "auto"
    if choice.mode == "required":
        assert not text(events).strip()
        assert len(choice.names or SCHEMAS) > 1 or len(made) <= 1
