"""The productions of one compilation, as they are made."""

from __future__ import annotations

from dataclasses import dataclass

from gbnf.compiler.rule_names import MAX_PARTS, NameTable
from gbnf.grammar.ir import EMPTY_LANGUAGE, Alt, Expr, Ref, Seq
from gbnf.grammar.passes import renamed


class RuleTable:
    """Productions by name. A production that is there already is not written again: its rule is used."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._names = NameTable(taken)
        self._known: dict[Expr, Ref] = {}
        self.productions: dict[str, Expr] = {}

    def reserve(self, *hint: str) -> Ref:
        """Return a new nonterminal, to refer to before its production is known: until `define`, none."""
        name = self._names.fresh(*hint)
        self.productions[name] = EMPTY_LANGUAGE
        return Ref(name)

    def define(self, ref: Ref, production: Expr) -> Ref:
        """Give a reserved nonterminal its production. Returns that of an equal one, if there is one."""
        known = self._known.setdefault(production, ref)
        self.productions.pop(
            ref.name, None
        )  # in the order of definition, most rules stand behind their parts
        if known != ref and isinstance(production, Seq | Alt):
            self.productions[ref.name] = known  # for those that refer to it already
            return known
        self.productions[ref.name] = production
        return ref

    def add(self, hint: tuple[str, ...], production: Expr) -> Ref:
        """Return the nonterminal of a production."""
        known = self._known.get(production)
        if known is not None:
            return known
        return self.define(Ref(self._names.fresh(*hint)), production)


class Scope:
    """A table seen from one place of a schema: the names of its rules begin with `hint`."""

    def __init__(self, table: RuleTable, hint: tuple[str, ...]) -> None:
        self.table = table
        self.hint = hint

    def inside(self, *hint: str) -> Scope:
        deeper = (*self.hint, *hint)
        if len(deeper) > 2 * MAX_PARTS:  # the names show no more of them
            deeper = (deeper[0], *deeper[-MAX_PARTS:])
        return Scope(self.table, deeper)

    def reserve(self, *hint: str) -> Ref:
        return self.table.reserve(*self.hint, *hint)

    def define(self, ref: Ref, production: Expr) -> Ref:
        return self.table.define(ref, production)

    def add(self, hint: str, production: Expr) -> Ref:
        return self.table.add((*self.hint, hint), production)


@dataclass(frozen=True, slots=True)
class Fragment:
    """An expression with the productions that it needs, made once and put into many tables."""

    expr: Expr
    productions: tuple[tuple[str, Expr], ...]

    @staticmethod
    def of(expr: Expr, table: RuleTable) -> Fragment:
        """Return what was written into a table of its own, with no hint around it."""
        return Fragment(expr, tuple(table.productions.items()))

    def instantiate(self, scope: Scope) -> Expr:
        """Return the expression, its productions written at this place under new names."""
        if not self.productions:
            return self.expr
        refs = {name: scope.reserve(name.rstrip("0123456789")) for name, _ in self.productions}
        for name, production in self.productions:
            scope.define(refs[name], renamed(production, refs))
        return renamed(self.expr, refs)
