"""How references to results of earlier steps are filled in, and which are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf import Tool, load_manifests
from gbnf_server.planner.step_references import fill_references, result_entries
from gbnf_server.system.folders import manifests_path
from support.json_values import json_values

TOOLS = {tool.name: tool for tool in load_manifests(manifests_path())}


def test_arguments_without_reference_stay() -> None:
    arguments = {"paths": ["a.txt"]}
    assert fill_references(TOOLS["read_files"], arguments, {1: ("b.txt",)}) == arguments


def test_a_property_that_only_the_runtime_fills_is_filled() -> None:
    filled = fill_references(
        TOOLS["get_inputs"], {"title": "t", "dialog": [], "from_step": 3}, {3: ("x", "y")}
    )
    assert filled == {"title": "t", "dialog": [], "entries": ["x", "y"]}


CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}


def _filling(schema: dict[str, Any], **root: Any) -> Tool:
    args = {"properties": {"x": schema, "from_step": {"type": "integer", "fills": "x"}}, **root}
    return Tool.from_mapping({"name": "use", "description": "x", "args": {"type": "object", **args}})


@given(
    st.sampled_from(
        [
            TEXTS,
            {**TEXTS, "maxItems": 2},
            {**TEXTS, "uniqueItems": True},
            {"type": "array", "items": {"type": "integer", "minimum": 1}},
            {"type": "array", "items": CLOSED},
            {"type": "string"},
            {"type": "string", "maxLength": 5},
            {"type": ["string", "null"]},
            {"type": ["array", "null"], "items": {"type": "boolean"}},
            {
                "anyOf": [
                    {"type": "string", "pattern": "^[a-z]"},
                    {"type": "array", "items": {"type": "null"}},
                ]
            },
            {},
        ]
    ),
    st.lists(json_values, min_size=1, max_size=4),
    st.none() | st.text(max_size=3) | st.lists(json_values, max_size=2) | st.integers() | st.just({"a": 1}),
)
def test_what_is_filled_is_valid_or_refused(schema: dict[str, Any], entries: list[Any], given_: Any) -> None:
    """jsonschema judges; entries come after what was given, in a list as items, in a string as lines."""
    judge = Draft202012Validator(schema)
    given_ = given_ if judge.is_valid(given_) else None
    arguments = {"from_step": 1} if given_ is None else {"from_step": 1, "x": given_}
    try:
        filled = fill_references(_filling(schema), arguments, {1: tuple(entries)})
    except ValueError:
        holds = given_ is None or isinstance(given_, list)
        assert not holds or not judge.is_valid([*(given_ or []), *entries])
        return
    texts = [entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False) for entry in entries]
    assert judge.is_valid(filled["x"])
    if isinstance(filled["x"], list):
        both = ([*(given_ or []), *entries], [*(given_ or []), *texts])
        assert filled["x"] in both or (filled["x"] == given_ and not any(map(judge.is_valid, both)))
    else:
        assert filled == {"x": "\n".join([*([given_] if given_ else []), *texts])}


@pytest.mark.parametrize(
    ("tool", "entries", "held"),
    [
        (_filling({"type": "array", "items": {"type": "integer"}}), (1, 2), [1, 2]),
        (_filling({"type": "array", "items": {"type": "object"}}), ({"a": 1},), [{"a": 1}]),
        (_filling(TEXTS), (1, {"a": "caffè"}), ["1", '{"a": "caffè"}']),
        (_filling({"type": "string"}), ({"a": "caffè"}, "b"), '{"a": "caffè"}\nb'),
        (_filling({"type": ["string", "null"]}), ("a", "b"), "a\nb"),
        (_filling({"$ref": "#/$defs/t"}, **{"$defs": {"t": {"type": "string"}}}), ("a",), "a"),
        (_filling({"anyOf": [{"type": "string"}, {"type": "null"}]}), ("a",), "a"),
        (_filling({}), ("a",), ["a"]),
    ],
)
def test_entries_take_the_form_that_the_property_accepts(tool: Tool, entries: Any, held: Any) -> None:
    assert fill_references(tool, {"from_step": 1}, {1: entries}) == {"x": held}


@pytest.mark.parametrize(
    ("tool", "entries", "problem"),
    [
        (_filling({**TEXTS, "maxItems": 2}), ("a", "b", "c"), "'x' of tool 'use' must have at most 2 items"),
        (_filling({"type": "string", "maxLength": 3}), ("abcd",), "at most 3 characters"),
        (_filling({"type": "array", "items": {"enum": ["a"]}}), ("z",), r"'x\[0\]'.* must be one of \['a'\]"),
        (_filling(TEXTS, allOf=[{"properties": {"x": {"maxItems": 1}}}]), ("a", "b"), "at most 1 item"),
    ],
)
def test_entries_that_do_not_fit_are_refused(tool: Tool, entries: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        fill_references(tool, {"from_step": 1}, {1: entries})


@pytest.mark.parametrize(
    ("result", "entries"),
    [
        ({}, ()),
        ({"entries": []}, ()),
        ({"entries": "text"}, ()),
        ({"entries": ["a", "b"]}, ("a", "b")),
        ({"entries": [1, {"a": None}]}, (1, {"a": None})),
    ],
)
def test_entries_of_a_result(result: dict[str, Any], entries: tuple[Any, ...]) -> None:
    assert result_entries(result) == entries
