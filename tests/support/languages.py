"""Random words of a regular language, and its transitions and words written out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from hypothesis import strategies as st

from gbnf.regular.automaton import Dfa
from gbnf.regular.transition_tables import DEAD


@st.composite
def words_of(draw: st.DrawFn, language: Dfa, size: int = 30) -> str:
    """A word: a walk through the automaton, towards an accepting state after about `size` characters."""
    distances = _distances(language)
    state, word = 0, ""
    rows = transitions(language)
    while True:
        edges = rows[state]
        if state in language.table.accepting and (len(word) >= size or not edges or draw(st.booleans())):
            return word
        if len(word) >= size:
            nearest = min(distances[target] for _, _, target in edges)
            edges = tuple(edge for edge in edges if distances[edge[2]] == nearest)
        low, high, state = draw(st.sampled_from(edges))
        word += chr(draw(st.integers(low, high)))


def _distances(language: Dfa) -> dict[int, int]:
    """The length of the shortest way from each state to the end of a word."""
    distances = dict.fromkeys(language.table.accepting, 0)
    distance = 0
    while len(distances) < len(language.table.rows):
        distance += 1
        reached = [
            state
            for state in range(len(language.table.rows))
            if state not in distances and any(target in distances for target in language.targets(state))
        ]
        distances.update(dict.fromkeys(reached, distance))
    return distances


@lru_cache(maxsize=64)
def transitions(language: Dfa) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    """For each state its edges as ascending ranges of code points: (low, high, target)."""
    ranges = list(language.table.alphabet.ranges())
    return tuple(
        tuple((low, high, row[number]) for low, high, number in ranges if row[number] != DEAD)
        for row in language.table.rows
    )


def finite_words(language: Dfa, limit: int) -> tuple[str, ...] | None:
    """All words, sorted; None if there are more than `limit`."""
    if language.is_empty:
        return ()
    if language.lengths[1] is None:
        return None
    found = [*islice(_words_from(language, 0, ""), limit + 1)]
    return None if len(found) > limit else tuple(sorted(found))


def _words_from(language: Dfa, state: int, word: str) -> Iterator[str]:
    if state in language.table.accepting:
        yield word
    for low, high, target in transitions(language)[state]:
        for code in range(low, high + 1):
            yield from _words_from(language, target, word + chr(code))
