"""Subset construction: from position automata to deterministic ones.

Without lookarounds, a state is the set of positions that may follow. A lookaround has a language of its own,
its body's. The automaton of a lookahead's body runs from the position of the lookahead on, and must accept at
the end; until that is certain, the lookahead is pending. The automaton of a lookbehind's body runs from the
start of the text. So with lookarounds a state is a set of positions for each set of pending lookaheads, and
the states of the lookbehinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import common_refinement, minterms
from gbnf.regular.glushkov import END, MAX_WORK, START, UNCONDITIONAL, Condition, PositionAutomaton, bits
from gbnf.regular.transition_tables import DEAD, explore
from gbnf.work_limits import MAX_STATES, TooManyStatesError, spend

#: Pending lookaheads: the number of the condition, and the state of its body's automaton.
_PendingLookaheads: TypeAlias = frozenset[tuple[int, int]]
_Threads: TypeAlias = frozenset[tuple[_PendingLookaheads, int]]
_State: TypeAlias = tuple[_Threads, tuple[int, ...]]
_NO_LOOKAHEADS: _PendingLookaheads = frozenset()

#: The most sets of positions before minimisation: they are cheap, and many are often one state in the end.
_MAX_SUBSETS = 10_000
_STEP_WORK = 10  # the work of one step under conditions, in steps without


def determinise(positions: PositionAutomaton, bodies: Mapping[Condition, Dfa]) -> Dfa:
    """Return the language of a position automaton. `bodies` has one for each of its conditions.

    A lookahead's body is the language of the texts that may follow its position, a lookbehind's of those that
    may precede it; that of a negative lookaround is already complemented. Raises TooManyStatesError.
    """
    alphabet, holders = minterms(list(positions.sets))
    masks = [
        sum(mask for index, mask in enumerate(positions.sets.values()) if bits_of >> index & 1)
        for bits_of in holders
    ]
    if not bodies:
        plain = _Subsets(positions, masks)
        table = explore(alphabet, plain.start, plain.successors, plain.accepts, _MAX_SUBSETS)
        if len(table.rows) > MAX_STATES:
            raise TooManyStatesError(MAX_STATES)
        return Dfa(table)
    columns: list[tuple[int, ...]] = [(mask,) for mask in masks]
    for body in bodies.values():
        alphabet, pairs = common_refinement(alphabet, body.table.alphabet)
        columns = [(*columns[number], body_class) for number, body_class in pairs]
    walk = _ConditionalSubsets(positions, bodies, columns)
    return Dfa(explore(alphabet, walk.start, walk.successors, walk.accepts))


class _Subsets:
    """The states of a position automaton without conditions: the positions that may follow, as bits."""

    def __init__(self, positions: PositionAutomaton, masks: Sequence[int]) -> None:
        self._follow = [steps.get(UNCONDITIONAL, 0) for steps in positions.steps]
        self._masks = masks  # for each class the positions that read it
        self._sink = positions.sink
        self._followers = {0: 0}
        self._work = 0
        self.start = self._follow[0]

    def successors(self, state: int) -> list[int | None]:
        targets: list[int | None] = []
        for mask in self._masks:
            moved = state & mask
            following = self._followers.get(moved)
            targets.append(self._following(moved) if following is None else following)
        return targets

    def _following(self, moved: int) -> int:
        self._work += moved.bit_count()
        spend(1 + moved.bit_count() // 4)
        if self._work > MAX_WORK:
            raise TooManyStatesError(MAX_WORK, "steps to build")
        following = 0
        for number in bits(moved):
            following |= self._follow[number]
        if self._sink and following & self._sink == self._sink:
            following = self._sink
        self._followers[moved] = following
        return following

    def accepts(self, state: int) -> bool:
        return bool(state & END)


class _ConditionalSubsets:
    """The states of a position automaton with conditions."""

    def __init__(
        self,
        positions: PositionAutomaton,
        bodies: Mapping[Condition, Dfa],
        columns: Sequence[tuple[int, ...]],
    ) -> None:
        self._steps = positions.steps
        self._sink = positions.sink & ~END
        self._columns = columns  # for each class the positions that read it, and its class for each body
        self._numbers = {condition: number for number, condition in enumerate(bodies)}
        self._bodies = tuple(bodies.values())
        self._accepting = [body.table.accepting for body in self._bodies]
        self._work = 0
        self.start: _State = (frozenset([(_NO_LOOKAHEADS, START)]), (0,) * len(self._bodies))

    def successors(self, state: _State) -> list[_State | None]:
        """Return the next state for each class of the alphabet, None if no thread goes on."""
        threads, behind = state
        targets: list[_State | None] = []
        for mask, *classes in self._columns:
            reached: dict[_PendingLookaheads, int] = {}
            for lookaheads, here in threads:
                for number in bits(here):
                    for conditions, follow in self._steps[number].items():
                        if not follow & mask:
                            continue
                        self._work += _STEP_WORK
                        spend(1)
                        if self._work > MAX_WORK:
                            raise TooManyStatesError(MAX_WORK, "steps to build")
                        pending = self._with_conditions(lookaheads, conditions, behind)
                        advanced = None if pending is None else self._advance(pending, classes)
                        if advanced is not None:
                            reached[advanced] = reached.get(advanced, 0) | follow & mask
            if not reached:
                targets.append(None)
            elif reached.get(_NO_LOOKAHEADS, 0) & self._sink:
                targets.append((frozenset([(_NO_LOOKAHEADS, self._sink)]), ()))
            else:
                moved = tuple(
                    DEAD if body_state == DEAD else body.table.rows[body_state][number]
                    for body_state, body, number in zip(behind, self._bodies, classes, strict=bool(behind))
                )
                targets.append((_strongest(reached), moved))
        return targets

    def accepts(self, state: _State) -> bool:
        threads, behind = state
        for lookaheads, here in threads:
            for number in bits(here):
                for conditions, follow in self._steps[number].items():
                    if follow & END:
                        pending = self._with_conditions(lookaheads, conditions, behind)
                        if pending is not None and all(
                            body_state in self._accepting[condition] for condition, body_state in pending
                        ):
                            return True
        return False

    def _with_conditions(
        self, lookaheads: _PendingLookaheads, conditions: Iterable[Condition], behind: Sequence[int]
    ) -> _PendingLookaheads | None:
        """Return the pending lookaheads with those of the conditions; None if a lookbehind fails."""
        for condition in conditions:
            number = self._numbers[condition]
            if not condition.lookaround.behind:
                lookaheads |= {(number, 0)}
            elif behind[number] not in self._accepting[number]:
                return None
        return lookaheads

    def _advance(self, lookaheads: _PendingLookaheads, classes: Sequence[int]) -> _PendingLookaheads | None:
        """Return the lookaheads that are pending one character on; None if one has failed."""
        advanced = []
        for number, body_state in lookaheads:
            rows = self._bodies[number].table.rows
            target = rows[body_state][classes[number]]
            if target == DEAD:
                return None
            if target not in self._accepting[number] or any(to != target for to in rows[target]):
                advanced.append((number, target))
        return frozenset(advanced)


def _strongest(reached: dict[_PendingLookaheads, int]) -> _Threads:
    """Remove the positions that are reached with fewer pending lookaheads as well."""
    strongest = dict(reached)
    for lookaheads in reached:
        for fewer, positions in reached.items():
            if fewer < lookaheads:
                strongest[lookaheads] &= ~positions
    return frozenset(item for item in strongest.items() if item[1])
