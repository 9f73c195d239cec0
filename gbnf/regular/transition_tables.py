"""Transition tables: exploring the states of an automaton, and minimisation.

A table has one row for each state, state 0 being the start, and in each row the target for each class of an
alphabet, `DEAD` where there is none.

Invariants: in minimal form every state leads to acceptance, no two states accept the same words, no two
classes lead to the same states throughout, and states are numbered breadth first. So equal languages have
equal tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import NamedTuple, TypeVar

from gbnf.regular.charset import ONE_CLASS, Alphabet
from gbnf.work_limits import MAX_STATES, TooManyStatesError, spend

DEAD = -1

State = TypeVar("State", bound=Hashable)


class TransitionTable(NamedTuple):
    """A deterministic automaton in minimal form."""

    alphabet: Alphabet
    rows: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]


EMPTY_TABLE = TransitionTable(ONE_CLASS, ((DEAD,),), frozenset())


def explore(
    alphabet: Alphabet,
    start: State,
    successors: Callable[[State], Sequence[State | None]],
    accepts: Callable[[State], bool],
    limit: int = MAX_STATES,
) -> TransitionTable:
    """Return the minimal automaton of the states that can be reached.

    `successors` gives a state for each class of the alphabet; a falsy one is dead. Raises TooManyStatesError.
    """
    numbers: dict[State, int] = {start: 0}
    states = [start]
    work = _row_work(alphabet)
    rows: list[list[int]] = []
    for state in states:  # it grows while it is walked
        spend(work)
        row = []
        for following in successors(state):
            if not following:
                row.append(DEAD)
                continue
            number = numbers.get(following)
            if number is None:
                number = numbers[following] = len(states)
                if number >= limit:
                    raise TooManyStatesError(limit)
                states.append(following)
            row.append(number)
        rows.append(row)
    return minimize(alphabet, rows, [number for number, state in enumerate(states) if accepts(state)])


def _row_work(alphabet: Alphabet) -> int:
    """Return the work of one row, in the units of `gbnf.work_limits`."""
    return 2 + alphabet.size // 2


def minimize(
    alphabet: Alphabet, rows: Sequence[Sequence[int]], accepting: Collection[int]
) -> TransitionTable:
    """Return the minimal form of a table whose states can all be reached."""
    spend(_row_work(alphabet) * len(rows))
    sources: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for target in set(row):
            if target != DEAD:
                sources[target].append(state)
    live = _reaching(accepting, sources)
    if 0 not in live:
        return EMPTY_TABLE
    if len(live) < len(rows):
        rows = [[target if target in live else DEAD for target in row] for row in rows]
    blocks = _equivalence(rows, sources, live, frozenset(accepting))
    return _canonical(alphabet, rows, blocks, accepting)


def renumber(
    alphabet: Alphabet, rows: Sequence[Sequence[int]], accepting: Collection[int]
) -> TransitionTable:
    """Return the minimal form of a table whose states differ, can be reached, and lead to acceptance."""
    spend(_row_work(alphabet) * len(rows))
    return _canonical(alphabet, rows, [*range(len(rows)), DEAD], accepting) if accepting else EMPTY_TABLE


def _reaching(accepting: Collection[int], sources: Sequence[Sequence[int]]) -> set[int]:
    live = set(accepting)
    pending = list(live)
    while pending:
        for source in sources[pending.pop()]:
            if source not in live:
                live.add(source)
                pending.append(source)
    return live


def _equivalence(
    rows: Sequence[Sequence[int]], sources: Sequence[Sequence[int]], live: set[int], accepting: frozenset[int]
) -> list[int]:
    """Return the block of each state: two states are in one block exactly when they accept the same words.

    Partition refinement. A state is checked again when one of its targets changed its block, and when a block
    is split its largest part keeps the number: so no state changes its block more than log2(n) times (J.
    Hopcroft, "An n log n algorithm for minimizing states in a finite automaton", 1971).
    """
    blocks = [DEAD] * (len(rows) + 1)  # one more, so that the block of DEAD is DEAD
    members = [live & accepting, live - accepting]
    for state in members[0]:
        blocks[state] = 0
    for state in members[1]:
        blocks[state] = 1
    changed = live
    while changed:
        by_block: dict[int, list[int]] = {}
        for state in changed:
            by_block.setdefault(blocks[state], []).append(state)
        changed = set()
        for number, states in by_block.items():
            if len(members[number]) == 1:
                continue
            groups: dict[tuple[int, ...], list[int]] = {}
            for state in states:
                groups.setdefault(tuple([blocks[target] for target in rows[state]]), []).append(state)
            parts = [set(part) for part in groups.values()]
            if len(states) < len(members[number]):
                parts.append(members[number].difference(states))
            parts.sort(key=len)
            members[number] = parts.pop()
            for smaller in parts:
                for moved in smaller:
                    blocks[moved] = len(members)
                    changed.update(sources[moved])
                members.append(smaller)
        changed &= live
    return blocks


def _canonical(
    alphabet: Alphabet, rows: Sequence[Sequence[int]], blocks: Sequence[int], accepting: Collection[int]
) -> TransitionTable:
    """Return the table of the blocks, numbered as they are reached, with equal classes merged."""
    numbers = {blocks[0]: 0}
    representatives = [0]
    table: list[tuple[int, ...]] = []
    for state in representatives:  # it grows while it is walked
        row = []
        for target in rows[state]:
            block = blocks[target]
            if block == DEAD:
                row.append(DEAD)
                continue
            number = numbers.get(block)
            if number is None:
                number = numbers[block] = len(representatives)
                representatives.append(target)
            row.append(number)
        table.append(tuple(row))
    ends = frozenset([numbers[blocks[state]] for state in accepting])
    columns = list(zip(*table, strict=True))
    distinct = dict.fromkeys(columns)
    if len(distinct) == len(columns):
        return TransitionTable(alphabet, tuple(table), ends)
    return TransitionTable(alphabet.merged(columns), tuple(zip(*distinct, strict=True)), ends)
