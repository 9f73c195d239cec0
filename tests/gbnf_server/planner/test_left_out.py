"""A tool that cannot be compiled is not offered, and takes neither the run nor the other tools with it."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf import load_tools
from gbnf.tools import Tool
from gbnf_server.planner.events import CallModel
from support.by_hand import ANSWER, call, completion, drive_by_hand, resolved

FINE = Tool.from_mapping({"name": "fine", "description": "Fine.", "args": {}})
IMPOSSIBLE = Tool.from_mapping(
    {"name": "impossible", "description": "Never.", "args": {"required": ["a"], "properties": {"a": False}}}
)
DYNAMIC: dict[str, Any] = {
    "$defs": {"a": {"$id": "urn:a", "$dynamicAnchor": "x"}, "b": {"$id": "urn:b", "$dynamicAnchor": "x"}},
    "properties": {"a": {"$dynamicRef": "urn:a#x"}, "b": {"$ref": "urn:b"}},
}
UNRESOLVED = Tool.from_mapping({"name": "unresolved", "args": DYNAMIC})


@pytest.mark.parametrize(("dialect", "broken"), [("gbnf", IMPOSSIBLE), ("json_schema", UNRESOLVED)])
def test_it_is_neither_described_nor_offered(dialect: str, broken: Tool) -> None:
    steps = [completion(call("fine")), completion(ANSWER)]
    driven = drive_by_hand([broken, FINE], steps, options=resolved(dialect=dialect))
    assert driven.run.outcome == "answered"
    [warning] = driven.run.warnings
    assert broken.name in warning
    for asked in driven.of(CallModel):
        assert broken.name not in str(asked.request.messages)
        assert broken.name not in str(asked.request.grammar)
        assert "fine" in str(asked.request.messages)


def test_a_run_without_any_tool_that_can_be_compiled_fails_with_the_reason() -> None:
    driven = drive_by_hand([IMPOSSIBLE], [completion(ANSWER)])
    assert driven.run.outcome == "failed"
    assert str(driven.run.error).startswith("no tool can be compiled: impossible: ")


def test_findings_of_tools_are_warnings() -> None:
    args = {"properties": {"a": {"type": "string", "maxlegth": 3}}}
    [typo] = load_tools({"name": "typo", "args": args})
    driven = drive_by_hand([typo], [completion(ANSWER)])
    assert driven.run.warnings == (str(typo.findings[0]),)


@pytest.mark.parametrize(("max_depth", "is_offered"), [(4, True), (6, False)])
def test_a_tool_is_compiled_down_to_the_depth_of_the_options(max_depth: int, is_offered: bool) -> None:
    args = dict(IMPOSSIBLE.args)
    for _ in range(6):
        args = {"type": "object", "properties": {"x": args}, "required": ["x"]}
    options = resolved(max_depth=max_depth)
    driven = drive_by_hand([Tool("deep", args=args), FINE], [completion(ANSWER)], options=options)
    [asked] = driven.of(CallModel)
    assert ("deep" in str(asked.request.messages)) == ("deep" in str(asked.request.grammar)) == is_offered
