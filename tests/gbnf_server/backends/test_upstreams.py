"""Several backends as one: where requests go, and what happens when a backend fails."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.prompts.messages import Image
from gbnf.tool_formats import TextDelta
from gbnf_server.backends.base import BackendEvent, Completion, ModelInfo, Request, Usage
from gbnf_server.backends.http_client import RetryPolicy
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    BackendError,
    BackendUnreachableError,
    ContextOverflowError,
    ServerResponseError,
)
from gbnf_server.web.limits import Limits
from support.backends import FakeBackend, acomplete
from support.gateways import ScriptedEngine, in_event_loop, until
from support.server import Reply, scripted

DOWN = BackendUnreachableError("nobody answers")


class Fake(FakeBackend):
    """Answers with its name, or fails; `gate` holds answers back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fault: BackendError | None = None
        self.gate: asyncio.Event | None = None
        self.asked = 0
        self.probes = 0
        self.is_back = False
        self.said = ""

    async def generate(self, _request: Request) -> AsyncGenerator[BackendEvent, None]:
        self.asked += 1
        if self.said:
            yield TextDelta(self.said)
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        yield Completion(self.name, "stop", Usage(1, 1))

    async def is_there(self) -> bool:
        self.probes += 1
        if self.probes % 2:
            raise DOWN
        return self.is_back


def asking(text: str, system: str = "", **fields: Any) -> Request:
    messages: list[Any] = [{"role": "system", "content": system}] if system else []
    return Request([*messages, {"role": "user", "content": text}], **fields)


@asynccontextmanager
async def playing(fakes: list[Fake], pauses: list[float] | None = None) -> AsyncGenerator[Upstreams, None]:
    """Yield upstreams. `pauses`: gets how long the pauses between probes would have been."""

    async def pause(seconds: float) -> None:
        if pauses is not None:
            pauses.append(seconds)
        await asyncio.sleep(0.001)

    upstreams = Upstreams([Upstream(fake) for fake in fakes], pause=pause)
    yield upstreams
    await Gateway(ScriptedEngine(), upstreams, model="m").close()
    assert asyncio.all_tasks() == {asyncio.current_task()}, "no probe goes on"
    assert all(upstream.running == 0 for upstream in upstreams.upstreams)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 4))
@in_event_loop
async def test_one_prefix_goes_to_one_backend_and_prefixes_are_spread(
    prefixes: list[int], count: int
) -> None:
    async with playing([Fake(str(index)) for index in range(count)]) as upstreams:
        seen: dict[int, set[str]] = {}
        for index, prefix in enumerate(prefixes):
            request = asking(f"question {prefix}", "system")
            longer = Request([*request.messages, {"role": "assistant", "content": str(index)}])
            seen.setdefault(prefix, set()).add((await acomplete(upstreams, longer)).text)
        assert all(len(names) == 1 for names in seen.values())


@in_event_loop
async def test_new_prefixes_go_where_the_load_is_least_and_full_backends_pass_theirs_on() -> None:
    fakes = [Fake("a"), Fake("b")]
    async with playing(fakes) as upstreams:
        gate = fakes[0].gate = asyncio.Event()
        first = asyncio.create_task(acomplete(upstreams, asking("one")))
        await until(lambda: fakes[0].asked)
        assert (await acomplete(upstreams, asking("two"))).text == "b"
        assert (await acomplete(upstreams, asking("one"))).text == "b", "a has no free place"
        gate.set()
        assert (await first).text == "a"


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (None, "ok"),
        (DOWN, "unavailable"),
        (ServerResponseError(503, "loading"), "unavailable"),
        (AnswerTimeoutError("it is busy"), "ok"),
    ],
)
@in_event_loop
async def test_health_is_that_of_now(fault: BackendError | None, status: str) -> None:
    class Probed(Fake):
        async def is_there(self) -> bool:
            self.probes += 1
            if fault is not None and not self.is_back:
                raise fault
            return True

    fakes = [Probed("a"), Probed("b")]
    async with playing(list(fakes)) as upstreams:
        gateway = Gateway(ScriptedEngine(), upstreams, model="m")
        assert (await gateway.health())["status"] == status
        assert all(fake.probes for fake in fakes)
        for fake in fakes:
            fake.is_back = True
        await until(lambda: all(upstream.healthy for upstream in upstreams.upstreams))
        assert (await gateway.health())["status"] == "ok"


