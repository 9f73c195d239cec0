"""Regular languages as deterministic automata, closed under the boolean operations.

A word is a string of characters (code points without surrogates).

Invariants: a `Dfa` is minimal and numbered canonically, so two of them are equal, and have the same hash,
exactly if they accept the same words. Every operation that may multiply states raises `TooManyStatesError`
above a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from gbnf.errors import InvalidArgumentError
from gbnf.regular.charset import ONE_CLASS, CharSet, common_refinement, minterms
from gbnf.regular.transition_tables import (
    DEAD,
    EMPTY_TABLE,
    TransitionTable,
    explore,
    minimize,
    renumber,
)
from gbnf.surrogates import has_surrogate
from gbnf.work_limits import MAX_STATES, TooManyStatesError, work_cache


@dataclass(frozen=True)
class Dfa:
    """A regular language. State 0 is the start. Build it with the constructors below."""

    table: TransitionTable

    @staticmethod
    def all_words() -> Dfa:
        """Return every word."""
        return _ALL_WORDS

    @staticmethod
    @work_cache(maxsize=256)
    def of_length(minimum: int, maximum: int | None, limit: int = MAX_STATES) -> Dfa:
        """Return the words of `minimum` to `maximum` characters (None: without bound)."""
        if maximum is not None and maximum < minimum:
            return _EMPTY
        last = minimum if maximum is None else maximum
        if last >= limit:
            raise TooManyStatesError(limit)
        rows = [(state + 1,) for state in range(last)]
        rows.append((last,) if maximum is None else (DEAD,))
        return Dfa(minimize(ONE_CLASS, rows, range(minimum, last + 1)))

    @staticmethod
    def of_words(words: Iterable[str]) -> Dfa:
        """Return exactly these words. A word with a lone surrogate raises ValueError."""
        return Dfa(words_table(words))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.table)

    # Words

    def accepts(self, text: str) -> bool:
        """Return whether the text is a word of the language. Lone surrogates are in no word."""
        state, rows, class_of = 0, self.table.rows, self.table.alphabet.class_of
        for char in text:
            number = class_of(char)
            if number < 0:
                return False
            state = rows[state][number]
            if state < 0:
                return False
        return state in self.table.accepting

    @property
    def is_empty(self) -> bool:
        """Whether there are no words."""
        return not self.table.accepting

    @cached_property
    def lengths(self) -> tuple[int, int | None]:
        """The least and the greatest length of a word, in characters (None: without bound).

        Raises ValueError for the empty language.
        """
        shortest = self.shortest()
        if shortest is None:
            raise InvalidArgumentError("the empty language has no words, so they have no lengths")
        longest: dict[int, int] = {}
        try:
            for state in TopologicalSorter(
                {state: self.targets(state) for state in range(len(self.table.rows))}
            ).static_order():
                longest[state] = max((longest[target] + 1 for target in self.targets(state)), default=0)
        except CycleError:
            return len(shortest), None
        return len(shortest), longest[0]

    def shortest(self) -> str | None:
        """Return a shortest word, the first of them by code points; None if there are no words."""
        if self.is_empty:
            return None
        firsts = [chr(chars.ranges[0][0]) for chars in self.table.alphabet.sets()]
        words = {0: ""}
        for state in (pending := [0]):  # it grows while it is walked
            if state in self.table.accepting:
                return words[state]
            for char, target in zip(firsts, self.table.rows[state], strict=True):
                if target != DEAD and target not in words:
                    words[target] = words[state] + char
                    pending.append(target)
        raise AssertionError("an automaton in minimal form accepts something, or is empty")

    # Structure

    def targets(self, state: int) -> list[int]:
        """Return the next states, each once, in the order of the first characters that lead to them."""
        return [target for target in dict.fromkeys(self.table.rows[state]) if target != DEAD]

    # Operations

    def __and__(self, other: Dfa) -> Dfa:
        """Return the words of both."""
        return Dfa(product(self.table, other.table, lambda in_left, in_right: in_left and in_right))

    def __or__(self, other: Dfa) -> Dfa:
        """Return the words of either."""
        return Dfa(product(self.table, other.table, lambda in_left, in_right: in_left or in_right))

    def __sub__(self, other: Dfa) -> Dfa:
        """Return the words of the first that are not words of the second."""
        return Dfa(product(self.table, other.table, lambda in_left, in_right: in_left and not in_right))

    def __invert__(self) -> Dfa:
        """Return every other word."""
        return _ALL_WORDS - self


_EMPTY = Dfa(EMPTY_TABLE)
_ALL_WORDS = Dfa(TransitionTable(ONE_CLASS, ((0,),), frozenset([0])))


def product(
    left: TransitionTable, right: TransitionTable, keep: Callable[[bool, bool], bool]
) -> TransitionTable:
    """Return the words for which `keep(in left, in right)` is true. `keep(False, False)` must be False.

    The states are pairs; a side that can't accept any more stays at DEAD.
    """
    alphabet, pairs = common_refinement(left.alphabet, right.alphabet)
    left_rows, right_rows = _with_dead_row(left), _with_dead_row(right)
    # Whether nothing can be kept any more where the left side, the right side, both or neither live.
    lost = [
        [
            not any(keep(a, b) for a in {False, left_lives} for b in {False, right_lives})
            for right_lives in (True, False)
        ]
        for left_lives in (True, False)
    ]

    def successors(state: tuple[int, int]) -> list[tuple[int, int] | None]:
        lefts, rights = left_rows[state[0]], right_rows[state[1]]
        return [None if lost[lefts[a] < 0][rights[b] < 0] else (lefts[a], rights[b]) for a, b in pairs]

    def accepts(state: tuple[int, int]) -> bool:
        return keep(state[0] in left.accepting, state[1] in right.accepting)

    return explore(alphabet, (0, 0), successors, accepts)


def words_table(words: Iterable[str]) -> TransitionTable:
    """Return exactly these words, from a trie whose equal branches are merged from the leaves up.

    Raises ValueError for a word with a lone surrogate, TooManyStatesError.
    """
    trie: dict[str, dict] = {}  # type: ignore[type-arg]  # it holds itself
    for word in words:
        node = trie
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    chars: dict[str, None] = {}
    numbers: dict[frozenset[tuple[str, int]], int] = {}
    nodes: dict[int, int] = {}
    pending = [(trie, False)]
    while pending:
        node, done = pending.pop()
        if not done:
            pending.append((node, True))
            pending += [(child, False) for char, child in node.items() if char]
            continue
        chars.update(dict.fromkeys(node))
        edges = frozenset((char, nodes[id(child)] if char else DEAD) for char, child in node.items())
        nodes[id(node)] = numbers.setdefault(edges, len(numbers))
        if len(numbers) > MAX_STATES:
            raise TooManyStatesError(MAX_STATES)
    chars.pop("", None)
    if has_surrogate("".join(chars)):
        raise InvalidArgumentError("a word contains half of a surrogate pair, which is not a character")
    alphabet, _ = minterms([CharSet.single(ord(char)) for char in chars])
    # The start, found last, becomes state 0.
    last = len(numbers) - 1
    rows, accepting = [], []
    for number, edges in enumerate(reversed(numbers)):
        row = [DEAD] * alphabet.size
        for char, target in edges:
            if char:
                row[alphabet.class_of(char)] = last - target
            else:
                accepting.append(number)
        rows.append(row)
    return renumber(alphabet, rows, accepting)


def _with_dead_row(table: TransitionTable) -> list[Sequence[int]]:
    """Return the rows, and at index DEAD one that leads nowhere."""
    return [*table.rows, (DEAD,) * table.alphabet.size]
