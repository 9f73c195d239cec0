"""A tool without some calls: no other call is refused, and these are, unless the grammar reports it."""

from __future__ import annotations

import json
from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf import compile_pool, validate_call
from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf.tools.tool import excluding, primary_language, supported_language
from support.argument_schemas import ARGUMENTS, near
from support.effort import scaled
from support.oracle import engine
from support.values import canonical


def is_one_of(value: Any, values: list[Any]) -> bool:
    return jsonschema.Draft202012Validator({"enum": values}).is_valid(value)


def accepts(grammar: Any, arguments: Any) -> bool:
    text = json.dumps({"name": "t", "arguments": arguments}, ensure_ascii=False)
    return engine().match(str(grammar), text).complete


def unenforced(grammar: Any) -> set[str]:
    return {finding.keyword for finding in grammar.report if finding.kind == "unenforced"}


@pytest.mark.slow
@settings(max_examples=scaled(40))
@given(ARGUMENTS, st.sampled_from(["declared", "any"]), st.data())
def test_only_the_excluded_calls_are_refused(
    schema: dict[str, Any], order: Literal["declared", "any"], data: st.DataObject
) -> None:
    tool = Tool("t", args=schema)
    values = st.deferred(lambda: near(schema)).map(canonical)
    excluded = data.draw(st.lists(values, min_size=1, max_size=3))
    others = [*excluded, *data.draw(st.lists(values, max_size=4))]
    try:
        before = compile_pool([tool], property_order=order)
    except GbnfError:
        assume(condition=False)
    less = excluding(tool, excluded)
    try:
        after: Any = compile_pool([less], property_order=order)
    except GbnfError:  # nothing else is possible
        after = None
    exact = after is None or unenforced(after) <= unenforced(before)
    for value in others:
        valid = accepts(before, value)
        kept = after is not None and accepts(after, value)
        is_excluded = is_one_of(value, excluded)
        assert kept <= valid, value
        assert kept or is_excluded or not valid, value
        assert not (kept and is_excluded and exact), value
        call = {"name": "t", "arguments": value}
        assert validate_call(call, [less]).ok == (validate_call(call, [tool]).ok and not is_excluded)


_EVENTS = {
    "type": "object",
    "required": ["starts", "titles"],
    "properties": {
        "starts": {"type": "array", "items": {"type": "string"}},
        "titles": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "minutes": {"type": "integer", "minimum": 1},
        "place": {"type": "object", "properties": {"room": {"type": "number"}, "note": {"type": "string"}}},
    },
}
_FAILED = {"starts": ["today", "é"], "titles": ["x"], "minutes": 30, "place": {"room": 1, "note": 'a"b'}}


@pytest.mark.parametrize("order", ["declared", "any"])
def test_calls_near_the_excluded_ones(order: Literal["declared", "any"]) -> None:
    second = {"starts": ["today", "é"], "titles": ["x"]}
    grammar = compile_pool([excluding(Tool("t", args=_EVENTS), [_FAILED, second])], property_order=order)
    assert grammar.exact
    assert len(str(grammar)) < 40_000
    assert not accepts(grammar, _FAILED)
    assert not accepts(grammar, second)
    near_it = [
        {**_FAILED, "minutes": 31},
        {**_FAILED, "minutes": 3},
        {**_FAILED, "starts": ["today"]},
        {**_FAILED, "starts": ["today", "é", ""]},
        {**_FAILED, "starts": []},
        {**_FAILED, "titles": ["xy"]},
        {**_FAILED, "titles": [""]},
        {**_FAILED, "place": {}},
        {**_FAILED, "place": {"room": 1}},
        {**_FAILED, "place": {"room": 1.5, "note": 'a"b'}},
        {name: value for name, value in _FAILED.items() if name != "minutes"},
        {"starts": ["today", "é"], "titles": ["x"], "minutes": 30},
        {"starts": [], "titles": []},
    ]
    assert [one for one in near_it if not accepts(grammar, one)] == []


def test_excluded_twice_and_a_tool_that_has_a_not() -> None:
    tool = Tool("t", args={"type": "object", "properties": {"a": {"type": "integer"}}, "not": {"const": {}}})
    grammar = compile_pool([excluding(excluding(tool, [{"a": 1}]), [{"a": 2}])])
    assert [number for number in range(4) if accepts(grammar, {"a": number})] == [0, 3]
    assert not accepts(grammar, {})
    assert excluding(tool, []) is tool


def test_step_references_are_reported() -> None:
    properties = {"from_step": {"type": "integer", "fills": "b"}, "b": {"type": "string"}}
    tool = Tool("t", args={"type": "object", "properties": properties})
    less = excluding(tool, [{"from_step": 1}])
    grammar = compile_pool([less], steps=(1, 2))
    assert accepts(grammar, {"from_step": 2})
    assert [finding.keyword for finding in grammar.report] == ["not"]
    assert not validate_call({"name": "t", "arguments": {"from_step": 1}}, [less], steps=(1, 2)).ok


@pytest.mark.parametrize(
    ("tag", "short", "language"),
    [("it", "it", "it"), ("it-IT", "it", "it"), ("it_CH", "it", "it"), ("en-GB", "en", "en"),
     ("pt-BR", "pt", "en"), ("ita", "ita", "en"), ("", "", "en"), ("zh-Hant-TW", "zh", "en")],
)  # fmt: skip
def test_tags(tag: str, short: str, language: str) -> None:
    assert (primary_language(tag), supported_language(tag, {"en", "it"})) == (short, language)
