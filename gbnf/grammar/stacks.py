"""How many stacks llama.cpp's engine keeps at once for a grammar.

The engine follows all derivations of a text. Where alternatives begin with the same characters, each is a
stack until the text tells them apart, and such choices inside each other multiply: the number of stacks can
grow exponentially with the nesting of the text.

`StackEstimate` estimates the number from above. Each choice is followed from its alternatives on, in all of
them at once, until one is left. Where all come to references, these are not followed: inside them, there are
as many stacks as inside all of those rules together. So rules are the nodes of a graph, and an edge leads to
all rules that are entered at once. The number is without bound where a rule leads to itself and enters itself
twice at once. Where that leaves a doubt, the rules that are entered at once are a node of their own, a
*group*, and are followed together. All that is so for JSON, where no value is the beginning of a longer one
that what follows could continue.

`search_stacks` follows texts, and finds numbers that there are. It works for any grammar, and may miss some.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, count
from os.path import commonprefix
from typing import NamedTuple, TypeAlias, TypeVar

from gbnf.effort import spend
from gbnf.errors import AmbiguousGrammarError
from gbnf.grammar.analysis import character_bits, first_characters, nullable
from gbnf.grammar.ir import Alt, Expr, Repeat, Rules, Seq
from gbnf.grammar.match import Matcher
from gbnf.grammar.network import (
    RETURN,
    CallNode,
    CharsNode,
    ChoiceNode,
    Network,
    Node,
    RepeatNode,
    ReturnNode,
    TextNode,
)

#: The most stacks that the engine may keep.
MAX_STACKS = 1024
#: The most sets of positions that are followed for one grammar, and where rules are followed together.
MAX_STATES = 2_000
MAX_JOINT_STATES = 1_000
_MOST_POSITIONS = 2 * MAX_STACKS
#: How often a choice that adds stacks, without multiplying them, is assumed to be inside itself.
_DEPTH = 8
_STATE_WORK = 20
#: The most visits in which texts with many stacks are searched for, and the most rules from which.
_MOST_VISITS = 10_000
_MOST_SUSPECTS = 2
#: How many stacks a grammar may have been found to take where the search was not finished.
_FEW_STACKS = 64


class _Frame(NamedTuple):
    """Continue at `node`, after one more iteration of it if `iterates`."""

    node: Node
    iterates: bool
    parent: _Stack


_Stack: TypeAlias = _Frame | int
"""The last one is the member of a group in which all began."""

_Group: TypeAlias = tuple[str, ...]
"""Rules that begin at once, sorted."""


class _Position(NamedTuple):
    """A terminal at an offset, or a reference to a rule, and where to return after it."""

    at: TextNode | CharsNode | str
    offset: int
    stack: _Stack


class _Edge(NamedTuple):
    """From each member of a group: how many stacks begin each member of the next one."""

    group: _Group
    counts: tuple[tuple[int, int, int], ...]  # member, next member, stacks


class TooManyStacks(Exception):  # noqa: N818  # a result of the analysis
    """The engine might keep too many stacks; `rules` name where. `certain`: it would."""

    def __init__(self, rules: Iterable[str], *, certain: bool = False) -> None:
        self.rules, self.certain = tuple(dict.fromkeys(rules)), certain
        super().__init__()


class StackEstimate:
    """The estimate for one grammar."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._network = Network(rules, with_costs=False)
        self._nullable = nullable(rules)
        self._first = first_characters(rules, self._nullable)
        self._endless, self._recursive = _endless(rules)
        self._node_first: dict[Node, int] = {}

    def check(self, limit: int, states: int, first: Sequence[str] | None = None) -> None:
        """Raise TooManyStacks if there may be more than `limit` stacks, or after so many `states`.

        Rules that begin at once are followed each by itself. If `first` is given, they are followed together,
        those rules first: that is more exact, and slower.
        """
        self._joint = first is not None
        self._opaque = self._recursive if self._joint else self._endless
        self._edges: dict[_Group, dict[_Edge, None]] = {(name,): {} for name in self._rules.productions}
        self._most = dict.fromkeys(self._edges, 1)  # positions at once
        pending: deque[tuple[_Group, frozenset[_Position]]] = deque()
        for name in dict.fromkeys([*(first or ()), *self._rules.productions]):
            for choice in self._choices(self._network.rule(name)):
                pending.append(((name,), self._closure([(choice, 0)])))
        seen = set(pending)
        self._states_left = states
        while pending and self._states_left > 0:
            group, state = pending.popleft()
            self._states_left -= 1
            spend(_STATE_WORK * len(state))
            if len(state) > limit:
                raise TooManyStacks(group, certain=self._joint)
            self._most[group] = max(self._most[group], len(state))
            for following in self._steps(group, state):
                if len(following[1]) > 1 and following not in seen:
                    seen.add(following)
                    pending.append(following)
        self._check_products(limit)
        if pending:
            raise TooManyStacks(pending[0][0])

    def _choices(self, start: Node) -> Iterator[ChoiceNode]:
        """Yield the choices of a rule whose alternatives may begin with the same character."""
        seen: set[Node] = {start}
        pending = [start]
        while pending:
            node = pending.pop()
            following: list[Node] = []
            match node:
                case ChoiceNode(nexts):
                    following = nexts
                    if self._is_ambiguous(nexts):
                        yield node
                case TextNode() | CharsNode() | CallNode():
                    following = [node.next]
                case RepeatNode():
                    following = [node.item, node.next]
            for one in following:
                if one not in seen:
                    seen.add(one)
                    pending.append(one)

    def _is_ambiguous(self, alternatives: Sequence[Node]) -> bool:
        """Return whether two alternatives may begin with the same character.

        Declared keys begin like the other keys of their object, and are told apart before anything else.
        """
        declared = sum(isinstance(one, TextNode) and one.text[0] == '"' for one in alternatives)
        rest = (
            [one for one in alternatives if not isinstance(one, TextNode)] if declared == 1 else alternatives
        )
        bits = 0
        for one in rest:
            first = self._first_of(one)
            if first & bits:
                return True
            bits |= first
        return False

    def _first_of(self, node: Node) -> int:
        known = self._node_first.get(node)
        if known is None:
            self._node_first[node] = 0  # of a repetition, inside itself
            match node:
                case TextNode(text):
                    known = 1 << min(ord(text[0]), 128)
                case CharsNode(of):
                    known = character_bits(of)
                case ChoiceNode(nexts):
                    known = 0
                    for one in nexts:
                        known |= self._first_of(one)
                case CallNode(name):
                    known = self._first[name]
                    if name in self._nullable:
                        known |= self._first_of(node.next)
                case RepeatNode():
                    known = self._first_of(node.item)
                    if not node.minimum:
                        known |= self._first_of(node.next)
                case ReturnNode():
                    known = 0
            self._node_first[node] = known
        return known

    def _steps(
        self, group: _Group, state: frozenset[_Position]
    ) -> Iterator[tuple[_Group, frozenset[_Position]]]:
        """Yield what follows each character, or each text of the rules that begin together."""
        work = [(state, (2 << 128) - 1)]
        while work:
            positions, within = work.pop()
            for active, bits in self._by_character(positions, within):
                if len(active) < 2:
                    continue
                calls = [position for position in active if isinstance(position.at, str)]
                names = {str(position.at) for position in calls}
                if not calls:
                    yield group, self._after(active)
                elif len(calls) == len(active) and (len(names) == 1 or names <= self._opaque):
                    edge = _edge(calls)
                    self._edges[group][edge] = None
                    if self._joint and edge.group not in self._edges:
                        self._edges[edge.group] = {}
                        self._most[edge.group] = len(edge.group)
                        starts = [(self._network.rule(name), at) for at, name in enumerate(edge.group)]
                        yield edge.group, self._closure(starts)
                    yield group, self._closure([(RETURN, position.stack) for position in calls])
                elif self._states_left > 0 and len(active) <= _MOST_POSITIONS:
                    self._states_left -= 1
                    inner = [(self._network.rule(str(one.at)), one.stack) for one in calls]
                    others = [position for position in active if not isinstance(position.at, str)]
                    work.append((self._closure(inner).union(others), bits))
                else:
                    yield group, frozenset(active)

    def _by_character(self, positions: Iterable[_Position], within: int) -> list[tuple[list[_Position], int]]:
        """Return the positions that go on with the same characters, for each set of characters."""
        parts: list[tuple[list[_Position], int]] = [([], within)]
        for position in positions:
            bits = self._bits(position)
            split: list[tuple[list[_Position], int]] = []
            for active, chars in parts:
                if chars & bits:
                    split.append(([*active, position], chars & bits))
                if chars & ~bits:
                    split.append((active, chars & ~bits))
            parts = split
        return parts

    def _after(self, terminals: Sequence[_Position]) -> frozenset[_Position]:
        """Return the positions after a character; after all that literals share."""
        rests = [one.at.text[one.offset :] for one in terminals if isinstance(one.at, TextNode)]
        is_shared = len(rests) == len(terminals)
        length = len(commonprefix(rests)) if is_shared else 1  # noqa: RUF071  # these are no paths
        within: set[_Position] = set()
        ended: list[tuple[Node, _Stack]] = []
        for at, offset, stack in terminals:
            assert not isinstance(at, str)
            if isinstance(at, TextNode) and offset + length < len(at.text):
                within.add(_Position(at, offset + length, stack))
            else:
                ended.append((at.next, stack))
        return self._closure(ended).union(within)

    def _bits(self, position: _Position) -> int:
        match position.at:
            case str(name):
                return self._first[name]
            case TextNode(text):
                return 1 << min(ord(text[position.offset]), 128)
            case CharsNode(of):
                return character_bits(of)

    def _closure(self, starts: Iterable[tuple[Node, _Stack]]) -> frozenset[_Position]:
        """Return the terminals and references that are reached without a character."""
        found: set[_Position] = set()
        seen: set[tuple[Node, _Stack]] = set()
        pending = list(starts)
        while pending:
            visit = pending.pop()
            if visit in seen:
                continue
            seen.add(visit)
            node, stack = visit
            match node:
                case TextNode() | CharsNode():
                    found.add(_Position(node, 0, stack))
                case ChoiceNode(nexts):
                    pending += [(one, stack) for one in nexts]
                case CallNode(name, following):
                    inner = stack if following is RETURN else _Frame(following, False, stack)
                    if name in self._nullable:
                        pending.append((self._network.rule(name), inner))
                    else:
                        found.add(_Position(name, 0, inner))
                case RepeatNode():
                    if not node.minimum:
                        pending.append((node.next, stack))
                    pending.append((node.item, _Frame(node, True, stack)))
                case ReturnNode():
                    if isinstance(stack, int):
                        continue
                    if not stack.iterates:
                        pending.append((stack.node, stack.parent))
                    elif isinstance(stack.node, RepeatNode):
                        pending += [(stack.node.next, stack.parent), (stack.node.item, stack)]
        return frozenset(found)

    def _check_products(self, limit: int) -> None:
        """Raise TooManyStacks if the sums and products along the edges exceed the limit."""
        graph = {
            (group, member): list(self._edges_of(group, member))
            for group in self._edges
            for member in range(len(group))
        }
        successors = {node: list(chain.from_iterable(edges)) for node, edges in graph.items()}
        bounds: dict[tuple[_Group, int], float] = {}
        doubtful: list[str] = []
        for component in strong_components(successors):
            inside = set(component)
            most, added = 1.0, 0.0
            for node in component:
                most = max(most, self._most[node[0]])
                for edge in graph[node]:
                    within = sum(times for to, times in edge.items() if to in inside)
                    beside = sum(times * bounds[to] for to, times in edge.items() if to not in inside)
                    if within > 1:
                        rules = chain.from_iterable(group for group, _ in component)
                        if self._joint or any(to in inside and times > 1 for to, times in edge.items()):
                            raise TooManyStacks(rules, certain=True)
                        doubtful = doubtful or [*node[0], *rules]
                    elif within:
                        added = max(added, beside)
                    most = max(most, beside)
            bounds.update(dict.fromkeys(component, most + _DEPTH * added))
            if most + _DEPTH * added > limit and not doubtful:
                doubtful = list(chain.from_iterable(group for group, _ in component))
        if doubtful:
            raise TooManyStacks(doubtful)
        self.bound = max(bounds.values(), default=1.0)

    def _edges_of(self, group: _Group, member: int) -> Iterator[dict[tuple[_Group, int], int]]:
        """Yield for each edge how many stacks begin each member of the next group."""
        for edge in self._edges[group]:
            counts = [(edge.group[to], to, count) for at, to, count in edge.counts if at == member]
            yield {(edge.group, to) if self._joint else ((name,), 0): count for name, to, count in counts}
        if len(group) > 1:  # the others end
            yield {((group[member],), 0): 1}
        else:
            for name in self._rules.references[group[0]]:
                yield {((name,), 0): 1}


