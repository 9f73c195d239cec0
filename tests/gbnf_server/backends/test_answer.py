"""Replaying answers: what fits, what does not, and what is said of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf_server.backends.answer import grammar_violation

CALL = Grammar.parse('root ::= "{\\"name\\": \\"" ("find" | "write") "\\"}"')
WHOLE = '{"name": "find"}'


@given(st.integers(0, len(WHOLE)))
def test_every_prefix_matches_as_truncated_and_only_the_whole_text_as_finished(length: int) -> None:
    text = WHOLE[:length]
    assert grammar_violation(CALL, text, truncated=True) is None
    assert (grammar_violation(CALL, text, truncated=False) is None) == (text == WHOLE)


@pytest.mark.parametrize(
    ("text", "truncated", "problem"),
    [
        ("Sure! {", False, "at character 0: found 'Sure! {', expected"),
        ("Sure! {", True, "at character 0"),
        ('{"name": "fend"}', False, "at character 11: found 'end\"}'"),
        (WHOLE + "x", False, "at character 16: found 'x', expected end of text"),
        ("", False, "at character 0: the text is empty"),
        (WHOLE[:5], False, "at character 5: the text ends"),
    ],
)
def test_messages_of_violations(text: str, truncated: bool, problem: str) -> None:
    assert problem in (grammar_violation(CALL, text, truncated=truncated) or "")


def test_a_character_split_by_truncation_is_no_violation() -> None:
    assert grammar_violation(Grammar.parse('root ::= "è😀"'), "è\ufffd", truncated=True) is None
    assert grammar_violation(Grammar.parse('root ::= "è😀"'), "è\ufffd", truncated=False) is not None


def test_a_long_list_of_what_was_expected_is_clipped() -> None:
    grammar = Grammar.parse("root ::= " + " | ".join(f'"{chr(97 + n)}"' for n in range(20)))
    problem = grammar_violation(grammar, "!", truncated=False) or ""
    assert problem.endswith(", …")
    assert len(problem) < 120
