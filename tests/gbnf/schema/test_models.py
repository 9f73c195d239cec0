"""Schemas of Python types: what the grammar generates, pydantic accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gbnf import compile_schema
from gbnf.errors import InvalidArgumentError
from gbnf.schema.models import InstanceReader, json_schema_of
from gbnf.testing.derivations import derivations
from support.python_types import TYPES, Cat, Dog


@pytest.mark.parametrize("name", TYPES)
def test_what_the_grammar_generates_is_valid(name: str) -> None:
    grammar, adapter = compile_schema(TYPES[name]), TypeAdapter(TYPES[name])

    @settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(derivations(grammar, size=60))
    def law(text: str) -> None:
        adapter.validate_json(text)

    law()


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("Decimal", ["9.90", '"9.90"', "-1"]),
        ("naive datetime", ['"2026-03-12T10:00:00"']),
        ("timedelta", ['"PT1H30M"', '"P3D"']),
        ("ByteSize", ['"10 GB"', '"1.5MiB"', "3"]),
        ("HttpUrl", ['"https://example.com/a?b=c#d"']),
        ("IPv4Network", ['"10.0.0.1/32"']),
        ("Fraction", ['"1/3"', "0.5"]),
        ("keys that are integers", ['{"-3": "a"}']),
    ],
)
def test_usual_texts_are_in_it(name: str, texts: list[str]) -> None:
    grammar = compile_schema(TYPES[name])
    for text in texts:
        assert grammar.match(text).complete, text


def test_types_are_closed_and_schemas_open() -> None:
    extra = '{"kind": "dog", "more": 1}'
    assert not compile_schema(Dog).match(extra).complete
    assert compile_schema(Dog, closed=False).match(extra).complete
    assert compile_schema(json_schema_of(Dog)).match(extra).complete
    assert not compile_schema(json_schema_of(Dog), closed=True).match(extra).complete


def test_errors_name_the_field() -> None:
    reader = InstanceReader(list[Cat])
    with pytest.raises(InvalidArgumentError, match=r"1\.lives: "):
        reader.read([{"kind": "cat", "lives": 1}, {"kind": "cat", "lives": "x"}])


@given(st.fixed_dictionaries({}, optional={"kind": st.just("cat"), "lives": st.integers(0, 9)}))
def test_an_unfinished_model_has_what_is_known(given_: dict[str, Any]) -> None:
    (partial,) = InstanceReader(list[Cat]).partial([given_])
    assert isinstance(partial, Cat)
    assert partial.kind == given_.get("kind")
    assert partial.lives == given_.get("lives")
