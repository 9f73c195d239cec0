"""The productions of one compilation, with names that are readable, unique, and that llama.cpp reads."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from gbnf.grammar.emit import identity
from gbnf.grammar.ir import EMPTY_LANGUAGE, Alt, Expr, Ref, Rules, Seq
from gbnf.grammar.passes import renamed, substitute
from gbnf.schema_caches import schema_cache

_WORDS = re.compile(r"[A-Za-z0-9]+")


#: Longer paths keep their first part and their last ones.
MAX_PARTS = 7
#: The most characters of a part: of a longer one, the last words remain, which say most in a URL.
_MAX_PART_LENGTH = 40


@schema_cache(maxsize=4096)
def camel(*parts: str) -> str:
    """Join parts to lowerCamelCase of `[A-Za-z0-9]`.

    "get_inputs", "dialog" -> getInputsDialog; accents are dropped ("café" -> cafe); characters beyond ASCII
    become their code points ("日本" -> u65e5u672c). Of long parts, the last words remain.
    """
    shown = parts if len(parts) <= MAX_PARTS else (parts[0], *parts[1 - MAX_PARTS :])
    joined = "".join(map(_capitalised, shown))
    if not joined:
        return "x"
    return joined[0].lower() + joined[1:] if joined[0].isalpha() else f"n{joined}"


@schema_cache(maxsize=4096)
def _capitalised(part: str) -> str:
    """Return the words of one part, each with a capital letter."""
    if not part.isascii():
        plain = [char for char in unicodedata.normalize("NFKD", part) if not unicodedata.combining(char)]
        part = "".join([char if ord(char) < 128 else f" u{ord(char):x} " for char in plain])
    words = [word[0].upper() + word[1:] for word in _WORDS.findall(part)]
    while len(words) > 1 and sum(map(len, words)) > _MAX_PART_LENGTH:
        del words[0]
    return "".join(words)[:_MAX_PART_LENGTH]


class NameTable:
    """Generates unique names; `taken` are in use elsewhere."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def fresh(self, *parts: str) -> str:
        """Return the camelCase of `parts`, with a number that makes it unique if needed."""
        name = camel(*parts)
        return self.numbered(1, *parts)[0] if name in self._taken else self._take(name)

    def numbered(self, many: int, *parts: str) -> list[str]:
        """Return several such names, each with a number."""
        stem = camel(*parts)
        start = f"{stem}x" if stem[-1].isdigit() else stem
        number = self._counts.get(stem, int(stem in self._taken))
        names: list[str] = []
        while len(names) < many:
            number += 1
            name = f"{start}{number}"
            if name not in self._taken:
                self._taken.add(name)
                names.append(name)
        self._counts[stem] = number
        return names

    def _take(self, name: str) -> str:
        self._taken.add(name)
        return name


class RuleTable:
    """Productions by name. Equal productions share one rule."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._names = NameTable(taken)
        self._refs: dict[str | Expr, Ref] = {}  # by the identity of their productions
        self.productions: dict[str, Expr] = {}
        #: What the fragments that are added already became.
        self.instances: dict[Fragment, Expr] = {}

    def reserve(self, *hint: str) -> Ref:
        """Return a new nonterminal for a production that `define` sets later."""
        name = self._names.fresh(*hint)
        self.productions[name] = EMPTY_LANGUAGE
        return Ref(name)

    def reserve_many(self, count: int, *hint: str) -> list[Ref]:
        """Return new nonterminals with one hint, which have no production before `define` sets it."""
        return [Ref(name) for name in self._names.numbered(count, *hint)]

    def define(self, ref: Ref, production: Expr) -> Ref:
        """Set the production of a reserved nonterminal; return the nonterminal of an equal one, if any."""
        shared = self._refs.setdefault(identity(production), ref)
        self.productions.pop(ref.name, None)  # in the order of definition, most rules come after their parts
        if shared is not ref and shared != ref and (type(production) is Seq or type(production) is Alt):
            self.productions[ref.name] = shared  # for those that refer to it already
            return shared
        self.productions[ref.name] = production
        return ref

    def add(self, hint: tuple[str, ...], production: Expr) -> Ref:
        """Return the nonterminal of a production, new or known."""
        shared = self._refs.get(identity(production))
        if shared is not None:
            return shared
        return self.define(self.reserve_many(1, *hint)[0], production)


class Scope:
    """A table, and where in a schema its rules are from.

    `path`: of the subschema, for the name of its own rule. `prefix`: how the names of auxiliary rules begin.
    These are most rules, so that their names are short: a word and a number.
    """

    def __init__(
        self, table: RuleTable, path: tuple[str, ...], prefix: tuple[str, ...] | None = None
    ) -> None:
        self.table, self.path = table, path
        self.prefix = path if prefix is None else prefix

    def inside(self, *hint: str) -> Scope:
        """Return the scope of a subschema."""
        deeper = (*self.path, *hint)
        if len(deeper) > 2 * MAX_PARTS:  # names contain no more of them
            deeper = (deeper[0], *deeper[-MAX_PARTS:])
        return Scope(self.table, deeper, self.prefix)

    def reserve(self, count: int, hint: str) -> list[Ref]:
        """Reserve nonterminals of auxiliary rules, as `RuleTable.reserve_many` does."""
        return self.table.reserve_many(count, *self.prefix, hint)

    def add(self, hint: str, production: Expr) -> Ref:
        """Add an auxiliary rule, as `RuleTable.add` does."""
        return self.table.add((*self.prefix, hint), production)


def prefixed(prefix: str, rules: Rules, taken: Iterable[str]) -> Rules:
    """Return the rules with names that begin with `prefix` and differ from those in `taken`."""
    table = NameTable(frozenset(taken))
    names = {name: Ref(table.fresh(prefix, name)) for name in rules.productions}
    productions = {names[name].name: substitute(expr, names) for name, expr in rules.productions.items()}
    return Rules(productions, names[rules.root].name)


class Fragment:
    """An expression with the productions that it needs, built once for many tables."""

    def __init__(self, expr: Expr, table: RuleTable) -> None:
        """Take an expression whose productions are in a table of their own."""
        self.expr, self.productions = expr, tuple(table.productions.items())

    def instantiate(self, scope: Scope) -> Expr:
        """Return the expression, with its productions added to the scope's table once, under new names."""
        if not self.productions:
            return self.expr
        instances = scope.table.instances
        if self not in instances:
            refs = {name: scope.reserve(1, name.rstrip("0123456789"))[0] for name, _ in self.productions}
            for name, production in self.productions:
                scope.table.define(refs[name], renamed(production, refs))
            instances[self] = renamed(self.expr, refs)
        return instances[self]
