"""All text of a result is valid Unicode."""

from __future__ import annotations

import pytest

from gbnf_server.executors.results import redact_result
from gbnf_server.executors.secrets import Secrets


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
