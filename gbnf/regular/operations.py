"""Operations on transition tables: the product of two, and the table of given words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gbnf.errors import InvalidArgumentError
from gbnf.regular.alphabet import common_refinement, minterms
from gbnf.regular.charset import CharSet
from gbnf.regular.transition_tables import DEAD, MAX_STATES, TransitionTable, explore, renumber
from gbnf.surrogates import has_surrogate
from gbnf.work_limits import TooManyStatesError


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
