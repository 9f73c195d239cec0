"""The store of responses: in memory, in a file, and in a real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.gateway.openai_chat import ChatCompletions
from gbnf_server.gateway.openai_responses import Responses
from gbnf_server.gateway.openai_responses.store import ResponseStore, item_id
from gbnf_server.system.errors import SetupError
from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import Limits
from support.answers import Answer, client_of
from support.backends import FakeBackend
from support.effort import scaled
from support.gateways import ScriptedEngine, in_event_loop, until
from support.gateways import client_of as client_of_gateway
from support.postgres import postgres, restart


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    pytest.importorskip("psycopg")
    # a path of a socket has at most 107 characters
    with tempfile.TemporaryDirectory(prefix="gbnf-pg-") as folder, postgres(Path(folder)) as url:
        yield url


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database that several stores share."""
    if request.param == "file":
        return str(tmp_path / "responses.sqlite")
    found: str = request.getfixturevalue("postgres_url")
    return found


def response(name: str, previous: str | None = None, text: str = "") -> dict[str, Any]:
    identifier = f"resp_{name}"
    output = [{"id": item_id("msg", identifier, 0), "text": text}]
    return {"id": identifier, "output": output, "previous_response_id": previous and f"resp_{previous}"}


def told(answer: Response) -> dict[str, Any]:
    """Return what the gateway adds to a response."""
    assert answer.model_extra is not None
    added: dict[str, Any] = answer.model_extra["x_gbnf"]
    return added


def gateway_of(api: Responses, **options: Any) -> Gateway:
    upstreams = Upstreams([Upstream(FakeBackend(), 4)])
    return Gateway(ScriptedEngine(), upstreams, model="stub", apis=[ChatCompletions(), api], **options)


SIZE = len(json.dumps(response("10"))) + len("[]")


@settings(max_examples=scaled(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1200), st.booleans())), st.integers(0, 4))
def test_memory_keeps_the_latest_within_its_limits(steps: list[tuple[int, int, bool]], count: int) -> None:
    store = ResponseStore(responses=count, size=1000)
    model: dict[str, int] = {}  # by last use
    for number, (key, size, is_use) in enumerate(steps):
        name = f"r{key}" if is_use else f"n{number}"
        if is_use and name in model:
            model[name] = model.pop(name)
        elif not is_use:
            body = response(name, text="x" * size)
            taken = len(json.dumps(body)) + len("[]")
            fits = count > 0 and taken <= 1000
            assert store.put(body, []) == fits
            if not fits:
                continue
            while len(model) >= count or sum(model.values()) + taken > 1000:
                del model[next(iter(model))]
            model[name] = taken
        assert (store.get(f"resp_{name}") is None) == (name not in model)
        assert (store.item(f"msg_{name}_0") is None) == (name not in model)


def test_in_memory_the_key_with_most_bytes_loses_its_responses_first() -> None:
    store = ResponseStore(size=6 * SIZE)
    small, large = store.of("small"), store.of("large")
    small.put(response("s1"), [])
    for number in range(10, 60):
        large.put(response(str(number)), [])
    assert small.get("resp_s1") is not None
    assert [number for number in range(10, 60) if large.get(f"resp_{number}")] == [55, 56, 57, 58, 59]


@pytest.mark.parametrize("kind", ["memory", "shared"])
def test_a_conversation_needs_all_its_responses(kind: str, url: str) -> None:
    store = ResponseStore("" if kind == "memory" else url).of(f"conversation {kind}")
    bodies = [response("a"), response("b", "a"), response("c", "b")]
    for number, body in enumerate(bodies):
        assert store.put(body, [{"of": number}])
    items = [part for number, body in enumerate(bodies) for part in ({"of": number}, *body["output"])]
    assert store.conversation("resp_c") == items
    assert store.conversation("resp_a") == items[:2]
    assert store.of("another").conversation("resp_c") is None
    assert store.conversation("resp_d") is None
    assert store.delete("resp_a")
    assert store.conversation("resp_c") is None


@pytest.mark.slow
@settings(max_examples=scaled(30), deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=[])),  # with lone surrogates, and with NUL
    item=st.text(max_size=8),
)
def test_any_text_comes_back_and_only_to_its_owner(postgres_url: str, text: str, item: str) -> None:
    for url in ("", postgres_url):
        one = ResponseStore(url).of("one")
        one.delete("resp_t")
        assert one.put(response("t", text=text), [{"text": text}])
        assert one.get("resp_t") == response("t", text=text)
        assert one.conversation("resp_t") == [{"text": text}, *response("t", text=text)["output"]]
        assert one.item("msg_t_0") == response("t", text=text)["output"][0]
        assert one.item(item) is None
        other = one.of("other")
        assert other.get("resp_t") is None
        assert other.item("msg_t_0") is None
        assert not other.delete("resp_t")


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_no_text_of_a_conversation_is_read_before_there_is_memory_for_the_one_before(
    kind: str, tmp_path: Path
) -> None:
    def refuse(_size: int) -> None:
        raise HttpError(503, "no memory", "server_busy")

    store = ResponseStore("" if kind == "memory" else str(tmp_path / "responses.sqlite"))
    for number in range(10):
        body = response(str(number), str(number - 1) if number else None)
        assert store.put(body, [{"text": "x" * 1_000_000}])
    tracemalloc.start()
    try:
        with pytest.raises(HttpError, match="no memory"):
            store.of("", refuse).conversation("resp_9")
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("memory_bytes", [100_000, 1_000_000])
@in_event_loop
async def test_a_response_that_is_read_again_takes_memory_of_the_requests(memory_bytes: int) -> None:
    api = Responses()
    gateway = gateway_of(api, limits=Limits(memory_bytes=memory_bytes))
    assert api.store.put(response("large", text="x" * 200_000), [])
    async with client_of_gateway(gateway) as client:
        found = await client.get("/v1/responses/resp_large")
        assert found.status_code == (503 if memory_bytes < 200_000 else 200)
    assert gateway.budget.reserved == 0


