"""A real server, and clients that leave, stall, or flood it: what counts is what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from gbnf_server.gateway.gateway import Gateway
from gbnf_server.web.limits import Limits
from support.effort import pairwise
from support.gateways import (
    PATH,
    ScriptedEngine,
    Served,
    in_event_loop,
    make_gateway,
    request,
    samples,
    served,
    until,
)


@asynccontextmanager
async def playing(gateway: Gateway) -> AsyncGenerator[Served, None]:
    """Serve, and check that nothing is left of what clients did."""
    async with served(gateway) as server:
        yield server
        await until(lambda: not gateway.open_requests)
        assert await health(server) == 200
    assert (gateway.queue.running, gateway.queue.waiting, gateway.budget.reserved) == (0, 0, 0)


async def health(server: Served) -> int:
    client = await server.connect()
    client.send_head(method="GET", path="/health")
    status = await client.status()
    client.reset()
    return status


def held() -> ScriptedEngine:
    """An engine that says nothing until it is allowed to."""
    return ScriptedEngine(allowed=asyncio.Semaphore(0))


@in_event_loop
async def test_an_answer_is_sent_as_it_comes() -> None:
    engine = held()
    async with playing(make_gateway(engine)) as server:
        client = await server.connect()
        client.send(request(stream=True))
        engine.allow(1)
        assert "one" in await client.read_until("one\n")
        assert engine.running == 1
        engine.allow(1)
        await client.read_until("Finished\n")
        await client.read_until("0\r\n\r\n")
        client.send(request(), "Connection: close")
        engine.allow(2)
        assert b'"two"' in await client.reader.read()
    assert engine.ended == 2


@in_event_loop
async def test_a_backend_that_did_not_answer_before_the_start_is_probed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gbnf_server.backends.upstreams._FIRST_PAUSE_S", 0.0)
    gateway = make_gateway(ScriptedEngine())
    [upstream] = gateway.upstreams.upstreams
    upstream.healthy = False
    async with playing(gateway):
        await asyncio.wait_for(until(lambda: upstream.healthy), 30)


@pytest.mark.parametrize(("stream", "texts", "closes"), pairwise((False, True), (0, 1), (False, True)))
@in_event_loop
async def test_a_client_that_leaves_ends_its_answer(stream: bool, texts: int, closes: bool) -> None:
    engine = held()
    gateway = make_gateway(engine)
    async with playing(gateway) as server:
        client = await server.connect()
        client.send(request(stream))
        await until(lambda: engine.running)
        engine.allow(texts)
        if texts and stream:
            await client.read_until("one\n")
        if closes:
            client.writer.close()
        else:
            client.reset()
        await until(lambda: engine.cancelled)
    assert (engine.running, engine.ended, engine.cancelled) == (0, 0, 1)
    assert samples(gateway)[f'gbnf_requests_cancelled_total{{endpoint="{PATH}"}}'] == 1


@pytest.mark.parametrize("stream", [False, True])
@in_event_loop
async def test_a_client_that_has_closed_its_side_is_answered(stream: bool) -> None:
    engine = held()
    async with playing(make_gateway(engine)) as server:
        client = await server.connect()
        client.send(request(stream))
        await until(lambda: engine.running)
        client.writer.write_eof()
        assert await client.read_until("\r\n\r\n") == "HTTP/1.1 102 Processing\r\n\r\n"
        engine.allow(2)
        answer = (await client.reader.read()).decode()
        assert "HTTP/1.1 200 OK" in answer
        assert "two" in answer
    assert (engine.ended, engine.cancelled) == (1, 0)


@in_event_loop
async def test_a_client_that_closes_before_its_request_is_complete_has_left() -> None:
    gateway = make_gateway(ScriptedEngine())
    async with playing(gateway) as server:
        client = await server.connect()
        client.send_head("Content-Length: 100")
        await until(lambda: gateway.open_requests)
        client.writer.write_eof()
        assert await client.reader.read() == b""


@in_event_loop
async def test_a_client_that_leaves_the_queue_is_not_answered() -> None:
    engine = held()
    gateway = make_gateway(engine)
    async with playing(gateway) as server:
        first = await server.connect()
        first.send(request(text="first"))
        await until(lambda: engine.running)
        second, third = await server.connect(), await server.connect()
        second.send(request(text="second"))
        await until(lambda: gateway.queue.waiting == 1)
        third.send(request(text="third"))
        await until(lambda: gateway.queue.waiting == 2)
        second.reset()
        await until(lambda: gateway.queue.waiting == 1)
        engine.allow(4)
        assert await first.status() == await third.status() == 200
    assert engine.seen == ["first", "third"]


@in_event_loop
async def test_clients_that_leave_in_the_midst_of_their_request_cost_nothing() -> None:
    engine = ScriptedEngine()
    body = json.dumps(request()).encode()
    gateway = make_gateway(engine)
    async with playing(gateway) as server:
        for sent in (b"", b"POST ", b"POST / HTTP/1.1\r\nHost: localhost\r\n"):
            client = await server.connect()
            client.writer.write(sent)
            await client.writer.drain()
            client.reset()
        for size in (0, 1, len(body) - 1):
            client = await server.connect()
            client.send_head(f"Content-Length: {len(body)}")
            client.writer.write(body[:size])
            await until(lambda: gateway.open_requests)
            client.reset()
            await until(lambda: not gateway.open_requests)
    assert engine.seen == []


@in_event_loop
async def test_what_is_no_http_is_answered_and_closed() -> None:
    malformed = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,  # TLS
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000,
        b"\r\n" * 100,
    ]
    async with playing(make_gateway(ScriptedEngine())) as server:
        for sent in malformed:
            client = await server.connect()
            client.writer.write(sent)
            client.writer.write_eof()
            answer = await client.reader.read()
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), sent


@in_event_loop
async def test_a_body_in_small_pieces_is_read_and_a_stalled_one_is_timed_out() -> None:
    body = json.dumps(request()).encode()
    async with playing(make_gateway(ScriptedEngine(), limits=Limits(body_s=0.5))) as server:
        client = await server.connect()
        client.send_head("Transfer-Encoding: chunked")
        for byte in body:
            client.writer.write(b"1\r\n%c\r\n" % byte)
            await client.writer.drain()
        client.writer.write(b"0\r\n\r\n")
        assert await client.status() == 200
        stalled = await server.connect()
        stalled.send_head("Content-Length: 100")
        assert await stalled.status() == 408


@in_event_loop
async def test_a_chunked_body_beyond_the_limit_is_refused_before_it_ends() -> None:
    async with playing(make_gateway(ScriptedEngine(), limits=Limits(body_bytes=1024))) as server:
        client = await server.connect()
        client.send_head("Transfer-Encoding: chunked")
        client.writer.write(b"800\r\n" + b" " * 2048 + b"\r\n")  # and no end
        assert await client.status() == 413


@in_event_loop
async def test_a_client_that_reads_nothing_is_dropped() -> None:
    engine = ScriptedEngine(("x" * 1_000_000,) * 100)
    gateway = make_gateway(engine, limits=Limits(send_s=0.2))
    async with playing(gateway) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            body = json.dumps(request(stream=True)).encode()
            head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            await until(lambda: engine.running)
            await until(lambda: engine.cancelled)
    assert (engine.running, engine.ended) == (0, 0)
    assert samples(gateway)[f'gbnf_requests_cancelled_total{{endpoint="{PATH}"}}'] == 1


@pytest.mark.slow
@in_event_loop
async def test_200_clients_at_once() -> None:
    engine = held()
    limits = Limits(waiting=20)
    gateway = make_gateway(engine, limits=limits, places=2)
    async with playing(gateway) as server:
        clients = [await server.connect() for _ in range(200)]
        for index, client in enumerate(clients):
            client.send(request(stream=True, text=str(index)))
        await until(lambda: samples(gateway).get(REFUSED) == 200 - 2 - 20)
        assert (gateway.queue.running, gateway.queue.waiting) == (2, 20)
        assert await health(server) == 200
        engine.allow(2 * 22)
        statuses = [await client.status() for client in clients]
        assert (statuses.count(200), statuses.count(429)) == (22, 178)
        for client in clients:
            client.reset()
    assert engine.ended == 22


REFUSED = f'gbnf_requests_total{{endpoint="{PATH}",status="429"}}'


@pytest.mark.slow
@in_event_loop
async def test_large_and_deep_bodies_at_once_stay_within_the_budget() -> None:
    limits = Limits(memory_bytes=64 * 1024 * 1024)
    highest = 0
    deep = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    wide = b'{"messages": [' + b"{}," * 1_500_000 + b"{}]}"
    long = json.dumps(request(text="x" * 10_000_000)).encode()
    tools = json.dumps({**request(), "tools": [{"name": f"t{index}"} for index in range(5000)]}).encode()

    async def ask(server: Served, body: bytes) -> int:
        nonlocal highest
        client = await server.connect()
        client.send(body, "Connection: close")
        status = await client.status()
        highest = max(highest, gateway.budget.reserved)
        client.reset()
        return status

    gateway = make_gateway(ScriptedEngine(), limits=limits)
    async with playing(gateway) as server:
        asked = [ask(server, body) for body in (deep, wide, long, tools) for _ in range(5)]
        for status in await asyncio.gather(*asked, *(health(server) for _ in range(5))):
            assert status in {200, 400, 503}
        assert [await ask(server, body) for body in (deep, wide, long, tools)] == [400, 400, 200, 400]
    assert highest <= limits.memory_bytes


@in_event_loop
async def test_nothing_of_one_request_is_in_the_answer_to_another() -> None:
    class Echo(ScriptedEngine):
        async def answer(self, request, backend):  # type: ignore[no-untyped-def]
            self.texts = ()
            text = request.messages[-1]["content"]
            async for event in ScriptedEngine((text, text)).answer(request, backend):
                await asyncio.sleep(0)
                yield event

    async def ask(server: Served, index: int) -> None:
        client = await server.connect()
        client.send(request(stream=index % 2 == 0, text=f"text-{index}-"), f"X-Request-Id: id-{index}-")
        head = await client.read_until("\r\n\r\n")
        assert f"x-request-id: id-{index}-" in head
        rest = await client.read_until("Finished")
        assert rest.count(f"text-{index}-") == rest.count("text-") == 2
        client.reset()

    async with playing(make_gateway(Echo(), places=10)) as server:
        await asyncio.gather(*(ask(server, index) for index in range(60)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@in_event_loop
async def test_a_signal_drains(number: signal.Signals) -> None:
    engine = held()
    gateway = make_gateway(engine)
    async with served(gateway) as server:
        streaming, waiting = await server.connect(), await server.connect()
        streaming.send(request(stream=True))
        engine.allow(1)
        await streaming.read_until("one\n")
        waiting.send(request())
        await until(lambda: gateway.queue.waiting)
        late = await server.connect()
        os.kill(os.getpid(), number)
        await until(lambda: gateway.is_draining)
        late.send(request())
        assert await late.status() == 503
        assert '"shutting_down"' in await late.read_until("}")
        assert await health(server) == 503
        engine.allow(1)
        assert "Finished" in await streaming.read_until("Finished\n")
        engine.allow(2)
        assert await waiting.status() == 200
    assert (engine.ended, engine.cancelled) == (2, 0)


def test_draining_ends_after_its_time_or_a_second_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gbnf_server.web.http_server._LAST_BYTES_S", 0.1)
    for limits, signals in ((Limits(drain_s=0.1), 1), (Limits(), 2)):
        engine = held()
        gateway = make_gateway(engine, limits=limits)

        async def run(gateway: Gateway, engine: ScriptedEngine, signals: int) -> bytes:
            async with served(gateway) as server:
                client = await server.connect()
                client.send(request(stream=True))
                engine.allow(1)
                await client.read_until("one\n")
                for _ in range(signals):
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.sleep(0)
                return await client.reader.read()

        rest = asyncio.run(run(gateway, engine, signals))
        assert b"0\r\n\r\n" not in rest, "the client sees that the answer is not complete"
        assert (engine.running, engine.ended, engine.cancelled) == (0, 0, 1)