@in_event_loop
async def test_health_does_not_wait_for_a_server_that_hangs() -> None:
    class Hanging(Fake):
        async def is_there(self) -> bool:
            self.probes += 1
            await asyncio.Event().wait()
            return True

    fake = Hanging("a")
    async with playing([fake]) as upstreams:
        gateway = Gateway(ScriptedEngine(), upstreams, model="m", limits=Limits(facts_s=0))
        for _ in range(20):
            assert (await gateway.health())["status"] == "ok"
        assert fake.probes == 1
        await gateway.close()


@in_event_loop
async def test_the_salt_of_a_request_is_kept() -> None:
    seen = list[str]()

    class Noting(Fake):
        async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
            seen.append(request.cache_salt)
            yield Completion("", "stop", Usage(1, 1))

    noting = Noting("a")
    upstreams = Upstreams([Upstream(noting)])
    for backend in (upstreams, upstreams.with_salt("key")):
        for salt in ("", "own"):
            await acomplete(backend, Request([{"role": "user", "content": "x"}], cache_salt=salt))
    assert seen == ["", "own", "key", "key/own"]


@in_event_loop
async def test_tools_and_images_are_part_of_the_prefix() -> None:
    async with playing([Fake("a"), Fake("b")]) as upstreams:
        tool = {"type": "function", "function": {"name": "x"}}
        image = {"role": "user", "content": "", "images": (Image(b"1", "image/png"),)}
        for request in (asking("x", tools=[tool]), Request([image])):  # type: ignore[list-item]  # it is a message
            assert (await acomplete(upstreams, request)).text == (await acomplete(upstreams, request)).text


