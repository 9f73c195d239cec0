"""The grammar as values: six kinds of expression, rules that name them, and a grammar that holds rules.

Everything here is frozen, and knows its hash: expressions are compared all the time. The constructors
`literal`, `char_class`, `seq`, `alt` and `repeat` do every simplification that needs no look at other rules,
given parts that they have made: so nothing that is impossible is left inside an expression (`NOTHING` stands
alone or not at all). What needs the whole grammar is a pass (`gbnf.grammar.passes`). Only
`gbnf.grammar.emit` turns expressions into text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

MAX_CODE_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Literal:
    """A terminal: this text, exactly. Never empty (`EMPTY` is the empty sequence)."""

    text: str


@dataclass(frozen=True, slots=True)
class CharClass:
    """One code point of `ranges` (sorted, disjoint, inclusive), or outside them when `negated`."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False

    def __contains__(self, char: str) -> bool:
        code_point = ord(char)
        return any(low <= code_point <= high for low, high in self.ranges) != self.negated


@dataclass(frozen=True, slots=True)
class Seq:
    """One expression after another. `Seq(())` derives the empty string."""

    items: tuple[Expr, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(("Seq", self.items)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Alt:
    """One of several expressions. `Alt(())` derives nothing at all."""

    items: tuple[Expr, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(("Alt", self.items)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` at least `minimum` times, at most `maximum` times (None: without bound)."""

    item: Expr
    minimum: int
    maximum: int | None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(("Repeat", self.item, self.minimum, self.maximum)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Ref:
    """The nonterminal of this name."""

    name: str


Expr: TypeAlias = Literal | CharClass | Seq | Alt | Repeat | Ref

EMPTY = Seq(())
NOTHING = Alt(())


def literal(text: str) -> Expr:
    return Literal(text) if text else EMPTY


def char_class(*ranges: tuple[int, int] | str, negated: bool = False) -> CharClass:
    """Build a class from inclusive code point pairs and from strings whose characters it holds."""
    pairs = [
        pair
        for part in ranges
        for pair in ([part] if isinstance(part, tuple) else [(ord(char), ord(char)) for char in part])
    ]
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return CharClass(tuple(merged), negated)


def seq(*items: Expr) -> Expr:
    """Concatenate: nested sequences flatten, neighbouring literals join, an impossible item wins."""
    flat: list[Expr] = []
    for item in items:
        if isinstance(item, Alt) and not item.items:
            return NOTHING
        parts = item.items if isinstance(item, Seq) else (item,)
        if flat and parts and isinstance(flat[-1], Literal) and isinstance(parts[0], Literal):
            flat[-1] = Literal(flat[-1].text + parts[0].text)
            parts = parts[1:]
        flat += parts
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alt(*items: Expr) -> Expr:
    """Choose: nested alternations flatten, repeated and impossible items go."""
    flat: dict[Expr, None] = {}
    for item in items:
        flat.update(dict.fromkeys(item.items if isinstance(item, Alt) else (item,)))
    return next(iter(flat)) if len(flat) == 1 else Alt(tuple(flat))


def repeat(item: Expr, minimum: int = 0, maximum: int | None = None) -> Expr:
    """Repeat `item`. Raises ValueError where the bounds are negative or inverted."""
    if minimum < 0 or (maximum is not None and maximum < minimum):
        raise ValueError(f"repetition bounds {{{minimum},{maximum}}} are negative or inverted")
    if maximum == 0 or item == EMPTY:
        return EMPTY
    if item == NOTHING:
        return EMPTY if minimum == 0 else NOTHING
    if (minimum, maximum) == (1, 1):
        return item
    return Repeat(item, minimum, maximum)


def optional(item: Expr) -> Expr:
    return repeat(item, 0, 1)


def references(expr: Expr) -> list[str]:
    """The names of the rules that `expr` refers to, in order, each once."""
    found: dict[str, None] = {}
    pending = [expr]
    while pending:
        top = pending.pop()
        if isinstance(top, Ref):
            found[top.name] = None
        elif isinstance(top, Seq | Alt):
            pending.extend(reversed(top.items))
        elif isinstance(top, Repeat):
            pending.append(top.item)
    return list(found)


@dataclass(frozen=True)
class Rules:
    """Productions by nonterminal, and the start symbol. The mapping's order is the order of emission."""

    productions: Mapping[str, Expr]
    root: str = "root"

    @cached_property
    def references(self) -> dict[str, list[str]]:
        """For each rule those that it refers to, in order, each once."""
        return {name: references(expr) for name, expr in self.productions.items()}

    def only(self, names: Iterable[str]) -> Rules:
        """These rules, in this order."""
        kept = Rules({name: self.productions[name] for name in names}, self.root)
        vars(kept)["references"] = {name: self.references[name] for name in kept.productions}
        return kept
