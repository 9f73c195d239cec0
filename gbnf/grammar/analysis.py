"""What can be known of rules without a text: which may be empty, which are left-recursive, how short each is.

All of it is computed over the whole grammar at once by worklists, so that neither deep chains of rules nor
cycles cost more than a few visits each. References to undefined rules are the caller's to refuse; here
they derive nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from gbnf.grammar.code_points import matchable
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq, references

# A derivation's cost orders by characters first, then by rules entered: one integer holds both, so that the
# cost of a rule is always above that of the rules below it, and always choosing the cheapest ends.
CHARACTER = 1 << 64
RULE = 1

MAX_CHARACTERS = 1_000_000
"""Of a cheapest derivation, and rules entered in it: a few rules can ask for more than any memory holds."""


def nullable(rules: Rules) -> frozenset[str]:
    """The names of the rules that derive the empty string."""
    known: set[str] = set()

    def improve(name: str) -> bool:
        if name in known or not is_nullable(rules.productions[name], known):
            return False
        known.add(name)
        return True

    _to_fixpoint(rules, improve)
    return frozenset(known)


def is_nullable(expr: Expr, nullable_names: frozenset[str] | set[str]) -> bool:
    """Whether `expr` derives the empty string, where the rules of `nullable_names` do."""
    match expr:
        case Literal() | CharClass():
            return False
        case Seq(items):
            return all(is_nullable(item, nullable_names) for item in items)
        case Alt(items):
            return any(is_nullable(item, nullable_names) for item in items)
        case Repeat(item, minimum, _):
            return minimum == 0 or is_nullable(item, nullable_names)
        case Ref(name):
            return name in nullable_names


def find_left_recursion(rules: Rules) -> tuple[str, ...] | None:
    """A cycle of rules each of which can begin with the next, as names (`("a", "b")`: a → b → a), or None."""
    empty = nullable(rules)
    done: set[str] = set()
    for start in rules.productions:
        if start in done:
            continue
        path: dict[str, None] = {start: None}
        pending = [_left_references(rules.productions[start], empty)]
        while pending:
            name = next(pending[-1], None)
            if name is None:
                pending.pop()
                done.add(path.popitem()[0])
            elif name in path:
                names = list(path)
                return tuple(names[names.index(name) :])
            elif name not in done and name in rules.productions:
                path[name] = None
                pending.append(_left_references(rules.productions[name], empty))
    return None


def cheapest_costs(rules: Rules) -> dict[str, int]:
    """By rule, the cost of its cheapest derivation: `CHARACTER` a character and `RULE` a rule entered.

    A rule that is missing here derives no finite text, or none of at most `MAX_CHARACTERS`.
    """
    costs: dict[str, int] = {}

    def improve(name: str) -> bool:
        cost = cost_of(rules.productions[name], costs)
        if cost is None or cost >= costs.get(name, cost + 1):
            return False
        if max(divmod(cost, CHARACTER)) > MAX_CHARACTERS:
            return False
        costs[name] = cost
        return True

    _to_fixpoint(rules, improve)
    return costs


def cost_of(expr: Expr, costs: Mapping[str, int]) -> int | None:
    """The cost of the cheapest derivation of `expr` (see `cheapest_costs`), or None where it derives no text."""
    match expr:
        case Literal(text):
            return CHARACTER * len(text)
        case CharClass():
            return CHARACTER if matchable(expr) else None
        case Seq(items):
            parts = [cost_of(item, costs) for item in items]
            known = [part for part in parts if part is not None]
            return sum(known) if len(known) == len(parts) else None
        case Alt(items):
            return min((c for item in items if (c := cost_of(item, costs)) is not None), default=None)
        case Repeat(item, minimum, _):
            cost = cost_of(item, costs) if minimum else 0
            return None if cost is None else cost * minimum
        case Ref(name):
            return costs[name] + RULE if name in costs else None


def _left_references(expr: Expr, empty: frozenset[str]) -> Iterator[str]:
    match expr:
        case Ref(name):
            yield name
        case Repeat(item, _, _):
            yield from _left_references(item, empty)
        case Alt(items):
            for item in items:
                yield from _left_references(item, empty)
        case Seq(items):
            for item in items:
                yield from _left_references(item, empty)
                if not is_nullable(item, empty):
                    break
        case Literal() | CharClass():
            pass


def _to_fixpoint(rules: Rules, improve: Callable[[str], bool]) -> None:
    """Call `improve` for every rule, and again for those that refer to a rule it improved."""
    users: dict[str, set[str]] = {}
    for name, expr in rules.productions.items():
        for used in references(expr):
            users.setdefault(used, set()).add(name)
    pending = deque(reversed(list(rules.productions)))
    waiting = set(pending)
    while pending:
        name = pending.popleft()
        waiting.discard(name)
        if improve(name):
            for user in sorted(users.get(name, set()) - waiting):
                pending.append(user)
                waiting.add(user)
