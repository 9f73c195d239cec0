"""Grammars as values: seven kinds of expression, and rules that name them.

Invariants:

- Values are immutable. They are plain classes, since thousands are made for one schema, and cache their hash
  and their references, since they are compared all the time.
- The constructors `literal`, `char_class`, `seq`, `alt` and `repeat` do every simplification that concerns
  one expression. So `EMPTY_LANGUAGE` is never inside another expression that they built.

Simplifications of a whole grammar are passes (`gbnf.grammar.passes`); `gbnf.grammar.emit` emits text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias

from gbnf.errors import GrammarError


class _Value:
    """A value of the attributes in `__match_args__`."""

    __slots__ = ()

    def _parts(self) -> tuple[Any, ...]:
        node_type: Any = type(self)
        return tuple(getattr(self, name) for name in node_type.__match_args__)

    def __reduce__(self) -> tuple[Any, ...]:  # hashes of strings differ from process to process
        return type(self), self._parts()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._parts()))})"


class Literal(_Value):
    """A terminal: this text, exactly. Never empty (`EPSILON` is the empty sequence)."""

    __match_args__ = ("text",)
    __slots__ = ("text",)
    references: ClassVar[tuple[str, ...]] = ()

    def __init__(self, text: str) -> None:
        self.text: Final = text

    def __eq__(self, other: object) -> bool:
        return type(other) is Literal and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class CharClass(_Value):
    """One code point of `ranges` (sorted, disjoint, inclusive), or outside them when `negated`."""

    __match_args__ = ("ranges", "negated")
    __slots__ = ("_hash", "emitted", "negated", "ranges")
    references: ClassVar[tuple[str, ...]] = ()

    def __init__(self, ranges: tuple[tuple[int, int], ...], negated: bool = False) -> None:
        self.ranges: Final = ranges
        self.negated: Final = negated
        self._hash = hash((ranges, negated))
        #: The text, once `gbnf.grammar.emit` has emitted it: classes are few, and used all the time.
        self.emitted: str | None = None

    def __contains__(self, char: str) -> bool:
        code_point = ord(char)
        return any(low <= code_point <= high for low, high in self.ranges) != self.negated

    def __eq__(self, other: object) -> bool:
        return type(other) is CharClass and self.ranges == other.ranges and self.negated == other.negated

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class TokenTerminal:
    """The token of this text (`<think>`) or id in a model's vocabulary; if `negated`, any other."""

    token: str | int
    negated: bool = False
    references: ClassVar[tuple[str, ...]] = ()

    @property
    def text(self) -> str | None:
        """The text that it matches; None if this depends on the vocabulary."""
        return self.token if isinstance(self.token, str) and not self.negated else None


class Ref(_Value):
    """The nonterminal of this name."""

    __match_args__ = ("name",)
    __slots__ = ("name", "references")

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.references: Final = (name,)

    def __eq__(self, other: object) -> bool:
        return type(other) is Ref and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name) ^ 1


class _Composite(_Value):
    """An expression composed of others."""

    __slots__ = ("_hash", "references")
    _hash: int | None
    #: The names of the rules that it refers to, in order, each once; None until `references` is called.
    references: tuple[str, ...] | None


class _Items(_Composite):
    __match_args__ = ("items",)
    __slots__ = ("emitted", "items")

    def __init__(self, items: tuple[Expr, ...]) -> None:
        self.items: Final = items
        self._hash = self.references = None
        #: The text of an alternation that many grammars contain.
        self.emitted: str | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and self.items == other.items

    def __hash__(self) -> int:
        cached = self._hash
        if cached is None:
            cached = self._hash = hash(self.items)  # few sequences have the items of an alternation
        return cached


class Seq(_Items):
    """One expression after another. `Seq(())` derives the empty string."""

    __slots__ = ()


class Alt(_Items):
    """One of several expressions. `Alt(())` derives nothing at all."""

    __slots__ = ()


class Repeat(_Composite):
    """`item` at least `minimum` times, at most `maximum` times (None: without bound)."""

    __match_args__ = ("item", "minimum", "maximum")
    __slots__ = ("item", "maximum", "minimum")

    def __init__(self, item: Expr, minimum: int, maximum: int | None) -> None:
        self.item: Final = item
        self.minimum: Final = minimum
        self.maximum: Final = maximum
        self._hash = self.references = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Repeat)
            and (self.minimum, self.maximum) == (other.minimum, other.maximum)
            and self.item == other.item
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.item, self.minimum, self.maximum))
        return self._hash


Expr: TypeAlias = Literal | CharClass | TokenTerminal | Seq | Alt | Repeat | Ref

