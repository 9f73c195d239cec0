"""Passes over a whole grammar: each returns rules of the same language.

A reference without a production belongs to a part that is linked later, and is treated as productive.
`PASSES` lists the passes in the order in which the compiler runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from gbnf.grammar.analysis import strong_components, to_fixpoint
from gbnf.grammar.emit import identity
from gbnf.grammar.ir import EMPTY_LANGUAGE, Alt, Expr, Ref, Repeat, Rules, Seq, references, with_parts


def drop_unproductive(rules: Rules) -> Rules:
    """Remove the rules that derive no finite string, and all that require them.

    a ::= "[" a "]"    ->    nothing
    """
    productions, doubtful = rules.productions, dict.fromkeys(rules.productions)

    def improve(name: str) -> bool:
        if name not in doubtful or not _derives(productions[name], doubtful):
            return False
        del doubtful[name]
        return True

    for name in productions:  # most come after those that they refer to
        improve(name)
    if doubtful:
        to_fixpoint(rules.only(list(doubtful)), improve)
    gone: dict[str, Expr] = dict.fromkeys(doubtful, EMPTY_LANGUAGE)
    if not gone:
        return rules
    remaining = {name: substitute(expr, gone) for name, expr in productions.items() if name not in gone}
    remaining.setdefault(rules.root, EMPTY_LANGUAGE)
    return Rules(remaining, rules.root)


def merge_equal(rules: Rules) -> Rules:
    """Merge rules with equal productions into the first of them.

    a ::= [0-9]    b ::= [0-9]    c ::= a b    ->    a ::= [0-9]    c ::= a a
    """
    productions = dict(rules.productions)
    if len(set(map(identity, productions.values()))) == len(productions):
        return rules
    users: dict[str, set[str]] = {}
    for name, used in rules.references.items():
        for reference in used:
            users.setdefault(reference, set()).add(name)
    first: dict[str | Expr, str] = {}
    order = {name: number for number, name in enumerate(productions)}
    pending = [name for component in strong_components(rules.references) for name in component]
    while pending:
        same: dict[str, Ref] = {}
        for name in pending:
            if same:  # most come after those that they refer to
                productions[name] = substitute(productions[name], same)
            original = first.setdefault(identity(productions[name]), name)
            if name not in (original, rules.root):
                same[name] = Ref(original)
        touched: set[str] = set()
        for old, new in same.items():
            touched |= users.get(old, set())
            users.setdefault(new.name, set()).update(users.pop(old, ()))
            del productions[old]
        pending = sorted((name for name in touched if name in productions), key=order.__getitem__)
        for name in pending:
            if first.get(before := identity(productions[name])) == name:
                del first[before]
            productions[name] = substitute(productions[name], same)
    return Rules(productions, rules.root)


def drop_unreachable(rules: Rules) -> Rules:
    """Keep the rules that the start symbol reaches, each after the first that refers to it."""
    return rules.only(rules.reached(rules.root))


def skip_aliases(rules: Rules) -> Rules:
    """Replace references to an alias by references to its target.

    a ::= b    c ::= "[" a "]"    ->    c ::= "[" b "]"
    """
    aliases = {
        name: expr for name, expr in rules.productions.items() if type(expr) is Ref and name != rules.root
    }
    if not aliases:
        return rules
    ends = _ends(aliases)
    return Rules(
        {name: substitute(expr, ends) for name, expr in rules.productions.items() if name not in ends}
        | {name: rules.productions[name] for name, end in ends.items() if end.name == name},
        rules.root,
    )


def _ends(aliases: Mapping[str, Ref]) -> dict[str, Ref]:
    """Return the final target of each alias; for aliases that form a cycle, one of them."""
    ends: dict[str, Ref] = {}
    for alias in aliases:
        name, passed = alias, dict[str, None]()
        while name in aliases and name not in passed and name not in ends:
            passed[name] = None
            name = aliases[name].name
        end = ends.get(name) or Ref(name)
        ends.update(dict.fromkeys(passed, end))
    return {alias: ends[alias] for alias in aliases}


PASSES: tuple[Callable[[Rules], Rules], ...] = (
    skip_aliases,
    drop_unproductive,
    merge_equal,
    drop_unreachable,
)


def run_passes(rules: Rules) -> Rules:
    """Run all passes in order."""
    for apply in PASSES:
        rules = apply(rules)
    return rules


def substitute(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    """Return `expr` with the nonterminals in `replacements` replaced, simplified again where it changed."""
    if type(expr) is Ref:
        return replacements.get(expr.name, expr)
    if replacements.keys().isdisjoint(expr.references or references(expr)):
        return expr
    return with_parts(expr, lambda part: substitute(part, replacements))


def renamed(expr: Expr, names: Mapping[str, Ref]) -> Expr:
    """Return `expr` with a name of its own for each of the nonterminals in `names`: nothing to simplify."""
    if type(expr) is Ref:
        return names.get(expr.name, expr)
    if type(expr) is Seq:
        return Seq(tuple([renamed(item, names) for item in expr.items]))
    if type(expr) is Alt:
        return Alt(tuple([renamed(item, names) for item in expr.items])) if references(expr) else expr
    if type(expr) is Repeat:
        return Repeat(renamed(expr.item, names), expr.minimum, expr.maximum)
    return expr


def _derives(expr: Expr, doubtful: Container[str]) -> bool:
    """Return whether `expr` derives a string without the rules in `doubtful`."""
    if type(expr) is Ref:
        return expr.name not in doubtful
    if type(expr) is Seq:
        for item in expr.items:  # noqa: SIM110  # a generator is slower
            if not _derives(item, doubtful):
                return False
        return True
    if type(expr) is Alt:
        for item in reversed(expr.items):  # noqa: SIM110  # likewise; most often the last one is a literal
            if _derives(item, doubtful):
                return True
        return False
    return type(expr) is not Repeat or expr.minimum == 0 or _derives(expr.item, doubtful)
