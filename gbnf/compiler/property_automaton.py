"""Objects as automata over their properties.

A state says which properties may not come any more, which groups have one, and how many came, as far as
bounds count them. Properties in any order close themselves only; in declared order, each closes all before
it, too. Chains of properties interleave freely, and what is in no chain, as other properties, may come
anywhere in between. Objects of several shapes, the alternatives of a union, are one automaton: its state also
is the set of shapes that what came before belongs to.

Invariants: a property of its own bit comes at most once, required ones always; there are no trailing commas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from os.path import commonprefix
from typing import NamedTuple

from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, EPSILON, Alt, Expr, Ref, Seq, alt, literal, seq
from gbnf.schema_caches import schema_cache
from gbnf.work_limits import TooManyStatesError

#: The most declared properties in one trie.
_CHUNK = 16
#: How deeply what follows a property nests in one production.
_NESTING = 16


class ObjectMembers(NamedTuple):
    """What the objects of one shape consist of.

    `values`: expressions by name, none of them empty. `groups`: sets of names of which each must have one
    present. `others`: pairs of other keys and values. `least` and `most`: how many properties (None: any
    number).
    """

    values: Mapping[str, Expr]
    required: frozenset[str]
    groups: Sequence[frozenset[str]] = ()
    others: Sequence[Expr] = ()
    least: int = 0
    most: int | None = None

    @property
    def decisive(self) -> frozenset[str]:
        """The properties that decide whether an object may end: those required, alone or in a group."""
        return self.required.union(*self.groups).intersection(self.values)


class Occurrence(NamedTuple):
    """Which properties come at most once, and in which order.

    `exact`: those that come at most once, among them each that is required. `rest_most`: how many of the
    other declared ones may come at most (None: any number). `chains`: the exact ones, those of a chain in its
    order; None for any order.
    """

    exact: frozenset[str]
    rest_most: int | None = None
    chains: Sequence[Sequence[str]] | None = None


class _Kind(NamedTuple):
    """What matters of properties that lead from a state to the same next one, apart from names and values.

    `bit`: of a property that comes once; 0 for others. `closes`: the bits that are set after it. `shapes`: a
    bit for each shape that has them. `satisfies`: a bit for each group. `is_declared`: not an additional one.
    """

    bit: int
    closes: int
    shapes: int
    is_required: bool = False
    satisfies: int = 0
    is_declared: bool = True


class _Class(NamedTuple):
    """The properties of a kind: a text, and what follows it.

    `label`: for the name of a rule; empty for properties that are not declared.
    """

    kind: _Kind
    text: str
    body: Expr
    label: str


class _State(NamedTuple):
    """What came before, as far as it matters.

    `closed`: the properties that may not come any more. `optional`: how many optional ones, as far as bounds
    count them. `rest`: how many declared ones that may come twice. `satisfied`: the groups. `shapes`: those
    that are still possible. `chain`: of which alone properties may come next, by index; None where any may.
    """

    closed: int
    optional: int
    rest: int
    satisfied: int
    shapes: int
    chain: int | None = None

    @property
    def progress(self) -> int:
        """A number that each step makes greater, unless it leads back to the state."""
        counts = self.optional + self.rest + self.closed.bit_count() + self.satisfied.bit_count()
        return counts - self.shapes.bit_count()


#: A class and the state after it, by their indices.
_Step = tuple[int, int]


class _Node(NamedTuple):
    """A state: whether the object may end there, and what may come next.

    `beyond`: states with more properties that may come next: those beyond a chunk of a chain.
    """

    may_end: bool
    steps: list[_Step]
    beyond: list[int]


class _Plan(NamedTuple):
    """How the states become rules. Treat it as immutable.

    `nodes`: by state, the start first. `entered`: how often each step is written, in declared order.
    `preceding`: how often each class is. `rests`: the states after a property, each after those that follow
    it, and whether what follows it is a rule of its own.
    """

    nodes: list[_Node]
    entered: Counter[_Step]
    preceding: Counter[int]
    rests: list[tuple[int, bool]]


class _Structure(NamedTuple):
    """All that decides which states there are. Many objects have the same, under other names.

    `chains`: the indices of the classes of each chain, and the bits of its properties. `anywhere`: those of
    the classes whose properties may come between those of the chains. `is_plain`: whether nothing but the
    properties that are closed decides what may follow. `needed`: the required properties of each shape,
    `groups` its groups; `group_masks`: of one shape alone, the bits of each group's properties. `least` and
    `most`: how many optional properties; `rest_most`: how many that may come twice.
    """

    kinds: tuple[_Kind, ...]
    chains: tuple[tuple[range, int], ...]
    anywhere: range
    is_ordered: bool
    is_plain: bool
    needed: tuple[int, ...]
    groups: tuple[int, ...]
    group_masks: tuple[int, ...]
    least: int
    most: int | None
    rest_most: int | None

    def plan(self, max_states: int | None) -> _Plan:
        """Return how the states become rules. Raises TooManyStatesError."""
        states, nodes = self._explore(max_states)
        steps = [step for node in nodes for step in node.steps]
        if any(follower == 0 for _, follower in steps):  # the start is written twice
            steps += nodes[0].steps
        entered = Counter[_Step]()
        if self.is_ordered:  # a property leads to few states, so that the rest of the object is in its rule
            entered.update(steps)
            steps = list(entered)
        uses = Counter([follower for _, follower in steps])
        depths: dict[int, int] = {}
        rests: list[tuple[int, bool]] = []
        for index in sorted(uses, key=lambda index: states[index].progress, reverse=True):
            node = nodes[index]
            is_rule = bool(node.steps or node.beyond)
            if is_rule and uses[index] == 1:  # its only use is in itself, or it is written there
                following = [follower for _, follower in node.steps]
                depths[index] = 1 + max([depths.get(after, 0) for after in following], default=0)
                is_rule = index in following or depths[index] == _NESTING
            if is_rule:
                depths[index] = 0
            rests.append((index, is_rule))
        return _Plan(nodes, entered, Counter([number for number, _ in steps]), rests)

    def _explore(self, max_states: int | None) -> tuple[list[_State], list[_Node]]:
        """Return all states, the first one being the start, with their steps. Raises TooManyStatesError."""
        states = [_State(0, 0, 0, 0, (1 << len(self.needed)) - 1)]
        numbers = {states[0]: 0}
        nodes: list[_Node] = []
        for state in states:  # it grows while it is walked
            node = _Node(self._may_end(state), [], [])
            nodes.append(node)
            for kind, follower in self._following(state):
                index = numbers.setdefault(follower, len(states))
                if index == len(states):
                    if max_states is not None and index > max_states:
                        raise TooManyStatesError(max_states)
                    states.append(follower)
                if kind is None:
                    node.beyond.append(index)
                else:
                    node.steps.append((kind, index))
        return states, nodes

    def _following(self, state: _State) -> Iterator[tuple[int | None, _State]]:
        """Yield the classes whose properties may come next, and None for those beyond a chunk."""
        for chain, (classes, mask) in enumerate(self.chains):
            if state.chain not in (None, chain):
                continue
            start, end = 0, len(classes)
            if self.is_ordered:
                start = (state.closed & mask).bit_count()
                end = min((start // _CHUNK + 1) * _CHUNK, end)
            for number in classes[start:end]:
                follower = self._follower(state, self.kinds[number])
                if follower is not None:
                    yield number, follower
                if self.is_ordered and self.kinds[number].is_required:
                    break
            else:
                if end < len(classes):
                    closes = self.kinds[classes[end - 1]].closes
                    yield None, state._replace(closed=state.closed | closes, chain=chain)
        for number in self.anywhere if state.chain is None else ():
            follower = self._follower(state, self.kinds[number])
            if follower is not None:
                yield number, follower

    def _follower(self, state: _State, kind: _Kind) -> _State | None:
        """Return the state after a property; None if it may not come."""
        closed, optional, rest, satisfied, shapes, _ = state
        shapes &= kind.shapes
        if not shapes or closed & kind.bit:
            return None
        closed |= kind.closes
        if self.is_plain:
            return _State(closed, 0, 0, 0, shapes)
        if not kind.is_required:
            if self.most is not None and optional >= self.most:
                return None
            optional = min(optional + 1, max(self.least, self.most or 0))
            if kind.is_declared and not kind.bit and self.rest_most is not None:
                if rest == self.rest_most:
                    return None
                rest += 1
        satisfied |= kind.satisfies
        for index, mask in enumerate(self.group_masks):  # of each group, one has come or may come
            if mask and not satisfied >> index & 1 and not mask & ~closed:
                return None
        return _State(closed, optional, rest, satisfied, shapes)

    def _may_end(self, state: _State) -> bool:
        if state.optional < self.least:
            return False
        return any(
            state.shapes >> index & 1 and not needed & ~state.closed and not groups & ~state.satisfied
            for index, (needed, groups) in enumerate(zip(self.needed, self.groups, strict=True))
        )


#: The most classes of a structure whose plan is kept.
_FEW_CLASSES = 8


@schema_cache(maxsize=512)
def _plan_of_few(structure: _Structure, max_states: int | None) -> _Plan:
    return structure.plan(max_states)


class PropertyAutomaton:
    """The objects of some shapes; of several shapes, each of `decisive` is among `order.exact`.

    The shapes have the same names in `values`, apart from those that are impossible.
    """

    def __init__(
        self,
        shapes: Sequence[ObjectMembers],
        order: Occurrence,
        max_states: int | None,
        layout: Layout,
        scope: Scope,
    ) -> None:
        """Find the states. Raises TooManyStatesError."""
        self._layout, self._scope = layout, scope
        self._is_ordered = is_ordered = order.chains is not None
        only = shapes[0]
        names = [*only.values]
        if len(shapes) > 1:
            names = list(dict.fromkeys([name for members in shapes for name in members.values]))
        chains = [names] if order.chains is None else order.chains
        exact = [name for chain in chains for name in chain if name in order.exact]
        self._bits = {name: 1 << index for index, name in enumerate(exact)}
        least = max(only.least - len(only.required), 0)
        most = None if only.most is None else only.most - len(only.required)
        owned = [
            (index, group)
            for index, members in enumerate(shapes)
            for group in members.groups
            if not group & members.required
        ]
        self._groups = [group for _, group in owned]
        self._classes: list[_Class] = []
        ranges: list[tuple[range, int]] = []
        for chain in chains:
            first = len(self._classes)
            self._classes += self._declared(shapes, chain, is_chain=is_ordered)
            ranges.append((range(first, len(self._classes)), self._mask(chain)))
        first = len(self._classes)
        if is_ordered and (rest := [name for name in names if name not in order.exact]):
            self._classes += self._declared(shapes, rest, is_chain=False)
        self._declared_end = len(self._classes)
        #: The text that all declared properties begin with, in any order.
        self._prefix = literal(self._classes[0].text if self._classes else "")
        others: dict[Expr, int] = {}
        for index, members in enumerate(shapes):
            for other in members.others:
                others[other] = others.get(other, 0) | 1 << index
        for other, mask in others.items():
            self._classes.append(_Class(_Kind(0, 0, mask, is_declared=False), "", other, ""))
        structure = _Structure(
            kinds=tuple([each.kind for each in self._classes]),
            chains=tuple(ranges),
            anywhere=range(first, len(self._classes)),
            is_ordered=is_ordered,
            is_plain=not (owned or least or only.most is not None) and order.exact.issuperset(names),
            needed=tuple([self._mask(members.required) for members in shapes]),
            groups=tuple(
                [
                    sum([1 << bit for bit, (owner, _) in enumerate(owned) if owner == index])
                    for index in range(len(shapes))
                ]
            )
            if owned
            else (0,) * len(shapes),
            group_masks=tuple(map(self._mask, self._groups)) if len(shapes) == 1 else (),
            least=least,
            most=most,
            rest_most=order.rest_most,
        )
        plan = _plan_of_few if len(self._classes) <= _FEW_CLASSES else _Structure.plan
        self._plan = plan(structure, max_states)
        self._bodies: list[Expr] = []
        self._rests: dict[int, Expr] = {}
        self._entries: dict[_Step, Expr] = {}
        self._keys: dict[int, Expr] = {}  # by state

    @property
    def states(self) -> int:
        """How many states the objects took."""
        return len(self._plan.nodes)

    def _mask(self, names: frozenset[str] | Sequence[str]) -> int:
        return sum([self._bits.get(name, 0) for name in names])

    def _declared(
        self, shapes: Sequence[ObjectMembers], names: Sequence[str], *, is_chain: bool
    ) -> Iterator[_Class]:
        """Yield the classes of declared properties; all that may come twice are one class."""
        layout, required = self._layout, shapes[0].required
        # In any order, many states have the same properties, and all they have in common is this.
        keys = [layout.key(name) for name in names]
        prefix = "" if is_chain else commonprefix(keys)  # noqa: RUF071  # no paths
        words: dict[tuple[int, int, bool, int], list[tuple[str, Expr]]] = {}
        labels: dict[int, str] = {}
        closes: dict[int, int] = {}
        earlier = 0
        for name, word in zip(names, keys, strict=True):
            bit = self._bits.get(name, 0)
            labels[bit] = (name or "Key") if bit else "Rest"
            having: dict[Expr, int] = {}
            for index, members in enumerate(shapes) if len(shapes) > 1 else ():
                if name in members.values:
                    value = members.values[name]
                    having[value] = having.get(value, 0) | 1 << index
            satisfies = 0
            for number, group in enumerate(self._groups):
                satisfies |= (name in group) << number
            for value, mask in having.items() or [(shapes[0].values[name], 1)]:
                key = (bit, mask, name in required, satisfies)
                words.setdefault(key, []).append((word, seq(layout.colon, value)))
            earlier |= bit
            closes[bit] = earlier if is_chain else bit
        for (bit, mask, is_required, satisfies), pairs in words.items():
            text, body = pairs[0]
            if not is_chain:
                pairs.sort(key=itemgetter(0))
                text = prefix
                body = factor_prefixes([seq(literal(word[len(prefix) :]), rest) for word, rest in pairs])
            yield _Class(_Kind(bit, closes[bit], mask, is_required, satisfies), text, body, labels[bit])

    def expression(self) -> Expr:
        """Return the objects, and add the productions that they need."""
        preceding, rests = self._plan.preceding, self._plan.rests
        for number, (_, _, body, label) in enumerate(self._classes):
            is_shared = preceding[number] > 1
            self._bodies.append(self._scope.add(f"{label or 'Other'} Pair", body) if is_shared else body)
        names = self._scope.reserve(len(rests), "More")  # some may be left
        for index, is_rule in rests:
            if is_rule:
                self._rests[index] = ref = names.pop()
                self._rests[index] = self._scope.table.define(ref, self._rest(index))
            else:
                self._rests[index] = self._rest(index)
        alternatives = [self._pairs(0, self._layout.begin_object)]
        if self._plan.nodes[0].may_end:
            alternatives.append(self._layout.empty_object)
        return factor_prefixes(alternatives)

    def _rest(self, index: int) -> Expr:
        """Return what follows a value: more pairs, each after a comma, or the end."""
        next_pair = self._pairs(index, self._layout.comma)
        return self._layout.or_end(next_pair) if self._plan.nodes[index].may_end else next_pair

    def _pairs(self, index: int, before: Expr) -> Expr:
        """Return `before`, then the pairs that may come next and what follows them."""
        node, bodies, rests = self._plan.nodes[index], self._bodies, self._rests
        declared: list[Expr] = []
        others: list[Expr] = []
        for step in node.steps:
            number, follower = step
            body, rest = bodies[number], rests[follower]
            if type(body) is Ref is type(rest):  # as for most in any order: without a call for each
                entry: Expr = Seq((body, rest))
            else:
                entry = self._entry(step, body, rest)
                if entry == EMPTY_LANGUAGE:
                    continue
            if number >= self._declared_end:
                others.append(entry)
            elif self._is_ordered:
                declared.append(seq(literal(self._classes[number].text), entry))
            else:
                declared.append(entry)
        if self._is_ordered:
            return seq(before, factor_prefixes([*declared, *map(self._beyond, node.beyond), *others]))
        if declared:
            together = declared[0] if len(declared) == 1 else Alt(tuple(declared))
            if not others:
                return seq(before, self._prefix, together)
            others.insert(0, seq(self._prefix, together))
        return seq(before, others[0] if len(others) == 1 else alt(*others))

    def _entry(self, step: _Step, body: Expr, rest: Expr) -> Expr:
        """Return what follows the text of a class: the rest of the pair, and the rest of the object."""
        if step in self._entries:
            return self._entries[step]
        entry, label = seq(body, rest), self._classes[step[0]].label
        if self._plan.entered[step] > 1 and label and entry != EMPTY_LANGUAGE:
            entry = self._entries[step] = self._scope.add(f"{label} Entry", entry)
        return entry

    def _beyond(self, index: int) -> Expr:
        """Return the pairs beyond a chunk of a chain."""
        if index not in self._keys:
            self._keys[index] = self._scope.add("Keys", self._pairs(index, EPSILON))
        return self._keys[index]
