"""Analyse rules: which are nullable, which are left-recursive, and the cost of the cheapest derivations.

Worklists over the whole grammar: neither deep chains of rules nor cycles take more than a few visits each.
References to undefined rules derive nothing here; callers reject them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from graphlib import CycleError, TopologicalSorter

from gbnf.errors import GrammarError
from gbnf.grammar.code_points import matchable
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq, TokenTerminal, references

# One integer orders derivations by bytes of UTF-8 first, then by rules entered. So a rule always costs more
# than those that it enters, and choosing the cheapest alternative always terminates.
BYTE = 1 << 64
RULE = 1

MAX_BYTES = 1_000_000
"""Limit on the bytes of a cheapest derivation, and on its rules: a few rules can exceed any memory."""


def nullable(rules: Rules) -> frozenset[str]:
    """Return the names of the rules that derive the empty string."""
    every = rules.productions.keys()
    possible = rules.only(name for name, expr in rules.productions.items() if is_nullable(expr, every))
    names: set[str] = set()

    def improve(name: str) -> bool:
        if name in names or not is_nullable(rules.productions[name], names):
            return False
        names.add(name)
        return True

    to_fixpoint(possible, improve)
    return frozenset(names)


def is_nullable(expr: Expr, nullable_names: AbstractSet[str]) -> bool:
    """Return whether `expr` derives the empty string, if the rules in `nullable_names` do."""
    match expr:
        case Literal() | CharClass() | TokenTerminal():
            return False
        case Seq(items):
            return all(is_nullable(item, nullable_names) for item in items)
        case Alt(items):
            return any(is_nullable(item, nullable_names) for item in items)
        case Repeat(item, minimum, _):
            return minimum == 0 or is_nullable(item, nullable_names)
        case Ref(name):
            return name in nullable_names


def find_left_recursion(rules: Rules, empty: frozenset[str] | None = None) -> tuple[str, ...] | None:
    """Return a cycle of rules that can each begin with the next (`("a", "b")`: a → b → a), or None.

    `empty`: the rules that are nullable, if they are known.
    """
    if empty is None:
        empty = nullable(rules)
    first = {
        name: [used for used in _left_references(expr, empty) if used in rules.productions]
        for name, expr in rules.productions.items()
    }
    try:
        TopologicalSorter(first).prepare()
    except CycleError as error:
        return tuple(reversed(error.args[1][1:]))
    return None


def token_terminals(rules: Rules) -> Iterator[TokenTerminal]:
    """Return the token terminals, as often as they occur."""
    return (leaf for leaf in rules.leaves() if isinstance(leaf, TokenTerminal))


def require_texts(rules: Rules) -> None:
    """Raise GrammarError for a token terminal whose text depends on a vocabulary."""
    for terminal in token_terminals(rules):
        if terminal.text is None:
            raise GrammarError(f"the text of {emit_expr(terminal)} depends on a model's vocabulary: write it")


def in_cycles(successors: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the rules that reach themselves."""
    for component in strong_components(successors):
        if len(component) > 1 or component[0] in successors[component[0]]:
            yield from component


def strong_components(successors: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components of rules, each after those that it leads to (Tarjan 1972).

    References to rules that are not among them are left out.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    done: set[str] = set()
    for root in successors:
        path = [(root, iter(successors[root]))] if root not in index else []
        while path:
            name, following = path[-1]
            if name not in index:
                index[name] = low[name] = len(index)
                stack.append(name)
            other = next((other for other in following if other in successors and other not in done), None)
            if other is not None and other in index:
                low[name] = min(low[name], index[other])
            elif other is not None:
                path.append((other, iter(successors[other])))
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[name])
                if low[name] == index[name]:
                    component = [stack.pop()]
                    while component[-1] != name:
                        component.append(stack.pop())
                    done.update(component)
                    yield component


def cheapest_costs(rules: Rules) -> dict[str, int]:
    """Return the cost of each rule's cheapest derivation: `BYTE` for a byte, `RULE` for a rule.

    A missing rule derives no finite text, or none of at most `MAX_BYTES`.
    """
    costs: dict[str, int] = {}

    def improve(name: str) -> bool:
        cost = cost_of(rules.productions[name], costs)
        if cost is None or cost >= costs.get(name, cost + 1):
            return False
        if max(divmod(cost, BYTE)) > MAX_BYTES:
            return False
        costs[name] = cost
        return True

    to_fixpoint(rules, improve)
    return costs


def cost_of(expr: Expr, costs: Mapping[str, int]) -> int | None:
    """Return the cost of the cheapest derivation of `expr`, None if it has none; see `cheapest_costs`."""
    match expr:
        case Literal(text):
            return BYTE * utf8_length(text)
        case TokenTerminal():
            return BYTE * utf8_length(expr.text or " ")
        case CharClass():
            ranges = matchable(expr)
            return BYTE * utf8_length(chr(ranges[0][0])) if ranges else None
        case Seq(items):
            parts = [cost_of(item, costs) for item in items]
            finite = [part for part in parts if part is not None]
            return sum(finite) if len(finite) == len(parts) else None
        case Alt(items):
            return min((c for item in items if (c := cost_of(item, costs)) is not None), default=None)
        case Repeat(item, minimum, _):
            cost = cost_of(item, costs) if minimum else 0
            return None if cost is None else cost * minimum
        case Ref(name):
            return costs[name] + RULE if name in costs else None


def utf8_length(text: str) -> int:
    """Return the number of bytes of UTF-8; a surrogate, which no text contains, counts three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _left_references(expr: Expr, empty: frozenset[str]) -> Iterator[str]:
    """Yield the rules that a text of the expression may begin with."""
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
        case Literal() | CharClass() | TokenTerminal():
            pass


def to_fixpoint(rules: Rules, improve: Callable[[str], bool]) -> None:
    """Call `improve` for every rule, and again for the users of each rule that it improved."""
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
