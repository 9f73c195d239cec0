from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.compiler.automaton_rules import string_expr, words_expr
from gbnf.compiler.grammar import CompiledRules, Grammar, link
from gbnf.compiler.literals import json_char
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import EMPTY_LANGUAGE, Ref, Rules
from gbnf.grammar.match import Matcher
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import CharSet
from gbnf.regular.ecma262 import search
from support.automata import from_transitions
from support.languages import finite_words
from support.oracle import engine
from support.patterns import TEXTS, patterns

LANGUAGES = st.one_of(
    patterns().map(search),
    st.lists(TEXTS, min_size=1, max_size=6).map(Dfa.of_words),
    st.tuples(patterns(), st.integers(0, 3), st.integers(3, 8)).map(
        lambda parts: search(parts[0]) & Dfa.of_length(parts[1], parts[2])
    ),
).filter(lambda language: not language.is_empty)
ESCAPED = st.text(st.sampled_from('a"\\/\n\t\b\x0b\x1f\x7f\u2028😀é'), max_size=5)


def written(language: Dfa) -> Grammar:
    """The grammar of the JSON strings whose content is in the language."""
    table = RuleTable(RESERVED - {"root"})
    root = table.reserve("root")
    table.define(root, string_expr(language, Scope(table, ("value",))))
    return link([CompiledRules.of(Rules(table.productions))], [], "default")


def text_of(pattern: str) -> str:
    return str(written(search(pattern)))


@given(LANGUAGES, st.lists(st.one_of(TEXTS, ESCAPED), min_size=4, max_size=8))
def test_the_grammar_is_the_language_to_the_matcher_and_the_engine(language: Dfa, texts: list[str]) -> None:
    grammar = written(language)
    matcher = Matcher(grammar.rules)
    shortest = language.shortest()
    assert shortest is not None
    asked = [*texts, shortest, *(finite_words(language, 20) or ())]
    expected = {json.dumps(text, ensure_ascii=False): language.accepts(text) for text in asked}
    assert {quoted: matcher.match(quoted).complete for quoted in expected} == expected
    readable = [quoted for quoted in expected if "\0" not in quoted]
    judgements = engine().match_many(grammar, readable)
    assert [one.complete for one in judgements] == [expected[quoted] for quoted in readable]


@given(LANGUAGES)
def test_the_same_language_is_the_same_text(language: Dfa) -> None:
    again = Dfa(language.table._replace()) & Dfa.all_words()
    assert str(written(again)) == str(written(language))


@given(st.characters(exclude_categories=["Cs"]), st.characters(exclude_categories=["Cs"]))
def test_every_character_has_one_spelling(one: str, other: str) -> None:
    matcher = Matcher(written(from_transitions([[(one, 1)], []], [1])).rules)
    assert matcher.match(json.dumps(one, ensure_ascii=False)).complete
    assert matcher.match(json.dumps(other, ensure_ascii=False)).complete == (one == other)
    assert not matcher.match(f'"\\u{ord(one):04x}"').complete or one < " "
    assert not matcher.match('"\\/"').complete


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^[a-z]{3,64}$", 'root ::= "\\"" [a-z]{3,64} "\\""\n'),
        ("^[a-z]+$", 'root ::= "\\"" [a-z]+ "\\""\n'),
        ("^(true|false)$", 'root ::= "\\"" ("false\\"" | "true\\"")\n'),
        ("^0{6}-x*$", 'root ::= "\\"" "000000-" [x]* "\\""\n'.replace('"\\"" "0', '"\\"0')),
        ("^\\n{3}$", 'root ::= "\\"\\\\n\\\\n\\\\n\\""\n'),
        ("^\\n{1,2}$", 'root ::= "\\"" valueChar1{1,2} "\\""\nvalueChar1 ::= "\\\\n"\n'),
        ("^[0-9a-f]{8}-[0-9a-f]{4}$", 'root ::= "\\"" [0-9a-f]{8} "-" [0-9a-f]{4} "\\""\n'),
    ],
)
def test_repetitions_are_written_as_such(pattern: str, text: str) -> None:
    assert sorted(text_of(pattern).splitlines()) == sorted(text.splitlines())


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z]{2,2500}$",
        "^(.{3}-){40}$",
        "^(a{1,30}b){1,30}$",
        "^(?:[^/]{1,63}/){1,10}$",
        "^" + "(x(y" * 40 + ")?)?" * 40 + "$",
    ],
    ids=range(5),
)
def test_the_engine_takes_great_bounds_and_deep_nesting(pattern: str) -> None:
    language = search(pattern)
    grammar = str(written(language))
    shortest = language.shortest()
    assert shortest is not None
    longest = language.lengths[1]
    assert longest is not None
    inside, outside = json.dumps(shortest), json.dumps("a" * (longest + 1))
    assert [one.complete for one in engine().match_many(grammar, [inside, outside])] == [True, False]
    assert max(map(_depth, grammar.splitlines())) < 30


def _depth(production: str) -> int:
    """How deep groups nest, outside literals and classes."""
    signs = re.findall(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|[()]', production)
    return max(itertools.accumulate((sign == "(") - (sign == ")") for sign in signs), default=0)


@given(LANGUAGES)
def test_no_production_repeats_what_may_be_empty(language: Dfa) -> None:
    """Every word ends in a quote, so no production derives the empty string, and none is left recursive."""
    grammar = written(language)
    matcher = Matcher(grammar.rules)
    assert not matcher.match("").complete
    for name in grammar.rules.productions:
        rest = Matcher(type(grammar.rules)(grammar.rules.productions, name))
        assert not rest.match("").complete, name


def test_words_are_written_as_they_are() -> None:
    scope = Scope(RuleTable(frozenset()), ())
    assert emit_expr(words_expr(search("^[1-9][0-9]{0,3}$"), scope)) == "[1-9] [0-9]{0,3}"
    assert words_expr(Dfa.of_words([]), scope) == EMPTY_LANGUAGE


def test_words_may_end_in_a_deep_nesting_of_alternatives() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz" * 2
    language = search("^" + "(?:!|".join(letters) + ")" * 51 + "$")
    table = RuleTable(frozenset())
    root = table.reserve("root")
    table.define(root, words_expr(language, Scope(table, ("word",))))
    grammar = Grammar(Rules(table.productions))
    for length in range(1, len(letters)):
        assert grammar.match(letters[:length] + "!").complete
    assert grammar.match(letters).complete
    assert not grammar.match(letters + "!").accepted


def test_nothing_is_written_for_the_empty_language() -> None:
    table = RuleTable(RESERVED)
    assert string_expr(Dfa.of_words([]), Scope(table, ())) == EMPTY_LANGUAGE
    assert not table.productions


def test_every_string_is_one_primitive_repeated() -> None:
    assert json_char(~CharSet()) == Ref("keyChar")
    grammar = str(written(Dfa.of_length(1, None)))
    assert grammar.startswith('root ::= "\\"" keyChar+ "\\""\n')
