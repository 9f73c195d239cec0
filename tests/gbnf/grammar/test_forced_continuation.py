"""What a grammar forces: laws, then cases."""

from __future__ import annotations

from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.grammar.code_points import first_bytes
from gbnf.grammar.forced_continuation import ForcedContinuation, forced_continuation
from gbnf.grammar.ir import CharClass, Rules
from gbnf.grammar.match import Matcher
from support.grammars import classes, grammars
from support.random_texts import generate

seeds = st.integers(0, 2**32).map(Random)


@given(grammars(), seeds, st.integers(0, 60))
def test_every_text_of_the_language_begins_with_the_forced_text(
    rules: Rules, random: Random, cut: int
) -> None:
    text = generate(rules, random, budget=60)
    state = Matcher(rules).start().advance(text[:cut])
    assert state is not None
    found = forced_continuation(state, spaced=True, limit=100)
    forced = found.text[: found.forced]
    assert text[cut:].startswith(forced)
    if found.ends:
        assert text[cut:] == found.text
    else:
        (place, possible), *_ = found.choices
        assert place == found.forced
        following = text[cut + place : cut + place + 1]
        assert following == "" or following in possible


@given(grammars(), seeds, st.booleans())
def test_the_guess_fits(rules: Rules, random: Random, spaced: bool) -> None:
    text = generate(rules, random, budget=60)
    state = Matcher(rules).start().advance(text[: len(text) // 2])
    assert state is not None
    found = forced_continuation(state, spaced=spaced, limit=100)
    after = state.advance(found.text)
    assert after is not None
    assert after.must_end == found.ends or found.choices[-1][0] == len(found.text)


def test_a_call() -> None:
    start = Grammar.parse(
        'root ::= "{\\"name\\":" ws "\\"" ("find" | "fill") "\\"}"\nws ::= " "?'
    ).matcher.start()
    assert forced_continuation(start, spaced=True).text == '{"name": "fi'
    found = forced_continuation(start, spaced=False)
    assert (found.text, found.forced, [place for place, _ in found.choices]) == ('{"name":"fi', 8, [8, 11])
    late = start.advance('{"name": "fin')
    assert late is not None
    assert forced_continuation(late, spaced=True) == ForcedContinuation('d"}', 3, (), ends=True)


def test_a_text_without_end_is_forced_in_parts() -> None:
    found = forced_continuation(Grammar.parse('root ::= "ab" root').matcher.start(), spaced=True, limit=10)
    assert (found.text[:4], found.ends) == ("abab", False)
    assert len(found.text) < 20


def test_an_optional_end_is_a_choice() -> None:
    found = forced_continuation(Grammar.parse('root ::= "a" "b"?').matcher.start(), spaced=True)
    assert (found.text, found.ends) == ("a", False)


@given(classes(), st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
def test_the_first_bytes_of_a_class(of: CharClass, char: str) -> None:
    assume(char in of)
    assert char.encode()[0] in first_bytes(of)
