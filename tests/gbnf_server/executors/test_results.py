"""A result is as deep as it may be, and all its text is valid Unicode."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.executors.results import MAX_DEPTH, nesting_depth, redact_result
from gbnf_server.executors.secrets import Secrets


def nested(depth: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


@given(
    depth=st.integers(0, 2 * MAX_DEPTH), enough=st.integers(0, MAX_DEPTH), kind=st.sampled_from([list, dict])
)
def test_depth_is_counted_as_far_as_it_matters(depth: int, enough: int, kind: type) -> None:
    assert nesting_depth([nested(depth, kind), 1, {}], enough) == min(1 + max(depth, 1), enough + 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ud800", "\ufffd"),
        ("a\udc00b", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
    ],
)
def test_halves_by_example(text: str, expected: str) -> None:
    assert redact_result({text: [text]}, Secrets()) == {expected: [expected]}
