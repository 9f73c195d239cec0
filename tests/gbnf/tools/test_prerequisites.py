"""The order of tools: laws over random orders, judged by trying all runs; then a table of reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf.tools.prerequisites import missing_prerequisites, unreachable_tools, with_prerequisites

NAMES = tuple("abcde")


def make_tool(name: str, *after: str, **offer: Any) -> Tool:
    return Tool.from_mapping({"name": name, "args": {}, "offer": {"after": list(after), **offer}})


@st.composite
def pools(draw: st.DrawFn) -> tuple[Tool, ...]:
    return tuple(
        make_tool(
            name, *draw(st.lists(st.sampled_from([*NAMES, "x"]), max_size=2)), terminal=draw(st.booleans())
        )
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    )


def ever_callable(pool: Sequence[Tool]) -> set[str]:
    """Try every run: what can be called in some order, until a terminal tool ends it."""
    found: set[str] = set()
    seen: set[frozenset[str]] = set()
    pending = [frozenset[str]()]
    while pending:
        succeeded = pending.pop()
        if succeeded in seen:
            continue
        seen.add(succeeded)
        now = [tool for tool in pool if set(tool.offer.after) <= succeeded]
        found |= {tool.name for tool in now}
        pending += [succeeded | {tool.name} for tool in now if not tool.offer.terminal]
    return found


@given(pools())
def test_the_unreachable_tools_are_those_that_no_run_can_call(pool: tuple[Tool, ...]) -> None:
    unreachable = unreachable_tools(pool)
    assert {tool.name for tool in pool} - {tool.name for tool in unreachable} == ever_callable(pool)
    assert all(unreachable.values())


@given(pools(), st.data())
def test_prerequisites_come_along_and_nothing_else(pool: tuple[Tool, ...], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(pool), unique=True) if pool else st.just([]))
    found = with_prerequisites(some, pool)
    assert list(found) == [tool for tool in pool if tool in found]
    assert set(some) <= set(found)
    names = {tool.name for tool in pool}
    for tool in found:
        assert set(tool.offer.after) & names <= {each.name for each in found}
        if tool not in some:
            assert any(tool.name in other.offer.after for other in found)
    assert with_prerequisites(found, pool) == found


@given(pools(), st.sets(st.sampled_from(NAMES)))
def test_a_tool_waits_for_exactly_what_has_not_succeeded(pool: tuple[Tool, ...], succeeded: set[str]) -> None:
    waiting = missing_prerequisites(pool, succeeded)
    for tool in pool:
        missing = [name for name in tool.offer.after if name not in succeeded]
        assert list(waiting.get(tool.name, ())) == missing


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (["reed"], "it comes after 'reed', which the pool does not have; did you mean 'read'?"),
        (["read", "submit"], "it comes after 'submit', which ends the run"),
        (["edit"], "each comes after another: edit after edit"),
        (["loop"], "each comes after another: loop after back after loop"),
        (["lost"], "it comes after 'lost', which comes after 'zzz', which the pool does not have"),
    ],
)
def test_reasons(after: list[str], reason: str) -> None:
    pool = (
        make_tool("read"),
        make_tool("submit", terminal=True),
        make_tool("loop", "back"),
        make_tool("back", "loop"),
        make_tool("lost", "zzz"),
        edit := make_tool("edit", *after),
    )
    assert unreachable_tools(pool)[edit] == reason
