"""A reported text is in exactly one language, by llama.cpp's engine; no difference is overlooked."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.errors import GrammarError
from gbnf.grammar import difference
from gbnf.grammar.difference import compare
from gbnf.grammar.ir import Alt, Expr, Literal, Rules, alt, char_class, literal, seq, with_parts
from gbnf.grammar.parse import parse_gbnf
from gbnf.testing import derivations
from support.effort import scaled
from support.grammars import grammars, quick
from support.oracle import accepts


@pytest.fixture(autouse=True, scope="module")
def little_work() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference, "_MAX_WORK", 300_000)
        yield


@given(grammars(), grammars(), st.data())
@settings(max_examples=scaled(60))
def test_a_reported_text_is_in_one_language_only(first: Rules, second: Rules, data: st.DataObject) -> None:
    found = compare(first, second)
    one, other = Grammar(first), Grammar(second)
    if found.text is not None:
        assert [accepts(one, found.text), accepts(other, found.text)] == [found.in_first, not found.in_first]
        assert len(found.text.encode()) == found.searched
    for grammar, another in ((one, other), (other, one)):
        try:
            text = data.draw(derivations(grammar, size=20))
        except GrammarError:
            continue
        assert accepts(another, text) or len(text.encode()) >= found.searched > -1


@given(grammars(), st.data())
@settings(max_examples=scaled(60))
def test_an_added_alternative_is_found(rules: Rules, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(rules.productions)))
    larger = Grammar(Rules({**rules.productions, name: alt(literal("§§"), rules.productions[name])}))
    assume(quick(larger.rules))
    found, opposite = compare(larger.rules, rules), compare(rules, larger.rules)
    if found.text is not None and opposite.text is not None:
        assert found.text == opposite.text
        assert found.in_first
        assert not opposite.in_first
    text = data.draw(derivations(larger, size=20))
    if not accepts(Grammar(rules), text):
        assert len(text.encode()) >= found.searched + (found.text is None)


@given(grammars())
@settings(max_examples=scaled(80))
def test_an_equal_grammar_in_other_words_has_no_difference(rules: Rules) -> None:
    def changed(expr: Expr) -> Expr:
        if isinstance(expr, Literal):
            return seq(*map(char_class, expr.text))
        return (
            alt(*map(changed, reversed(expr.items))) if isinstance(expr, Alt) else with_parts(expr, changed)
        )

    other = Rules({name: changed(expr) for name, expr in rules.productions.items()})
    assert compare(rules, other).text is None


# (grammar, grammar, the shortest text that one of them has; None: equal)
COMPARED = [
    ('root ::= "a" | "b"', "root ::= [ab]", None),
    ('root ::= "a" | "b"', 'root ::= "a"', "b"),
    ('root ::= "a"*', 'root ::= "" | "a"+', None),
    ('root ::= "a"*', 'root ::= "a"{0,50}', "a" * 51),
    ('root ::= "ab" "c"?', 'root ::= "a" "bc" | "ab"', None),
    ('root ::= [^"]*', "root ::= [^\"']*", "'"),
    ('root ::= "é" | "zz"', 'root ::= "é"', "zz"),
    ('root ::= "(" root ")" | "x"', 'root ::= a\na ::= "(" a ")" | "x"', None),
    ('root ::= "(" root ")" | "x"', 'root ::= "(" root ")" | "x" | "((y))"', "((y))"),
    ('root ::= "x" root', 'root ::= "y" root', None),
    ('root ::= "x" root | "y"', 'root ::= "x" root', "y"),
    ("root ::= <think>", 'root ::= "<think>"', None),
    ("root ::= !<think>", "root ::= x\nx ::= !<think>", None),
]


@pytest.mark.parametrize(("first", "second", "text"), COMPARED)
def test_compared(first: str, second: str, text: str | None) -> None:
    for one, other in ((first, second), (second, first)):
        found = compare(parse_gbnf(one), parse_gbnf(other))
        assert found.text == text
        if text is None:
            assert found.searched == inf


def test_the_search_ends_for_nesting_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "_MAX_WORK", 50_000)
    first = parse_gbnf('root ::= "(" root ")" | "x"')
    found = compare(first, parse_gbnf('root ::= "(" inner ")" | "x"\ninner ::= "x" | "(" root ")"'))
    assert found.text is None
    assert 20 < found.searched < inf


def test_a_text_beyond_what_is_counted_is_not_called_equal() -> None:
    longest = "\n".join(f"r{at} ::= r{at + 1}{{1000}}" for at in range(3))
    first = parse_gbnf(f'{longest}\nr3 ::= "x"\nroot ::= "a" | r0')
    assert compare(first, parse_gbnf('root ::= "a"')).searched == 1_000_000


def test_texts_that_depend_on_a_vocabulary() -> None:
    with pytest.raises(GrammarError, match="<think>"):
        compare(parse_gbnf("root ::= !<think>"), parse_gbnf('root ::= "a"'))
