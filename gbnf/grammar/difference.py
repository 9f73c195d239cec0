"""Compare the languages of two grammars: the shortest text that only one of them has.

The states of both automata after the same text are a pair. Pairs are visited in the order of the shortest
text that could still tell them apart (A*, in bytes of UTF-8). Languages are equal if all pairs are visited,
as those of regular grammars are soon, or if the grammars differ only in the names and the order of rules.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf
from os.path import commonprefix
from typing import NamedTuple

from gbnf.grammar.analysis import MAX_BYTES, cheapest_costs, require_texts, utf8_length
from gbnf.grammar.ir import Ref, Rules
from gbnf.grammar.match import Matcher, MatchState
from gbnf.grammar.network import TextNode
from gbnf.grammar.passes import drop_unreachable, run_passes, substitute
from gbnf.grammar.states import next_characters
from gbnf.work_limits import WorkLimitError, limit_work, spend

_MAX_WORK = 10_000_000  # some seconds
_STEP_WORK = 20  # of a pair's step that both automata have cached
_VISIT_WORK = 10  # of a visit of the matcher


class Comparison(NamedTuple):
    """The result of comparing two grammars.

    `text`: the shortest that only one of them has, the first if `in_first`; None if none is found. Then
    `searched` is the length in bytes up to which there is none, infinite if the languages are equal.
    """

    text: str | None
    in_first: bool
    searched: float


def compare(first: Rules, second: Rules) -> Comparison:
    """Compare two grammars, with bounded work.

    Raises GrammarError for token terminals whose text depends on a vocabulary, and AmbiguousGrammarError.
    """
    grammars = [_canonical(first), _canonical(second)]
    if grammars[0] == grammars[1]:
        return Comparison(None, in_first=False, searched=inf)
    for rules in grammars:
        require_texts(rules)
    matchers = [Matcher(rules) for rules in grammars]
    heap: list[tuple[float, int, str, MatchState | None, MatchState | None]] = []
    seen: set[tuple[MatchState | None, MatchState | None]] = set()
    number = count()

    def visit(text: str, *states: MatchState | None) -> None:
        left, right = (state if state and state.ending_length < inf else None for state in states)
        if (left or right) and (left, right) not in seen:
            seen.add((left, right))
            is_difference = not (left and right) or left.can_end != right.can_end
            rest = min(state.ending_length for state in (left, right) if state)
            length = utf8_length(text) + max(rest, not is_difference)
            heappush(heap, (length, next(number), text, left, right))

    visit("", *[matcher.start() for matcher in matchers])
    with limit_work(_MAX_WORK):
        while heap:
            searched, _, text, left, right = heappop(heap)
            if left is None or right is None or left.can_end != right.can_end:
                state = left if right is None or (left and left.can_end) else right
                assert state is not None
                return Comparison(text + state.shortest_ending(), state is left, searched)
            visits = sum(matcher.visits for matcher in matchers)
            try:
                for added in _next_texts(left, right):
                    visit(text + added, left.advance(added), right.advance(added))
                    spend(_STEP_WORK + len(text) // 16)
                spend(_VISIT_WORK * (sum(matcher.visits for matcher in matchers) - visits))
            except WorkLimitError:
                return Comparison(None, in_first=False, searched=searched - 1)
    is_known = all(cheapest_costs(rules).keys() == rules.productions.keys() for rules in grammars)
    return Comparison(None, in_first=False, searched=inf if is_known else MAX_BYTES)


def _next_texts(left: MatchState, right: MatchState) -> list[str]:
    """Return how texts of either go on: with the literal that both share, or a character of each kind."""
    tops = (*left.tops, *right.tops)
    if len(left.tops) == len(right.tops) == 1:
        rests = [node.text[offset:] for node, offset, _ in tops if isinstance(node, TextNode)]
        if len(rests) == 2 and (shared := commonprefix(rests)):  # noqa: RUF071  # these are no paths
            return [shared]
    return next_characters(tops)


def _canonical(rules: Rules) -> Rules:
    """Return the rules after all passes, with numbers for names, in the order of the first reference."""
    rules = run_passes(rules)
    root = rules.productions[rules.root]
    if isinstance(root, Ref):  # the only alias that is left
        rules = drop_unreachable(Rules(rules.productions, root.name))
    names = {name: Ref(str(number)) for number, name in enumerate(rules.productions)}
    return Rules({names[name].name: substitute(expr, names) for name, expr in rules.productions.items()}, "0")
