"""Whatever servers do, in whatever order: each client gets an answer or an error, and all is given back."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gbnf_server.backends import http_backend
from gbnf_server.backends.http_client import RetryPolicy
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.system.event_loop import shared_loop
from gbnf_server.web.limits import Limits
from support.effort import scaled
from support.gateways import client_of, until
from support.hostile_modes import MODES, schedule
from support.hostile_server import WIRES, Wire, hostile

QUICK = RetryPolicy(timeout=0.15, connect_timeout=60.0, retries=1, backoff=0.001, loading_timeout=0.01)
"""What is slow ends by this limit; a good answer that is late, on a busy machine, is an error, too."""
HEAVY = ("bomb", "flood", "many", "long_", "nested", "one_key", "answer_of_many", "drip_answer")
FAULTS = sorted(name for name in MODES if not name.startswith(HEAVY))
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
TOOL = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
USER = {"role": "user", "content": "hi"}
MESSAGES = {"messages": [USER], "max_tokens": 30, "tools": [{"name": "look", "input_schema": SCHEMA}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [USER], "tools": [{"type": "function", "function": TOOL}]},
    "/v1/responses": {"input": [USER], "tools": [{"type": "function", **TOOL}]},
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": MESSAGES,
}


@dataclass(frozen=True)
class Asked:
    """A request of a client. `leaves`: once its request has reached a server."""

    path: str
    stream: bool
    tools: bool
    leaves: bool

    @property
    def body(self) -> dict[str, Any]:
        body = {"model": "m", "stream": self.stream, **BODIES[self.path]}
        return body if self.tools else {key: value for key, value in body.items() if key != "tools"}


LEAVES = st.sampled_from([False, False, False, True])
REQUESTS = st.builds(Asked, st.sampled_from([*BODIES]), st.booleans(), st.booleans(), LEAVES)


def check(asked: Asked, response: httpx.Response) -> bool:
    """Check that a response is an answer or an error of its API; return whether it is an answer."""
    streamed = response.headers["content-type"].startswith("text/event-stream")
    if not streamed:
        value = response.json()
        assert response.status_code == 200 or value["error"]["message"], value
        assert response.status_code in {200, 400, 429, 502, 503, 504}, (response.status_code, value)
        assert ("type" in value) == asked.path.startswith("/v1/messages") or response.status_code == 200
        return response.status_code == 200
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    last = {} if events[-1] == "[DONE]" else json.loads(events[-1])
    ends = {"response.completed", "response.failed", "response.incomplete", "message_stop", "error"}
    assert events[-1] == "[DONE]" or last.get("type") in ends or last["error"]["message"], events
    return events[-1] == "[DONE]" or last.get("type") in {"response.completed", "message_stop"}


async def serve(wire: Wire, turns: list[list[str]], requests: list[Asked]) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(hostile(schedule(faults), wire)) for faults in turns]
        backends = [stack.enter_context(wire.client(server.url, QUICK)) for server in servers]

        async def pause(_seconds: float) -> None:
            await asyncio.sleep(0.001)

        upstreams = Upstreams(
            [*map(Upstream, backends)],
            pause=pause,
        )
        engine = Engine()
        gateway = Gateway(engine, upstreams, model="m", limits=Limits(facts_s=0.1))
        tasks = asyncio.all_tasks()
        async with client_of(gateway) as client:

            async def ask(asked: Asked) -> bool:
                before = [server.requests for server in servers]
                asking = asyncio.create_task(client.post(asked.path, json=asked.body, timeout=None))
                if asked.leaves:
                    await until(lambda: asking.done() or before != [server.requests for server in servers])
                    asking.cancel()
                    with suppress(asyncio.CancelledError):
                        await asking
                    return False
                return check(asked, await asking)

            await asyncio.gather(*map(ask, requests))
            assert (await client.get("/health")).status_code in {200, 503}
            assert (await client.get("/v1/models")).status_code == 200
            for server in servers:
                server.attacks = False
            last = Asked("/v1/chat/completions", stream=False, tools=False, leaves=False)
            while not await ask(last):  # noqa: ASYNC110  # a probe has to find a server again
                await asyncio.sleep(0.001)
            await until(lambda: not gateway.open_requests)
            held = gateway.queue.running, gateway.queue.waiting, gateway.budget.reserved
            assert held == (0, 0, 0)
            assert [upstream.running for upstream in upstreams.upstreams] == [0] * len(servers)
        engine.close()
        assert asyncio.all_tasks() <= tasks | {asyncio.current_task()}


def resources() -> tuple[int, int]:
    return len([*Path("/proc/self/fd").iterdir()]), threading.active_count()


@settings(max_examples=scaled(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wire=st.sampled_from([*WIRES]),
    turns=st.lists(st.lists(st.sampled_from(FAULTS), max_size=5), min_size=1, max_size=2),
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
)
def test_each_request_ends_and_everything_is_given_back(
    wire: str, turns: list[list[str]], requests: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_backend, "_PROBE_POLICY", QUICK)
    shared_loop()
    before = resources()
    asyncio.run(serve(WIRES[wire], turns, requests))
    while any(now > then for now, then in zip(resources(), before, strict=True)):
        time.sleep(0.005)  # threads that end; the test's own limit ends what never does
