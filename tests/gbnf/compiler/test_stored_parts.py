"""A part cache changes nothing but time: judged by compilation without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import compile_pool
from gbnf.compiler.grammar import CompiledRules, Grammar
from gbnf.compiler.layout import CompileOptions
from gbnf.compiler.pool import compile_tools
from gbnf.compiler.stored_parts import decode_part, encode_part
from gbnf.errors import GbnfError
from gbnf.findings import Finding
from gbnf.grammar.ir import EPSILON, Alt, Literal, Ref, Repeat, Rules, Seq
from gbnf.schema_caches import SchemaCaches, caches_in_use
from gbnf.tools import Tool
from support.effort import scaled
from support.grammars import grammars
from support.notations import NOTATIONS
from support.pools import BUNDLED
from support.schemas import SCHEMAS

OPTIONS = st.builds(
    CompileOptions,
    whitespace=st.sampled_from(["default", "compact", "spaced", "free"]),
    max_depth=st.sampled_from([None, 1, 4]),
    closed=st.booleans(),
    property_order=st.sampled_from(["declared", "any"]),
    bounded_digits=st.booleans(),
)


class Entries(dict[str, bytes]):
    """A part cache in a dictionary, which counts what it returns."""

    hits = 0

    def get(self, key: str) -> bytes | None:  # type: ignore[override]
        self.hits += key in self
        return super().get(key)

    def put(self, key: str, entry: bytes) -> None:
        self[key] = entry


@contextmanager
def caching(cache: Entries | None) -> Iterator[None]:
    """A new process, as far as compiled tools go, with this cache."""
    with SchemaCaches(cache).use():
        yield


def compiled(tools: Any, options: Any, steps: Any, notation: Any) -> Any:
    """All that is known of a pool: its text, its rules and its report; or its error."""
    try:
        if notation is None:
            given = {name: getattr(options, name) for name in CompileOptions.__dataclass_fields__}
            grammar = compile_pool(tools, steps=steps, **given)
            return str(grammar), dict(grammar.rules.productions), grammar.report
        pool = compile_tools(tools, options, bool(steps), strict=False, notation=NOTATIONS[notation])
    except GbnfError as error:
        return type(error), str(error)
    return [(one.name, one.arguments, one.part.text, one.part.needs, one.part.productions, one.findings)
            for one in pool.tools]  # fmt: skip


@settings(max_examples=scaled(40))
@given(
    st.lists(SCHEMAS, min_size=1, max_size=3),
    st.lists(st.sampled_from(["a_b", "aB", "json", "é\n", "\ud800"]), unique=True, min_size=3, max_size=3),
    OPTIONS,
    st.sampled_from([(), (1, 3)]),
    st.sampled_from([None, None, *NOTATIONS]),
)
def test_what_is_cached_equals_what_is_compiled(
    schemas: Any, names: Any, options: Any, steps: Any, notation: Any
) -> None:
    properties = [{"value": schema, "from_step": {"type": "integer"}} for schema in schemas]
    tools = [
        Tool(name=name, args={"type": "object", "properties": each})
        for name, each in zip(names, properties, strict=False)
    ]
    with caching(None):
        expected = compiled(tools, options, steps, notation)
    cache = Entries()
    with caching(cache):
        assert compiled(tools, options, steps, notation) == expected
    stored = dict(cache)
    with caching(cache):
        assert compiled(tools, options, steps, notation) == expected
    assert cache == stored
    assert cache.hits == len(cache)


def test_all_bundled_tools_are_cached() -> None:
    cache = Entries()
    with caching(cache):
        expected = compile_pool(BUNDLED, steps=(1,))
    assert len(cache) == len(BUNDLED)
    with caching(cache):
        found = compile_pool(BUNDLED[::-1], steps=(1,))
    assert cache.hits == len(BUNDLED)
    assert dict(found.rules.productions).keys() == dict(expected.rules.productions).keys()


@given(
    st.sampled_from(["empty", "truncated", "flipped", "longer", "of another key"]),
    st.integers(0, 2**32),
    st.data(),
)
def test_a_damaged_entry_is_compiled_again_and_replaced(damage: str, at: int, data: Any) -> None:
    tool = data.draw(st.sampled_from(BUNDLED))
    cache = Entries()
    with caching(cache):
        expected = compile_pool([tool], steps=(1,))
        compile_pool([BUNDLED[0], BUNDLED[1]], steps=(1,))
    stored = dict(cache)
    (key,) = [key for key in cache if key.startswith(tool.fingerprint)]
    entry = cache[key]
    at %= len(entry)
    cache[key] = {
        "empty": b"",
        "truncated": entry[:at],
        "flipped": entry[:at] + bytes([entry[at] ^ 1 << at % 8]) + entry[at + 1 :],
        "longer": entry + b"\n[]",
        "of another key": next(other for name, other in cache.items() if name != key),
    }[damage]
    with caching(cache):
        found = compile_pool([tool], steps=(1,))
        assert str(found) == str(expected)
        assert found.report == expected.report
    assert cache == stored


@given(
    grammars(), st.lists(st.builds(Finding, *[st.text()] * 3, st.just("unenforced"), st.text()), max_size=2)
)
def test_an_entry_has_all_of_the_rules(rules: Rules, findings: list[Finding]) -> None:
    part = CompiledRules.of(rules)
    entry = encode_part("key", part, findings)
    assert entry is not None
    decoded = decode_part("key", entry)
    assert decoded is not None
    found, found_findings = decoded
    assert (found.text, found.names, found.needs) == (part.text, part.names, part.needs)
    assert found.productions == part.productions
    assert list(found.productions) == list(part.productions)
    assert found_findings == tuple(findings)


@pytest.mark.parametrize("nest", [lambda expr: Seq((Literal("a"), expr)), lambda expr: Alt((Ref("r"), expr)),
                                  lambda expr: Repeat(expr, 0, None)])  # fmt: skip
def test_an_expression_that_nests_too_deeply_is_not_stored(nest: Any) -> None:
    expr: Any = EPSILON
    for _ in range(199):
        expr = nest(expr)
    assert encode_part("", CompiledRules.of(Rules({"r": expr}, "r")), ()) is not None
    assert encode_part("", CompiledRules.of(Rules({"r": nest(expr)}, "r")), ()) is None


def test_errors_are_not_stored() -> None:
    cache = Entries()
    tools = [Tool(name="a", args={"type": "object", "allOf": [{"type": "string"}]}), Tool(name="b")]
    reports = []
    for _ in range(2):
        with caching(cache):
            reports.append(compile_pool(tools).report)
    assert len(cache) == 1
    assert reports[0] == reports[1]
    assert [finding.kind for finding in reports[0]] == ["left_out"]


def test_without_a_cache_nothing_is_kept() -> None:
    assert caches_in_use().parts is None
    assert isinstance(compile_pool(BUNDLED), Grammar)
