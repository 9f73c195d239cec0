"""The memory of compiled requests: what clients send once is forgotten."""

from __future__ import annotations

import asyncio
import json

import pytest

from gbnf.compiler import pool
from gbnf_server.gateway import compiling
from gbnf_server.gateway.chat import ChatRequest, FunctionTool
from gbnf_server.gateway.compiling import Compiled, Compiler, Target
from gbnf_server.gateway.process_caches import clear_process_caches
from support.gateway_answers import USER

TARGET = Target("gbnf", "full", None, takes_images=False)


def request(number: int, size: int = 1000) -> ChatRequest:
    schema = {"type": "object", "properties": {"x": {"enum": [f"{number}-{'y' * size}"]}}, "required": ["x"]}
    return ChatRequest("m", (USER,), tools=(FunctionTool("go", "", schema),))


def compile_all(requests: list[ChatRequest]) -> list[Compiled]:
    async def run() -> list[Compiled]:
        compiler = Compiler(timeout_s=60)
        try:
            return [await compiler.compiled(each, TARGET) for each in requests]
        finally:
            compiler.close()

    return asyncio.run(run())


def test_different_requests_are_forgotten_and_each_has_its_own_grammar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "_MOST_CHARACTERS", 20_000)
    clear_process_caches()
    made = compile_all([request(number) for number in range(60)])
    assert pool._link_pool.cache_info().currsize < 20
    for number, compiled in enumerate(made):
        assert compiled.grammar is not None
        text = f'{{"name": "go", "arguments": {{"x": "{number}-{"y" * 1000}"}}}}'
        assert compiled.grammar.match(text).complete


def test_a_request_is_compiled_once_as_long_as_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first, other, again = compile_all([request(1), request(2), request(1)])
    assert again is first is not other
    monkeypatch.setattr(compiling, "_MOST_CHARACTERS", 20_000)
    first, *_, again = compile_all([request(number) for number in (*range(60), 0)])
    assert again is not first
    assert again.receipt == first.receipt


def test_a_request_that_is_too_large_to_be_kept_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_MOST_CHARACTERS", 500)
    assert [compiled.receipt.exact for compiled in compile_all([request(1), request(1)])] == [True, True]


def test_clearing_empties_the_caches_that_depend_on_schemas() -> None:
    compile_all([request(1)])
    clear_process_caches()
    assert pool._link_pool.cache_info().currsize == 0


def test_strict_tools_of_many_properties_keep_the_order_in_which_they_are_exact() -> None:
    names = [f"p{number}" for number in range(12)]
    properties = {name: {"type": "integer"} for name in names}
    schema = {"type": "object", "properties": properties, "required": names}
    backwards = dict.fromkeys(reversed(names), 1)
    for strict in (False, True):
        asked = ChatRequest("m", (USER,), tools=(FunctionTool("go", "", schema, strict=strict),))
        (compiled,) = compile_all([asked])
        assert compiled.grammar is not None
        assert compiled.receipt.exact == strict
        call = {"name": "go", "arguments": backwards}
        assert compiled.grammar.match(json.dumps(call)).complete == (not strict)
