"""A grammar as users see it, and the linker that puts compiled rules together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from gbnf.compiler.decimals import BOUNDED_DIGITS, DigitLimits
from gbnf.compiler.layout import Whitespace
from gbnf.compiler.primitives import primitives
from gbnf.errors import AmbiguousGrammarError
from gbnf.findings import Finding
from gbnf.grammar.emit import emit, emit_rule
from gbnf.grammar.ir import Expr, Rules, references
from gbnf.grammar.match import Match, Matcher
from gbnf.grammar.stacks import MAX_STACKS, is_bounded
from gbnf.schema_caches import schema_cache


@dataclass(frozen=True, eq=False)
class Grammar:
    """An immutable grammar, made by `compile_pool`, `compile_schema` or `Grammar.parse`.

    `str(grammar)` is its GBNF text; grammars with the same text are equal. `rules` are its productions as
    values, with the start symbol `root`. `report` lists what the grammar does not enforce, sorted by tool and
    JSON Pointer. `is_parsed`: whether it was not compiled. `emitted`: the text, where it is known already.
    """

    rules: Rules
    report: tuple[Finding, ...] = ()
    is_parsed: bool = False
    emitted: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> Grammar:
        """Read GBNF text.

        Raises GrammarSyntaxError if llama.cpp would refuse it, hang on it, or silently read another grammar.
        """
        from gbnf.grammar.parse import parse_gbnf  # noqa: PLC0415  # it builds a parser with lark

        return cls(parse_gbnf(text), is_parsed=True)

    def match(self, text: str) -> Match:
        """Match `text` against the grammar, as far as it fits. May be called from several threads at once.

        A token terminal `<text>` matches its text; `<[id]>` and `!<…>` match any text that is not empty.

        Raises AmbiguousGrammarError if the text so far has too many derivations.
        """
        return self.matcher.match(text)

    @property
    def matcher(self) -> Matcher:
        """The matcher of this grammar, for texts that arrive piece by piece. It is built once."""
        return _matcher(self)

    def check_stacks(self) -> None:
        """Raise AmbiguousGrammarError if a text is found for which llama.cpp would keep too many stacks.

        Compiled grammars have no such text, as far as the compiler finds any. See `gbnf.grammar.stacks`.
        """
        if self.is_parsed and not _is_bounded(self):
            raise AmbiguousGrammarError(MAX_STACKS)

    @cached_property
    def exact(self) -> bool:
        """Whether each text of the language satisfies the schema, of which nothing was removed."""
        return not any(finding.loosens for finding in self.report)

    @cached_property
    def _text(self) -> str:
        return emit(self.rules) if self.emitted is None else self.emitted

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grammar) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@schema_cache(maxsize=32)  # a matcher grows with the texts that it sees, and compiled pools are kept for long
def _matcher(grammar: Grammar) -> Matcher:
    return Matcher(grammar.rules)


@schema_cache(maxsize=64)
def _is_bounded(grammar: Grammar) -> bool:
    return is_bounded(grammar.rules)


class CompiledRules:
    """Productions that are compiled and emitted once, and linked into many grammars.

    `text` is their GBNF, `names` are their names in its order, `needs` the other names that they refer to.
    """

    __slots__ = ("_productions", "names", "needs", "text")

    def __init__(
        self,
        text: str,
        names: Iterable[str],
        needs: Iterable[str],
        productions: Callable[[], Mapping[str, Expr]],
    ) -> None:
        """Take rules whose text is known. `productions` builds them when something reads them."""
        self._productions: dict[str, Expr] | Callable[[], Mapping[str, Expr]] = productions
        self.text = text
        self.names = dict.fromkeys(names).keys()
        self.needs = frozenset(needs)

    @classmethod
    def of(cls, rules: Rules) -> CompiledRules:
        """Emit rules. Raises GrammarError for those that have no text in GBNF."""
        text = "".join([emit_rule(name, expr) for name, expr in rules.productions.items()])
        needs = frozenset(chain.from_iterable(map(references, rules.productions.values())))
        needs -= rules.productions.keys()
        return cls(text, rules.productions, needs, lambda: rules.productions)

    @property
    def productions(self) -> dict[str, Expr]:
        """The productions by name, in the order of the text."""
        if not isinstance(self._productions, dict):
            self._productions = dict(self._productions())
        return self._productions


class _LinkedProductions(Mapping[str, Expr]):
    """The productions of several parts. Most grammars are used as text only, so they are merged when read."""

    def __init__(self, parts: tuple[CompiledRules, ...]) -> None:
        self._parts = parts

    @cached_property
    def _merged(self) -> dict[str, Expr]:
        return {name: expr for part in self._parts for name, expr in part.productions.items()}

    def __getitem__(self, name: str) -> Expr:
        return self._merged[name]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(part.names for part in self._parts)

    def __len__(self) -> int:
        return sum(len(part.names) for part in self._parts)

    def __reduce__(self) -> tuple[type[dict[str, Expr]], tuple[dict[str, Expr]]]:
        return dict, (self._merged,)


@schema_cache(maxsize=1024)
def _primitive(name: str, whitespace: Whitespace, digits: DigitLimits) -> CompiledRules:
    """Return one primitive as a part of its own: schemas need different ones, and each is emitted once."""
    return CompiledRules.of(Rules({name: primitives(whitespace, digits)[name]}))


@schema_cache(maxsize=256)
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
    needs = frozenset[str]().union(*[part.needs for part in parts])
    if len(parts) > 1:
        needs = needs.difference(*[part.names for part in parts])
    parts = (*parts, *_shared_parts(needs, whitespace, digits))
    text = "".join([part.text for part in parts])
    return Grammar(Rules(_LinkedProductions(parts)), tuple(sorted(findings)), emitted=text)