def _edge(calls: Iterable[_Position]) -> _Edge:
    """Return the edge to the rules that all positions refer to."""
    group = tuple(sorted({str(position.at) for position in calls}))
    counts: Counter[tuple[int, int]] = Counter()
    for position in calls:
        stack = position.stack
        while not isinstance(stack, int):
            stack = stack.parent
        counts[stack, group.index(str(position.at))] += 1
    return _Edge(group, tuple(sorted((at, to, times) for (at, to), times in counts.items())))


def takes_many_stacks(rules: Rules) -> bool:
    """Return whether the engine keeps more than `MAX_STACKS` for a text.

    The estimate is from above, so where it is higher, such a text is searched for from the rules on which it
    depends.
    """
    estimate = StackEstimate(rules)
    suspects: list[str] | None = None
    for states in (MAX_STATES, MAX_JOINT_STATES):
        try:
            estimate.check(MAX_STACKS, states, suspects)
        except TooManyStacks as found:
            if found.certain:
                return True
            suspects = [*(suspects or ()), *found.rules]
        else:
            return False
    assert suspects is not None
    matcher = Matcher(rules)
    return any(
        search_stacks(matcher, name).most > MAX_STACKS
        for name in dict.fromkeys([rules.root, *suspects[:_MOST_SUSPECTS]])
    )


