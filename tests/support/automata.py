"""Automata that are written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gbnf.errors import InvalidArgumentError
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import CharSet, minterms
from gbnf.regular.transition_tables import DEAD, explore

#: An edge: the characters, as `CharSet.of` takes them, and the target.
Edge = tuple["str | tuple[int, int] | CharSet", int]


def from_transitions(transitions: Sequence[Iterable[Edge]], accepting: Iterable[int]) -> Dfa:
    """Return an explicit automaton: the edges that leave each state, state 0 being the start.

    Edges may name one target several times. Raises ValueError if two targets share a character.
    """
    edges = [[(CharSet.of(chars), target) for chars, target in row] for row in transitions]
    sets = list(dict.fromkeys(chars for row in edges for chars, _ in row))
    alphabet, holders = minterms(sets)
    classes = {
        chars: [number for number, bits in enumerate(holders) if bits >> index & 1]
        for index, chars in enumerate(sets)
    }
    rows = []
    for state, row in enumerate(edges):
        targets = [DEAD] * alphabet.size
        for chars, target in row:
            for number in classes[chars]:
                if targets[number] not in (DEAD, target):
                    raise InvalidArgumentError(f"state {state} has two targets for one character: {row}")
                targets[number] = target
        rows.append(tuple(targets))
    ends = frozenset(accepting)

    def successors(state: tuple[int]) -> list[tuple[int] | None]:
        return [None if target == DEAD else (target,) for target in rows[state[0]]]

    return Dfa(explore(alphabet, (0,), successors, lambda state: state[0] in ends, len(rows) + 1))
