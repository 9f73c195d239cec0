"""A grammar as users see it, and the linker that puts compiled rules together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

from gbnf.compiler.decimals import BOUNDED_DIGITS, DigitLimits
from gbnf.compiler.layout import Whitespace
from gbnf.compiler.primitives import primitives
from gbnf.findings import Finding
from gbnf.grammar.emit import emit, emit_rule
from gbnf.grammar.ir import Rules
from gbnf.grammar.match import Match, Matcher


@dataclass(frozen=True, eq=False)
class Grammar:
    """An immutable grammar, made by `compile_pool`, `compile_schema` or `Grammar.parse`.

    `str(grammar)` is its GBNF text; grammars with the same text are equal. `rules` are its productions as
    values, with the start symbol `root`. `report` lists what the grammar does not enforce, sorted by tool and
    JSON Pointer.
    """

    rules: Rules
    report: tuple[Finding, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Grammar:
        """Read GBNF text.

        Raises GrammarSyntaxError if llama.cpp would refuse it, hang on it, or silently read another grammar.
        """
        from gbnf.grammar.parse import parse_gbnf  # noqa: PLC0415  # it builds a parser with lark

        return cls(parse_gbnf(text))

    def match(self, text: str) -> Match:
        """Match `text` against the grammar, as far as it fits. May be called from several threads at once.

        Raises AmbiguousGrammarError if the text so far has too many derivations.
        """
        return self.matcher.match(text)

    @property
    def matcher(self) -> Matcher:
        """The matcher of this grammar, for texts that arrive piece by piece. It is built once."""
        return _matcher(self)

    @cached_property
    def exact(self) -> bool:
        """Whether each text of the language satisfies the schema: no finding is of kind "unenforced"."""
        return all(finding.kind != "unenforced" for finding in self.report)

    @cached_property
    def _text(self) -> str:
        return emit(self.rules)

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grammar) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@lru_cache(maxsize=32)  # a matcher grows with the texts that it sees, and compiled pools are kept for long
def _matcher(grammar: Grammar) -> Matcher:
    return Matcher(grammar.rules)


class CompiledRules:
    """Productions that are compiled and emitted once, and linked into many grammars."""

    __slots__ = ("names", "needs", "productions", "text")

    def __init__(self, rules: Rules) -> None:
        """Emit the rules. Raises GrammarError for those that have no text in GBNF."""
        self.productions = rules.productions
        self.text = "".join([emit_rule(name, expr) for name, expr in self.productions.items()])
        self.names = frozenset(self.productions)
        self.needs = frozenset(chain.from_iterable(rules.references.values())) - self.names


@lru_cache(maxsize=1024)
def _primitive(name: str, whitespace: Whitespace, digits: DigitLimits) -> CompiledRules:
    """Return one primitive as a part of its own: schemas need different ones, and each is emitted once."""
    return CompiledRules(Rules({name: primitives(whitespace, digits)[name]}))


@lru_cache(maxsize=256)
def _shared_parts(
    needs: frozenset[str], whitespace: Whitespace, digits: DigitLimits
) -> tuple[CompiledRules, ...]:
    """Return the primitives named by `needs`, and those that they refer to."""
    table = primitives(whitespace, digits)
    reached: dict[str, CompiledRules] = {}
    pending = [name for name in needs if name in table]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached[name] = _primitive(name, whitespace, digits)
            pending.extend(reached[name].needs)
    return tuple(reached[name] for name in table if name in reached)


def link(
    parts: Iterable[CompiledRules],
    findings: Iterable[Finding],
    whitespace: Whitespace,
    digits: DigitLimits = BOUNDED_DIGITS,
) -> Grammar:
    """Link parts with the primitives that they need. The first rule of the first part is `root`."""
    parts = tuple(parts)
    needs = frozenset().union(*(part.needs for part in parts)) - frozenset().union(
        *(part.names for part in parts)
    )
    parts = (*parts, *_shared_parts(needs, whitespace, digits))
    productions = {name: expr for part in parts for name, expr in part.productions.items()}
    grammar = Grammar(Rules(productions), tuple(sorted(findings)))
    vars(grammar)["_text"] = "".join([part.text for part in parts])  # what `emit` would return
    return grammar