@in_event_loop
async def test_who_waits_for_the_store_keeps_nobody_else_waiting() -> None:
    class CountingLock:
        waiting = 0
        lock = threading.Lock()

        def __enter__(self) -> None:
            self.waiting += 1
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    api, waiters = Responses(), CountingLock()
    gateway = gateway_of(api)
    asked = {"model": "stub", "input": "go on", "previous_response_id": "resp_a"}
    large = {"model": "stub", "messages": [{"role": "user", "content": "x" * 40_000}]}
    assert api.store.put({**response("a"), "output": []}, [{"role": "user", "content": "hi"}])
    api.store._database._lock = waiters  # type: ignore[assignment]
    async with client_of_gateway(gateway) as client:
        with waiters.lock:
            waits = [asyncio.create_task(client.get("/v1/responses/resp_a")) for _ in range(16)]
            waits += [asyncio.create_task(client.post("/v1/responses", json=asked)) for _ in range(4)]
            await until(lambda: waiters.waiting >= 16)
            others = asyncio.to_thread(int), client.post("/v1/chat/completions", json=large)
            async with asyncio.timeout(60):
                _, answer = await asyncio.gather(*others)
            assert answer.status_code == 200
            assert not any(each.done() for each in waits)
        assert {each.status_code for each in await asyncio.gather(*waits)} == {200}


def test_two_gateways_continue_each_others_responses(url: str) -> None:
    first, second = Responses(url), Responses(url)
    one = client_of(first, Answer(text=("one",))).responses.create(model="m", input="hi")
    assert "stored" not in told(one)
    two = client_of(second, Answer(text=("two",))).responses.create(
        model="m", input="and?", previous_response_id=one.id
    )
    messages = first.parse({"model": "m", "input": "!", "previous_response_id": two.id}).request.messages
    assert [message["content"] for message in messages] == ["hi", "one", "and?", "two", "!"]
    assert first.delete(one.id)["deleted"]
    with pytest.raises(openai.NotFoundError):
        client_of(second, Answer(text=("x",))).responses.create(
            model="m", input="hi", previous_response_id=one.id
        )


def test_many_writers_lose_nothing(url: str) -> None:
    stores = [ResponseStore(url).of("many") for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        put: Callable[[int], bool] = lambda number: stores[number % 4].put(response(f"m{number}"), [])  # noqa: E731
        assert all(pool.map(put, range(60)))
    assert all(stores[0].get(f"resp_m{number}") for number in range(60))


def test_what_nobody_uses_for_thirty_days_is_removed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ResponseStore(url).of("old")
    store.put(response("old"), [])
    store.put(response("used"), [])
    module = "gbnf_server.gateway.openai_responses.store"
    day = 24 * 3600 * 10**9
    now = time.time_ns()
    monkeypatch.setattr(f"{module}.time.time_ns", lambda: now + 20 * day)
    assert store.get("resp_used")
    monkeypatch.setattr(f"{module}.time.time_ns", lambda: now + 31 * day)
    store.put(response("new"), [])
    assert store.get("resp_old") is None
    assert store.get("resp_used")


@pytest.mark.slow
def test_a_restarted_database_is_used_again(postgres_url: str) -> None:
    store = ResponseStore(postgres_url).of("restarted")
    assert store.put(response("a"), [])
    restart(postgres_url)
    assert store.put(response("b"), [])
    assert store.get("resp_b")


@pytest.mark.slow
def test_a_database_that_is_gone_is_an_error_and_an_answer_is_delivered_all_the_same() -> None:
    pytest.importorskip("psycopg")
    with tempfile.TemporaryDirectory(prefix="gbnf-pg-") as folder:
        with postgres(Path(folder)) as url:
            api = Responses(url)
        found = client_of(api, Answer(text=("one",))).responses.create(model="m", input="hi")
        assert (found.output_text, told(found)["stored"]) == ("one", False)
        with pytest.raises(HttpError) as caught:
            api.retrieve(found.id)
        assert caught.value.status == 503
        with pytest.raises(SetupError, match="--store"):
            ResponseStore(url)


def test_a_file_that_cannot_be_a_database(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database" * 100)
    for path in (tmp_path / "notes.txt", tmp_path / "absent" / "file", tmp_path):
        with pytest.raises(SetupError, match="--store"):
            ResponseStore(str(path))
