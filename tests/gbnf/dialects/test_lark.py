"""GBNF in llguidance's dialect, put to the real llguidance: the language has to stay what llama.cpp reads."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool
from gbnf.dialects.lark import lark_text
from gbnf.grammar.ir import Literal, Rules, alt, char_class, seq
from gbnf.testing import calls, near_misses
from gbnf.testing.generation import canonical_json
from gbnf.tools import FINAL_ANSWER
from support.effort import scaled
from support.grammars import grammars, mutations
from support.oracle import engine
from support.pools import BUNDLED
from support.random_texts import generate

llguidance = pytest.importorskip("llguidance", reason="pip install llguidance")
BYTES = llguidance.LLTokenizer("byte")


def accepts(lark: str, text: str) -> bool:
    matcher = llguidance.LLMatcher(BYTES, lark, log_level=0)
    assert not matcher.is_error(), (lark, matcher.get_error())
    raw = list(text.encode())
    return bool(matcher.try_consume_tokens(raw) == len(raw) and matcher.is_accepting())


@settings(max_examples=scaled(100))
@given(grammars(), st.integers(0, 2**32), st.data())
def test_any_grammar_means_the_same(rules: Rules, seed: int, data: Any) -> None:
    derived = generate(rules, random.Random(seed), budget=40)
    assume(len(derived) < 200)
    grammar = Grammar(rules)
    lark = lark_text(grammar)
    for text in (derived, derived[1:], derived[:-1], derived + "a", data.draw(mutations(derived))):
        assert accepts(lark, text) == grammar.match(text).complete, (lark, text)


@settings(max_examples=scaled(20))
@given(
    st.lists(st.sampled_from(BUNDLED), unique=True, min_size=1, max_size=5),
    st.sampled_from([(), (1, 3)]),
    st.data(),
)
def test_calls_and_near_misses_of_a_pool(pool: Any, steps: Any, data: Any) -> None:
    grammar = compile_pool(pool, final_answer=True, steps=steps)
    tools = (*pool, FINAL_ANSWER)
    call = canonical_json(data.draw(calls(tools, steps=steps)))
    texts = [call, canonical_json(data.draw(near_misses(tools, steps=steps)).value), call[:-1], call + " "]
    expected = [found.complete for found in engine().match_many(grammar, texts)]
    assert [accepts(lark_text(grammar), text) for text in texts] == expected


@pytest.mark.parametrize(
    ("gbnf", "texts"),
    [
        ('root ::= "a"+ "ab"', ["aab", "ab", "aaab", "aabb"]),
        ('root ::= "ab" | [a] [bc] "d"', ["ab", "abd", "acd", "a"]),
        ('root ::= "(" root ")" | "ab" | [a] [b] "c"', ["(ab)", "((abc))", "(abd)"]),
        ('root ::= ("a" | "")', ["", "a", "aa"]),
        ('root ::= "a" root | ""', ["", "a", "aaa", "b"]),
        ("root ::= [^a]", ["é", "\n", "a", "", "\U0010ffff"]),
        ("root ::= .{2,3}", ["\n\n", "aé😀", "a"]),
        ('root ::= "\\"\\\\/\\n\\u2028]"', ['"\\/\n\u2028]', "a"]),
        ('root ::= a b\na ::= "x"{0}\nb ::= "y" | "z"', ["y", "xy", "z"]),
    ],
)
def test_what_lexemes_might_change(gbnf: str, texts: list[str]) -> None:
    grammar = Grammar.parse(gbnf)
    assert [accepts(lark_text(grammar), text) for text in texts] == [
        grammar.match(text).complete for text in texts
    ]


def test_a_class_of_nothing_matches_nothing() -> None:
    nul = char_class("\0")
    lark = lark_text(Grammar(Rules({"root": alt(seq(Literal("a"), nul), Literal("b"))})))
    assert [accepts(lark, text) for text in ("a", "b", "a\0")] == [False, True, False]
