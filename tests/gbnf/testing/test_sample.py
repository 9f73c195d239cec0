"""Samples are texts of the language, by llama.cpp's engine, and end for every grammar."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.errors import GrammarError
from gbnf.grammar.analysis import cheapest_costs
from gbnf.grammar.ir import Rules
from gbnf.testing import sample
from support.effort import scaled
from support.grammars import grammars
from support.oracle import accepts


@pytest.mark.slow
@given(grammars(), st.integers(1, 20), st.integers(0, 9))
@settings(max_examples=scaled(60), suppress_health_check=[HealthCheck.nested_given])
def test_each_sample_is_in_the_language(rules: Rules, count: int, seed: int) -> None:
    assume(rules.root in cheapest_costs(rules))
    grammar = Grammar(rules)
    texts = sample(grammar, count, seed=seed)
    assert 1 <= len(texts) <= count
    assert len(set(texts)) == len(texts)
    assert all(grammar.match(text).complete and accepts(grammar, text) for text in texts)
    assert texts == sample(grammar, count, seed=seed)


# (grammar, how many of 20 texts are found)
SAMPLED = [
    ('root ::= "a" | "b" | "c"', 3),
    ("root ::= [0-9]", 10),
    ("root ::= [0-9]+", 20),
    ('root ::= "(" root ")" | root2\nroot2 ::= "x" root | "y"', 20),
    ("root ::= x{20}\nx ::= [a-z]{20}", 20),
    ("root ::= <|tool|> [a-z]+", 20),
]


@pytest.mark.parametrize(("gbnf", "count"), SAMPLED)
def test_sampled(gbnf: str, count: int) -> None:
    texts = sample(Grammar.parse(gbnf), 20)
    assert len(texts) == count
    assert all(accepts(gbnf, text) for text in texts)


@pytest.mark.parametrize("gbnf", ['root ::= "x" root', "root ::= !<think>", "root ::= <[3]>"])
def test_no_text(gbnf: str) -> None:
    with pytest.raises(GrammarError, match=r"derives no finite text|the text of"):
        sample(Grammar.parse(gbnf), 5)
