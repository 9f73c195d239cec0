"""A reasoning field before a call: in its grammar and in its schema."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf import compile_pool
from gbnf.compiler.layout import Whitespace
from gbnf.compiler.pool import compile_name_and_arguments
from gbnf.dialects import call_schema
from gbnf.protocols.reasoning_field import MAX_REASONING_LENGTH, with_reasoning_grammar, with_reasoning_schema
from gbnf.tools import Tool
from support.by_hand import ANSWER, NOW, POOL, call
from support.oracle import engine

THOUGHTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), min_size=1, max_size=30
)


@given(THOUGHTS, st.sampled_from([NOW, ANSWER, call("create_dirs", paths=["a"]), call("find_files")]))
def test_a_grammar_with_a_reasoning_field_accepts_the_same_calls_after_it(
    reasoning: str, written: str
) -> None:
    grammar = compile_pool(POOL, final_answer=True)
    thoughtful = with_reasoning_grammar(grammar)
    with_reasoning_field = f'{{"thought": "{reasoning}", {written.removeprefix("{")}'
    assert (
        engine().match(thoughtful, with_reasoning_field).complete == engine().match(grammar, written).complete
    )
    assert not engine().match(thoughtful, written).accepted


def test_a_reasoning_field_is_bounded_and_not_empty() -> None:
    grammar = with_reasoning_grammar(compile_pool(POOL))
    for length, fits in (
        (0, False),
        (1, True),
        (MAX_REASONING_LENGTH, True),
        (MAX_REASONING_LENGTH + 1, False),
    ):
        text = f'{{"thought": "{"a" * length}", "name": "get_now", "arguments": {{}}}}'
        assert engine().match(grammar, text).complete == fits


@pytest.mark.parametrize("whitespace", get_args(Whitespace))
def test_reasoning_precedes_a_call_in_every_layout(whitespace: Whitespace) -> None:
    grammar = with_reasoning_grammar(compile_pool(POOL, whitespace=whitespace))
    separators = (",", ":") if whitespace == "compact" else (", ", ": ")
    rest = json.dumps(json.loads(NOW), separators=separators)
    assert engine().match(grammar, f'{{"thought": "so", {rest.removeprefix("{")}').complete


@given(st.lists(st.sampled_from(POOL), unique=True, min_size=1), st.booleans())
def test_every_pool_accepts_reasoning(tools: list[Tool], union: bool) -> None:
    compiled = (compile_pool if union else compile_name_and_arguments)(tools, final_answer=True)
    engine().check(with_reasoning_grammar(compiled))


@pytest.mark.parametrize("tools", [POOL, POOL[:1]])
def test_a_schema_requires_the_reasoning_field_first(tools: tuple[Tool, ...]) -> None:
    plain = call_schema(tools, steps=(1,))
    schema = with_reasoning_schema(plain)
    branch = schema["anyOf"][0] if "anyOf" in schema else schema
    assert list(branch["properties"]) == ["thought", "name", "arguments"]
    written = {"name": "compute", "arguments": {"expression": "1+1"}}
    for value in (written, {**written, "name": "nothing"}):
        judged = Draft202012Validator(schema).is_valid({"thought": "so", **value})
        assert judged == Draft202012Validator(plain).is_valid(value)
    assert not Draft202012Validator(schema).is_valid(written)
