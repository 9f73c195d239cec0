"""Passes over a whole grammar: each takes rules and gives rules of the same language.

A reference without a production belongs to a part that is linked later; it counts as one that derives
something. `PASSES` lists them in the order in which the compiler runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gbnf.grammar.ir import (
    NOTHING,
    Alt,
    CharClass,
    Expr,
    Literal,
    Ref,
    Repeat,
    Rules,
    Seq,
    alt,
    references,
    repeat,
    seq,
)


def drop_unproductive(rules: Rules) -> Rules:
    """Take out what derives no finite string: such a rule becomes impossible, and so does what needs it.

    a ::= "[" a "]"    ->    nothing
    """
    if not any(_mentions_nothing(expr) for expr in rules.productions.values()) and not _recursive(rules):
        return rules
    productive: set[str] = set()
    changed = True
    while changed:
        changed = False
        for name, expr in rules.productions.items():
            if name not in productive and _derives(expr, productive, rules.productions):
                productive.add(name)
                changed = True
    gone: dict[Expr, Expr] = {Ref(name): NOTHING for name in rules.productions if name not in productive}
    kept = {name: substitute(expr, gone) for name, expr in rules.productions.items() if name in productive}
    kept.setdefault(rules.root, NOTHING)
    return Rules(kept, rules.root)


def merge_equal(rules: Rules) -> Rules:
    """Give rules of one production one name, the first.

    a ::= [0-9]    b ::= [0-9]    c ::= a b    ->    a ::= [0-9]    c ::= a a
    """
    productions = dict(rules.productions)
    while True:
        first: dict[Expr, str] = {}
        same: dict[Expr, Expr] = {}
        for name, expr in productions.items():
            kept = first.setdefault(expr, name)
            if name not in (kept, rules.root):
                same[Ref(name)] = Ref(kept)
        if not same:
            return Rules(productions, rules.root)
        productions = {
            name: substitute(expr, same) for name, expr in productions.items() if Ref(name) not in same
        }


def drop_unreachable(rules: Rules) -> Rules:
    """Keep the rules that the start symbol reaches, in their order."""
    reached: set[str] = set()
    pending = [rules.root]
    while pending:
        name = pending.pop()
        if name not in reached and name in rules.productions:
            reached.add(name)
            pending.extend(references(rules.productions[name]))
    return Rules({name: expr for name, expr in rules.productions.items() if name in reached}, rules.root)


PASSES: tuple[Callable[[Rules], Rules], ...] = (drop_unproductive, merge_equal, drop_unreachable)


def run_passes(rules: Rules) -> Rules:
    for apply in PASSES:
        rules = apply(rules)
    return rules


def substitute(expr: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """`expr` with each nonterminal of `replacements` replaced, simplified anew where something changed."""
    match expr:
        case Ref():
            return replacements.get(expr, expr)
        case Literal() | CharClass():
            return expr
        case Seq(items) | Alt(items):
            changed = [substitute(item, replacements) for item in items]
            if all(new is old for new, old in zip(changed, items, strict=True)):
                return expr
            return seq(*changed) if isinstance(expr, Seq) else alt(*changed)
        case Repeat(item, minimum, maximum):
            new = substitute(item, replacements)
            return expr if new is item else repeat(new, minimum, maximum)


def _derives(expr: Expr, productive: set[str], productions: Mapping[str, Expr]) -> bool:
    match expr:
        case Ref(name):
            return name in productive or name not in productions
        case Literal() | CharClass():
            return True
        case Seq(items):
            return all(_derives(item, productive, productions) for item in items)
        case Alt(items):
            return any(_derives(item, productive, productions) for item in items)
        case Repeat(item, minimum, _):
            return minimum == 0 or _derives(item, productive, productions)


def _mentions_nothing(expr: Expr) -> bool:
    match expr:
        case Seq(items):
            return any(_mentions_nothing(item) for item in items)
        case Alt(items):
            return not items or any(_mentions_nothing(item) for item in items)
        case Repeat(item, _, _):
            return _mentions_nothing(item)
        case Literal() | CharClass() | Ref():
            return False


def _recursive(rules: Rules) -> bool:
    """Whether a rule refers to one that is not behind it; otherwise all are written from its leaves."""
    seen: set[str] = set()
    for name, expr in rules.productions.items():
        seen.add(name)
        if any(reference in seen for reference in references(expr)):
            return True
    return False
