"""Passes over a whole grammar: each returns rules of the same language.

A reference without a production belongs to a part that is linked later, and is treated as productive.
`PASSES` lists the passes in the order in which the compiler runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from gbnf.grammar.analysis import strong_components, to_fixpoint
from gbnf.grammar.ir import EMPTY_LANGUAGE, Alt, Expr, Ref, Repeat, Rules, Seq, references, with_parts


def drop_unproductive(rules: Rules) -> Rules:
    """Remove the rules that derive no finite string, and all that require them.

    a ::= "[" a "]"    ->    nothing
    """
    productions, productive = rules.productions, set[str]()

    def improve(name: str) -> bool:
        if name in productive:
            return False
        production = productions[name]
        if not (type(production) is Alt and production.items and production.items[-1].references == ()):
            needed = [
                used for used in rules.references[name] if used not in productive and used in productions
            ]
            if not (_derives(production, frozenset(needed)) if needed else production != EMPTY_LANGUAGE):
                return False
        productive.add(name)  # without a closer look if the last alternative is a literal, as most often
        return True

    doubtful = [name for name in productions if not improve(name)]  # most come after those that they refer to
    if doubtful:
        to_fixpoint(rules.only(doubtful), improve)
    gone: dict[str, Expr] = {name: EMPTY_LANGUAGE for name in doubtful if name not in productive}
    if not gone:
        return rules
    remaining = {name: substitute(expr, gone) for name, expr in productions.items() if name in productive}
    remaining.setdefault(rules.root, EMPTY_LANGUAGE)
    return Rules(remaining, rules.root)


def merge_equal(rules: Rules) -> Rules:
    """Merge rules with equal productions into the first of them.

    a ::= [0-9]    b ::= [0-9]    c ::= a b    ->    a ::= [0-9]    c ::= a a
    """
    productions = dict(rules.productions)
    if len(set(productions.values())) == len(productions):
        return rules
    users: dict[str, set[str]] = {}
    for name, used in rules.references.items():
        for reference in used:
            users.setdefault(reference, set()).add(name)
    first: dict[Expr, str] = {}
    order = {name: number for number, name in enumerate(productions)}
    pending = [name for component in strong_components(rules.references) for name in component]
    while pending:
        same: dict[str, Ref] = {}
        for name in pending:
            if same:  # most come after those that they refer to
                productions[name] = substitute(productions[name], same)
            original = first.setdefault(productions[name], name)
            if name not in (original, rules.root):
                same[name] = Ref(original)
        touched: set[str] = set()
        for old, new in same.items():
            touched |= users.get(old, set())
            users.setdefault(new.name, set()).update(users.pop(old, ()))
            del productions[old]
        pending = sorted((name for name in touched if name in productions), key=order.__getitem__)
        for name in pending:
            if first.get(productions[name]) == name:
                del first[productions[name]]
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


def _derives(expr: Expr, doubtful: AbstractSet[str]) -> bool:
    """Return whether `expr` derives a string without the rules in `doubtful`."""
    if doubtful.isdisjoint(expr.references or references(expr)):
        return expr != EMPTY_LANGUAGE
    if type(expr) is Alt:
        # most often one alternative has no doubtful references: check this first
        return any(doubtful.isdisjoint(references(item)) for item in expr.items) or any(
            _derives(item, doubtful) for item in expr.items
        )
    if type(expr) is Seq:
        return all(_derives(item, doubtful) for item in expr.items)
    return type(expr) is Repeat and (expr.minimum == 0 or _derives(expr.item, doubtful))
