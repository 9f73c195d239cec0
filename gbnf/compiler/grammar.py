"""A compiled grammar: its productions, its text, and what it does not enforce."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

from gbnf.compiler.decimals import BOUNDED_DIGITS, DigitLimits
from gbnf.compiler.layout import Whitespace
from gbnf.compiler.primitives import primitives
from gbnf.compiler.report import Finding
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import Rules


class CompiledRules:
    """Productions that are compiled and written once, and linked into many grammars."""

    __slots__ = ("names", "needs", "productions", "text")

    def __init__(self, rules: Rules) -> None:
        self.productions = rules.productions
        self.text = "".join([f"{name} ::= {emit_expr(expr)}\n" for name, expr in self.productions.items()])
        self.names = frozenset(self.productions)
        self.needs = frozenset(chain.from_iterable(rules.references.values())) - self.names


@lru_cache(maxsize=256)
def _shared_part(needs: frozenset[str], whitespace: Whitespace, digits: DigitLimits) -> CompiledRules:
    """The primitives that `needs` names, and those that they need in their turn."""
    table = Rules(primitives(whitespace, digits))
    reached: set[str] = set()
    pending = [name for name in needs if name in table.productions]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(table.references[name])
    return CompiledRules(table.only(name for name in table.productions if name in reached))


@dataclass(frozen=True)
class Grammar:
    """A GBNF grammar with the report of its compilation. `str(grammar)` is the text.

    `report` is sorted by tool and place. `exact` says that no finding is of kind "unenforced": every
    string of the language is then valid JSON that satisfies the schema.
    """

    parts: tuple[CompiledRules, ...]
    report: tuple[Finding, ...]

    def __str__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @cached_property
    def rules(self) -> Rules:
        """The productions as values; the start symbol is `root`."""
        return Rules({name: expr for part in self.parts for name, expr in part.productions.items()})

    @cached_property
    def exact(self) -> bool:
        return all(finding.kind != "unenforced" for finding in self.report)


def link(
    parts: Iterable[CompiledRules],
    findings: Iterable[Finding],
    whitespace: Whitespace,
    digits: DigitLimits = BOUNDED_DIGITS,
) -> Grammar:
    """Put parts together with the primitives that they need. The first part holds `root`."""
    parts = tuple(parts)
    needs = frozenset().union(*(part.needs for part in parts)) - frozenset().union(
        *(part.names for part in parts)
    )
    shared = _shared_part(needs, whitespace, digits)
    return Grammar((*parts, shared) if shared.productions else parts, tuple(sorted(findings)))
