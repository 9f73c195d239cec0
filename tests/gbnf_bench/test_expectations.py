"""Expectations: what a value of a suite accepts, and what no value could satisfy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_bench.errors import SuiteFieldError
from gbnf_bench.expectations import MOMENT, TEXT, accepts, contained, is_satisfiable, read_expectation

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_size=3),
    max_leaves=8,
)


def _judged(written: Any, value: Any) -> bool:
    return accepts(read_expectation(written, ()), value)


@given(PLAIN, PLAIN)
def test_what_is_no_table_is_a_constant(value: Any, other: Any) -> None:
    assert _judged(value, value)
    assert _judged({}, value)
    assert _judged(value, other) == _judged({"const": value}, other)


@given(st.text(alphabet="aÀé.*[](){}^$|?+\\-/ \n", max_size=8), st.text(max_size=5), st.text(max_size=5))
def test_a_contained_text_is_found_in_whatever_case(text: str, before: str, after: str) -> None:
    pattern = {"pattern": contained(text)}
    assert _judged(pattern, before + text + after)
    assert _judged(pattern, text.swapcase())
    assert text == "" or not _judged(pattern, "0" * 20)


TABLE: list[tuple[Any, Any, bool]] = [
    ({"pattern": "(?i)train"}, "The TRAIN is late", True),
    ({"pattern": "^b"}, "abc", False),
    ({"pattern": "a$"}, "a\n", False),  # ECMA-262, not Python's `re`
    ({"enum": ["a", ["b"]]}, ["b"], True),
    ({"items": {"pattern": "^a"}, "maxItems": 1}, ["ab"], True),
    ({"items": {"pattern": "^a"}, "maxItems": 1}, ["ab", "a"], False),
    ({"properties": {"a": {"const": 1}}, "required": ["a"]}, {"b": 2}, False),
    ({"format": "date"}, "2026-13-01", False),
    ([{"a": 1}], [{"a": 1}], True),
    ([{"a": 1}], [{"a": 1, "b": 2}], False),
    (1, True, False),
    (True, 1, False),
    (2, 2.0, True),
    ("1", 1, False),
]


@pytest.mark.parametrize(("written", "value", "accepted"), TABLE)
def test_what_is_accepted(written: Any, value: Any, accepted: bool) -> None:
    assert _judged(written, value) is accepted


@pytest.mark.parametrize(
    ("written", "at", "said"),
    [
        ({"pattern": "["}, ("pattern",), "regular expression"),
        ({"pattern": 3}, ("pattern",), "not 3"),
        ({"contians": {}}, ("contians",), "Did you mean contains?"),
        ({"path": "a.txt"}, ("path",), "{const = …}"),
        ({"$ref": "#"}, ("$ref",), "unknown keyword"),
        ({"anyOf": [{"const": 1}, {"patern": "a"}]}, ("anyOf", 1, "patern"), "pattern"),
        ({"items": {"properties": {"a": {"type": "texts"}}}}, ("items", "properties", "a", "type"), "type"),
        ({"anyOf": ["a"]}, ("anyOf", 0), "a schema"),
    ],
)
def test_a_malformed_schema_is_refused_at_its_location(
    written: Any, at: tuple[str | int, ...], said: str
) -> None:
    with pytest.raises(SuiteFieldError) as caught:
        read_expectation(written, ("answer",))
    assert caught.value.key_path == ("answer", *at)
    assert said in f"{caught.value.problem} {caught.value.hint}"


@pytest.mark.parametrize(
    ("base", "written", "possible"),
    [
        (TEXT, "a", True),
        (TEXT, 5, False),
        (TEXT, {"pattern": "^a"}, True),
        (TEXT, {"pattern": r"(a)\1"}, True),  # no automaton: not known to be impossible
        (TEXT, {"allOf": [{"pattern": "^a"}, {"pattern": "^b"}]}, False),
        (TEXT, {"allOf": [{"pattern": "b$"}, {"pattern": "^a"}]}, True),
        (TEXT, {"anyOf": [{"type": "array"}, {"const": 5}]}, False),
        (MOMENT, {"pattern": "^2026-11-2"}, True),
        (MOMENT, "2026-11-24 18:00", False),
        ({"type": "array", "minItems": 1}, {"maxItems": 0}, False),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, {"const": 5}, False),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, {"minLength": 3}, True),
    ],
)
def test_whether_a_value_can_satisfy_both(base: dict[str, Any], written: Any, possible: bool) -> None:
    assert is_satisfiable(base, read_expectation(written, ())) is possible
