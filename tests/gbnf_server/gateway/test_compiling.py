"""The memory of compiled requests: what clients send once is forgotten."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from gbnf.compiler.pool import compile_tool
from gbnf.schema_caches import caches_in_use
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway import compiler as compiling
from gbnf_server.gateway import compiling as steps_module
from gbnf_server.gateway.chat import ChatRequest, FunctionTool, JsonSchema, Sampling
from gbnf_server.gateway.compiler import Compiler
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.gateway.openai_chat import ChatCompletions
from gbnf_server.llama.demo_model import model_path
from gbnf_server.web.errors import HttpError
from gbnf_server.web.queue import AnswerQueue
from support.gateway_answers import TARGET, USER, compile_all
from support.gateways import PATH, client_of, in_event_loop, until


def tools_kept() -> int:
    results = caches_in_use().results.get(compile_tool)
    return 0 if results is None else results.cache_info().currsize


def request(number: int, size: int = 1000) -> ChatRequest:
    schema = {"type": "object", "properties": {"x": {"enum": [f"{number}-{'y' * size}"]}}, "required": ["x"]}
    return ChatRequest("m", (USER,), tools=(FunctionTool("go", "", schema),))


def test_different_requests_are_forgotten_and_each_has_its_own_grammar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "_MOST_CHARACTERS", 20_000)
    caches_in_use().results.clear()
    made = compile_all([request(number) for number in range(40)])
    assert tools_kept() < 20
    for number, compiled in enumerate(made):
        assert compiled.grammar is not None
        text = f'{{"name": "go", "arguments": {{"x": "{number}-{"y" * 1000}"}}}}'
        assert compiled.grammar.match(text).complete


def test_a_request_is_compiled_once_as_long_as_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first, other, again = compile_all([request(1), request(2), request(1)])
    assert again is first is not other
    monkeypatch.setattr(compiling, "_MOST_CHARACTERS", 1000)  # of two requests, or of one with its grammar
    first, _, again = compile_all([request(number, 10) for number in (1, 2, 1)])
    assert again is not first
    assert again.enforcement == first.enforcement


def test_a_request_that_is_too_large_to_be_kept_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_MOST_CHARACTERS", 500)
    assert [compiled.enforcement.exact for compiled in compile_all([request(1), request(1)])] == [True, True]


def test_strict_tools_of_many_properties_keep_the_order_in_which_they_are_exact() -> None:
    names = [f"p{number}" for number in range(12)]
    properties = {name: {"type": "integer"} for name in names}
    schema = {"type": "object", "properties": properties, "required": names[:1]}
    backwards = dict.fromkeys(reversed(names), 1)
    for strict in (False, True):
        asked = ChatRequest("m", (USER,), tools=(FunctionTool("go", "", schema, strict=strict),))
        (compiled,) = compile_all([asked])
        assert compiled.grammar is not None
        assert compiled.enforcement.exact == strict
        call = {"name": "go", "arguments": backwards}
        assert compiled.grammar.match(json.dumps(call)).complete == (not strict)


def heavy(count: int, name: str = "t") -> ChatRequest:
    """A request with tools that take about 50 ms each."""
    tools = []
    for index in range(count):
        text = {"type": "string", "pattern": f"^[a-z]{{3,{index % 7 + 9}}}{name}{index}$"}
        part = {"type": "object", "properties": {f"q{number}": text for number in range(4)}}
        schema = {"type": "object", "properties": {f"p{number}": part for number in range(4)}}
        tools.append(FunctionTool(f"{name}{index}", "", schema))
    return ChatRequest("m", (USER,), tools=tuple(tools))


@pytest.mark.slow
@in_event_loop
async def test_what_nobody_waits_for_any_more_is_dropped() -> None:
    caches_in_use().results.clear()
    compiler = Compiler(timeout_s=600)
    asked = [asyncio.create_task(compiler.compiled(heavy(300, "drop"), TARGET)) for _ in range(2)]
    await until(lambda: tools_kept() >= 2)
    asked[0].cancel()
    await asyncio.wait([asked[0]])
    assert compiler._running == 1, "the other one waits for it"
    asked[1].cancel()
    await asyncio.wait(asked)
    await until(lambda: not compiler._running)
    assert (compiler._turns.running, compiler._turns.waiting, len(compiler._cache)) == (0, 0, 0)
    compiler.close()
    assert tools_kept() < 100


@in_event_loop
async def test_a_small_request_does_not_wait_for_large_ones() -> None:
    compiler = Compiler(timeout_s=600)
    large = [asyncio.create_task(compiler.compiled(heavy(300, name), TARGET)) for name in ("a", "b", "c")]
    await until(lambda: compiler._running == 3)
    assert (await compiler.compiled(request(1), TARGET)).grammar is not None
    assert not any(task.done() for task in large)
    for task in large:
        task.cancel()
    await asyncio.wait(large)
    compiler.close()


@in_event_loop
async def test_time_that_is_up_drops_the_work_and_what_was_compiled_is_kept() -> None:
    compiler = Compiler(timeout_s=0)
    with pytest.raises(HttpError) as late:
        await compiler.compiled(heavy(3, "late"), TARGET)
    assert (late.value.status, late.value.code) == (503, "compilation_timeout")
    assert not compiler._cache
    compiler.close()


@pytest.mark.slow
def test_more_rules_than_an_engine_takes_are_refused_before_all_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps_module, "MOST_RULES", 200)
    caches_in_use().results.clear()
    with pytest.raises(HttpError, match="more than 200 rules") as refused:
        compile_all([heavy(300, "many")])
    assert (refused.value.status, refused.value.code) == (400, "schemas_too_large")
    assert tools_kept() < 20


@in_event_loop
async def test_a_schema_that_is_refused_again_and_again_costs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_MOST_CHARACTERS", 20_000)
    caches_in_use().results.clear()
    await asyncio.to_thread(compile_all, [request(1)])
    kept = tools_kept()
    bad = ChatRequest("m", (USER,), output=JsonSchema({"type": "x" * 5000}))
    compiler = Compiler(timeout_s=60)
    for _ in range(17):
        with pytest.raises(HttpError):
            await compiler.compiled(bad, TARGET)
    assert sum(entry.size for entry in compiler._cache.values()) < 6000
    compiler.close()
    assert tools_kept() == kept > 0


@in_event_loop
async def test_a_full_queue_is_no_property_of_a_schema() -> None:
    compiler = Compiler(timeout_s=60)
    compiler._turns = AnswerQueue(1, 0)
    async with compiler._turns.place("other"):
        for _ in range(2):
            with pytest.raises(HttpError) as refused:
                await compiler.compiled(request(1), TARGET)
            assert refused.value.code == "queue_full"
    assert (await compiler.compiled(request(1), TARGET)).grammar is not None
    compiler.close()


@in_event_loop
async def test_compiling_takes_no_place_of_an_answer() -> None:
    engine = Engine(compile_s=600)
    with InProcess(model_path(), context_length=512) as backend:
        gateway = Gateway(engine, Upstreams([Upstream(backend, 1)]), model="m")

        async def ask(asked: ChatRequest) -> None:
            sampled = replace(asked, sampling=Sampling(max_tokens=1))
            async for _ in gateway.answer(sampled, ""):
                pass

        large = [asyncio.create_task(ask(heavy(300, name))) for name in ("x", "y")]
        await until(lambda: engine._compiler._running == 2)
        await ask(ChatRequest("m", (USER,)))
        assert not any(task.done() for task in large)
        for task in large:
            task.cancel()
        await asyncio.wait(large)
    engine.close()


@in_event_loop
async def test_what_a_request_compiles_is_in_the_caches_of_its_gateway() -> None:
    engine, others = Engine(), caches_in_use()
    tool = {"type": "function", "function": {"name": "go", "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": [tool], "max_tokens": 4}
    with InProcess(model_path(), context_length=2048) as backend:
        gateway = Gateway(engine, Upstreams([Upstream(backend, 1)]), model="m", apis=[ChatCompletions()])
        async with client_of(gateway) as client:
            others.results.clear()
            response = await client.post(PATH, json=body, timeout=60)
            assert response.status_code == 200, response.text
    engine.close()
    assert compile_tool in gateway.caches.results
    assert not others.results, "in no thread"