@in_event_loop
async def test_a_backend_that_fails_is_left_out_until_it_answers_a_probe() -> None:
    fakes = [Fake("a"), Fake("b")]
    pauses: list[float] = []
    async with playing(fakes, pauses=pauses) as upstreams:
        fakes[0].fault = DOWN
        assert (await acomplete(upstreams, asking("one"))).text == "b"
        assert [upstream.healthy for upstream in upstreams.upstreams] == [False, True]
        for number in range(5):
            assert (await acomplete(upstreams, asking(str(number)))).text == "b"
        assert fakes[0].asked == 1
        await until(lambda: fakes[0].probes >= 9)
        assert not upstreams.upstreams[0].healthy
        fakes[0].fault, fakes[0].is_back = None, True
        await until(lambda: upstreams.upstreams[0].healthy)
        gate = fakes[1].gate = asyncio.Event()
        busy = asyncio.create_task(acomplete(upstreams, asking("0")))
        await until(lambda: upstreams.upstreams[1].running)
        assert (await acomplete(upstreams, asking("new"))).text == "a"
        gate.set()
        await busy
    assert pauses[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@in_event_loop
async def test_if_all_fail_the_error_comes_at_once() -> None:
    fakes = [Fake("a"), Fake("b")]
    async with playing(fakes) as upstreams:
        for fake in fakes:
            fake.fault = DOWN
        for _ in range(3):
            with pytest.raises(BackendUnreachableError):
                await acomplete(upstreams, asking("one"))
            with pytest.raises(BackendUnreachableError, match="no server answers: a, b"):
                upstreams.info()
        assert [fake.asked for fake in fakes] == [1, 1]


@in_event_loop
async def test_what_is_known_of_the_model_comes_from_a_backend_that_answers() -> None:
    class Described(Fake):
        async def facts(self) -> tuple[ModelInfo, int | None]:
            if self.fault is not None:
                raise self.fault
            return ModelInfo(self.name), None

    fakes: list[Fake] = [Described("a"), Described("b")]
    async with playing(fakes) as upstreams:
        fakes[0].fault = DOWN
        assert (await upstreams.facts())[0].name == "b"
        assert [upstream.healthy for upstream in upstreams.upstreams] == [False, True]
        fakes[1].fault = ServerResponseError(401, "a strange key")
        with pytest.raises(ServerResponseError, match="a strange key"):
            await upstreams.facts()
        fakes[1].fault = BackendUnreachableError("nobody answers here either")
        with pytest.raises(BackendUnreachableError, match="here either"):
            await upstreams.facts()


@pytest.mark.parametrize(
    ("fault", "is_down"),
    [
        (DOWN, True),
        (ServerResponseError(503, "loading"), True),
        (ServerResponseError(502, "a proxy"), True),
        (ServerResponseError(500, "a strange request"), False),
        (ServerResponseError(400, "a bad one"), False),
        (ContextOverflowError(2, 1), False),
        (AnswerTimeoutError("it takes long"), False),
    ],
)
@in_event_loop
async def test_an_error_of_one_request_leaves_no_backend_out(fault: BackendError, is_down: bool) -> None:
    fakes = [Fake("a"), Fake("b")]
    async with playing(fakes) as upstreams:
        fakes[0].fault = fault
        if is_down:
            assert (await acomplete(upstreams, asking("one"))).text == "b"
        else:
            with pytest.raises(type(fault)):
                await acomplete(upstreams, asking("one"))
        assert upstreams.upstreams[0].healthy is not is_down


@in_event_loop
async def test_an_answer_that_has_begun_is_not_made_again() -> None:
    fakes = [Fake("a"), Fake("b")]
    async with playing(fakes) as upstreams:
        fakes[0].fault, fakes[0].said = DOWN, "half"
        events = upstreams.generate(asking("one"))
        assert await anext(events) == TextDelta("half")
        with pytest.raises(BackendUnreachableError):
            await anext(events)
    assert fakes[1].asked == 0


@pytest.mark.parametrize(("status", "expected"), [(200, True), (401, True), (503, False)])
@in_event_loop
async def test_a_probe_asks_a_real_server(status: int, expected: bool) -> None:
    answers: dict[str, Any] = {"v1/models": [Reply(status, {"data": []})]}
    with scripted(**answers) as server:
        assert await OpenAICompatible(server.url, "plain").is_there() is expected


@in_event_loop
async def test_a_probe_of_no_server_fails() -> None:
    with pytest.raises(BackendUnreachableError):
        await OpenAICompatible("http://127.0.0.1:1", "plain").is_there()


@in_event_loop
async def test_a_slow_answer_of_a_real_server_is_asked_for_once() -> None:
    """Whatever takes long on one server would take as long on the next."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        policy = RetryPolicy(timeout=0.2, retries=0)
        backends = [
            OpenAICompatible(
                f"http://127.0.0.1:{each.getsockname()[1]}", "plain", model="m", retry_policy=policy
            )
            for each in (one, other)
        ]
        upstreams = Upstreams([*map(Upstream, backends)])
        with pytest.raises(AnswerTimeoutError, match="did not finish"):
            await acomplete(upstreams, asking("x"))
        assert all(upstream.healthy for upstream in upstreams.upstreams)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
        upstreams.close()


@pytest.mark.parametrize("serves", ["here", "before", ""])
@in_event_loop
async def test_a_backend_that_failed_in_a_blocking_call_is_asked_again(serves: str) -> None:
    fakes = [Fake("a")]
    fakes[0].fault, fakes[0].is_back = DOWN, True

    async def start(upstreams: Upstreams) -> None:
        upstreams.start_probing()

    async with playing(fakes) as upstreams:
        if serves == "here":
            upstreams.start_probing()
        if serves == "before":  # in an event loop that is closed
            await asyncio.to_thread(asyncio.run, start(upstreams))
        with pytest.raises(BackendUnreachableError):
            await asyncio.to_thread(upstreams.complete, asking("x"))
        fakes[0].fault = None
        await until(lambda: upstreams.upstreams[0].healthy)
        assert (await asyncio.to_thread(upstreams.complete, asking("x"))).text == "a"
        assert fakes[0].probes


@in_event_loop
async def test_nothing_is_probed_once_it_is_closed() -> None:
    fakes = [Fake("a")]
    fakes[0].fault = DOWN
    async with playing(fakes) as upstreams:
        with pytest.raises(BackendUnreachableError):
            await asyncio.to_thread(upstreams.complete, asking("x"))  # the probe is in another loop
        await until(lambda: fakes[0].probes > 1)
        probing = upstreams.upstreams[0].probing
        assert probing is not None
        await asyncio.to_thread(upstreams.close)
        await until(probing.done)
        assert probing.cancelled()
