"""Numbers between two bounds, digit by digit.

Canonical spelling: integers without fraction or exponent; where a bound or a divisor speaks of size, decimals
without exponent. A decimal may have any number of trailing zeros.
"""

from __future__ import annotations

from fractions import Fraction

from gbnf.compiler.digits import intersection
from gbnf.compiler.primitives import EXPONENT
from gbnf.grammar.ir import (
    EMPTY,
    NOTHING,
    Expr,
    Literal,
    Ref,
    alt,
    char_class,
    literal,
    optional,
    repeat,
    seq,
)
from gbnf.schema.values import Bound, Number

_DIGIT = char_class((0x30, 0x39))
_DIGITS = repeat(_DIGIT)
_NONZERO = char_class((0x31, 0x39))
_ZEROS = repeat(char_class((0x30, 0x30)))
_FRACTION = optional(seq(Literal("."), repeat(_DIGIT, 1)))
_ZERO_FRACTION = optional(seq(Literal("."), repeat(char_class((0x30, 0x30)), 1)))
_EXPONENT = optional(EXPONENT)
_NATURAL = alt(Literal("0"), seq(_NONZERO, _DIGITS))


def range_expr(shape: Number, *, exponents: bool = True) -> Expr:
    """The numbers of a shape in canonical spelling, whatever its divisors.

    `exponents`: where a bound allows it, numbers may be written with one.
    """
    low, high = shape.minimum, shape.maximum
    if shape.integer is True:
        return integer_expr(
            None if low is None else int(low.value), None if high is None else int(high.value)
        )
    if shape.integer is False:
        return _not_integers(low, high)
    if low is None and high is None and exponents:
        return Ref("number")
    by_sign = _by_sign(low, high) if exponents else None
    return decimal_expr(low, high) if by_sign is None else by_sign


def _by_sign(low: Bound | None, high: Bound | None) -> Expr | None:
    """Ranges that end at zero leave the exponent free: only the sign counts, and whether it is zero."""
    zero = Fraction(0)
    if low is not None and high is None and low.value == zero:
        some = seq(_NATURAL, _FRACTION, _EXPONENT)
        return seq(_positive(), _EXPONENT) if low.exclusive else alt(some, _negative_zero())
    if high is not None and low is None and high.value == zero:
        negative = seq(Literal("-"), _positive(), _EXPONENT)
        return (
            negative if high.exclusive else alt(negative, _negative_zero(), seq(Literal("0"), _ZERO_FRACTION))
        )
    return None


def _negative_zero() -> Expr:
    return seq(Literal("-0"), _ZERO_FRACTION)


def _positive() -> Expr:
    """Decimals above zero, without exponent."""
    return alt(seq(_NONZERO, _DIGITS, _FRACTION), seq(Literal("0."), _ZEROS, _NONZERO, _DIGITS))


def integer_expr(minimum: int | None, maximum: int | None) -> Expr:
    """The integers of an inclusive range (None: without bound), in canonical spelling, without `-0`.

    (-5, 120) -> "-" [1-5] | [0-9] | [1-9] [0-9] | "1" ( [0-1] [0-9] | "20" )
    """
    if minimum is None and maximum is None:
        return Ref("integer")
    negative: Expr = NOTHING
    if minimum is None or minimum < 0:
        least = 1 if maximum is None or maximum >= 0 else -maximum
        negative = seq(Literal("-"), _natural(least, None if minimum is None else -minimum))
    positive: Expr = NOTHING
    if maximum is None or maximum >= 0:
        positive = _natural(max(minimum or 0, 0), maximum)
    return alt(negative, positive)


def decimal_expr(low: Bound | None, high: Bound | None) -> Expr:
    """The decimals of a range, without exponent."""
    zero = Bound(Fraction(0))
    parts: list[Expr] = []
    if low is None or low.value < 0:
        mirrored_low = zero if high is None or high.value > 0 else _mirrored(high)
        mirrored_high = None if low is None else _mirrored(low)
        parts.append(seq(Literal("-"), _unsigned(mirrored_low, mirrored_high)))
    elif low.value == 0 and not low.exclusive:
        parts.append(_negative_zero())
    if high is None or high.value >= 0:
        parts.append(_unsigned(zero if low is None or low.value < 0 else low, high))
    return alt(*parts)


def _mirrored(bound: Bound) -> Bound:
    return Bound(-bound.value, bound.exclusive)


