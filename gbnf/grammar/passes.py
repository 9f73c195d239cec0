"""Passes over a whole grammar: each takes rules and gives rules of the same language.

A reference without a production belongs to a part that is linked later; it counts as one that derives
something. `PASSES` lists them in the order in which the compiler runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

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
    repeat,
    seq,
)


def drop_unproductive(rules: Rules) -> Rules:
    """Take out what derives no finite string: such a rule becomes impossible, and so does what needs it.

    a ::= "[" a "]"    ->    nothing
    """
    productive: set[str] = set()
    productions = rules.productions
    pending = _leaves_first(rules)
    settled = False
    while not settled:
        waiting = []
        for name in pending:
            needed = [one for one in rules.references[name] if one not in productive and one in productions]
            if productions[name] != NOTHING if not needed else _derives(productions[name], frozenset(needed)):
                productive.add(name)
            else:
                waiting.append(name)
        settled = len(waiting) in (0, len(pending))
        pending = waiting
    if not pending:
        return rules
    gone: dict[Expr, Expr] = {Ref(name): NOTHING for name in pending}
    kept = {name: substitute(expr, gone) for name, expr in rules.productions.items() if name in productive}
    kept.setdefault(rules.root, NOTHING)
    return Rules(kept, rules.root)


def _leaves_first(rules: Rules) -> list[str]:
    """All rules, each behind those that it refers to as far as it goes: recursion leaves no such order."""
    ordered: dict[str, None] = {}
    entered: set[str] = set()
    pending = list(rules.productions)[::-1]
    while pending:
        name = pending[-1]
        if name in entered:
            ordered.setdefault(pending.pop())
        else:
            entered.add(name)
            pending += [
                one for one in rules.references[name] if one in rules.productions and one not in entered
            ]
    return list(ordered)


def merge_equal(rules: Rules) -> Rules:
    """Give rules of one production one name, the first.

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
    pending = list(productions)
    while pending:
        same: dict[Expr, Expr] = {}
        for name in pending:
            kept = first.setdefault(productions[name], name)
            if name not in (kept, rules.root):
                same[Ref(name)] = Ref(kept)
        touched: set[str] = set()
        for old, new in same.items():
            assert isinstance(old, Ref)
            assert isinstance(new, Ref)
            touched |= users.get(old.name, set())
            users.setdefault(new.name, set()).update(users.pop(old.name, ()))
            del productions[old.name]
        pending = sorted((name for name in touched if name in productions), key=order.__getitem__)
        for name in pending:
            if first.get(productions[name]) == name:
                del first[productions[name]]
            productions[name] = substitute(productions[name], same)
    return Rules(productions, rules.root)


def drop_unreachable(rules: Rules) -> Rules:
    """Keep the rules that the start symbol reaches, each behind the first that refers to it."""
    reached: dict[str, None] = {}
    pending = [rules.root]
    while pending:
        name = pending.pop()
        if name not in reached and name in rules.productions:
            reached[name] = None
            pending.extend(reversed(rules.references[name]))
    return rules.only(reached)


def skip_aliases(rules: Rules) -> Rules:
    """Refer to what an alias stands for.

    a ::= b    c ::= "[" a "]"    ->    c ::= "[" b "]"
    """
    aliases: dict[Expr, Expr] = {
        Ref(name): expr
        for name, expr in rules.productions.items()
        if isinstance(expr, Ref) and name != rules.root
    }
    if not aliases:
        return rules
    ends = {alias: _end(alias, aliases) for alias in aliases}
    names = {alias.name for alias in aliases if isinstance(alias, Ref)}
    return Rules(
        {
            name: e if names.isdisjoint(rules.references[name]) else substitute(e, ends)
            for name, e in rules.productions.items()
            if name not in names
        }
        | {name: e for name, e in rules.productions.items() if ends.get(Ref(name)) == Ref(name)},
        rules.root,
    )


def _end(alias: Expr, aliases: Mapping[Expr, Expr]) -> Expr:
    """What an alias stands for in the end; one of the ring where aliases stand for each other."""
    seen: set[Expr] = set()
    while alias in aliases and alias not in seen:
        seen.add(alias)
        alias = aliases[alias]
    return alias


PASSES: tuple[Callable[[Rules], Rules], ...] = (
    skip_aliases,
    drop_unproductive,
    merge_equal,
    drop_unreachable,
)


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


def _derives(expr: Expr, doubtful: Collection[str]) -> bool:
    """Whether `expr` derives a string without the rules in `doubtful`."""
    match expr:
        case Ref(name):
            return name not in doubtful
        case Literal() | CharClass():
            return True
        case Seq(items):
            return all(_derives(item, doubtful) for item in items)
        case Alt(items):
            return any(_derives(item, doubtful) for item in items)
        case Repeat(item, minimum, _):
            return minimum == 0 or _derives(item, doubtful)
