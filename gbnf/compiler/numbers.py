"""Integers between two bounds, digit by digit."""

from __future__ import annotations

from gbnf.grammar.ir import EMPTY, NOTHING, Expr, Literal, Ref, alt, char_class, literal, repeat, seq

_DIGIT = char_class((0x30, 0x39))
_NONZERO = char_class((0x31, 0x39))


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


def _natural(low: int, high: int | None) -> Expr:
    """The natural numbers from `low` to `high`, grouped by their number of digits."""
    if high is not None and low > high:
        return NOTHING
    if high is None:
        digits = str(low)
        longer = seq(_NONZERO, repeat(_DIGIT, len(digits)))
        if low == 0:
            return alt(Literal("0"), seq(_NONZERO, repeat(_DIGIT)))
        return alt(_between(digits, "9" * len(digits)), longer)
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
        return seq(_digits(low[0], high[0]), repeat(_DIGIT, rest, rest))
    if low[0] == high[0]:
        return seq(literal(low[0]), _between(low[1:], high[1:]))
    parts = [seq(literal(low[0]), _between(low[1:], "9" * rest))]
    if int(low[0]) + 1 < int(high[0]):
        middle = _digits(str(int(low[0]) + 1), str(int(high[0]) - 1))
        parts.append(seq(middle, repeat(_DIGIT, rest, rest)))
    parts.append(seq(literal(high[0]), _between("0" * rest, high[1:])))
    return alt(*parts)


def _digits(low: str, high: str) -> Expr:
    return literal(low) if low == high else char_class((ord(low), ord(high)))
