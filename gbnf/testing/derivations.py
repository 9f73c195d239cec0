"""Texts of a grammar's language as a Hypothesis strategy.

Every choice is drawn, and its first alternative leads to the shortest text, so that texts shrink well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from hypothesis import strategies as st

from gbnf.compiler.grammar import Grammar
from gbnf.errors import GrammarError
from gbnf.grammar.analysis import cheapest_costs, cost_of, require_texts
from gbnf.grammar.code_points import Ranges, matchable
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq, TokenTerminal

_ASCII = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "".join(
    char for char in map(chr, range(0x20, 0x7F)) if not char.isalnum()
)
_ASCII_WEIGHT = 3  # to one for all other characters
_UPPER_BOUND_TRIED = 12  # one repetition in 13 reaches its upper bound


def derivations(grammar: Grammar, *, size: int = 200) -> st.SearchStrategy[str]:
    """Return texts that a grammar derives.

    After `size` terminals and rules, a derivation ends in the cheapest way. Raises GrammarError if the
    grammar derives no finite text, or has token terminals whose text depends on a vocabulary.
    """
    rules = grammar.rules
    require_texts(rules)
    costs = cheapest_costs(rules)
    if rules.root not in costs:
        raise GrammarError(
            f"the rule {rules.root} derives no finite text. Give its recursion an alternative that ends."
        )
    return _derivations(_Language(rules, costs), size)


@dataclass(frozen=True)
class _Language:
    """Rules and the cost of each, with a short name for Hypothesis's messages."""

    rules: Rules
    costs: dict[str, int]

    def __repr__(self) -> str:
        return f"<{len(self.rules.productions)} rules>"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the `repr` in Hypothesis, which otherwise prints every field of a dataclass."""
        printer.text(repr(self))


@st.composite
def _derivations(draw: st.DrawFn, language: _Language, size: int) -> str:
    """Draw a text; after `size` terminals and references, it takes the cheapest alternatives."""
    rules, costs = language.rules, language.costs
    budget = size
    parts: list[str] = []
    todo: list[Expr] = [Ref(rules.root)]
    while todo:
        match todo.pop():
            case Literal(text):
                budget -= 1
                parts.append(text)
            case TokenTerminal() as terminal:
                todo.append(Literal(terminal.text or ""))
            case CharClass() as chars:
                budget -= 1
                ranges = matchable(chars)
                simplest = next((char for char in _ASCII if _holds(ranges, ord(char))), chr(ranges[0][0]))
                parts.append(draw(_characters(ranges)) if budget > 0 else simplest)
            case Seq(items):
                todo.extend(reversed(items))
            case Alt(items):
                by_cost = [(cost, item) for item in items if (cost := cost_of(item, costs)) is not None]
                cheapest = sorted(by_cost, key=itemgetter(0))
                todo.append(cheapest[draw(st.integers(0, len(cheapest) - 1)) if budget > 0 else 0][1])
            case Repeat(item, low, high):
                count = low
                if budget > low and cost_of(item, costs) is not None:
                    count = _count(draw, low, high, budget)
                todo.extend([item] * count)
            case Ref(name):
                budget -= 1
                todo.append(rules.productions[name])
    return "".join(parts)


def _count(draw: st.DrawFn, low: int, high: int | None, budget: int) -> int:
    tried = high is not None and high - low <= budget and high > low + 1
    if tried and draw(st.integers(0, _UPPER_BOUND_TRIED)) == _UPPER_BOUND_TRIED:
        return high or 0
    count = low
    while (high is None or count < high) and count - low < budget and draw(st.booleans()):
        count += 1
    return count


@lru_cache(maxsize=1024)
def _characters(ranges: Ranges) -> st.SearchStrategy[str]:
    ascii_chars = [char for char in _ASCII if _holds(ranges, ord(char))]
    others = [st.integers(low, high).map(chr) for low, high in _beyond_ascii(ranges)]
    if not ascii_chars:
        return st.one_of(others)
    return st.one_of([st.sampled_from(ascii_chars)] * _ASCII_WEIGHT + ([st.one_of(others)] if others else []))


def _holds(ranges: Ranges, code_point: int) -> bool:
    return any(low <= code_point <= high for low, high in ranges)


def _beyond_ascii(ranges: Ranges) -> list[tuple[int, int]]:
    """Return the ranges without printable ASCII, split by the length of UTF-8."""
    lengths = ((0, 0x1F), (0x7F, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF))
    return [
        (max(low, first), min(high, last))
        for low, high in ranges
        for first, last in lengths
        if low <= last and high >= first
    ]
