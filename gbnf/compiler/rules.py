"""The productions of one compilation, as they are made."""

from __future__ import annotations

from gbnf.compiler.names import NameTable
from gbnf.grammar.ir import NOTHING, Expr, Ref


class RuleTable:
    """Productions by name, in the order in which their names were given out."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._names = NameTable(taken)
        self.productions: dict[str, Expr] = {}

    def reserve(self, *hint: str) -> Ref:
        """A new nonterminal. It derives nothing until `define` gives it a production."""
        name = self._names.fresh(*hint)
        self.productions[name] = NOTHING
        return Ref(name)

    def define(self, ref: Ref, production: Expr) -> Ref:
        self.productions[ref.name] = production
        return ref


class Scope:
    """A table seen from one place of a schema: the names of its rules begin with `hint`."""

    def __init__(self, table: RuleTable, hint: tuple[str, ...]) -> None:
        self.table = table
        self.hint = hint

    def inside(self, *hint: str) -> Scope:
        return Scope(self.table, (*self.hint, *hint))

    def reserve(self, *hint: str) -> Ref:
        return self.table.reserve(*self.hint, *hint)

    def define(self, ref: Ref, production: Expr) -> Ref:
        return self.table.define(ref, production)

    def add(self, hint: str, production: Expr) -> Ref:
        return self.define(self.reserve(hint), production)
