"""Estimate from above how many stacks llama.cpp's engine keeps at once for a grammar.

The engine follows all derivations of a text. Where alternatives begin with the same characters, each is a
stack until the text tells them apart, and such choices inside each other multiply: the number of stacks can
grow exponentially with the nesting of the text.

Each choice is followed from its alternatives on, in all of them at once, until one is left. Where all of
them come to references, these are not followed: the *group* of the rules that begin together is followed once,
by itself, and each of its members counts the stacks from which it was reached. References to one rule only
are a group of this rule. So a group is a node of a graph, with edges that multiply, and the number of stacks is
the largest product along a path; it is without bound where a cycle multiplies.

The texts of the rules must not be prefixes of each other's longer ones where what follows could continue them:
so for JSON, whose values end with a bracket, a quote or before a comma, but not for every grammar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from os.path import commonprefix
from typing import NamedTuple, TypeAlias, TypeVar

from gbnf.effort import spend
from gbnf.grammar.analysis import character_bits, first_characters, nullable
from gbnf.grammar.ir import Rules
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
MAX_STACKS = 256
#: The most sets of positions that are followed for one grammar.
MAX_STATES = 4_000
#: How often one choice that adds stacks without multiplying them is assumed to be inside itself.
_DEPTH = 8
_MAX_FRAMES = 40
_STATE_WORK = 20

Group: TypeAlias = tuple[str, ...]
"""The rules that begin at once, sorted."""


class _Frame(NamedTuple):
    """Continue at `node`, after one more iteration of it if `iterates`; `parent` is a member at the bottom."""

    node: Node
    iterates: bool
    parent: _Frame | int
    depth: int


_Stack: TypeAlias = _Frame | int


class _Position(NamedTuple):
    """A terminal at an offset, or a reference to a rule, and where to return after it."""

    at: TextNode | CharsNode | str
    offset: int
    stack: _Stack


class TooManyStacks(Exception):  # noqa: N818  # a result of the analysis
    """The engine would keep too many stacks; `rules` name where."""

    def __init__(self, rules: Iterable[str]) -> None:
        self.rules = frozenset(rules)


class _Edge(NamedTuple):
    """From each member of a group: how many stacks begin each member of the next one."""

    group: Group
    counts: tuple[tuple[int, int, int], ...]  # member, next member, stacks


class StackEstimate:
    """The estimate for one grammar."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._network = Network(rules)
        self._nullable = nullable(rules)
        self._first = first_characters(rules, self._nullable)
        self._recursive = _recursive(rules)
        self._node_first: dict[Node, int] = {}
        self._edges: dict[Group, dict[_Edge, None]] = {}
        self._most: dict[Group, int] = {}  # positions at once
        self._states = 0

    def check(self, limit: int = MAX_STACKS) -> None:
        """Raise TooManyStacks if there may be more than `limit` stacks."""
        pending: list[Group] = []
        for name in self._rules.productions:
            group = (name,)
            self._edges[group] = {}
            self._most[group] = 1
            for choice in self._choices(self._network.rule(name)):
                pending += self._follow(group, [(choice, 0)], limit)
        while pending:
            group = pending.pop()
            if group not in self._edges:
                self._edges[group] = {}
                self._most[group] = len(group)
                starts = [(self._network.rule(name), member) for member, name in enumerate(group)]
                pending += self._follow(group, starts, limit)
        self._check_products(limit)

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
                    bits = 0
                    for one in nexts:
                        first = self._first_of(one)
                        if first & bits:
                            yield node
                            break
                        bits |= first
                case TextNode() | CharsNode() | CallNode():
                    following = [node.next]
                case RepeatNode():
                    following = [node.item, node.next]
            for one in following:
                if one not in seen:
                    seen.add(one)
                    pending.append(one)

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

    def _follow(self, group: Group, starts: list[tuple[Node, _Stack]], limit: int) -> list[Group]:
        """Follow all texts from `starts` on; return the groups that they come to."""
        begun = self._closure(starts)
        seen = {begun}
        pending = [begun]
        found: list[Group] = []
        while pending:
            state = pending.pop()
            self._states += 1
            spend(_STATE_WORK * len(state))
            if len(state) > limit or self._states > MAX_STATES:
                raise TooManyStacks(group)
            self._most[group] = max(self._most[group], len(state))
            for following in self._steps(group, state, found):
                if len(following) > 1 and following not in seen:
                    seen.add(following)
                    pending.append(following)
        return found

    def _steps(
        self, group: Group, state: frozenset[_Position], found: list[Group]
    ) -> Iterator[frozenset[_Position]]:
        """Yield what follows each character, or each text of a group of rules."""
        work = [(state, (2 << 128) - 1)]
        while work:
            positions, within = work.pop()
            for active, bits in self._by_character(positions, within):
                if len(active) < 2:
                    continue
                calls = [position for position in active if isinstance(position.at, str)]
                names = {position.at for position in calls if isinstance(position.at, str)}
                if len(calls) == len(active) and (len(names) == 1 or names <= self._recursive):
                    edge = _edge(calls)
                    self._edges[group][edge] = None
                    found.append(edge.group)
                    yield self._closure([(RETURN, position.stack) for position in calls])
                elif calls:
                    inner = [(self._network.rule(str(one.at)), one.stack) for one in calls]
                    others = [position for position in active if not isinstance(position.at, str)]
                    expanded = self._closure(inner).union(others)
                    self._states += 1
                    if self._states > MAX_STATES:
                        raise TooManyStacks(group)
                    work.append((expanded, bits))
                else:
                    yield self._after(active)

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
        length = len(commonprefix(rests)) if len(rests) == len(terminals) else 1
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
                    inner = stack if following is RETURN else _frame(following, stack)
                    if name in self._nullable:
                        pending.append((self._network.rule(name), inner))
                    else:
                        found.add(_Position(name, 0, inner))
                case RepeatNode():
                    if not node.minimum:
                        pending.append((node.next, stack))
                    pending.append((node.item, _frame(node, stack, iterates=True)))
                case ReturnNode():
                    if isinstance(stack, int):
                        continue
                    if not stack.iterates:
                        pending.append((stack.node, stack.parent))
                    elif isinstance(stack.node, RepeatNode):
                        pending += [(stack.node.next, stack.parent), (stack.node.item, stack)]
        return frozenset(found)

    def _check_products(self, limit: int) -> None:
        """Raise TooManyStacks if the products along the edges exceed the limit."""
        graph = {
            (group, member): list(self._edges_of(group, member))
            for group in self._edges
            for member in range(len(group))
        }
        successors = {node: [target for edge in edges for target in edge] for node, edges in graph.items()}
        bounds: dict[tuple[Group, int], float] = {}
        for component in strong_components(successors):
            inside = set(component)
            most, added = 1.0, 0.0
            for node in component:
                most = max(most, self._most[node[0]])
                for edge in graph[node]:
                    within = sum(count for target, count in edge.items() if target in inside)
                    beside = sum(count * bounds[to] for to, count in edge.items() if to not in inside)
                    if within > 1:
                        raise TooManyStacks(chain.from_iterable(group for group, _ in component))
                    if within:
                        added = max(added, beside)
                    most = max(most, beside)
            bound = most + _DEPTH * added
            if bound > limit:
                raise TooManyStacks(chain.from_iterable(group for group, _ in component))
            bounds.update(dict.fromkeys(component, bound))
        self.bound = max(bounds.values(), default=1.0)

    def _edges_of(self, group: Group, member: int) -> Iterator[dict[tuple[Group, int], int]]:
        """Yield for each edge how many stacks begin each member of the next group."""
        for edge in self._edges[group]:
            counts = {(edge.group, to): count for at, to, count in edge.counts if at == member}
            if counts:
                yield counts
        if len(group) > 1:  # the others end
            yield {((group[member],), 0): 1}
        else:
            for name in self._rules.references[group[0]]:
                yield {((name,), 0): 1}


def _edge(calls: Iterable[_Position]) -> _Edge:
    """Return the edge to the rules that all positions refer to."""
    group = tuple(sorted({str(position.at) for position in calls}))
    counts: dict[tuple[int, int], int] = {}
    for position in calls:
        stack = position.stack
        while not isinstance(stack, int):
            stack = stack.parent
        key = (stack, group.index(str(position.at)))
        counts[key] = counts.get(key, 0) + 1
    return _Edge(group, tuple(sorted((at, to, count) for (at, to), count in counts.items())))


def _frame(node: Node, parent: _Stack, *, iterates: bool = False) -> _Frame:
    return _Frame(node, iterates, parent, 0 if isinstance(parent, int) else parent.depth + 1)


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


def _recursive(rules: Rules) -> frozenset[str]:
    """Return the rules that are part of a cycle of references."""
    return frozenset(
        name
        for component in strong_components(rules.references)
        for name in component
        if len(component) > 1 or name in rules.references[name]
    )
