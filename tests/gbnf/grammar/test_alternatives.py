"""The scalars that may come next, judged by matching."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import compile_schema
from gbnf.grammar.alternatives import scalar_alternatives
from gbnf.testing.generation import canonical

SCALARS = (
    st.none() | st.booleans() | st.integers(-200, 200) | st.text(max_size=4) | st.sampled_from([1.5, 0.25])
)


def alternatives(schema: Any, before: str = "", limit: int = 16) -> list[Any] | None:
    state = compile_schema(schema).matcher.start().advance(before)
    assert state is not None
    found = scalar_alternatives(state, limit)
    return None if found is None else [json.loads(text) for text in found]


@given(st.lists(SCALARS, min_size=1, max_size=8, unique_by=repr))
def test_they_are_the_values_of_an_enum(values: list[Any]) -> None:
    found = alternatives({"enum": values})
    assert found is not None
    assert set(map(canonical, map(_plain, found))) == set(map(canonical, map(_plain, values)))


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.parametrize(
    ("schema", "before", "expected"),
    [
        ({"type": "boolean"}, "", [False, True]),
        ({"type": "integer", "minimum": 8, "maximum": 12}, "", [8, 9, 10, 11, 12]),
        ({"enum": ["red", "redder"]}, "", ["red", "redder"]),
        (
            {"properties": {"a": {"type": ["boolean", "null"]}}, "required": ["a"]},
            '{"a":',
            [False, True, None],
        ),
        ({"pattern": "^[ab]c?$", "type": "string"}, "", ["a", "ac", "b", "bc"]),
        ({"type": "string"}, "", None),
        ({"type": "integer"}, "", None),
        ({"enum": [1, {"a": 1}]}, "", None),
        ({"enum": list(range(17))}, "", None),
        ({"const": "x" * 500}, "", None),
    ],
)
def test_what_is_few(schema: Any, before: str, expected: list[Any] | None) -> None:
    found = alternatives({**schema, "additionalProperties": False} if before else schema, before)
    assert (found is None) == (expected is None)
    assert sorted(map(json.dumps, found or [])) == sorted(map(json.dumps, expected or []))
