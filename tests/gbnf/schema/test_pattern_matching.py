"""Patterns that have no automaton, matched by the package `regex`."""

from __future__ import annotations

import pytest

from gbnf.schema.pattern_matching import pattern_matches
from gbnf.work_limits import limit_work


def test_a_pattern_that_backtracks_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backreference there is no automaton, and every way through the repetitions is tried."""
    monkeypatch.setattr("gbnf.schema.pattern_matching._TIMEOUT_S", 0.1)
    with limit_work(may_backtrack=True):
        assert pattern_matches(r"^((a|aa|aaa)+)+\1?\2$", "a" * 60 + "!") is None
        assert pattern_matches(r"^(a)\1$", "aa") is True


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(((a{1000}){1000}){1000})\1$",
        "^" + "(" * 40 + "a" + "+)" * 40 + r"\1$",
        "^" + "(?:" * 40 + "[+)]" + "){1,9}" * 40 + r"()\1$",
        "^" + "(" * 40 + "a" + "++)" * 40 + r"\1$",
        "(?x)^" + "(" * 40 + "a" + ") +" * 40 + r"\1$",
        "^" + "(" * 40 + "a" + ")(?#)+" * 40 + r"\1$",
    ],
)
def test_a_pattern_that_would_be_written_out_at_length_is_not_read(pattern: str) -> None:
    with limit_work(may_backtrack=True):
        assert pattern_matches(pattern, "a") is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^(a{1000})\1$", "a" * 2000),
        ("^" + r"\d+a?" * 30 + r"(b)\1$", "1a" * 30 + "bb"),
        ("^" + "(" * 40 + "a*" + ")*" * 40 + r"(b)\41$", "aabb"),
        (r"^[({]+\+{9}(a)\1$", "({+++++++++aa"),
    ],
)
def test_a_pattern_of_many_repetitions_is_read_if_they_are_not_nested(pattern: str, text: str) -> None:
    with limit_work(may_backtrack=True):
        assert pattern_matches(pattern, text) is True
