"""Random words of a regular language."""

from __future__ import annotations

from hypothesis import strategies as st

from gbnf.regular.automaton import Dfa


@st.composite
def words_of(draw: st.DrawFn, language: Dfa, size: int = 30) -> str:
    """A word: a walk through the automaton, which looks for the way out after about `size` characters."""
    distances = _distances(language)
    state, word = 0, ""
    while True:
        edges = language.transitions[state]
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
