"""What is kept of schemas, grammars and tools belongs to an owner, and can be forgotten."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from gbnf import compile_pool
from gbnf.compiler.pool import compile_tool
from gbnf.compiler.schema import compile_schema
from gbnf.schema_caches import SchemaCaches, caches_in_use
from gbnf.tools import Tool

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "pattern": "^[a-f]{2,4}x$", "maxLength": 9}},
}
TOOL = Tool("t", "", args=SCHEMA)


def test_what_clients_can_fill_is_forgotten_together() -> None:
    """Every other bounded cache of the package is of one constant value, or a table of characters."""
    caches = SchemaCaches()
    with caches.use():
        assert str(compile_schema(SCHEMA))
    assert caches.results
    assert all(results.cache_info().maxsize for results in caches.results.values())
    others = [
        f"{name}.{key}"
        for name, module in list(sys.modules.items())
        if name.startswith("gbnf.") and not name.startswith("gbnf.testing")
        for key, value in vars(module).items()
        if hasattr(value, "cache_parameters") and value.__module__.startswith("gbnf.")
        if value.cache_parameters()["maxsize"] not in {None, 1}
    ]
    assert set(others) <= {"gbnf.requests.phrases._plain_character"}


def test_each_owner_has_its_own_also_in_tasks_and_threads() -> None:
    one, other = SchemaCaches(), SchemaCaches()

    async def compile_twice() -> None:
        with one.use():
            await asyncio.gather(
                asyncio.to_thread(compile_pool, [TOOL]), asyncio.to_thread(compile_pool, [TOOL])
            )

    with other.use():
        asyncio.run(compile_twice())
        assert caches_in_use() is other
    assert compile_tool not in other.results
    assert one.results[compile_tool].cache_info().currsize == 1


def test_without_parts_the_results_are_the_same() -> None:
    class Refusing:
        def get(self, key: str) -> bytes | None:
            raise AssertionError(key)

        put = get

    caches = SchemaCaches(Refusing())  # type: ignore[arg-type]  # it is not asked
    with replace(caches, parts=None).use():
        compile_pool([TOOL])
    assert caches.results[compile_tool].cache_info().currsize == 1
    assert caches.parts is not None
