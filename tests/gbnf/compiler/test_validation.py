"""Grammar and validator agree on what a tool call may be, closed objects included."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf import compile_pool, validate_call
from gbnf.errors import GbnfError
from gbnf.tools import Tool
from support.oracle import engine
from support.random_texts import generate
from support.schemas import SCHEMAS
from support.values import canonical, in_declared_order, values_near

#: More digits than a float has: Python then compares another number than the one that is written.
_TOO_MANY_DIGITS = re.compile(r"[\d.]{17}")


def tool(schema: Any) -> Tool:
    return Tool(name="t", args={"type": "object", "properties": {"v": schema}, "required": ["v"]})


@given(SCHEMAS, st.integers(0, 2**32))
def test_a_derived_call_is_valid_where_the_grammar_is_exact(schema: Any, seed: int) -> None:
    try:
        grammar = compile_pool([tool(schema)])
    except GbnfError:
        assume(condition=False)
    assume(grammar.exact)
    text = generate(grammar.rules, random.Random(seed))
    call = json.loads(text)
    assume("Infinity" not in json.dumps(call) and not _TOO_MANY_DIGITS.search(text))
    verdict = validate_call(call, [tool(schema)])
    assert verdict.ok, (call, verdict.errors)


@given(st.data())
def test_a_valid_call_in_declared_order_is_accepted(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    value = canonical(data.draw(values_near(schema)))
    call = {"name": "t", "arguments": {"v": value}}
    assume(in_declared_order(schema, value) and validate_call(call, [tool(schema)]).ok)
    text = json.dumps(call, ensure_ascii=False)
    assert engine().match(compile_pool([tool(schema)]), text).complete


_A: dict[str, Any] = {"properties": {"a": {"type": "null"}}}
_X: dict[str, Any] = {"properties": {"x": {"type": "null"}}}
_PATTERNS: dict[str, Any] = {"patternProperties": {"^a": {"type": "null"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{**_A, **_PATTERNS}]},
        {**_X, "anyOf": [{**_A, **_PATTERNS}]},
        {**_X, "anyOf": [_PATTERNS]},
        {"anyOf": [_A, _PATTERNS]},
        {"oneOf": [_X, {"required": ["a"], **_A, **_PATTERNS}]},
        {"oneOf": [_X, {"required": ["a"], **_A}]},
        {"anyOf": [{"anyOf": [{**_A, **_PATTERNS}]}, _X]},
        {"anyOf": [{"allOf": [{**_A, **_PATTERNS}]}]},
        {"if": {"required": ["a"]}, "then": {**_A, **_PATTERNS}, "else": _X},
        {**_X, "dependentSchemas": {"x": _PATTERNS}},
        {**_X, "anyOf": [_A, {"additionalProperties": True}]},
        {**_X, "anyOf": [_A, {}]},
    ],
)
def test_branches_of_closed_objects_mean_the_same_to_both(schema: Any) -> None:
    calls = [
        json.dumps({"name": "t", "arguments": {"v": value}})
        for value in ({"q": 1}, {"a": None}, {"ab": 1}, {"x": None}, {"x": None, "q": 1}, {"a": None, "q": 1})
    ]
    pool = [tool({"type": "object", **schema})]
    grammar = compile_pool(pool)
    assert grammar.exact
    accepted = [engine().match(str(grammar), call).complete for call in calls]
    assert accepted == [validate_call(json.loads(call), pool).ok for call in calls]
