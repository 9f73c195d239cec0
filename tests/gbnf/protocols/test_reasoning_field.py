"""The reasoning field of calls: in their grammar and in their schema."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from gbnf import compile_pool
from gbnf.compiler.layout import Whitespace
from gbnf.compiler.pool import compile_name_and_arguments
from gbnf.dialects import call_schema
from gbnf.protocols.call_protocols import MAX_REASONING_LENGTH, with_reasoning_grammar, with_reasoning_schema
from gbnf.tools import Tool
from support.by_hand import ANSWER, NOW, POOL, call
from support.oracle import engine


@pytest.mark.parametrize("compiler", [compile_pool, compile_name_and_arguments])
@pytest.mark.parametrize("written", [NOW, ANSWER, call("create_dirs", paths=["a"]), call("find_files")])
def test_a_grammar_with_a_reasoning_field_accepts_the_same_calls_after_it(
    compiler: Any, written: str
) -> None:
    grammar = compiler(POOL, final_answer=True)
    with_field = with_reasoning_grammar(grammar)
    text = f'{{"thought": "it is é", {written.removeprefix("{")}'
    assert engine().match(with_field, text).complete == engine().match(grammar, written).complete
    assert not engine().match(with_field, written).accepted


def test_a_reasoning_field_is_bounded_and_not_empty() -> None:
    grammar = with_reasoning_grammar(compile_pool(POOL))
    for length in (0, 1, MAX_REASONING_LENGTH, MAX_REASONING_LENGTH + 1):
        text = f'{{"thought": "{"a" * length}", {NOW.removeprefix("{")}'
        assert engine().match(grammar, text).complete == (1 <= length <= MAX_REASONING_LENGTH)


@pytest.mark.parametrize("whitespace", get_args(Whitespace))
def test_reasoning_precedes_a_call_in_every_layout(whitespace: Whitespace) -> None:
    grammar = with_reasoning_grammar(compile_pool(POOL, whitespace=whitespace))
    separators = (",", ":") if whitespace == "compact" else (", ", ": ")
    rest = json.dumps(json.loads(NOW), separators=separators)
    assert engine().match(grammar, f'{{"thought": "so", {rest.removeprefix("{")}').complete


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