def is_bounded(rules: Rules) -> bool:
    """Return whether the engine keeps few stacks for rules of any language, as far as texts tell."""
    try:
        found = search_stacks(Matcher(rules))
    except AmbiguousGrammarError:
        return False
    return found.most <= (MAX_STACKS if found.is_all else _FEW_STACKS)


class FoundStacks(NamedTuple):
    """The most stacks that a text was found to take. `is_all`: all texts were followed."""

    most: int
    is_all: bool


def search_stacks(matcher: Matcher, rule: str | None = None, limit: int = MAX_STACKS) -> FoundStacks:
    """Follow the texts of a rule (default: the start symbol), first those that take the most stacks.

    Ends at more than `limit`, and after `_MOST_VISITS`.
    """
    start = matcher.start(rule)
    most = start.stacks
    number = count(0, -1)  # of several, the latest first
    pending = [(-most, next(number), start)]
    known: dict[frozenset[object], int] = {}
    visits = matcher.work + _MOST_VISITS
    while pending and most <= limit:
        if matcher.work > visits:
            return FoundStacks(most, is_all=False)
        state = heappop(pending)[2]
        spend(_STATE_WORK)
        for following in state.followers():
            most = max(most, following.stacks)
            matcher.work += 1
            if known.get(following.positions, 0) < following.stacks:
                known[following.positions] = following.stacks
                heappush(pending, (-following.stacks, next(number), following))
    return FoundStacks(most, is_all=not pending)


