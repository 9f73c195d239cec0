"""What a large model that calls natively is told of its tools, where a grammar enforces their schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Tool, validate_call
from gbnf.prompts.descriptions import declare_tool
from gbnf.prompts.messages import native_system_prompt
from gbnf.testing import calls
from gbnf_server.planner.events import CallModel
from support.by_hand import completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.small_models import LARGE

_LONG = "^(" + "|".join(f"[a-z]{{{number}}}" for number in range(2, 20)) + ")$"


def _asked(tools: Any, **options: Any) -> Any:
    driven = drive_by_hand(
        tools, [completion("Well.")], query="find the files of a", options=resolved(**LARGE, **options)
    )
    return driven.of(CallModel)[0].request


def _tool(**properties: Any) -> Tool:
    return Tool("find", args={"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "string", "pattern": _LONG, "description": "Some letters"}, 0),
        ({"type": "array", "items": {"type": "string", "pattern": _LONG}, "description": "Letters"}, 0),
        ({"anyOf": [{"type": "string", "pattern": _LONG}], "description": "Letters"}, 0),
        ({"type": "string", "pattern": _LONG}, 1),  # nothing else says the form
        ({"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$", "description": "The ticket"}, 1),
        ({"type": "object", "description": "A thing", "properties": {"x": {"pattern": _LONG}}}, 1),
    ],
)
def test_a_description_stands_for_a_long_pattern(schema: Any, kept: int) -> None:
    bounded = {**schema, "minLength": 2, "maxLength": 7, "default": "ab", "examples": ["abc"]}
    declared = _asked([_tool(x=bounded)]).tools[0]["function"]["parameters"]["properties"]["x"]
    assert json.dumps(declared).count('"pattern"') == kept
    assert {"minLength", "maxLength", "default", "examples"} <= declared.keys()
    unconstrained = _asked([_tool(x=bounded)], constrained=False).tools[0]["function"]
    assert unconstrained["parameters"]["properties"]["x"] == bounded


@given(st.sampled_from(BUNDLED), st.data())
def test_what_is_declared_without_patterns_accepts_every_call(tool: Tool, data: st.DataObject) -> None:
    declared = declare_tool(tool, patterns=False)["function"]
    call = data.draw(calls([tool]))
    assert validate_call(call, [Tool(tool.name, args=declared["parameters"])]).ok
    assert len(json.dumps(declared)) <= len(json.dumps(declare_tool(tool)["function"]))


@pytest.mark.parametrize("language", ["en", "it"])
def test_step_references_are_explained_if_a_tool_takes_them(language: str) -> None:
    taking = _tool(paths={"type": "array"}, from_step={"type": "integer"})
    for tool, is_told in ((taking, True), (_tool(x={"type": "string"}), False)):
        system = _asked([tool], language=language).messages[0]["content"]
        assert ("from_step" in system) is is_told
        assert native_system_prompt(language, brief=True).split(". ")[0] in system
