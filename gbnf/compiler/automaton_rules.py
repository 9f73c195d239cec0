"""Regular languages as expressions and productions.

An automaton becomes a right-linear grammar: the words from a state on are an expression, inline if only one
other state leads there, and a production if several do or a cycle returns to it. Chains of states that differ
only in how many characters remain become one bounded repetition (`[a-z]{3,64}`), and a state that leads to
itself an unbounded one.

Invariants: every word has one derivation, so the engine follows few branches at once; equal languages give
the same text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from gbnf.compiler.literals import json_char, raw_char
from gbnf.compiler.repetitions import bounded_repetition
from gbnf.compiler.rules import Fragment, RuleTable, Scope
from gbnf.grammar.ir import (
    EMPTY_LANGUAGE,
    EPSILON,
    Alt,
    CharClass,
    Expr,
    Literal,
    Ref,
    Seq,
    alt,
    literal,
    optional,
    repeat,
    seq,
)
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import CharSet
from gbnf.regular.transition_tables import DEAD
from gbnf.schema_caches import schema_cache
from gbnf.work_limits import spend

#: The productions that characters of strings refer to.
_PRIMITIVES = frozenset({"keyChar", "keyEscape"})
#: How deeply alternatives nest before one becomes a production.
_MAX_NESTING = 20
#: The longest fixed ending, in characters, that is repeated inline.
_SHORT_ENDING = 4


def string_expr(language: Dfa, scope: Scope) -> Expr:
    """Return the JSON strings, quotes included, whose content is a word; EMPTY_LANGUAGE if none is.

    Refers to the primitives `keyChar` and `keyEscape` (`gbnf.compiler.primitives`).
    """
    return quoted_expr(language, json_char, '"', scope)


def words_expr(language: Dfa, scope: Scope) -> Expr:
    """Return the words of the language as they are; EMPTY_LANGUAGE if there is none."""
    return quoted_expr(language, raw_char, "", scope)


def quoted_expr(language: Dfa, spell: Callable[[CharSet], Expr], quote: str, scope: Scope) -> Expr:
    """Return the words between quotes, characters as `spell` writes them; EMPTY_LANGUAGE if there is none."""
    if language.is_empty:
        return EMPTY_LANGUAGE
    spend((20 + language.table.alphabet.size) * len(language.table.rows))  # for the first time or again
    return _fragment(language, spell, quote).instantiate(scope)


@schema_cache(maxsize=1024)
def _fragment(language: Dfa, spell: Callable[[CharSet], Expr], quote: str) -> Fragment:
    table = RuleTable(_PRIMITIVES)
    body = _RuleWriter(language, spell, literal(quote), Scope(table, ())).expression()
    return Fragment(seq(literal(quote), body), table)


class _RepeatedExpr(NamedTuple):
    """A repeated expression (maximum None: without bound)."""

    expr: Expr
    minimum: int = 1
    maximum: int | None = 1


class _Rest(NamedTuple):
    """The alternatives to one edge of a state: the other edges, and whether the word may end."""

    edges: frozenset[tuple[int, int]]  # classes and target
    ends: bool


_NO_REST = _Rest(frozenset(), ends=False)


class _Chain(NamedTuple):
    """A chain of `length` edges with the same characters up to `target`; its states have the same rest."""

    classes: int
    length: int
    rest: _Rest
    target: int


class _RuleWriter:
    def __init__(self, language: Dfa, spell: Callable[[CharSet], Expr], end: Expr, scope: Scope) -> None:
        self._sets = language.table.alphabet.sets()
        self._spell, self._end, self._scope = spell, end, scope
        self._spelled: dict[int, Expr] = {}
        # Sets of characters are sets of classes, one bit each.
        self._loops: list[int] = []  # the classes that lead back to the state itself
        self._edges: list[dict[int, int]] = []  # the classes that lead to each other state
        for state, row in enumerate(language.table.rows):
            by_target: dict[int, int] = {}
            bit = 1
            for target in row:
                if target != DEAD:
                    by_target[target] = by_target.get(target, 0) | bit
                bit <<= 1
            self._loops.append(by_target.pop(state, 0))
            self._edges.append({classes: target for target, classes in by_target.items()})
        self._accepting = language.table.accepting
        self._uses = Counter(target for edges in self._edges for target in edges.values())
        self._uses[0] += 1
        self._spellings = Counter([*self._loops, *chain.from_iterable(self._edges)])
        self._names: dict[int, Ref] = {}  # the states that are productions
        self._pending: list[int] = []  # those of them that are still to be defined
        self._parts: dict[Expr, Ref] = {}  # repeated characters that are productions

    def expression(self) -> Expr:
        """Return the words of the language, and add the productions that they need."""
        words = self._joined(self._from(0, 0))
        while self._pending:
            state = self._pending.pop()
            self._scope.table.define(self._names[state], self._joined(self._body(state, 0)))
        return words

    def _from(self, state: int, nesting: int) -> list[_RepeatedExpr]:
        """Return the words from a state on, by name if it has one."""
        shared = self._uses[state] > 1 and not self._is_short_ending(state)
        if state not in self._names:
            if not shared and nesting <= _MAX_NESTING:
                return self._body(state, nesting)
            (self._names[state],) = self._scope.reserve(1, "Rest")
            self._pending.append(state)
        return [_RepeatedExpr(self._names[state])]

    def _is_short_ending(self, state: int) -> bool:
        """Return whether at most a few fixed characters remain."""
        for _ in range(_SHORT_ENDING):
            edges = self._edges[state]
            if self._loops[state] or len(edges) + (state in self._accepting) != 1:
                return False
            if not edges:
                return True
            ((classes, state),) = edges.items()
            if not isinstance(self._char(classes), Literal):
                return False
        return False

    def _char(self, classes: int) -> Expr:
        """Return one character of the classes, by name if it is more than a class and occurs repeatedly."""
        expr = self._spelled.get(classes)
        if expr is None:
            chars = CharSet.of(*[chars for bit, chars in enumerate(self._sets) if classes >> bit & 1])
            expr = self._spell(chars)
            if self._spellings[classes] > 1 and isinstance(expr, Seq | Alt):
                expr = self._scope.add("Char", expr)
            self._spelled[classes] = expr
        return expr

    def _body(self, state: int, nesting: int) -> list[_RepeatedExpr]:
        """Return the words from a state on, inline."""
        pieces: list[_RepeatedExpr] = []
        loop, run, rest = self._loops[state], None, self._rest(state)
        if loop:
            pieces.append(_RepeatedExpr(self._char(loop), 0, None))
        else:
            run = self._run(state)
        if run is not None:
            char, rest = self._char(run.classes), run.rest
            if self._rest(run.target) == rest and not self._loops[run.target]:
                # a -x-> b -x-> c, all with the same rest, c with nothing else: x{0,2} rest
                pieces.append(_RepeatedExpr(char, 0, run.length))
            else:
                onward = [_RepeatedExpr(char, run.length, run.length), *self._from(run.target, nesting + 1)]
                if rest == _NO_REST:
                    return onward
                stay = [_RepeatedExpr(char, 0, run.length - 1), *self._exits(rest, nesting + 1)]
                return [_RepeatedExpr(alt(self._joined(stay), self._joined(onward)))]
        return [*pieces, *self._exits(rest, nesting)]

    def _exits(self, rest: _Rest, nesting: int) -> list[_RepeatedExpr]:
        """Return one of the edges and the words after it, or the end."""
        deeper = nesting + (len(rest.edges) + rest.ends > 1)
        options = [
            [_RepeatedExpr(self._char(classes)), *self._from(target, deeper)]
            for classes, target in sorted(rest.edges, key=lambda edge: edge[0] & -edge[0])  # lowest first
        ]
        if len(options) == 1 and not rest.ends:
            return options[0]
        if not options:
            return [_RepeatedExpr(self._end)]
        choice = alt(*map(self._joined, options))
        if not rest.ends:
            return [_RepeatedExpr(choice)]
        return [_RepeatedExpr(optional(choice) if self._end == EPSILON else alt(choice, self._end))]

    def _rest(self, state: int, without: int = 0) -> _Rest:
        edges = self._edges[state].items()
        return _Rest(frozenset([edge for edge in edges if edge[0] != without]), state in self._accepting)

    def _run(self, state: int) -> _Chain | None:
        """Return the longest chain from a state, if it is worth a repetition."""
        best: _Chain | None = None
        for classes, first in self._edges[state].items():
            rest, length, target = self._rest(state, classes), 1, first
            while (
                self._uses[target] == 1
                and not self._loops[target]
                and (following := self._edges[target].get(classes)) is not None
                and self._rest(target, classes) == rest
            ):
                length, target = length + 1, following
            worth = length > 1 or (not self._loops[target] and self._rest(target) == rest)
            if worth and (best is None or length > best.length):
                best = _Chain(classes, length, rest, target)
        return best

    def _joined(self, pieces: list[_RepeatedExpr]) -> Expr:
        """Return the pieces in a row, with equal neighbours merged to one repetition."""
        merged: list[_RepeatedExpr] = []
        for piece in pieces:
            if not merged:
                merged.append(piece)
                continue
            last = merged[-1]
            if piece.expr == last.expr and not (
                isinstance(piece.expr, Literal) and last == piece == _RepeatedExpr(piece.expr)
            ):
                # x{2} x{0,3} -> x{2,5}
                maximum = (
                    None if piece.maximum is None or last.maximum is None else last.maximum + piece.maximum
                )
                merged[-1] = _RepeatedExpr(piece.expr, last.minimum + piece.minimum, maximum)
            else:
                merged.append(piece)
        return seq(*map(self._repeated, merged))

    def _repeated(self, piece: _RepeatedExpr) -> Expr:
        item, minimum, maximum = piece
        if maximum == 1:
            return repeat(item, minimum, maximum)
        if isinstance(item, Literal):
            if minimum == maximum:
                return Literal(item.text * minimum)
            if len(item.text) == 1:  # it is more where JSON forces an escape
                item = CharClass(((ord(item.text), ord(item.text)),))
        if not isinstance(item, Ref | CharClass):
            if item not in self._parts:
                self._parts[item] = self._scope.add("Char", item)
            item = self._parts[item]
        return bounded_repetition(item, minimum, maximum, self._scope)
