"""What is said of a pool: the filter's choice, with reasons, and sizes that add up."""

from __future__ import annotations

import pytest

from gbnf import compile_pool, filter_pool
from gbnf.requests.pool_filter import best_first
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.inspect.grammar_view import STEPS
from gbnf_server.inspect.pool_view import PoolMeter
from support.pools import BUNDLED

METER = PoolMeter(BUNDLED)


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("request_", ["find my notes", "undo that", "xyzzy"])
def test_it_is_what_the_filter_keeps(request_: str, limit: int) -> None:
    view = METER.view(request_, limit)
    selection = filter_pool(BUNDLED, request_, limit=limit)
    ranked = [tool.name for tool in best_first(BUNDLED, request_)]
    kept = [tool.name for tool in selection.kept]
    assert [tool.name for tool in view.tools if tool.kept] == sorted(kept, key=ranked.index)
    assert [tool.name for tool in view.tools[len(kept) :]] == [name for name in ranked if name not in kept]
    assert all(tool.reason for tool in view.tools)
    assert sorted(tool.rank for tool in view.tools) == list(range(1, len(BUNDLED) + 1))
    grammar = compile_pool(selection.kept, steps=STEPS)
    assert (view.grammar_bytes, view.rules) == (len(str(grammar).encode()), len(grammar.rules.productions))


def test_the_reasons_of_tools_that_are_kept() -> None:
    reasons = {tool.name: tool.reason for tool in METER.view("undo that", 2).tools if tool.kept}
    assert reasons["undo_last_turn"] == "the request contains 'undo'"


def test_without_a_request_all_are_shown() -> None:
    view = METER.view()
    assert view.kept == len(BUNDLED)
    assert view.unit == "characters"


def test_tokens_are_counted_where_there_is_a_tokenizer() -> None:
    view = PoolMeter(BUNDLED, lambda text: len(text.split())).view()
    assert view.unit == "tokens"
    assert 0 < view.prompt < METER.view().prompt


def test_a_variant_is_kept_for_a_request_that_names_its_provider() -> None:
    tools = [Tool(name, "Find files.", {"type": "object"}) for name in ("find_files", "find_files_acme")]
    meter = PoolMeter(tools, providers={**PROVIDERS, "_acme": Provider(("acme",))})
    kept = {
        query: {cost.name for cost in meter.view(query).tools if cost.kept}
        for query in ("find files", "find files on acme")
    }
    assert kept == {"find files": {"find_files"}, "find files on acme": {"find_files", "find_files_acme"}}


def test_a_tool_without_a_grammar_costs_none() -> None:
    tool = Tool(name="no", args={"type": "object", "required": ["a"], "properties": {"a": False}})
    view = PoolMeter([tool]).view("no")
    assert (view.tools[0].grammar_bytes, view.grammar_bytes) == (0, 0)
