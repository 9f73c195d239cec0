"""Spellings of numbers as expressions, between two inclusive bounds.

A number is an integer, a decimal, or has an exponent. Before an exponent there are one nonzero digit and
perhaps a fraction: the spelling of `json.dumps` and `JSON.stringify` for very large and very small numbers.

Numbers with equally many digits before the point are in the order of their texts, so a range is one of texts
for each such length (`DigitWords`). A minimal automaton of the range would be five times as large: it has a
state for each number of digits that may still come, with the exponents after it.

Invariants: no spelling with an exponent is read as infinity or zero by a parser of doubles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil, floor, nextafter

from gbnf.grammar.ir import (
    EMPTY_LANGUAGE,
    EPSILON,
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
from gbnf.schema_caches import schema_cache

#: The least double above zero, as `repr` writes it: 5e-324.
SMALLEST = Fraction(repr(nextafter(0.0, 1.0)))
#: Numbers from here on are read as infinity: halfway from the greatest double to the next power of two.
INFINITE = Fraction(2**1024 - 2**970)

#: Rules of `number_rules`: every number without a sign, and those with the least and the greatest exponent.
UNSIGNED, TINY, HUGE = Ref("unsigned"), Ref("tinyNumber"), Ref("hugeNumber")

_DIGITS = "0123456789"
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


#: Enough for every integer of 128 bits, and for every double as `json.dumps` and `JSON.stringify` write it:
#: JavaScript writes 1.2345678901234567e-6 as 0.0000012345678901234567.
BOUNDED_DIGITS = DigitLimits(integer=39, whole=39, fraction=20, small=22)
#: As many digits as a double has before the point; of integers and after the point any number.
UNBOUNDED_DIGITS = DigitLimits(integer=None, whole=308, fraction=None, small=None)
_NO_FRACTION = DigitLimits(integer=None, whole=None, fraction=0, small=0)


@schema_cache(maxsize=128)
def _any_of(digits: str) -> Expr:
    """Return one of the digits."""
    return literal(digits) if len(digits) == 1 else char_class(digits)


_ZERO = char_class("0")


@dataclass(frozen=True, slots=True)
class DigitWords:
    """Words of `whole` digits and perhaps a point and more digits, in the order of their texts.

    If `fractional`, one of the digits after the point is not zero.
    """

    whole: int
    limits: DigitLimits = _NO_FRACTION
    fractional: bool = False
    digits: str = _DIGITS

    def between(self, low: str, high: str | None) -> Expr:
        """Return the words of a range (None: without bound). The bounds are without their point.

        ("47", "62") of one digit -> "4." [7-9] [0-9]* | "5" … | "6" ( "." ( [0-1] [0-9]* | "2" "0"* ) )?
        """
        if high is not None and self.limits.fraction == 0:
            high = high.rstrip(self.digits[-1])
        return self.after("", low.rstrip("0"), high)

    def after(self, prefix: str, low: str = "", high: str | None = None) -> Expr:
        """Return what follows the digits `prefix` in the words of a range.

        `low` and `high` are what remains of a bound that begins with `prefix`; of another one, "" and None.
        """
        place = len(prefix) - self.whole
        any_digit = _any_of(self.digits)
        fractional = self.fractional and not prefix[self.whole :].strip("0")
        if not high and self.limits.fraction == 0:
            high = None
        if place < 0:
            if low or high is not None:
                return self._next(prefix, low, high)
            return seq(repeat(any_digit, -place, -place), self.after("1" * self.whole))
        if not low and not high and not fractional:
            return self._more(prefix, any_digit if high is None else _ZERO)
        if high == "" or self._most(prefix) == place:
            return EMPTY_LANGUAGE
        if self.limits.fraction is None and not low and high is None:
            words = seq(repeat(_ZERO), _any_of(self.digits[1:]), repeat(any_digit))
        else:
            words = self._next(prefix, low, high)
        words = words if place else seq(Literal("."), words)
        return words if low or fractional else optional(words)

    def _next(self, prefix: str, low: str, high: str | None) -> Expr:
        """Return one more digit, and what follows it."""
        first, last = low[:1] or "0", self.digits[-1] if high is None else high[:1] or "0"
        cases: dict[tuple[bool, ...], str] = {}  # the digits by what they have to do with the bounds
        for digit in self.digits[self.digits.index(first) : self.digits.index(last) + 1]:
            case = (digit == low[:1], high is not None and digit == last, digit == "0")
            cases[case] = cases.get(case, "") + digit
        digits_of: dict[Expr, str] = {}
        for (is_low, is_high, _), digits in cases.items():
            below, above = low[1:] if is_low else "", high[1:] if high is not None and is_high else None
            rest = self.after(prefix + digits[0], below, above)
            digits_of[rest] = digits_of.get(rest, "") + digits
        return alt(*[seq(_any_of(digits), rest) for rest, digits in digits_of.items()])

    def _more(self, prefix: str, char: Expr) -> Expr:
        """Return any digits of a set in the fraction, as many as are still allowed."""
        if self.limits.fraction == 0:
            return EPSILON
        read = prefix[self.whole :]
        least = 0 if read else 1
        zeros = "" if read.strip("0") else "00"[len(read) :]
        most, longest = self._most(prefix), self._most(prefix + zeros)
        if most is None or longest is None or most == longest or char == _ZERO:
            rest = repeat(char, least, None if longest is None else max(longest - len(read), 0))
        else:
            rest = alt(
                repeat(char, least, most - len(read)),
                seq(literal(zeros), repeat(char, most - 1, longest - 2)),
            )
        return rest if read else optional(seq(Literal("."), rest))

    def _most(self, prefix: str) -> int | None:
        """Return how many digits may come after the point of a word that begins with the digits `prefix`."""
        is_small = prefix[: self.whole] == "0" and prefix.startswith("00", self.whole)
        return self.limits.small if is_small else self.limits.fraction


def integer_expr(low: Fraction | None, high: Fraction | None, most: int | None) -> Expr:
    """Return the integers of an inclusive range (None: without bound), in canonical spelling, without `-0`.

    `most`: how many digits they may have where a bound is missing; those of the other bound may be more.

    (-5, 120) -> "-" [1-5] | "0" | [1-9] [0-9]{0,1} | "1" ( [0-1] [0-9] | "20" )
    """
    return _signed(low, high, Fraction(1), partial(_unsigned, digits=_NO_FRACTION, most=most))


def decimal_expr(
    low: Fraction | None, high: Fraction | None, digits: DigitLimits, *, fractional: bool = False
) -> Expr:
    """Return the numbers of an inclusive range without exponent; if `fractional`, no integers."""
    unsigned = partial(_unsigned, digits=digits, most=digits.whole, fractional=fractional)
    return _signed(low, high, Fraction(0), unsigned)


def scientific_expr(low: Fraction | None, high: Fraction | None, digits: DigitLimits) -> Expr:
    """Return the numbers of an inclusive range with an exponent."""
    return _signed(low, high, SMALLEST, partial(_exponential, digits=digits))


def _signed(
    low: Fraction | None, high: Fraction | None, least: Fraction, unsigned: Callable[..., Expr]
) -> Expr:
    """Return the numbers of a range, of which the negative ones are at most `-least`.

    `unsigned` returns those of a range of numbers that are not negative.
    """
    parts: list[Expr] = []
    if low is None or low <= 0:
        mirrored = least if high is None else max(-high, least)
        parts.append(seq(Literal("-"), unsigned(mirrored, None if low is None else -low)))
    if high is None or high >= 0:
        parts.append(unsigned(Fraction(0) if low is None else max(low, Fraction(0)), high))
    return alt(*parts)


def number_rules(digits: DigitLimits) -> dict[str, Expr]:
    """Return the productions of numbers without bounds, by name."""
    tiny, huge = _magnitude(SMALLEST), _magnitude(INFINITE)
    least, greatest = SMALLEST / Fraction(10) ** tiny, INFINITE / Fraction(10) ** huge
    after_zero, after_digit = DigitWords(1, digits).after("0"), DigitWords(1, digits).after("1")
    longer = repeat(_any_of(_DIGITS), 1, None if digits.whole is None else digits.whole - 1)
    exponent = optional(_exponents(tiny + 1, huge - 1))
    return {
        "number": seq(optional(Literal("-")), UNSIGNED),
        UNSIGNED.name: alt(
            seq(Literal("0"), after_zero),
            seq(_any_of(_DIGITS[1:]), alt(seq(after_digit, exponent), seq(longer, after_digit))),
            TINY,
            HUGE,
        ),
        TINY.name: seq(_mantissa(least, None, digits), _exponents(tiny, tiny)),
        HUGE.name: seq(_mantissa(Fraction(1), greatest, digits), _exponents(huge, huge)),
        "integer": seq(optional(Literal("-")), integer_expr(Fraction(0), None, digits.integer)),
    }


def _unsigned(
    low: Fraction, high: Fraction | None, digits: DigitLimits, most: int | None, fractional: bool = False
) -> Expr:
    """Return the decimals from `low` (at least 0) to `high`, by how many digits they have before the point.

    `most`: how many that may be without `high`; as many as `low` has, and one more, in any case.
    """
    shortest, least = _split(low, digits, ceil)
    longest, greatest = None if most is None else max(most, shortest + 1), None
    if high is not None:
        longest, greatest = _split(high, digits, floor)
    if longest is not None and shortest > longest:
        return EMPTY_LANGUAGE

    def words(length: int) -> DigitWords:
        return DigitWords(length, digits, fractional)

    if shortest == longest:
        return words(shortest).between(least, greatest)
    parts: list[Expr] = []
    if least[0] == "0":
        parts.append(seq(Literal("0"), words(1).after("0", least[1:].rstrip("0"))))
    elif least.rstrip("0") != "1":
        parts.append(words(shortest).between(least, None))
        shortest += 1
    # Of the lengths from here on, the bounds let all words pass, except of the longest one.
    full = longest if longest is None or greatest is None else longest - 1
    if full is None or shortest <= full:
        further_digits = repeat(_any_of(_DIGITS), shortest - 1, None if full is None else full - 1)
        parts.append(seq(_any_of(_DIGITS[1:]), further_digits, words(1).after("1")))
    if longest is not None and greatest is not None:
        parts.append(words(longest).between("1", greatest))
    return alt(*parts)


def _split(value: Fraction, digits: DigitLimits, rounded: Callable[[Fraction], int]) -> tuple[int, str]:
    """Return how many digits a decimal (at least 0) has before its point, and all its digits.

    Without the zeros at the end of a fraction.
    """
    places = _MANY_DECIMALS if digits.fraction is None else digits.fraction
    if digits.small and value < Fraction(1, 100):
        places = digits.small
    whole, rest = divmod(rounded(value * 10**places), 10**places)
    return len(str(whole)), str(whole) + (str(rest).zfill(places).rstrip("0") if rest else "")


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
        parts.append(seq(_mantissa(Fraction(1), None, digits), _exponents(first, last - 1)))
    edge = seq(_mantissa(Fraction(1), greatest, digits), _exponents(last, last))
    return alt(*parts, HUGE if high == INFINITE else edge)


def _magnitude(value: Fraction) -> int:
    """Return the exponent of a number above 0 with one digit before the point."""
    magnitude = len(str(value.numerator)) - len(str(value.denominator))
    return magnitude if value >= Fraction(10) ** magnitude else magnitude - 1


def _mantissa(low: Fraction, high: Fraction | None, digits: DigitLimits) -> Expr:
    """Return the decimals from `low` (at least 1) to `high` with one digit before the point."""
    length, least = _split(low, digits, ceil)
    greatest = None if high is None else _split(high, digits, floor)[1]
    return EMPTY_LANGUAGE if length > 1 else DigitWords(1, digits).between(least, greatest)


@schema_cache(maxsize=1024)
def _exponents(first: int, last: int) -> Expr:
    """Return the exponents of an inclusive range; Python writes those of one digit as `e-07`."""

    def exponent(low: int, high: int) -> Expr:
        padded, plain = [integer_expr(Fraction(low), Fraction(last), None) for last in (min(high, 9), high)]
        return alt(seq(Literal("0"), padded), plain)

    signs = []
    if first < 0:
        signs.append(seq(Literal("-"), exponent(max(-last, 1), -first)))
    if last >= 0:
        signs.append(seq(optional(Literal("+")), exponent(max(first, 0), last)))
    return seq(char_class("eE"), alt(*signs))