_Item = TypeVar("_Item")


def strong_components(successors: Mapping[_Item, Sequence[_Item]]) -> Iterator[list[_Item]]:
    """Yield the strongly connected components of a graph, each after those that it leads to (Tarjan 1972)."""
    index: dict[_Item, int] = {}
    low: dict[_Item, int] = {}
    stack: list[_Item] = []
    done: set[_Item] = set()
    for root in successors:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        path = [(root, iter(successors[root]))]
        while path:
            item, following = path[-1]
            one = next((one for one in following if one not in done and one in successors), None)
            if one is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[item])
                if low[item] == index[item]:
                    component = stack[stack.index(item) :]
                    del stack[-len(component) :]
                    done.update(component)
                    yield component
            elif one in index:
                low[item] = min(low[item], index[one])
            else:
                index[one] = low[one] = len(index)
                stack.append(one)
                path.append((one, iter(successors[one])))


def _endless(rules: Rules) -> tuple[set[str], set[str]]:
    """Return the rules that derive texts of any length, and those of them that lead to themselves."""
    endless: set[str] = set()
    recursive: set[str] = set()
    for component in strong_components(rules.references):
        for name in component:
            used = rules.references[name]
            if len(component) > 1 or name in used:
                recursive.update(component)
            elif not endless.isdisjoint(used) or _repeats(rules.productions[name]):
                endless.add(name)
        endless |= recursive.intersection(component)
    return endless, recursive


def _repeats(expr: Expr) -> bool:
    match expr:
        case Repeat(item, _, maximum):
            return maximum is None or _repeats(item)
        case Seq(items) | Alt(items):
            return any(map(_repeats, items))
    return False
