"""No answer of a server, and no run, takes longer than its limit, whatever the server does, and whenever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf_server.backends.answer import answer
from gbnf_server.backends.base import Backend, Completion, Request
from gbnf_server.backends.http_client import RetryPolicy
from gbnf_server.executors import Context, Workspace
from gbnf_server.planner import PlannerOptions
from gbnf_server.planner.drivers import RunEnvironment, astream
from gbnf_server.planner.events import Event, RunFinished
from gbnf_server.planner.loop import plan
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.system.errors import BackendError
from support.backends import FakeBackend
from support.effort import scaled
from support.hostile_server import WIRES
from support.virtual_time import run_in_virtual_time

TOOLS = (Tool.from_mapping({"name": "look", "description": "Look.", "args": {"type": "object"}}),)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
PARTS = [
    b"",
    b"HTTP/1.1 200 OK\r\n",
    b"X: y\r\n",
    b"\r\n",
    OK,
    b": still here\n\n",
    b'data: {"content": "a", "stop": false}\n\n',
    b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n',
    b'{"message": {"role": "assistant", "content": "a"}, "done": false}\n',
    b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{",
    b"HTTP/1.1 503 Loading\r\nContent-Length: 0\r\n\r\n",
    *(f"HTTP/1.1 429 Busy\r\nRetry-After: {s}\r\nContent-Length: 0\r\n\r\n".encode() for s in (0, 2, 50)),
    b"HTTP/1.1 503 Loading\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n",
]
Moves = Sequence[tuple[bytes, float]]
"""What a server sends in one connection, each part after so many seconds; then it closes, or waits."""
MOVES = st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from([0.0, 0.0, 0.3, 4.0, 100.0])), max_size=6)
TURNS = st.lists(st.tuples(MOVES, st.booleans()), max_size=6)


class Scripted:
    """A server whose connections do what the turns say, and then what the last one says."""

    def __init__(self, turns: Sequence[tuple[Moves, bool]]) -> None:
        self.turns = list(turns) or [([], False)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        moves, closes = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            for part, seconds in moves:
                await asyncio.sleep(seconds)
                writer.write(part)
                await writer.drain()
            while not closes and await reader.read(4096):
                pass


@asynccontextmanager
async def serving(
    wire: str, turns: Sequence[tuple[Moves, bool]], policy: RetryPolicy
) -> AsyncIterator[Backend]:
    server = await asyncio.start_server(Scripted(turns).serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    with closing(WIRES[wire].client(f"http://{host}:{port}", policy)) as backend:
        try:
            yield backend
        finally:
            server.close()


async def ask(wire: str, turns: Sequence[tuple[Moves, bool]], limit: float, policy: RetryPolicy) -> Any:
    request = Request([{"role": "user", "content": "hi"}], max_tokens=20, timeout_s=limit)
    async with serving(wire, turns, policy) as backend:
        try:
            async with aclosing(backend.generate(request)) as events:
                return [event async for event in events][-1]
        except BackendError as error:
            return error


LIMITS = st.sampled_from([0.05, 1.0, 10.0, 90.0])


@settings(max_examples=scaled(150), deadline=None)
@example("ollama", [([(PARTS[-3], 0.0)], True)], 10.0, 60.0)
@given(st.sampled_from([*WIRES]), TURNS, LIMITS, st.sampled_from([5.0, 60.0]))
def test_an_answer_ends_within_its_limit(
    wire: str, turns: list[tuple[Moves, bool]], limit: float, loading: float
) -> None:
    policy = RetryPolicy(timeout=600.0, loading_timeout=loading)
    outcome, seconds = run_in_virtual_time(lambda: ask(wire, turns, limit, policy))
    assert isinstance(outcome, Completion | BackendError)
    assert seconds <= limit + 0.001


async def run_planner(
    wire: str, turns: Sequence[tuple[Moves, bool]], options: ResolvedOptions
) -> list[Event]:
    loop, begun = asyncio.get_running_loop(), datetime(2026, 1, 1, tzinfo=UTC)
    async with serving(wire, turns, RetryPolicy()) as backend:
        planning = plan("hi", TOOLS, options, turn="t", clock=lambda: begun + timedelta(seconds=loop.time()))
        environment = RunEnvironment(partial(answer, backend), Context(Workspace(Path())))
        async with aclosing(astream(planning, environment)) as events:
            return [event async for event in events]


@settings(max_examples=scaled(100), deadline=None)
@given(st.sampled_from([*WIRES]), TURNS, LIMITS, st.booleans())
def test_a_run_ends_soon_after_its_limit(
    wire: str, turns: list[tuple[Moves, bool]], limit: float, salvage: bool
) -> None:
    chosen = PlannerOptions(max_seconds=limit, salvage=salvage, call_format="json", max_tools=None)
    options = ResolvedOptions.resolve(chosen, FakeBackend())
    events, seconds = run_in_virtual_time(lambda: run_planner(wire, turns, options))
    assert isinstance(events[-1], RunFinished)
    assert seconds <= limit * 1.1 + 0.101, "a tenth more for an answer from the results"
