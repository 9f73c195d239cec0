"""The application: its endpoints, errors, ids, and what it logs."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from gbnf_server.backends.upstreams import Upstreams
from gbnf_server.system.errors import BackendError, BackendUnreachableError
from gbnf_server.web.access import Access
from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import Limits
from support.gateways import (
    PATH,
    ScriptedEngine,
    client_of,
    in_event_loop,
    make_gateway,
    request,
    samples,
    until,
)


@in_event_loop
async def test_an_answer_as_json_and_as_a_stream() -> None:
    gateway = make_gateway(ScriptedEngine())
    async with client_of(gateway) as client:
        whole = await client.post(PATH, json=request())
        assert whole.json() == {"texts": ["Started", "one", "two", "Finished"]}
        assert whole.headers["content-type"] == "application/json"
        streamed = await client.post(PATH, json=request(stream=True))
        assert streamed.text == "Started\none\ntwo\nFinished\n"
        assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
        for response in (whole, streamed):
            assert (response.status_code, response.headers["x-plain"]) == (200, "yes")
    assert (gateway.queue.running, gateway.budget.reserved, gateway.open_requests) == (0, 0, 0)


@in_event_loop
async def test_models_have_the_shape_of_the_client() -> None:
    gateway = make_gateway(ScriptedEngine(), agents={"planner": ScriptedEngine()})
    async with client_of(gateway) as client:
        models = (await client.get("/v1/models")).json()
        assert models["object"] == "list"
        assert [model["id"] for model in models["data"]] == ["stub", "planner"]
        assert (await client.get("/v1/models/stub")).json() == models["data"][0]
        assert models["data"][0]["max_model_len"] == gateway.upstreams.context_length()
        theirs = (await client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()
        assert (theirs["first_id"], theirs["last_id"], theirs["has_more"]) == ("stub", "planner", False)
        assert theirs["data"][0]["type"] == "model"
        assert theirs["data"][0]["max_input_tokens"] == gateway.upstreams.context_length()
        missing = await client.get("/v1/models/some/other")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


@in_event_loop
async def test_a_context_length_that_is_not_known_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(_: Upstreams) -> Any:
        raise BackendError("it is not reported")

    monkeypatch.setattr(Upstreams, "facts", unknown)
    async with client_of(make_gateway(ScriptedEngine())) as client:
        assert "max_model_len" not in (await client.get("/v1/models/stub")).json()
        theirs = (await client.get("/v1/models/stub", headers={"anthropic-version": "2023-06-01"})).json()
        assert theirs["max_input_tokens"] is None


@in_event_loop
async def test_polls_do_not_wait_for_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def hang(_: Upstreams) -> Any:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(Upstreams, "facts", hang)
    gateway = make_gateway(ScriptedEngine(), limits=Limits(facts_s=0))
    async with client_of(gateway) as client:
        polls = await asyncio.gather(*(client.get("/v1/models") for _ in range(40)))
        assert all("max_model_len" not in poll.json()["data"][0] for poll in polls)
        assert (await client.post(PATH, json=request())).status_code == 200
    assert asked == 1


@in_event_loop
async def test_a_model_of_the_agents_is_answered_by_it() -> None:
    gateway = make_gateway(ScriptedEngine(("engine",)), agents={"planner": ScriptedEngine(("agent",))})
    async with client_of(gateway) as client:
        for name in ("planner", "stub", "any other", ""):
            answered = (await client.post(PATH, json=request(model=name))).json()["texts"][1]
            assert answered == ("agent" if name == "planner" else "engine")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", PATH, 405, "method_not_allowed"),
    ],
)
@in_event_loop
async def test_what_there_is_not(method: str, path: str, status: int, code: str) -> None:
    async with client_of(make_gateway(ScriptedEngine())) as client:
        response = await client.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert response.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (HttpError(400, "no", "invalid_request", "tools"), 400, "invalid_request"),
        (HttpError(502, "it ignored the grammar", "grammar_ignored"), 502, "grammar_ignored"),
        (BackendUnreachableError("no server"), 503, "backend_unreachable"),
        (ZeroDivisionError("secret"), 500, "internal_error"),
    ],
)
@in_event_loop
async def test_errors_before_and_in_the_midst_of_an_answer(error: Exception, status: int, code: str) -> None:
    gateway = make_gateway(ScriptedEngine(error=error))
    async with client_of(gateway) as client:
        whole = await client.post(PATH, json=request())
        assert (whole.status_code, whole.json()["error"]["code"]) == (status, code)
        assert "secret" not in whole.text
        streamed = await client.post(PATH, json=request(stream=True))
        assert streamed.text == f"Started\none\ntwo\nerror {status} {code}\n"
    assert (gateway.queue.running, gateway.budget.reserved) == (0, 0)
    assert samples(gateway)[f'gbnf_requests_total{{endpoint="{PATH}",status="{status}"}}'] == 1


@in_event_loop
async def test_request_ids_are_echoed_if_they_are_plain() -> None:
    async with client_of(make_gateway(ScriptedEngine())) as client:
        response = await client.get("/v1/models", headers={"x-request-id": "trace-1"})
        assert response.headers["x-request-id"] == response.headers["request-id"] == "trace-1"
        for strange in ("a b", "x" * 200, "", "<script>"):
            response = await client.get("/health", headers={"x-request-id": strange})
            assert response.headers["x-request-id"].startswith("req_")


@in_event_loop
async def test_keys_hosts_and_origins_are_checked_for_every_path() -> None:
    access = Access.of("127.0.0.1", ["key"], (), ["https://chat.example"])
    gateway = make_gateway(ScriptedEngine())
    async with client_of(gateway, access) as client:
        for path in ("/v1/models", "/metrics", "/nothing", PATH):
            response = await client.get(path)
            assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
            assert response.headers["www-authenticate"] == "Bearer"
            key = {"x-api-key": "key"}
            assert (await client.get(path, headers={**key, "host": "evil.example"})).status_code == 403
            assert (
                await client.get(path, headers={**key, "origin": "https://evil.example"})
            ).status_code == 403
        assert (await client.get("/health")).status_code == 200
        allowed = await client.get("/v1/models", headers={**key, "origin": "https://chat.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://chat.example"
        preflight = {"origin": "https://chat.example", "access-control-request-method": "POST"}
        assert (await client.options(PATH, headers=preflight)).status_code == 200


@in_event_loop
async def test_no_cors_headers_unless_asked() -> None:
    async with client_of(make_gateway(ScriptedEngine())) as client:
        response = await client.get("/v1/models", headers={"origin": "http://localhost:3000"})
    assert "access-control-allow-origin" not in response.headers


@in_event_loop
async def test_bodies_beyond_the_limits_are_refused() -> None:
    limits = Limits(body_bytes=1000, json_depth=5, json_values=100, messages=3)
    engine = ScriptedEngine()
    gateway = make_gateway(engine, limits=limits)
    async with client_of(gateway) as client:
        bodies: list[tuple[Any, int]] = [
            (b"x" * 1001, 413),
            (b"{", 400),
            (b'{"a":' + b"[" * 6 + b"]" * 6 + b"}", 400),
            (b"[" + b"1," * 100 + b"1]", 400),
            (json.dumps({"messages": [{}] * 4}).encode(), 400),
            (json.dumps({"messages": "no"}).encode(), 400),
        ]
        for body, status in bodies:
            response = await client.post(PATH, content=body)
            assert response.status_code == status, response.text
        fields = {"content-length": "9" * 30}
        assert (await client.post(PATH, content=b"", headers=fields)).status_code == 413
        assert (await client.post(PATH, json=request())).status_code == 200
    assert (engine.ended, gateway.budget.reserved) == (1, 0)


@in_event_loop
async def test_all_requests_together_have_a_budget() -> None:
    engine = ScriptedEngine(allowed=asyncio.Semaphore(0))
    gateway = make_gateway(engine, limits=Limits(memory_bytes=3000))
    async with client_of(gateway) as client:
        first = asyncio.create_task(client.post(PATH, json=request(text="x" * 300)))
        await until(lambda: engine.running)
        assert 0 < gateway.budget.reserved <= 2000 * 1.5
        second = await client.post(PATH, json=request(text="x" * 300))
        assert (second.status_code, second.json()["error"]["code"]) == (503, "server_busy")
        assert second.headers["retry-after"] == "5"
        assert (await client.get("/health")).status_code == 200
        engine.allow(2)
        assert (await first).status_code == 200
        assert gateway.budget.reserved == 0


@in_event_loop
async def test_a_full_queue_refuses_in_the_shape_of_the_api() -> None:
    engine = ScriptedEngine(allowed=asyncio.Semaphore(0))
    gateway = make_gateway(engine, limits=Limits(waiting=2))
    async with client_of(gateway) as client:
        tasks = [asyncio.create_task(client.post(PATH, json=request())) for _ in range(3)]
        await until(lambda: gateway.queue.waiting == 2)
        full = await client.post(PATH, json=request())
        assert (full.status_code, full.json()["error"]["code"]) == (429, "queue_full")
        assert 1 <= int(full.headers["retry-after"]) <= 60
        shown = samples(gateway)
        assert (shown["gbnf_requests_running"], shown["gbnf_requests_waiting"]) == (1, 2)
        engine.allow(6)
        assert [(await task).status_code for task in tasks] == [200] * 3
    assert engine.ended == 3


@in_event_loop
async def test_metrics_count_requests_and_tokens() -> None:
    gateway = make_gateway(ScriptedEngine())
    async with client_of(gateway) as client:
        await client.post(PATH, json=request())
        await client.get("/some/path/of/a/client")
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    shown = samples(gateway)
    assert shown[f'gbnf_requests_total{{endpoint="{PATH}",status="200"}}'] == 1
    assert shown['gbnf_requests_total{endpoint="other",status="404"}'] == 1
    assert shown['gbnf_tokens_total{kind="prompt"}'] == 3
    assert shown['gbnf_tokens_total{kind="completion"}'] == 2
    assert shown[f'gbnf_request_seconds_count{{endpoint="{PATH}"}}'] == 1
    assert shown['gbnf_upstream_healthy{upstream="fake"}'] == 1
    assert "of/a/client" not in response.text


@pytest.mark.parametrize("options", [{}, {"log_contents": True}])
@in_event_loop
async def test_texts_are_logged_only_if_asked(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gbnf_server.gateway")
    async with client_of(make_gateway(ScriptedEngine(("my answer",)), **options)) as client:
        for stream in (False, True):
            await client.post(PATH, json=request(stream, "my secret"), headers={"x-request-id": "one"})
        await client.get("/health")
    logged = [record.fields for record in caplog.records if record.name == "gbnf_server.gateway"]  # type: ignore[attr-defined]
    requests = [fields for fields in logged if "status" in fields]
    assert [(each["path"], each["status"], each["request_id"]) for each in requests] == [
        (PATH, 200, "one")
    ] * 2
    assert ("my secret" in str(logged)) == bool(options)
    assert ("my answer" in str(logged)) == bool(options)


class Pauses(list[asyncio.Event]):
    """The pauses of streams, each of which lasts until its event is set."""

    async def __call__(self, _seconds: float) -> None:
        self.append(asyncio.Event())
        await self[-1].wait()


@pytest.mark.parametrize("error", [None, HttpError(502, "it left", "upstream_error")])
@in_event_loop
async def test_a_silent_stream_is_kept_alive_also_in_the_queue(error: Exception | None) -> None:
    pauses = Pauses()
    engine = ScriptedEngine(allowed=asyncio.Semaphore(0), error=error)
    gateway = make_gateway(engine, pause=pauses)
    async with client_of(gateway) as client:
        tasks = [asyncio.create_task(client.post(PATH, json=request(stream=True))) for _ in range(2)]
        await until(lambda: len(pauses) == 2 and gateway.queue.waiting == 1)
        for index in range(4):  # two for each of them
            pauses[index].set()
            await until(lambda index=index: len(pauses) == 3 + index)  # type: ignore[misc]  # mypy infers no type of it
        assert (engine.running, gateway.queue.waiting) == (1, 1)
        engine.allow(4)
        end = "Finished\n" if error is None else "error 502 upstream_error\n"
        for task in tasks:
            response = await task
            assert response.status_code == 200
            assert response.text == f"…\n…\nStarted\none\ntwo\n{end}"
        # one that is not streamed gets nothing but its answer
        engine.allowed = None
        assert (await client.post(PATH, json=request())).status_code == (200 if error is None else 502)
        assert len(pauses) == 6


@in_event_loop
async def test_an_answer_that_flows_gets_no_sign_of_life() -> None:
    pauses = Pauses()
    engine = ScriptedEngine(allowed=asyncio.Semaphore(0))
    async with client_of(make_gateway(engine, pause=pauses)) as client:
        task = asyncio.create_task(client.post(PATH, json=request(stream=True)))
        await until(lambda: len(pauses) == 1 and engine.running == 1)
        engine.allow(1)
        await until(lambda: len(engine.seen) == 1 and engine.allowed.locked())  # type: ignore[union-attr]
        pauses[0].set()
        await until(lambda: len(pauses) == 2)
        engine.allow(1)
        assert (await task).text == "Started\none\ntwo\nFinished\n"
