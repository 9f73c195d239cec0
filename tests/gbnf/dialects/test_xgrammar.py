"""GBNF for xgrammar, put to the real xgrammar, and to llguidance, the other engine of vLLM and SGLang."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool, compile_schema
from gbnf.dialects import call_schema, xgrammar_text
from gbnf.grammar.ir import Rules
from gbnf.testing import calls, near_misses
from gbnf.testing.generation import canonical_json
from gbnf.tools import FINAL_ANSWER
from support.effort import scaled
from support.grammars import LETTERS, grammars
from support.oracle import engine
from support.pools import BUNDLED
from support.random_texts import generate

WITHOUT_LOOKAHEAD = [tool for tool in BUNDLED if "(?" not in json.dumps(tool.args)]
"""Tools with patterns that both engines read in a JSON Schema."""
STEPS = st.sampled_from([(), (1, 3)])
Accepts = Callable[[str], bool]


@cache
def xgrammar_compiler() -> Any:
    xgrammar = pytest.importorskip("xgrammar", reason="pip install xgrammar")
    bytes_and_end = [bytes([value]) for value in range(256)] + [b"</s>"]
    tokens = xgrammar.TokenizerInfo(
        bytes_and_end, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[len(bytes_and_end) - 1]
    )
    return xgrammar, xgrammar.GrammarCompiler(tokens, cache_enabled=False)


def by_xgrammar(gbnf: str) -> Accepts:
    xgrammar, compiler = xgrammar_compiler()
    compiled = compiler.compile_grammar(xgrammar.Grammar.from_ebnf(gbnf))

    def accepts(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
        return bool(matcher.accept_string(text) and matcher.is_completed())

    return accepts


def by_llguidance(definition: Callable[[Any], Any]) -> Accepts:
    llguidance = pytest.importorskip("llguidance", reason="pip install llguidance")
    read = definition(llguidance)
    tokens = llguidance.LLTokenizer("byte")

    def accepts(text: str) -> bool:
        matcher = llguidance.LLMatcher(tokens, read)
        assert not matcher.is_error(), matcher.get_error()
        raw = list(text.encode())
        return bool(matcher.try_consume_tokens(raw) == len(raw) and matcher.is_accepting())

    return accepts


def both_read(ours: Grammar, texts: list[str]) -> None:
    gbnf = xgrammar_text(ours)
    theirs, again = by_xgrammar(gbnf), Grammar.parse(gbnf)
    for text in texts:
        expected = ours.match(text).complete
        assert theirs(text) == expected, (gbnf, text)
        assert again.match(text).complete == expected, (gbnf, text)


@pytest.mark.slow
@settings(max_examples=scaled(60))
@given(grammars(), st.integers(0, 2**32), st.text(LETTERS, max_size=6))
def test_any_grammar_means_the_same(rules: Rules, seed: int, text: str) -> None:
    derived = generate(rules, random.Random(seed))
    assume(len(derived) < 500)
    both_read(Grammar(rules), [text, derived, derived[1:], derived[:-1], derived + "a"])


@pytest.mark.parametrize(
    ("gbnf", "texts"),
    [
        ("root ::= .", ["a", "é", "\n", "", "ab"]),
        ("root ::= [\\x5Ea]", ["^", "a", "b", "\\"]),
        ("root ::= [\\x5E-c]", ["^", "_", "c", "d"]),
        ("root ::= [\\x5E]", ["^", "a", "\\"]),
        ("root ::= [^\\x5E]", ["^", "a", "\\"]),
        ("root ::= [^\\x5E-c]", ["^", "_", "a", "d"]),
        ("root ::= [\\x01-\\x1Fa]", ["\x01", "\x1f", "a", "F", "\x7f", "1"]),
        ("root ::= [\\x5E\\x7F0-9]", ["^", "\x7f", "0", "F"]),
        ('root ::= "\\x1Fa\\x7F0"', ["\x1fa\x7f0", "a"]),
        ('root ::= "\\xA0a" 0b\n0b ::= "c" | r0b\nr0b ::= "d"', ["\xa0ac", "\xa0ad", "a"]),
        ('root ::= "\\u2028a" [\\u2028a] [\\U000E0001a]', ["\u2028aaa", "\u2028a\u2028\U000e0001", "aaa"]),
    ],
)
def test_what_xgrammar_reads_otherwise_is_written_otherwise(gbnf: str, texts: list[str]) -> None:
    both_read(Grammar.parse(gbnf), texts)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": r"^\p{L}+$"},
        {"type": "string", "pattern": r"^[^a-f]{2,5}\s\w$"},
        {"type": "string", "pattern": r"\^[\^x]", "maxLength": 20},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "email"},
        {"type": "number", "multipleOf": 0.05, "minimum": -3},
    ],
)
def test_patterns_formats_and_numbers(schema: Any) -> None:
    grammar = compile_schema(schema)
    derived = [generate(grammar.rules, random.Random(seed)) for seed in range(5)]
    both_read(grammar, [*derived, *(text[:-2] + text[-1:] for text in derived), '"é^"', "-3.05", '"a\\n"'])


@settings(max_examples=scaled(40))
@given(st.lists(st.sampled_from(BUNDLED), unique=True, min_size=1, max_size=5), STEPS, st.data())
def test_calls_and_near_misses_of_a_pool(pool: Any, steps: Any, data: Any) -> None:
    """llama.cpp by our GBNF; xgrammar by its part of it; llguidance by its own reading of that part."""
    grammar = compile_pool(pool, final_answer=True, steps=steps)
    gbnf = xgrammar_text(grammar)
    tools = (*pool, FINAL_ANSWER)
    call = data.draw(calls(tools, steps=steps))
    texts = [
        canonical_json(call),
        canonical_json(data.draw(near_misses(tools, steps=steps)).value),
        canonical_json(call)[:-1],
    ]
    expected = [found.complete for found in engine().match_many(grammar, texts)]
    guided = by_llguidance(lambda llguidance: llguidance.grammar_from("grammar", gbnf))
    assert [guided(text) for text in texts] == expected
    theirs = by_xgrammar(gbnf)  # last, since it may not be installed
    assert [theirs(text) for text in texts] == expected


@pytest.mark.parametrize(
    ("gbnf", "texts"),
    [
        ("root ::= [+\\-]", "+-,\\"),
        ("root ::= [^+\\-]", "+-,.\\é"),
        ("root ::= [^,-\\-]", "+-,."),
        ("root ::= [^\\-.0]", "+-,.0"),
        ("root ::= [\\--9a]", "+-,.5a:"),
        ("root ::= [ -\\-\\x5E]", " +-.^"),
        ("root ::= [\\-]", "-\\a"),
        ('root ::= "\\\\-" | [+-]', "+-"),
    ],
)
def test_a_dash_is_read_by_llguidance(gbnf: str, texts: str) -> None:
    ours = Grammar.parse(gbnf)
    guided = by_llguidance(lambda llguidance: llguidance.grammar_from("grammar", xgrammar_text(ours)))
    expected = [found.complete for found in engine().match_many(ours, texts)]
    assert [guided(text) for text in texts] == expected
    assert True in expected


@settings(max_examples=scaled(20))
@given(st.lists(st.sampled_from(WITHOUT_LOOKAHEAD), unique=True, min_size=1, max_size=5), st.data())
def test_valid_calls_pass_both_engines_by_the_schema(pool: Any, data: Any) -> None:
    schema = json.dumps(call_schema(pool, final_answer=True))
    call = data.draw(calls((*pool, FINAL_ANSWER)))
    guided = by_llguidance(lambda llguidance: llguidance.grammar_from("json_schema", schema))
    text = json.dumps(call, ensure_ascii=False)
    # their converters differ in how strings may be spelled: bounded ones of xgrammar know no escapes
    assume(text.isprintable() and "\\" not in text)
    assert guided(text)
    xgrammar, _ = xgrammar_compiler()
    assert by_xgrammar(str(xgrammar.Grammar.from_json_schema(schema, any_whitespace=True)))(text)
