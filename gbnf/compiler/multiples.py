"""Multiples of a number, in canonical spelling."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm

from gbnf.compiler.digits import language, written
from gbnf.compiler.numbers import range_expr, split_decimal
from gbnf.compiler.rules import Scope
from gbnf.effort import remembered
from gbnf.grammar.ir import Expr, Literal, alt, char_class, literal, optional, repeat, seq
from gbnf.regular.automaton import Dfa
from gbnf.schema.values import Bound, Number

#: The greatest divisor, in units of its last decimal, that is held by an automaton.
MAX_DIVISOR = 1000
_MAX_DECIMALS = 6
#: So few multiples between the bounds are written out.
_MAX_LISTED = 200
_ZEROS = repeat(char_class((0x30, 0x30)))
_ZERO_FRACTION = optional(seq(Literal("."), repeat(char_class((0x30, 0x30)), 1)))


def multiples_expr(shape: Number, scope: Scope) -> Expr | None:
    """The numbers of a shape with divisors; None where they have no automaton of reasonable size.

    Listed where the bounds leave few, else by an automaton, which spells numbers without exponent.
    """
    whole = shape.integer is True
    divisor = _least_common_multiple((*shape.divisors, Fraction(1)) if whole else shape.divisors)
    low, high = shape.minimum, shape.maximum
    if low is not None and high is not None and (high.value - low.value) / divisor <= _MAX_LISTED:
        first = -((-low.value) // divisor)
        multiples = (divisor * step for step in range(first, first + _MAX_LISTED + 2))
        listed = [value for value in multiples if _within(value, low, high)]
        if shape.integer is False:
            listed = [value for value in listed if value.denominator != 1]
        return alt(*(_spelled(value, whole=whole) for value in listed))
    words = _multiples(divisor, whole=whole)
    if words is None or shape.integer is False:
        return None
    if low is not None or high is not None:
        words &= language(range_expr(replace(shape, divisors=()), exponents=False))
    return written(words, scope)


def _within(value: Fraction, low: Bound, high: Bound) -> bool:
    above = value > low.value or (value == low.value and not low.exclusive)
    return above and (value < high.value or (value == high.value and not high.exclusive))


def _spelled(value: Fraction, *, whole: bool) -> Expr:
    sign = "-" if value < 0 else ""
    units, digits = split_decimal(abs(value))
    if digits:
        return seq(literal(f"{sign}{units}.{digits}"), _ZEROS)
    return literal(f"{sign}{units}") if whole else seq(literal(f"{sign}{units}"), _ZERO_FRACTION)


def _least_common_multiple(divisors: tuple[Fraction, ...]) -> Fraction:
    numerator, denominator = divisors[0].numerator, divisors[0].denominator
    for divisor in divisors[1:]:
        numerator, denominator = lcm(numerator, divisor.numerator), gcd(denominator, divisor.denominator)
    return Fraction(numerator, denominator)


@remembered(maxsize=64)
def _multiples(divisor: Fraction, *, whole: bool) -> Dfa | None:
    """The canonical decimals that are multiples of `divisor`: the digits read so far modulo it, in units of
    its last decimal, and how many decimals were read."""
    places = 0
    while (divisor * 10**places).denominator != 1:
        places += 1
        if places > _MAX_DECIMALS:
            return None
    unit = int(divisor * 10**places)
    if unit * (places + 1) > MAX_DIVISOR * 4 or unit > MAX_DIVISOR:
        return None
    # states: 0 at the start, 1 behind the sign, 2 behind a zero, then (decimals read, remainder)
    digits = [str(digit) for digit in range(10)]
    index: dict[tuple[int, int], int] = {}
    rows: list[list[tuple[str, int]]] = [[], [], []]

    def state(decimals: int, remainder: int) -> int:
        """`decimals` is -1 before the point."""
        key = (decimals, remainder)
        if key not in index:
            index[key] = len(rows)
            rows.append([])
            pending.append(key)
        return index[key]

    pending: list[tuple[int, int]] = []
    for start in (0, 1):
        rows[start] = [("0", 2), *((digit, state(-1, int(digit) % unit)) for digit in digits[1:])]
    rows[0].append(("-", 1))
    if not whole:
        rows[2].append((".", state(0, 0)))
    while pending:
        decimals, remainder = pending.pop()
        row = rows[index[decimals, remainder]]
        if decimals < 0:
            row += [(digit, state(-1, (remainder * 10 + int(digit)) % unit)) for digit in digits]
            if not whole:
                row.append((".", state(0, remainder)))
        elif decimals < places:
            row += [(digit, state(decimals + 1, (remainder * 10 + int(digit)) % unit)) for digit in digits]
        else:
            row.append(("0", state(places + 1, remainder)))
    accepting = [2]
    for (decimals, remainder), number in index.items():
        missing = places if decimals < 0 else max(places - decimals, 0)
        if decimals != 0 and remainder * 10**missing % unit == 0:
            accepting.append(number)
    return Dfa.from_transitions(rows, accepting)
