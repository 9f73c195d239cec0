"""Arrays: tuples, bounds on the number of items, `contains`, and unique items from a small set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.repetitions import MAX_BOUND, bounded_repetition
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, EPSILON, Expr, optional, seq

#: The most states of an array with `contains` or unique items.
MAX_STATES = 200
#: How deeply the items of a tuple nest in one production.
_NESTING = 16
#: The most values of an array with unique items.
MAX_UNIQUE = 6


@dataclass(frozen=True, slots=True)
class ArrayItems:
    """The items of an array: the first ones, then any number of `rest`, within the bounds."""

    prefix: tuple[Expr, ...]
    rest: Expr
    minimum: int
    maximum: int | None

    @property
    def unenforced(self) -> str:
        """The keyword of a bound that is too large to be enforced; "" if there is none."""
        single = len(self.prefix) or 1  # items that are in no repetition
        if max(self.minimum, self.maximum or 0) - single <= MAX_BOUND:
            return ""
        return "minItems" if self.minimum > MAX_BOUND else "maxItems"


def possible_items(items: ArrayItems) -> ArrayItems | None:
    """Return the same arrays with the bounds that their items imply; None if there are no arrays."""
    prefix, maximum = items.prefix, items.maximum
    if EMPTY_LANGUAGE in prefix:
        prefix = prefix[: prefix.index(EMPTY_LANGUAGE)]
        maximum = len(prefix) if maximum is None else min(maximum, len(prefix))
    if items.rest == EMPTY_LANGUAGE:
        maximum = len(prefix) if maximum is None else min(maximum, len(prefix))
    if maximum is not None and maximum < items.minimum:
        return None
    return ArrayItems(prefix[:maximum], items.rest, items.minimum, maximum)


def array_expr(items: ArrayItems, layout: Layout, scope: Scope) -> Expr:
    """Return the arrays of these items."""
    body = seq(layout.begin_array, _filled(items, layout, scope), layout.end_array)
    return body if items.minimum else factor_prefixes([body, layout.empty_array])


def _filled(items: ArrayItems, layout: Layout, scope: Scope) -> Expr:
    """Return at least one item, and as many as the bounds say; EMPTY_LANGUAGE if there can be none."""
    prefix, rest, minimum, maximum = items.prefix, items.rest, items.minimum, items.maximum
    if maximum == 0:
        return EMPTY_LANGUAGE
    if not prefix:
        following = seq(layout.comma, rest)
        most = None if maximum is None else maximum - 1
        return seq(rest, bounded_repetition(following, max(minimum - 1, 0), most, scope))
    tail: Expr = EPSILON
    if rest != EMPTY_LANGUAGE:
        remaining = None if maximum is None else maximum - len(prefix)
        least = max(minimum - len(prefix), 0)
        tail = bounded_repetition(seq(layout.comma, rest), least, remaining, scope)
    for index in range(len(prefix) - 1, 0, -1):
        tail = seq(layout.comma, prefix[index], tail)
        if index >= minimum:
            tail = optional(tail)
        if index % _NESTING == 0:  # readers of grammars are recursive
            tail = scope.add("More", tail)
    return seq(prefix[0], tail)


def containing_expr(items: ArrayItems, matching: Sequence[Expr], layout: Layout, scope: Scope) -> Expr | None:
    """Return the arrays of which at least one item is a matching one; None if they take too many states.

    `matching` has an expression for matching items, for each index of the prefix and then for the rest.
    """
    last = max(len(items.prefix), items.minimum, items.maximum or 0)
    if 2 * last > MAX_STATES:
        return None
    # A state: how many items came before (as far as it matters), and whether one of them matched.
    states = [(count, matched) for count in range(last + 1) for matched in (False, True)]
    rests = dict(zip(states, scope.reserve(len(states), "After"), strict=True))

    def pairs(count: int, *, matched: bool) -> list[Expr]:
        if items.maximum is not None and count >= items.maximum:
            return []
        index = min(count, len(items.prefix))
        item = items.prefix[index] if index < len(items.prefix) else items.rest
        after = min(count + 1, last)
        plain = seq(item, rests[after, matched])
        return [plain] if matched else [plain, seq(matching[index], rests[after, True])]

    for count, matched in states:
        following = [seq(layout.comma, pair) for pair in pairs(count, matched=matched)]
        if matched and count >= items.minimum:
            following.append(layout.end_array)
        scope.table.define(rests[count, matched], factor_prefixes(following))
    return factor_prefixes([seq(layout.begin_array, pair) for pair in pairs(0, matched=False)])


def unique_expr(
    values: Sequence[Expr], minimum: int, maximum: int | None, layout: Layout, scope: Scope
) -> Expr:
    """Return the arrays of different `values`, in any order. A state is the set of earlier values."""
    most = len(values) if maximum is None else min(maximum, len(values))
    if most < minimum:
        return EMPTY_LANGUAGE
    everything = (1 << len(values)) - 1
    rests: dict[int, Expr] = {}
    for used in range(everything, -1, -1):
        following = [
            seq(layout.comma, value, rests[used | 1 << number])
            for number, value in enumerate(values)
            if used.bit_count() < most and not used & 1 << number
        ]
        if used.bit_count() >= minimum:
            following.append(layout.end_array)
        rest = factor_prefixes(following)
        rests[used] = scope.add("Rest", rest) if len(following) > 1 else rest
    first = [seq(layout.begin_array, value, rests[1 << bit]) for bit, value in enumerate(values) if most]
    return factor_prefixes([*first, *([layout.empty_array] if minimum == 0 else [])])
