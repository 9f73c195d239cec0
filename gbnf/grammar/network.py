"""The rules of a grammar as a network of nodes, through which the matcher moves.

Each node has the cost of the shortest text from it to the end of its rule (or of the item of its
repetition), in the units of `analysis.cheapest_costs`. Rules are built from their end, so that the cost of
what follows is known. Nodes compare by identity: equal expressions at two places of a grammar are two nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from gbnf.errors import GrammarError
from gbnf.grammar.analysis import (
    BYTE,
    cheapest_costs,
    cost_of,
    find_left_recursion,
    is_nullable,
    nullable,
    utf8_length,
)
from gbnf.grammar.code_points import matchable
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq, TokenTerminal, references
from gbnf.schema_caches import schema_cache

Cost: TypeAlias = float
"""An integer, or infinity where no text ends."""


@dataclass(eq=False, slots=True)
class TextNode:
    """A literal."""

    text: str
    next: Node
    cost: Cost


@dataclass(eq=False, slots=True)
class CharsNode:
    """A character class; `bounds`: an odd number of them is at or below each of its members."""

    chars: CharClass
    bounds: tuple[int, ...]
    next: Node
    cost: Cost


@dataclass(eq=False, slots=True)
class ChoiceNode:
    """Alternatives, or an unbounded repetition: one that leads back to this node."""

    nexts: list[Node]
    cost: Cost


@dataclass(eq=False, slots=True)
class CallNode:
    """A reference to a rule."""

    name: str
    next: Node
    cost: Cost


@dataclass(eq=False, slots=True)
class RepeatNode:
    """A repetition that is counted; `nullable`: whether its item is."""

    minimum: int
    maximum: int | None
    nullable: bool
    item: Node
    next: Node

    def cost_after(self, iterations: int) -> Cost:
        """Return the cost after this many iterations."""
        missing = max(self.minimum - iterations, 0)
        return self.next.cost + (missing * self.item.cost if missing else 0)

    @property
    def cost(self) -> Cost:
        """The cost before the first iteration."""
        return self.cost_after(0)


@dataclass(eq=False, slots=True)
class ReturnNode:
    """The end of a rule, or of the item of a repetition."""

    cost: Cost = 0


Node: TypeAlias = TextNode | CharsNode | ChoiceNode | CallNode | RepeatNode | ReturnNode
RETURN = ReturnNode()
_ANY = CharClass((), negated=True)


class Network:
    """The nodes of the rules, which are built when a rule is first asked for."""

    def __init__(self, rules: Rules, *, with_costs: bool = True) -> None:
        """Build without costs if they are not needed; they are 0 or infinite then.

        Raises GrammarError for rules that are undefined or left-recursive.
        """
        for name, expr in rules.productions.items():
            for used in references(expr):
                if used not in rules.productions:
                    raise GrammarError(f"rule {name} refers to {used}, which is not defined: define it")
        if rules.root not in rules.productions:
            raise GrammarError(f"there is no rule {rules.root}, the start symbol: add it")
        self._nullable = nullable(rules)
        cycle = find_left_recursion(rules, self._nullable)
        if cycle:
            shown = " → ".join([*cycle, cycle[0]])
            raise GrammarError(f"left recursion: {shown}: turn it round, or repeat with *")
        self._rules = rules
        self._costs = cheapest_costs(rules) if with_costs else {}
        self._starts: dict[str, Node] = {}

    def rule(self, name: str) -> Node:
        """Return the first node of a rule."""
        if name not in self._starts:
            self._starts[name] = self._build(self._rules.productions[name], RETURN)
        return self._starts[name]

    def _build(self, expr: Expr, following: Node) -> Node:
        """Return the first node of `expr`, with `following` after it."""
        match expr:
            case Literal(text):
                return TextNode(text, following, BYTE * utf8_length(text) + following.cost)
            case CharClass():
                return CharsNode(expr, _bounds(expr), following, self._cost(expr) + following.cost)
            case TokenTerminal():
                equivalent = Repeat(_ANY, 1, None) if expr.text is None else Literal(expr.text)
                return self._build(equivalent, following)
            case Repeat(TokenTerminal(text=None), minimum, _):  # (.+){m,n} are the texts of .{m,}
                return self._build(Repeat(_ANY, minimum, None), following)
            case Ref(name):
                return CallNode(name, following, self._cost(expr) + following.cost)
            case Seq(items):
                for item in reversed(items):
                    following = self._build(item, following)
                return following
            case Alt(items):
                return _choice([self._build(item, following) for item in items])
            case Repeat(item, minimum, maximum):
                empty = is_nullable(item, self._nullable)
                if empty:
                    minimum = 0
                if maximum == 1:
                    return _choice([self._build(item, following), following])
                if maximum is None and minimum <= 1:
                    again = ChoiceNode([], following.cost)
                    start = self._build(item, again)
                    again.nexts.extend([start, following])
                    return again if minimum == 0 else start
                return RepeatNode(minimum, maximum, empty, self._build(item, RETURN), following)

    def _cost(self, expr: CharClass | Ref) -> Cost:
        cost = cost_of(expr, self._costs)
        return math.inf if cost is None else cost


def _choice(nexts: list[Node]) -> ChoiceNode:
    return ChoiceNode(nexts, min((node.cost for node in nexts), default=math.inf))


@schema_cache(maxsize=4096)
def _bounds(chars: CharClass) -> tuple[int, ...]:
    return tuple(chain.from_iterable((low, high + 1) for low, high in matchable(chars)))
