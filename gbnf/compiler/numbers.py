"""The numbers of a shape, in canonical spelling: integers as integers, all others in any spelling.

A number must be in the range both as written and as the double that it is read as: `0.99999999999999999` is
read as 1, so it is not accepted below 1.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor, inf, nextafter

from gbnf.compiler.decimals import (
    UNSIGNED,
    DigitLimits,
    decimal_expr,
    integer_expr,
    intersection,
    scientific_expr,
    zero_expr,
)
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Literal, Ref, alt, char_class, optional, repeat, seq
from gbnf.schema.value_sets import Bound, Number

#: From here on, a double is followed by another one of at least 1 more.
_SPARSE = 2**52
_SMALL = Fraction(1, 10)
_DIGITS = repeat(char_class((0x30, 0x39)))
_FRACTIONAL = seq(
    optional(Literal("-")),
    repeat(char_class((0x30, 0x39)), 1),
    Literal("."),
    _DIGITS,
    char_class((0x31, 0x39)),
    _DIGITS,
)


def range_expr(shape: Number, digits: DigitLimits, *, exponents: bool = True) -> Expr:
    """Return the numbers of a shape in canonical spelling, whatever its divisors.

    `exponents`: numbers that need not be integers may be written with one.
    """
    low, high = shape.minimum, shape.maximum
    if shape.integer is True:
        if low is None and high is None and exponents:
            return Ref("integer")
        least, most = (None if end is None else int(end.value) for end in (low, high))
        return integer_expr(least, most, digits.integer)
    first = None if low is None else _least(low)
    last = None if high is None else -_least(Bound(-high.value, high.exclusive))
    if first is not None and last is not None and first > last:
        return EMPTY_LANGUAGE
    if shape.integer is False:
        return _not_integers(first, last, digits)
    if not exponents:
        return decimal_expr(first, last, digits)
    if first is None and last is None:
        return Ref("number")
    if first == 0 and last is None:
        return alt(UNSIGNED, seq(Literal("-"), zero_expr(digits)))
    return alt(decimal_expr(first, last, digits), scientific_expr(first, last, digits))


def _least(bound: Bound) -> Fraction:
    """Return the least number within a lower bound, both as a decimal and as the double it is read as."""
    value = bound.value
    if not bound.exclusive:
        return value
    if abs(value) >= _SPARSE:  # integers are read as they are
        return Fraction(floor(value) + 1)
    return Fraction(repr(nextafter(float(value), inf)))


def _not_integers(low: Fraction | None, high: Fraction | None, digits: DigitLimits) -> Expr:
    """Return the numbers that are not integers; with an exponent only if they are close to 0."""
    first = -_SMALL if low is None else max(low, -_SMALL)
    last = _SMALL if high is None else min(high, _SMALL)
    small = scientific_expr(first, last, digits) if first <= last else EMPTY_LANGUAGE
    return alt(intersection(decimal_expr(low, high, digits), _FRACTIONAL), small)
