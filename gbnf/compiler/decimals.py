"""Spellings of numbers as expressions, digit by digit, between two inclusive bounds.

A number is an integer, a decimal, or has an exponent. Before an exponent there are one nonzero digit and
perhaps a fraction: the spelling of `json.dumps` and `JSON.stringify` for very large and very small numbers.

Invariants: no spelling with an exponent is read as infinity or zero by a parser of doubles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, nextafter

from gbnf.compiler.rules import Scope
from gbnf.errors import InvalidArgumentError
from gbnf.grammar.ir import (
    EMPTY_LANGUAGE,
    EPSILON,
    Alt,
    CharClass,
    Expr,
    Literal,
    Ref,
    Repeat,
    Seq,
    TokenTerminal,
    alt,
    char_class,
    literal,
    optional,
    repeat,
    seq,
)
from gbnf.regular.automaton import Dfa
from gbnf.work_limits import work_cache

#: The least double above zero, as `repr` writes it: 5e-324.
SMALLEST = Fraction(repr(nextafter(0.0, 1.0)))
#: Numbers from here on are read as infinity: halfway from the greatest double to the next power of two.
INFINITE = Fraction(2**1024 - 2**970)

#: Rules of `number_rules`: every number without a sign, and those with the least and the greatest exponent.
UNSIGNED, TINY, HUGE = Ref("unsigned"), Ref("tinyNumber"), Ref("hugeNumber")

_DIGITS = "0123456789"
_DIGIT = char_class(_DIGITS)
_NONZERO = char_class((0x31, 0x39))
_ZERO = char_class((0x30, 0x30))
#: Where digits are not counted, bounds of more decimals are rounded inwards.
_MANY_DECIMALS = 60


@dataclass(frozen=True, slots=True)
class DigitLimits:
    """How many digits a number may have; None: any number of them.

    `integer`: of an integer. `whole`, `fraction`: before and after the point of any other number. `small`:
    after the point of a number that begins with `0.00`, at least `fraction`.
    """

    integer: int | None
    whole: int | None
    fraction: int | None
    small: int | None

    def max_fraction_digits(self, whole: int, digits: str) -> int | None:
        """Return the most digits after a point that has `whole` before and `digits` after it."""
        is_small = whole == 0 and digits.startswith("00")
        return self.small if is_small else self.fraction


#: Enough for every integer of 128 bits, and for every double as `json.dumps` and `JSON.stringify` write it:
#: JavaScript writes 1.2345678901234567e-6 as 0.0000012345678901234567.
BOUNDED_DIGITS = DigitLimits(integer=39, whole=39, fraction=20, small=22)
#: As many digits as a double has before the point; of integers and after the point any number.
UNBOUNDED_DIGITS = DigitLimits(integer=None, whole=308, fraction=None, small=None)


def integer_expr(minimum: int | None, maximum: int | None, most: int | None = BOUNDED_DIGITS.integer) -> Expr:
    """Return the integers of an inclusive range (None: without bound), in canonical spelling, without `-0`.

    `most`: how many digits they may have where a bound is missing; those of the other bound may be more.

    (-5, 120) -> "-" [1-5] | [0-9] | [1-9] [0-9] | "1" ( [0-1] [0-9] | "20" )
    """
    negative: Expr = EMPTY_LANGUAGE
    if minimum is None or minimum < 0:
        least = 1 if maximum is None or maximum >= 0 else -maximum
        negative = seq(Literal("-"), _natural(least, None if minimum is None else -minimum, most))
    positive: Expr = EMPTY_LANGUAGE
    if maximum is None or maximum >= 0:
        positive = _natural(max(minimum or 0, 0), maximum, most)
    return alt(negative, positive)


def decimal_expr(low: Fraction | None, high: Fraction | None, digits: DigitLimits = BOUNDED_DIGITS) -> Expr:
    """Return the numbers of an inclusive range without exponent, integers too."""
    zero = Fraction(0)
    parts: list[Expr] = []
    if low is None or low < 0:
        mirrored_low = zero if high is None or high > 0 else -high
        parts.append(seq(Literal("-"), _unsigned(mirrored_low, None if low is None else -low, digits)))
    elif low == 0:
        parts.append(seq(Literal("-"), zero_expr(digits)))
    if high is None or high >= 0:
        parts.append(_unsigned(zero if low is None else max(low, zero), high, digits))
    return alt(*parts)


def scientific_expr(
    low: Fraction | None, high: Fraction | None, digits: DigitLimits = BOUNDED_DIGITS
) -> Expr:
    """Return the numbers of an inclusive range with an exponent."""
    parts: list[Expr] = []
    if low is None or low < 0:
        mirrored_low = SMALLEST if high is None or high >= 0 else -high
        parts.append(seq(Literal("-"), _exponential(mirrored_low, None if low is None else -low, digits)))
    if high is None or high > 0:
        parts.append(_exponential(SMALLEST if low is None else low, high, digits))
    return alt(*parts)


def number_rules(digits: DigitLimits) -> dict[str, Expr]:
    """Return the productions of numbers without bounds, by name."""
    tiny, huge = _magnitude(SMALLEST), _magnitude(INFINITE)
    greatest = INFINITE / Fraction(10) ** huge
    return {
        "number": seq(optional(Literal("-")), UNSIGNED),
        UNSIGNED.name: _unsigned_any(digits),
        TINY.name: seq(_mantissa(SMALLEST / Fraction(10) ** tiny, None, digits), _exponents(tiny, tiny)),
        HUGE.name: seq(_mantissa(Fraction(1), greatest, digits), _exponents(huge, huge)),
        "integer": seq(optional(Literal("-")), _natural(0, None, digits.integer)),
    }


def zero_expr(digits: DigitLimits) -> Expr:
    """Return zero without a sign."""
    return _unsigned(Fraction(0), Fraction(0), digits)


def _unsigned_any(digits: DigitLimits) -> Expr:
    """Return every number without a sign, in any spelling."""
    fraction = _any_fraction(1, digits)
    exponent = _exponents(_magnitude(SMALLEST) + 1, _magnitude(INFINITE) - 1)
    longer = repeat(_DIGIT, 1, None if digits.whole is None else digits.whole - 1)
    return alt(
        seq(Literal("0"), _any_fraction(0, digits)),
        seq(_NONZERO, alt(seq(fraction, optional(exponent)), seq(longer, fraction))),
        TINY,
        HUGE,
    )


def _unsigned(low: Fraction, high: Fraction | None, digits: DigitLimits) -> Expr:
    """Return the decimals from `low` (at least 0) to `high`, by their whole part."""
    low_whole, low_fraction = _split(low, digits, ceil)
    after_low = _fraction_from(low_whole, low_fraction, digits)
    first = seq(literal(str(low_whole)), after_low)
    higher = low_whole + 1
    if low_whole and not low_fraction:
        first, higher = EMPTY_LANGUAGE, low_whole
    if high is None:
        return alt(first, seq(_natural(higher, None, digits.whole), _any_fraction(1, digits)))
    high_whole, high_fraction = _split(high, digits, floor)
    if low_whole > high_whole:
        return EMPTY_LANGUAGE
    before_high = _fraction_to(high_whole, high_fraction, digits)
    if low_whole == high_whole:
        inside = before_high
        if low_fraction == high_fraction != "":
            inside = seq(literal(f".{low_fraction}"), _zeros(high_whole, high_fraction, digits))
        elif low_fraction:
            inside = intersection(after_low, before_high)
        return seq(literal(str(low_whole)), inside)
    return alt(
        first,
        seq(_natural(higher, high_whole - 1), _any_fraction(1, digits)),
        seq(literal(str(high_whole)), before_high),
    )


def _split(value: Fraction, digits: DigitLimits, rounded: Callable[[Fraction], int]) -> tuple[int, str]:
    """Return the whole part of a decimal (at least 0) and the digits after the point, without final zeros."""
    places = (digits.small if value < Fraction(1, 100) else digits.fraction) or 0
    if digits.fraction is None:
        places = _MANY_DECIMALS
    whole, rest = divmod(rounded(value * 10**places), 10**places)
    return whole, str(rest).zfill(places).rstrip("0") if rest else ""


def _more(whole: int, digits: str, limits: DigitLimits, least: int = 0) -> Expr:
    """Return any digits after `whole`, the point and `digits`; at least `least`."""
    if limits.fraction is None:
        return repeat(_DIGIT, least)
    max_fraction_digits = limits.max_fraction_digits(whole, digits)
    assert max_fraction_digits is not None
    usual = repeat(_DIGIT, least, max(max_fraction_digits - len(digits), least))
    zeros = "00"[len(digits) :]
    if limits.small == limits.fraction or whole or not zeros or not "00".startswith(digits):
        return usual
    assert limits.small is not None
    return alt(usual, seq(literal(zeros), repeat(_DIGIT, limits.fraction - 1, limits.small - 2)))


def _any_fraction(whole: int, limits: DigitLimits) -> Expr:
    """Return a fraction with its point, or none."""
    return EPSILON if limits.fraction == 0 else optional(seq(Literal("."), _more(whole, "", limits, 1)))


def _fraction_from(whole: int, digits: str, limits: DigitLimits) -> Expr:
    """Return fractions of at least 0.`digits`, with their point."""
    if not digits:
        return _any_fraction(whole, limits)
    # 47 -> "." ( [5-9] [0-9]* | "4" ( [8-9] [0-9]* | "7" [0-9]* ) )
    rest = _more(whole, digits, limits)
    for index in reversed(range(len(digits))):
        known, digit = digits[:index], digits[index]
        higher = [_digits_in(chr(ord(digit) + 1), "9", known, whole, limits)] if digit < "9" else []
        rest = alt(*higher, seq(Literal(digit), rest))
    return seq(Literal("."), rest)


def _fraction_to(whole: int, digits: str, limits: DigitLimits) -> Expr:
    """Return fractions of at most 0.`digits`, with their point, or none at all."""
    if limits.fraction == 0:
        return EPSILON
    # 47 -> ( "." ( [0-3] [0-9]* | "4" ( [0-6] [0-9]* | "7" "0"* )? ) )?
    rest = _zeros(whole, digits, limits)
    for index in reversed(range(len(digits))):
        known, digit = digits[:index], digits[index]
        lower = [_digits_in("0", chr(ord(digit) - 1), known, whole, limits)] if digit > "0" else []
        rest = alt(*lower, seq(Literal(digit), optional(rest)))
    return optional(seq(Literal("."), rest))


def _digits_in(low: str, high: str, known: str, whole: int, limits: DigitLimits) -> Expr:
    """Return a digit from `low` to `high` after `known`, and any more after it."""
    behind = {digit: _more(whole, known + digit, limits) for digit in (low, high)}
    if behind[low] == behind[high]:
        return seq(_any_of(_DIGITS[int(low) : int(high) + 1]), behind[low])
    return alt(seq(Literal(low), behind[low]), _digits_in("1", high, known, whole, limits))


def _zeros(whole: int, digits: str, limits: DigitLimits) -> Expr:
    """Return zeros without effect; at least one where there are no digits after the point."""
    max_fraction_digits = limits.max_fraction_digits(whole, digits or "00")
    return repeat(
        _ZERO, 0 if digits else 1, None if max_fraction_digits is None else max_fraction_digits - len(digits)
    )


def _exponential(low: Fraction, high: Fraction | None, digits: DigitLimits) -> Expr:
    """Return the numbers from `low` (above 0) to `high` with an exponent."""
    low = max(low, SMALLEST)
    high = INFINITE if high is None else min(high, INFINITE)
    if low > high:
        return EMPTY_LANGUAGE
    first, last = _magnitude(low), _magnitude(high)
    least, greatest = low / Fraction(10) ** first, high / Fraction(10) ** last
    if first == last:
        return seq(_mantissa(least, greatest, digits), _exponents(first, last))
    parts: list[Expr] = []
    if least > 1:
        edge = seq(_mantissa(least, None, digits), _exponents(first, first))
        parts.append(TINY if low == SMALLEST else edge)
        first += 1
    if first < last:
        parts.append(seq(_NONZERO, _any_fraction(1, digits), _exponents(first, last - 1)))
    edge = seq(_mantissa(Fraction(1), greatest, digits), _exponents(last, last))
    return alt(*parts, HUGE if high == INFINITE else edge)


def _magnitude(value: Fraction) -> int:
    """Return the exponent of a number above 0 with one digit before the point."""
    found = len(str(value.numerator)) - len(str(value.denominator))
    return found if value >= Fraction(10) ** found else found - 1


def _mantissa(low: Fraction, high: Fraction | None, digits: DigitLimits) -> Expr:
    """Return the decimals from `low` (at least 1) to `high`; without `high`, to those that begin with 9."""
    if high is not None:
        return _unsigned(low, high, digits)
    whole, fraction = _split(low, digits, ceil)
    least = (
        seq(literal(str(whole)), _fraction_from(whole, fraction, digits)) if whole < 10 else EMPTY_LANGUAGE
    )
    return alt(least, seq(_natural(whole + 1, 9), _any_fraction(1, digits)))


@lru_cache(maxsize=1024)
def _exponents(first: int, last: int) -> Expr:
    """Return the exponents of an inclusive range; Python writes those of one digit as `e-07`."""
    signs = []
    if first < 0:
        signs.append(seq(Literal("-"), _exponent(max(-last, 1), -first)))
    if last >= 0:
        signs.append(seq(optional(Literal("+")), _exponent(max(first, 0), last)))
    return seq(char_class("eE"), alt(*signs))


def _exponent(low: int, high: int) -> Expr:
    return alt(seq(Literal("0"), _natural(low, min(high, 9))), _natural(low, high))


def _natural(low: int, high: int | None, most: int | None = None) -> Expr:
    """Return the natural numbers from `low` to `high`, grouped by their number of digits.

    `most`: how many digits they may have without `high`; as many as `low` has, and one more, in any case.
    """
    if high is not None and low > high:
        return EMPTY_LANGUAGE
    if high is None:
        if low == 0:
            return alt(Literal("0"), _natural(1, None, most))
        digits = str(low)
        more = None if most is None else max(most - 1, len(digits))
        if low == 1:
            return seq(_NONZERO, repeat(_DIGIT, 0, more))
        longer = seq(_NONZERO, repeat(_DIGIT, len(digits), more))
        return alt(digits_between(digits, "9" * len(digits)), longer)
    ranges = []
    for length in range(len(str(low)), len(str(high)) + 1):
        least = max(low, 10 ** (length - 1) if length > 1 else 0)
        most = min(high, 10**length - 1)
        ranges.append(digits_between(str(least), str(most)))
    return alt(*ranges)


def digits_between(low: str, high: str, digits: str = _DIGITS) -> Expr:
    """Return the strings of digits from `low` to `high`, both of one length."""
    if low == high:
        return literal(low)
    rest = len(low) - 1
    first, last = digits.index(low[0]), digits.index(high[0])
    least, most = digits[0] * rest, digits[-1] * rest
    more = repeat(_any_of(digits), rest, rest)
    if low[1:] == least and high[1:] == most:
        return seq(_any_of(digits[first : last + 1]), more)
    if first == last:
        return seq(literal(low[0]), digits_between(low[1:], high[1:], digits))
    parts = [seq(literal(low[0]), digits_between(low[1:], most, digits))]
    if first + 1 < last:
        parts.append(seq(_any_of(digits[first + 1 : last]), more))
    parts.append(seq(literal(high[0]), digits_between(least, high[1:], digits)))
    return alt(*parts)


@lru_cache(maxsize=128)
def _any_of(digits: str) -> Expr:
    return literal(digits) if len(digits) == 1 else char_class(digits)


def intersection(left: Expr, right: Expr) -> Expr:
    """Return the spellings that both expressions derive. None of the three contains a nonterminal."""
    return automaton_expr(expr_language(left) & expr_language(right))


@work_cache(maxsize=256)
def expr_language(expr: Expr) -> Dfa:
    """Return the automaton of an expression without nonterminals."""
    from gbnf.regular.ecma262 import search  # noqa: PLC0415  # most numbers don't need it

    return search(f"^(?:{_as_pattern(expr)})$")


def automaton_expr(words: Dfa, scope: Scope | None = None) -> Expr:
    """Return the words of an automaton, as they are. Without a scope, in one expression."""
    from gbnf.compiler.automaton_rules import words_expr  # noqa: PLC0415  # most numbers don't need it

    return words_expr(words, scope)


def _as_pattern(expr: Expr) -> str:
    match expr:
        case Literal(text):
            return text.replace(".", r"\.")
        case CharClass(ranges):
            return "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges) + "]"
        case Seq(items):
            return "".join(map(_as_pattern, items))
        case Alt(items):
            return "(?:" + "|".join(map(_as_pattern, items)) + ")"
        case Repeat(item, minimum, maximum):
            return f"(?:{_as_pattern(item)}){{{minimum},{'' if maximum is None else maximum}}}"
        case Ref() | TokenTerminal():
            raise InvalidArgumentError(f"{expr} has no pattern")
