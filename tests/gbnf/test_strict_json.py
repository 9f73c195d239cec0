"""The strict JSON reader takes what JSON writers write, and refuses what readers understand differently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.strict_json import InvalidJsonError, map_json, map_texts, nests_deeper, parse_json
from gbnf.surrogates import has_surrogate, replace_lone_surrogates
from support.json_values import json_values


@given(json_values, st.booleans())
def test_what_json_writes_is_read_back(value: Any, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.text())
def test_a_text_is_parsed_to_a_value_that_can_be_sent_on_or_refused(text: str) -> None:
    try:
        value = parse_json(text)
    except ValueError:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "character 0"),
        ('{"name": "a"', "character 12"),
        ('{"name": "a"} and more', "Extra data"),
        ('{"name": "a", "name": "b"}', "'name' occurs twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": 1e999}', "too large"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "digit"),
        ('"a\nb"', "Invalid control character"),
    ],
)
def test_what_is_no_sound_json_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidJsonError, match=problem):
        parse_json(text)


@given(text=st.text(st.characters()))
def test_lone_surrogates_become_replacement_characters(text: str) -> None:
    clean = replace_lone_surrogates(text)
    assert clean.encode().decode() == clean
    assert has_surrogate(text) == (text.encode("utf-8", "ignore").decode() != text)
    if has_surrogate(text):
        assert "\ufffd" in clean or len(clean) < len(text)  # a pair was joined
    else:
        assert clean == text


def test_what_is_no_fault() -> None:
    assert parse_json('\n {"name": "a"} \n') == {"name": "a"}
    assert parse_json('{"a": [1], "a": [1]}') == {"a": [1]}
    assert parse_json('{"a": "x\ny"}', control_characters=True) == {"a": "x\ny"}
    assert parse_json('["\\ud800"]', surrogates=True) == ["\ud800"]


@given(json_values)
def test_every_scalar_and_key_of_a_value_is_mapped(value: Any) -> None:
    assert map_json(value, lambda scalar: scalar) == value
    mapped = map_json(value, lambda scalar: [scalar], lambda key: f"{key}!")
    assert map_json(mapped, lambda scalar: scalar, lambda key: key.removesuffix("!")) == nested(value)
    changed = map_texts(value, lambda text: f"{text}!")
    assert map_texts(changed, lambda text: text.removesuffix("!")) == value


def nested(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: nested(member) for key, member in value.items()}
    return [nested(member) for member in value] if isinstance(value, list) else [value]


@given(depth=st.integers(0, 100), most=st.integers(0, 100), kind=st.sampled_from([list, dict, tuple]))
def test_the_deepest_member_decides_how_deep_a_value_is(depth: int, most: int, kind: type) -> None:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind is dict else kind([value])
    assert nests_deeper([value, 1, {}], most) == (1 + max(depth, 1) > most)
