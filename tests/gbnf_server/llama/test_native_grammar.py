"""Token terminals in llama.cpp's engine and in ours, over the embedded vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.dialects import xgrammar_text
from gbnf.dialects.lark import lark_text
from gbnf.errors import GrammarError
from gbnf.grammar.emit import emit
from gbnf.grammar.ir import CharClass, Expr, Rules, TokenTerminal, with_parts
from gbnf.grammar.parse import parse_gbnf
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.grammar_engines import grammar_engine
from gbnf_server.llama.native_grammar import native_grammar
from gbnf_server.system.errors import GrammarRefusedError
from support.effort import scaled
from support.grammars import grammars
from support.oracle import engine

MODEL = engine().model
SPECIAL = {text: MODEL.tokenize(text, special=True)[0] for text in ("<|tool|>", "<|user|>", "<|pad|>")}
NAMES = [*SPECIAL, 407, 170]  # "the" and "a"


@st.composite
def token_grammars(draw: st.DrawFn) -> Grammar:
    """A random grammar, some of whose classes are token terminals."""
    rules = draw(grammars())
    terminals = st.one_of(st.none(), st.builds(TokenTerminal, st.sampled_from(NAMES), st.booleans()))
    known: dict[CharClass, TokenTerminal | None] = {}

    def changed(expr: Expr) -> Expr:
        if not isinstance(expr, CharClass):
            return with_parts(expr, changed)
        if expr not in known:
            known[expr] = draw(terminals)
        return known[expr] or expr

    text = emit(Rules({name: changed(expr) for name, expr in rules.productions.items()}))
    return Grammar.parse(text)


@given(token_grammars())
def test_what_is_emitted_is_read_again(grammar: Grammar) -> None:
    assert parse_gbnf(str(grammar)) == grammar.rules


@given(token_grammars(), st.data())
@settings(max_examples=scaled(150))
def test_each_text_that_the_engine_takes_is_matched(grammar: Grammar, data: st.DataObject) -> None:
    """No token that our mask allows ends the process, and the automaton takes every text of the engine."""
    tokens = [*SPECIAL.values(), *MODEL.tokenize('the a ab01"\\[]^-\n\té日', special=False), 407, 170]
    with native_grammar(MODEL, grammar) as native:
        taken: list[int] = []
        for _ in range(8):
            possible = [token for token in tokens if native.allows(token)]
            text = b"".join(map(MODEL.piece, taken)).decode(errors="ignore")
            match = grammar.match(text)
            assert match.accepted
            if native.allows(min(MODEL.end_tokens)):
                assert match.complete
            if not possible:
                break
            taken.append(data.draw(st.sampled_from(possible)))
            native.accept(taken[-1])


# (grammar, texts of its language, other texts); special tokens are written by name
JUDGED: list[tuple[str, list[str], list[str]]] = [
    ('root ::= <|tool|> "a"', ["<|tool|>a"], ["a", "<|tool|>", "<|user|>a", "<tool>a"]),
    ('root ::= <[5]> "a"', ["<|tool|>a"], ["a", "<|user|>a"]),
    (
        "root ::= <|tool|> !<|user|>* <|user|> .*",
        ["<|tool|>the a<|user|>b", "<|tool|><|user|>"],
        ["<|tool|>the"],
    ),
    ('root ::= "t" !<|tool|>+ <|tool|>', ["the<|tool|>", "t the<|tool|>"], ["t<|tool|>", "the"]),
    ('root ::= "<" !<|tool|>', ["<a", "<|"], ["<", "<|tool|>"]),
    ('root ::= "<" <|tool|>', ["<<|tool|>"], ["<|tool|>", "<"]),
    ("root ::= !<|tool|>{2}", ["<a"], ["", "<|tool|>a", "<|user|>"]),
    ('root ::= "a" !<[5]>', ["ab"], ["a", "a<|tool|>"]),  # the token "ab" passes the engine's mask
    ("root ::= x{3}\nx ::= <|pad|>", ["<|pad|><|pad|><|pad|>"], ["<|pad|><|pad|>"]),
    ('root ::= "<|tool|>" | <|user|>', ["<|tool|>", "<|user|>"], ["<|pad|>"]),
]


@pytest.mark.parametrize(("gbnf", "texts", "others"), JUDGED)
def test_judged(gbnf: str, texts: list[str], others: list[str]) -> None:
    """Without a vocabulary, `match` takes any text for `!<…>` and `<[id]>`: it takes more, never less."""
    for text in texts:
        assert engine().match(gbnf, text).complete, text
        assert Grammar.parse(gbnf).match(text).complete, text
    for text in others:
        assert not engine().match(gbnf, text).complete, text
        if "!" not in gbnf and "[" not in gbnf:
            assert not Grammar.parse(gbnf).match(text).complete, text


# (grammar, words of the error)
LACKING = [
    ('root ::= "a" | <think>', "no token <think>: it spells this in 5"),
    ("root ::= !</think>*", "no token </think>"),
    ("root ::= <[99999]>", "no token <[99999]>: it has 3065"),
    ("root ::= <|tool|> <|end|>", "<|end|> ends the answers"),
    (f"root ::= {' | '.join(f'<[{number}]>' for number in range(10, 2100))}", "different token terminals"),
]


@pytest.mark.parametrize("name", ["llama.cpp", "llguidance"])
@pytest.mark.parametrize(("gbnf", "words"), LACKING)
def test_a_token_that_the_vocabulary_lacks_is_named(gbnf: str, words: str, name: Any) -> None:
    if name == "llguidance":
        pytest.importorskip("llguidance")
    with pytest.raises(GrammarRefusedError) as caught:
        grammar_engine(name, MODEL).constraint(Grammar.parse(gbnf))
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["llama.cpp", "llguidance"])
def test_a_negated_token_is_no_half_character(name: Any) -> None:
    if name == "llguidance":
        pytest.importorskip("llguidance")
    constraint = grammar_engine(name, MODEL).constraint(Grammar.parse("root ::= !<|tool|>"))
    halves = [token for token in range(MODEL.size) if MODEL.piece(token)[:1] == b"\xab"]
    assert halves
    assert not constraint.allowed(np.array(halves)).any()
    assert not any(map(constraint.allows, halves))


def test_a_negated_end_is_no_restriction() -> None:
    assert engine().match("root ::= !<|end|>+", "a<|tool|>").complete


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama.cpp", "llguidance"])
@given(token_grammars(), st.integers(0, 2**32))
@settings(max_examples=scaled(20))
def test_answers_are_in_the_language(random_model: Path, name: Any, grammar: Grammar, seed: int) -> None:
    if name == "llguidance":
        pytest.importorskip("llguidance")
    with InProcess(random_model, threads=1, prompt_style="minimal", engine=name) as model:
        request = Request(
            [{"role": "user", "content": "x"}], grammar, max_tokens=20, temperature=2.0, seed=seed
        )
        answer = model.complete(request)
    match = grammar.match(answer.reasoning + answer.text)
    assert match.complete if answer.finish_reason == "stop" else match.accepted


@pytest.mark.parametrize("translate", [xgrammar_text, lark_text])
def test_a_dialect_without_the_vocabulary_refuses_them(translate: Any) -> None:
    with pytest.raises(GrammarError, match="!<think>"):
        translate(Grammar.parse("root ::= !<think>"))
