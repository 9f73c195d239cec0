"""Operations on transition tables: product, concatenation, iteration, and the table of given words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gbnf.effort import TooManyStates
from gbnf.regular.alphabet import common_refinement, minterms
from gbnf.regular.charset import CharSet
from gbnf.regular.transition_tables import DEAD, TransitionTable, explore, minimize
from gbnf.surrogates import has_surrogate


def product(
    left: TransitionTable, right: TransitionTable, keep: Callable[[bool, bool], bool], limit: int
) -> TransitionTable:
    """The words for which `keep(left has it, right has it)`. `keep(False, False)` must be False.

    The states are pairs; a side whose word is lost for good stays at DEAD.
    """
    alphabet, pairs = common_refinement(left.alphabet, right.alphabet)
    left_rows, right_rows = _with_dead_row(left), _with_dead_row(right)
    # What may still be kept where the left side, or the right side, or neither is dead.
    lost = [
        [
            not any(keep(one, two) for one in {False, left_lives} for two in {False, right_lives})
            for right_lives in (True, False)
        ]
        for left_lives in (True, False)
    ]

    def successors(state: tuple[int, int]) -> list[tuple[int, int] | None]:
        one, two = left_rows[state[0]], right_rows[state[1]]
        return [None if lost[one[a] < 0][two[b] < 0] else (one[a], two[b]) for a, b in pairs]

    def accepts(state: tuple[int, int]) -> bool:
        return keep(state[0] in left.accepting, state[1] in right.accepting)

    return explore(alphabet, (0, 0), successors, accepts, limit)


def concatenation(left: TransitionTable, right: TransitionTable, limit: int) -> TransitionTable:
    """A word of the left table and then one of the right.

    A state is where the left one is (or DEAD), and the set of places where the right one may be, as bits.
    """
    alphabet, pairs = common_refinement(left.alphabet, right.alphabet)
    left_rows, right_masks = _with_dead_row(left), _masks(right)
    ends = _bits(right.accepting)

    def successors(state: tuple[int, int]) -> list[tuple[int, int] | None]:
        row, found = left_rows[state[0]], []
        for one, two in pairs:
            target = row[one]
            places = _step(state[1], right_masks[two]) | (target in left.accepting)
            found.append((target, places) if target != DEAD or places else None)
        return found

    start = (0, int(0 in left.accepting))
    return explore(alphabet, start, successors, lambda state: bool(state[1] & ends), limit)


def iteration(table: TransitionTable, limit: int) -> TransitionTable:
    """Any number of words of the table, one behind the other.

    A state is the set of places where the table may be, as bits, and whether nothing has been read yet.
    """
    masks, ends = _masks(table), _bits(table.accepting)

    def successors(state: tuple[int, bool]) -> list[tuple[int, bool] | None]:
        found: list[tuple[int, bool] | None] = []
        for mask in masks:
            places = _step(state[0], mask)
            found.append((places | bool(places & ends), False) if places else None)
        return found

    def accepts(state: tuple[int, bool]) -> bool:
        return state[1] or bool(state[0] & ends)

    return explore(table.alphabet, (1, True), successors, accepts, limit)


def words_table(words: Iterable[str], limit: int) -> TransitionTable:
    """Exactly these words: a trie, whose equal branches are found from the leaves up.

    Raises ValueError for a word with a lone surrogate, TooManyStates.
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
        if len(numbers) > limit:
            raise TooManyStates(limit)
    chars.pop("", None)
    if has_surrogate("".join(chars)):
        raise ValueError("a word holds half of a surrogate pair, which is no character")
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
    return minimize(alphabet, rows, accepting)


def _with_dead_row(table: TransitionTable) -> list[Sequence[int]]:
    """The rows, and at index DEAD one that leads nowhere."""
    return [*table.rows, (DEAD,) * table.alphabet.size]


def _masks(table: TransitionTable) -> list[list[int]]:
    """For each class, for each state, the bit of its target."""
    return [
        [0 if row[number] == DEAD else 1 << row[number] for row in table.rows]
        for number in range(table.alphabet.size)
    ]


def _step(places: int, mask: Sequence[int]) -> int:
    following = 0
    while places:
        lowest = places & -places
        following |= mask[lowest.bit_length() - 1]
        places ^= lowest
    return following


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)