EPSILON = Seq(())
EMPTY_LANGUAGE = Alt(())


def literal(text: str) -> Expr:
    """Return a literal, `EPSILON` for the empty string."""
    return Literal(text) if text else EPSILON


def char_class(*ranges: tuple[int, int] | str, negated: bool = False) -> CharClass:
    """Build a class from inclusive pairs of code points, and from strings of its characters."""
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
    """Concatenate: flatten nested sequences and join adjacent literals. `EMPTY_LANGUAGE` absorbs the rest."""
    flat: list[Expr] = []
    last: Expr | None = None
    for item in items:
        if type(item) is Seq:
            parts = item.items
            if not parts:
                continue
            first = parts[0]
            if type(last) is Literal and type(first) is Literal:
                flat[-1] = Literal(last.text + first.text)
                parts = parts[1:]
            flat += parts
            last = flat[-1]
        elif type(last) is Literal and type(item) is Literal:
            last = flat[-1] = Literal(last.text + item.text)
        elif type(item) is Alt and not item.items:
            return EMPTY_LANGUAGE
        else:
            flat.append(item)
            last = item
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alt(*items: Expr) -> Expr:
    """Alternate: flatten nested alternations, and drop duplicate items and `EMPTY_LANGUAGE`."""
    if len(items) == 2 and type(items[0]) is not Alt is not type(items[1]):  # as for most, without hashes
        return items[0] if items[0] == items[1] else Alt(items)
    flat: dict[Expr, None] = {}
    for item in items:
        if type(item) is Alt:
            flat.update(dict.fromkeys(item.items))
        else:
            flat[item] = None
    return next(iter(flat)) if len(flat) == 1 else Alt(tuple(flat)) if flat else EMPTY_LANGUAGE


def repeat(item: Expr, minimum: int = 0, maximum: int | None = None) -> Expr:
    """Repeat `item`. Raises GrammarError for bounds that are negative or inverted."""
    if minimum < 0 or (maximum is not None and maximum < minimum):
        raise GrammarError(f"repetition bounds {{{minimum},{maximum}}} are negative or inverted")
    if maximum == 0 or item == EPSILON:
        return EPSILON
    if item == EMPTY_LANGUAGE:
        return EPSILON if minimum == 0 else EMPTY_LANGUAGE
    if (minimum, maximum) == (1, 1):
        return item
    return Repeat(item, minimum, maximum)


def optional(item: Expr) -> Expr:
    """Return `item` zero or one time."""
    return repeat(item, 0, 1)


def with_parts(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return `expr` with each of the expressions that it is composed of changed, simplified again."""
    if type(expr) is Seq:
        return seq(*map(change, expr.items))
    if type(expr) is Alt:
        return alt(*map(change, expr.items))
    if type(expr) is Repeat:
        return repeat(change(expr.item), expr.minimum, expr.maximum)
    return expr


def references(expr: Expr) -> tuple[str, ...]:
    """Return the names of the rules that `expr` refers to, in order, each once."""
    if expr.references is not None:
        return expr.references
    names: list[str] = []
    for item in (expr.item,) if isinstance(expr, Repeat) else expr.items:
        if type(item) is Seq and item.references is None:  # most alternatives: without a call for each
            for part in item.items:
                names += references(part) if part.references is None else part.references
        else:
            names += references(item) if item.references is None else item.references
    expr.references = tuple(dict.fromkeys(names)) if len(names) > 1 else tuple(names)
    return expr.references


@dataclass(frozen=True)
class Rules:
    """Productions by nonterminal, and the start symbol. The mapping's order is the order of emission."""

    productions: Mapping[str, Expr]
    root: str = "root"

    @cached_property
    def references(self) -> dict[str, tuple[str, ...]]:
        """For each rule, the names that it refers to, in order, each once."""
        return {name: references(expr) for name, expr in self.productions.items()}

    def reached(self, name: str) -> dict[str, None]:
        """Return the rules that one reaches, itself first, each after the first that refers to it."""
        reached: dict[str, None] = {}
        pending = [name]
        while pending:
            name = pending.pop()
            expr = None if name in reached else self.productions.get(name)
            if expr is not None:
                reached[name] = None
                pending += references(expr)[::-1]
        return reached

    def leaves(self) -> Iterator[Expr]:
        """Yield the terminals and references, as often as they occur."""
        pending = list(self.productions.values())
        while pending:
            match pending.pop():
                case Seq(items) | Alt(items):
                    pending += items
                case Repeat(item):
                    pending.append(item)
                case leaf:
                    yield leaf

    def only(self, names: Iterable[str]) -> Rules:
        """Return these rules, in this order."""
        return Rules({name: self.productions[name] for name in names}, self.root)
