from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import CharSet
from gbnf.regular.ecma262 import search
from gbnf.work_limits import TooManyStatesError
from support.automata import from_transitions
from support.languages import finite_words, transitions
from support.patterns import TEXTS, patterns

LANGUAGES = st.one_of(
    patterns(looks=False).map(search),
    st.lists(TEXTS, max_size=5).map(Dfa.of_words),
    st.tuples(st.integers(0, 4), st.none() | st.integers(0, 6)).map(lambda bounds: Dfa.of_length(*bounds)),
)

NO_WORDS = Dfa.of_words([])


@given(LANGUAGES, LANGUAGES, TEXTS)
def test_operations_are_those_of_languages(left: Dfa, right: Dfa, text: str) -> None:
    one, two = left.accepts(text), right.accepts(text)
    assert (left & right).accepts(text) == (one and two)
    assert (left | right).accepts(text) == (one or two)
    assert (left - right).accepts(text) == (one and not two)
    assert (~left).accepts(text) == (not one)


@given(LANGUAGES, LANGUAGES, LANGUAGES)
def test_equal_languages_are_equal_values(left: Dfa, right: Dfa, other: Dfa) -> None:
    assert ~~left == left
    assert ~(left | right) == ~left & ~right
    assert left - right == left & ~right
    assert left & (right | other) == left & right | left & other
    assert hash(left | right) == hash(right | left)
    assert left - left == NO_WORDS
    assert left | ~left == Dfa.all_words()


@given(LANGUAGES)
def test_no_two_states_are_alike(language: Dfa) -> None:
    """A language that could do with fewer states or classes would not be in its one form."""
    table = language.table
    assert len(set(zip(*table.rows, strict=True))) == table.alphabet.size
    if language.is_empty:
        assert table == NO_WORDS.table
        return
    words: list[Dfa] = []
    for state in range(len(table.rows)):
        edges = [
            [(CharSet(((low, high),)), target) for low, high, target in row] for row in transitions(language)
        ]
        # The same automaton, started elsewhere: state 0 and this one are swapped.
        swapped = {0: state, state: 0}
        edges[0], edges[state] = edges[state], edges[0]
        renamed = [[(chars, swapped.get(target, target)) for chars, target in row] for row in edges]
        words.append(from_transitions(renamed, [swapped.get(end, end) for end in table.accepting]))
    assert len(set(words)) == len(words)
    assert not any(one.is_empty for one in words)


@given(LANGUAGES)
def test_transitions_are_the_language(language: Dfa) -> None:
    edges = [[((low, high), target) for low, high, target in row] for row in transitions(language)]
    assert from_transitions(edges, language.table.accepting) == language


@given(LANGUAGES)
def test_properties_of_the_words_are_correct(language: Dfa) -> None:
    shortest = language.shortest()
    assert (shortest is None) == language.is_empty
    if shortest is None:
        assert finite_words(language, 10) == ()
        return
    least, greatest = language.lengths
    assert language.accepts(shortest)
    assert len(shortest) == least
    assert language & Dfa.of_length(least, greatest) == language
    assert (language & Dfa.of_length(0, least - 1)).is_empty
    words = finite_words(language, 500)
    if words is not None:
        assert len(words) == len(set(words))
        assert Dfa.of_words(words) == language
        assert max(map(len, words)) == greatest


@given(st.lists(TEXTS, max_size=8))
def test_words_are_what_was_put_in(words: list[str]) -> None:
    assert finite_words(Dfa.of_words(words), 8) == tuple(sorted(set(words)))


def test_an_explicit_automaton_counts_modulo_three() -> None:
    thirds = from_transitions(
        [
            [(char, int(char) % 3) for char in "0123456789"],
            [(char, (10 + int(char)) % 3) for char in "0123456789"],
            [(char, (20 + int(char)) % 3) for char in "0123456789"],
        ],
        [0],
    )
    assert len(thirds.table.rows) == 3
    assert all(thirds.accepts(str(number)) == (number % 3 == 0) for number in range(200))


def test_an_explicit_automaton_must_be_deterministic() -> None:
    with pytest.raises(ValueError, match="two targets"):
        from_transitions([[("ab", 0), ("b", 1)], []], [0])


def test_surrogates_are_no_characters() -> None:
    assert not Dfa.all_words().accepts("\ud800")
    with pytest.raises(ValueError, match="surrogate"):
        Dfa.of_words(["a\udc00"])


def test_the_empty_language_has_no_lengths() -> None:
    with pytest.raises(ValueError, match="no words"):
        _ = NO_WORDS.lengths


def test_budgets_are_kept() -> None:
    with pytest.raises(TooManyStatesError):
        Dfa.of_length(0, 5000)
    with pytest.raises(TooManyStatesError):
        Dfa.of_words([f"{number:09}{number * number}" for number in range(3000)])
    ones, twos = search("^(?:.{97})*$"), search("^(?:.{89})*$")
    with pytest.raises(TooManyStatesError):
        _ = ones & twos
