"""How many stacks llama.cpp's engine keeps at once for a grammar.

The engine follows all derivations of a text. Where alternatives begin with the same characters, each is a
stack until the text tells them apart. Alternatives inside each other multiply, so the number of stacks can
grow exponentially with the nesting of the text.

`nesting_products` bounds the number from above, from the unions alone. `StackSearch` finds a text, and so
bounds it from below: it counts the stacks of the matcher, which are the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, count, repeat
from math import inf

from gbnf.errors import AmbiguousGrammarError
from gbnf.grammar.analysis import in_cycles, strong_components
from gbnf.grammar.ir import Rules
from gbnf.grammar.match import Matcher, MatchState
from gbnf.grammar.network import CallNode, CharsNode, ChoiceNode, Node, RepeatNode, TextNode
from gbnf.grammar.states import Frame, Frames, Stack, stack_count

#: The most stacks that the engine may keep.
MAX_STACKS = 1024
#: The product of unions inside each other below which nothing is searched: other choices have the rest.
_MAX_PRODUCT = 128
#: The visits of nodes in a search from one rule, those after which it ends unless it finds more stacks, and
#: the most rules from which the texts of a grammar are searched, each after the first with fewer visits.
_SEARCH_VISITS = 16_000
_FRUITLESS_VISITS = 10_000
_MOST_STARTS = 3
_LATER_SHARE = 4
_STEPS = 8  # characters, about, from one node to the next


def takes_many_stacks(rules: Rules, unions: Mapping[str, float]) -> bool:
    """Return whether a text was found for which the engine keeps more than `MAX_STACKS`.

    Searches from the rules of `unions` with the largest values: see `nesting_products`. Of equal ones, those
    inside themselves come first, since what is around them multiplies nothing.
    """
    present = [name for name in unions if name in rules.productions] or [rules.root]
    recursive = frozenset(in_cycles(rules.references))
    starts = sorted(present, key=lambda name: (unions.get(name, 0), name in recursive), reverse=True)
    return _exceed(rules, present, starts[:_MOST_STARTS], MAX_STACKS)


def is_bounded(rules: Rules) -> bool:
    """Return whether no text was found for which the stacks of any grammar, not only of JSON, multiply.

    Alternatives beside each other, as of a long enumeration, are a stack each, and don't multiply.
    """
    limit = MAX_STACKS + sum(1 for _ in rules.leaves())
    recursive = list(in_cycles(rules.references))
    starts = [rules.root, *recursive[:_MOST_STARTS]]
    return not _exceed(rules, recursive or [rules.root], starts, limit)


def _exceed(rules: Rules, targets: Sequence[str], starts: Sequence[str], limit: int) -> bool:
    try:
        search = StackSearch(rules, targets)
        shares = chain([1], repeat(_LATER_SHARE))
        return any(
            search.most(name, limit, share) > limit for name, share in zip(starts, shares, strict=False)
        )
    except AmbiguousGrammarError:
        return True


class StackSearch:
    """A search for texts that take many stacks, by way of rules that are inside each other: the targets."""

    def __init__(self, rules: Rules, targets: Sequence[str]) -> None:
        self._matcher = Matcher(rules, with_costs=False)
        begin = {tuple(node for node, _, _ in self._matcher.start(name).tops) for name in targets}
        self._begin: dict[Node, list[tuple[TextNode | CharsNode, ...]]] = {}  # by the first node
        for nodes in filter(None, begin):
            self._begin.setdefault(nodes[0], []).append(nodes)
        self._far = _distances(rules.references, targets)
        self._ahead: dict[Node, float] = {}

    def most(self, rule: str, limit: int = MAX_STACKS, share: int = 1) -> int:
        """Return the most stacks that a text of a rule was found to take; the search ends above `limit`.

        It may take one part in `share` of the visits.

        It prefers texts that begin targets in many ways at once, and then those that soon begin another one.
        Where a text leads to twice what came first, it is repeated: the stacks double each time. Raises
        AmbiguousGrammarError as the matcher does.
        """
        start = self._matcher.start(rule)
        most, number, begin = start.stacks, count(), self._matcher.visits
        last, fruitful = begin + _SEARCH_VISITS // share, begin + _FRUITLESS_VISITS // share
        pending = [(0, 0.0, next(number), "", start)]
        stacks_at: dict[frozenset[object], int] = {}
        while pending and most <= limit and self._matcher.visits < min(last, fruitful):
            before = most
            begun, _, _, text, state = heappop(pending)
            for added, following in state.followers():
                self._matcher.visits += 1
                positions = frozenset(
                    (node, offset, stack.node if isinstance(stack, Frame) else None)
                    for node, offset, stack in following.tops
                )
                if stacks_at.get(positions, 0) >= following.stacks:
                    continue
                stacks_at[positions] = following.stacks
                most = max(most, following.stacks)
                if following.stacks >= 2 * start.stacks and _contains_twice(following, start):
                    most = max(most, _repeated(start, text + added, limit))
                least = min(begun, -self._begun(following))
                far = len(text) + len(added) + _STEPS * self._distance(following)
                heappush(pending, (least, far, next(number), text + added, following))
            if most > before:
                fruitful = self._matcher.visits + _FRUITLESS_VISITS // share
        return most

    def _begun(self, state: MatchState) -> int:
        """Return how many stacks begin a target."""
        stacks = {node: stack_count(stack) for node, offset, stack in state.tops if not offset}
        begun = chain.from_iterable(self._begin.get(node, ()) for node in stacks)
        return max((min(stacks.get(node, 0) for node in nodes) for nodes in begun), default=0)

    def _distance(self, state: MatchState) -> float:
        """Return how far a target is for all stacks but the nearest."""
        distances: list[float] = []
        for node, _, stack in state.tops:
            far = min(self._after(node.next), self._return(stack))
            distances += [far] * min(stack_count(stack), 2)
        return sorted(distances)[:2][-1] if distances else inf

    def _return(self, stack: Stack) -> float:
        """Return how far a target is where the current rule has ended, in any of the rules around it."""
        far, further = inf, 0
        while stack is not None:
            further += 1
            if isinstance(stack, Frames):
                stack = next((member for member in stack.members if member is not None), None)
            else:
                far = min(far, further + self._after(stack.node))
                stack = stack.parent
        return far

    def _after(self, node: Node) -> float:
        """Return how far it is from a node to a target inside its rule."""
        pending = [] if node in self._ahead else [node]
        while pending:
            current = pending[-1]
            far, following = inf, list[Node]()
            match current:
                case ChoiceNode(nexts):
                    following = nexts
                case RepeatNode():
                    following = [current.item, current.next]
                case CallNode(name):
                    far, following = self._far.get(name, inf), [current.next]
                case TextNode() | CharsNode():
                    following = [current.next]
            unknown = [node for node in following if node not in self._ahead]
            if unknown and current not in self._ahead:
                self._ahead[current] = inf  # inside itself
                pending += unknown
            else:
                pending.pop()
                self._ahead[current] = min(
                    far, 1 + min((self._ahead[node] for node in following), default=inf)
                )
        return self._ahead[node]


def _distances(references: Mapping[str, Sequence[str]], targets: Sequence[str]) -> dict[str, int]:
    """Return for each rule that leads to a target over how many others it does."""
    users: dict[str, list[str]] = {}
    for name, used in references.items():
        for reference in used:
            users.setdefault(reference, []).append(name)
    distances = dict.fromkeys(targets, 0)
    pending = list(targets)
    for name in pending:
        for user in users.get(name, ()):
            if user not in distances:
                distances[user] = distances[name] + 1
                pending.append(user)
    return distances


def _contains_twice(state: MatchState, other: MatchState) -> bool:
    """Return whether each terminal that may come next in `other` may come here, with twice the stacks."""
    stacks = {(node, offset): stack_count(stack) for node, offset, stack in state.tops}
    return all(stacks.get((node, offset), 0) >= 2 * stack_count(stack) for node, offset, stack in other.tops)


def _repeated(state: MatchState, text: str, limit: int) -> int:
    """Return the most stacks that repetitions of a text take."""
    most = state.stacks
    for _ in range(limit.bit_length()):
        following = state.advance(text)
        if following is None:
            break
        state, most = following, max(most, following.stacks)
    return most


def nesting_products(references: Mapping[str, Sequence[str]], unions: Mapping[str, int]) -> dict[str, float]:
    """Return those of `unions` below which there may be many stacks, with a bound on their number.

    `unions`: how many alternatives of a rule may begin with the same text; all other rules are assumed to
    tell what they derive apart. The bound is the largest product of unions inside each other, infinite where
    one is inside itself.
    """
    products: dict[str, float] = {}
    for component in strong_components(references):
        inside = max(unions.get(name, 1) for name in component)
        is_recursive = len(component) > 1 or component[0] in references[component[0]]
        below = max((products.get(used, 1) for name in component for used in references[name]), default=1)
        products.update(dict.fromkeys(component, inf if is_recursive and inside > 1 else inside * below))
    return {name: products[name] for name in unions if products.get(name, 1) > _MAX_PRODUCT}