def _unsigned(low: Bound, high: Bound | None) -> Expr:
    """The decimals from `low` (at least 0) to `high`, by their whole part."""
    low_whole, low_fraction = split_decimal(low.value)
    after_low = _fraction_from(low_fraction, exclusive=low.exclusive)
    if high is None:
        return alt(seq(literal(str(low_whole)), after_low), seq(_natural(low_whole + 1, None), _FRACTION))
    high_whole, high_fraction = split_decimal(high.value)
    before_high = _fraction_to(high_fraction, exclusive=high.exclusive)
    if low_whole == high_whole:
        if not low_fraction and not low.exclusive:
            return seq(literal(str(low_whole)), before_high)
        return seq(literal(str(low_whole)), intersection(after_low, before_high))
    return alt(
        seq(literal(str(low_whole)), after_low),
        seq(_natural(low_whole + 1, high_whole - 1), _FRACTION),
        seq(literal(str(high_whole)), before_high),
    )


def split_decimal(value: Fraction) -> tuple[int, str]:
    """A decimal of at least 0 as its whole part and the digits behind the point, without trailing zeros."""
    whole, rest = divmod(value, 1)
    digits = ""
    while rest and len(digits) < 60:  # a JSON number ends, at the latest where floats do
        digit, rest = divmod(rest * 10, 1)
        digits += str(digit)
    return int(whole), digits


def _fraction_from(digits: str, *, exclusive: bool) -> Expr:
    """Fractions of at least 0.`digits`, with their point."""
    if not digits:
        return seq(Literal("."), _ZEROS, _NONZERO, _DIGITS) if exclusive else _FRACTION
    return seq(Literal("."), _digits_from(digits, exclusive=exclusive))


def _digits_from(digits: str, *, exclusive: bool) -> Expr:
    parts = _greater(digits)
    parts.append(seq(literal(digits), seq(_ZEROS, _NONZERO, _DIGITS) if exclusive else _DIGITS))
    return alt(*parts)


def _greater(digits: str) -> list[Expr]:
    # 47 -> [5-9] [0-9]* | "4" [8-9] [0-9]*
    return [
        seq(literal(digits[:index]), _digit_range(chr(ord(digit) + 1), "9"), _DIGITS)
        for index, digit in enumerate(digits)
        if digit < "9"
    ]


def _fraction_to(digits: str, *, exclusive: bool) -> Expr:
    """Fractions of at most 0.`digits`, with their point, or none at all."""
    if not digits:
        return NOTHING if exclusive else _ZERO_FRACTION
    return optional(seq(Literal("."), _digits_to(digits, exclusive=exclusive)))


def _digits_to(digits: str, *, exclusive: bool) -> Expr:
    # 47 -> [0-3] [0-9]* | "4" [0-6] [0-9]* | "4" | "47" "0"*
    parts = [
        seq(literal(digits[:index]), _digit_range("0", chr(ord(digit) - 1)), _DIGITS)
        for index, digit in enumerate(digits)
        if digit > "0"
    ]
    parts += [literal(digits[:index]) for index in range(1, len(digits))]
    if not exclusive:
        parts.append(seq(literal(digits), _ZEROS))
    return alt(*parts)


def _not_integers(low: Bound | None, high: Bound | None) -> Expr:
    """Decimals with a fraction that is not zero."""
    fractional = seq(Literal("."), _ZEROS, _NONZERO, _DIGITS)
    everything = seq(optional(Literal("-")), _NATURAL, fractional)
    if low is None and high is None:
        return everything
    return intersection(decimal_expr(low, high), everything)


def _natural(low: int, high: int | None) -> Expr:
    """The natural numbers from `low` to `high`, grouped by their number of digits."""
    if high is not None and low > high:
        return NOTHING
    if high is None:
        if low == 0:
            return _NATURAL
        digits = str(low)
        return alt(_between(digits, "9" * len(digits)), seq(_NONZERO, repeat(_DIGIT, len(digits))))
    ranges = []
    for length in range(len(str(low)), len(str(high)) + 1):
        least = max(low, 10 ** (length - 1) if length > 1 else 0)
        most = min(high, 10**length - 1)
        ranges.append(_between(str(least), str(most)))
    return alt(*ranges)


def _between(low: str, high: str) -> Expr:
    """The digit strings from `low` to `high`, both of one length."""
    if not low:
        return EMPTY
    if low == high:
        return literal(low)
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        return seq(_digit_range(low[0], high[0]), repeat(_DIGIT, rest, rest))
    if low[0] == high[0]:
        return seq(literal(low[0]), _between(low[1:], high[1:]))
    parts = [seq(literal(low[0]), _between(low[1:], "9" * rest))]
    if int(low[0]) + 1 < int(high[0]):
        middle = _digit_range(str(int(low[0]) + 1), str(int(high[0]) - 1))
        parts.append(seq(middle, repeat(_DIGIT, rest, rest)))
    parts.append(seq(literal(high[0]), _between("0" * rest, high[1:])))
    return alt(*parts)


def _digit_range(low: str, high: str) -> Expr:
    return literal(low) if low == high else char_class((ord(low), ord(high)))
