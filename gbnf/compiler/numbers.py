"""The numbers of a shape and their multiples, in canonical spelling: integers as integers, others in any.

A number must be in the range both as written and as the double that it is read as: `0.99999999999999999` is
read as 1, so it is not accepted below 1.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor, gcd, inf, lcm, nextafter

from gbnf.compiler.automaton_rules import words_expr
from gbnf.compiler.decimals import (
    UNSIGNED,
    DigitLimits,
    DigitWords,
    decimal_expr,
    integer_expr,
    scientific_expr,
)
from gbnf.compiler.rules import Scope
from gbnf.errors import InvalidArgumentError
from gbnf.grammar.ir import (
    EMPTY_LANGUAGE,
    Alt,
    CharClass,
    Expr,
    Literal,
    Ref,
    Repeat,
    Seq,
    TokenTerminal,
    alt,
    literal,
    seq,
)
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import CharSet, minterms
from gbnf.regular.ecma262 import found_in
from gbnf.regular.pattern_syntax import Alternation, Chars, Concatenation, End, PatternNode, Repetition, Start
from gbnf.regular.transition_tables import explore
from gbnf.schema.value_sets import Bound, Number
from gbnf.schema_caches import schema_cache
from gbnf.work_limits import MAX_COUNTED_STATES, work_cache

#: From here on, a double is followed by another one of at least 1 more.
_SPARSE = 2**52
_SMALL = Fraction(1, 10)


def range_expr(shape: Number, digits: DigitLimits, *, exponents: bool = True) -> Expr:
    """Return the numbers of a shape in canonical spelling, whatever its divisors.

    `exponents`: numbers that need not be integers may be written with one.
    """
    return _range_expr(shape.integer, shape.minimum, shape.maximum, digits, exponents)


@schema_cache(maxsize=1024)
def _range_expr(
    integer: bool | None, low: Bound | None, high: Bound | None, digits: DigitLimits, exponents: bool
) -> Expr:
    if integer is True:
        if low is None and high is None and exponents:
            return Ref("integer")
        least, greatest = (None if end is None else end.value for end in (low, high))
        return integer_expr(least, greatest, digits.integer)
    first = None if low is None else _least(low)
    last = None if high is None else -_least(Bound(-high.value, high.exclusive))
    if first is not None and last is not None and first > last:
        return EMPTY_LANGUAGE
    if integer is False:
        return _not_integers(first, last, digits)
    if not exponents:
        return decimal_expr(first, last, digits)
    if first is None and last is None:
        return Ref("number")
    if first == 0 and last is None:
        return alt(UNSIGNED, seq(Literal("-"), DigitWords(1, digits).between("0", "0")))
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
    return alt(decimal_expr(low, high, digits, fractional=True), small)


#: The greatest divisor, in units of its last decimal, that is enforced by an automaton.
MAX_DIVISOR = 1000
_MAX_DECIMALS = 6
#: The most multiples between the bounds that are listed.
_MAX_LISTED = 200
#: Every serialiser writes doubles from the first to the second without exponent.
_PLAIN = (Fraction(1, 10**4), 10**16)
#: Where a number ends before its point: at its start, after its sign, a zero, or other digits.
_START, _SIGN, _ZERO, _WHOLE = -4, -3, -2, -1
_UNCOUNTED = DigitLimits(None, None, None, None)


def multiples_expr(shape: Number, digits: DigitLimits, scope: Scope) -> tuple[Expr | None, str]:
    """Return the numbers of a shape with divisors, and the reason if they are not enforced exactly, else "".

    Listed where the bounds leave few, else by an automaton, which spells numbers without exponent; None where
    it would be too large. It counts no digits where that would make it too large.
    """
    is_integer = shape.integer is True
    divisors = (*shape.divisors, Fraction(1)) if is_integer else shape.divisors
    divisor = Fraction(lcm(*(d.numerator for d in divisors)), gcd(*(d.denominator for d in divisors)))
    low, high = shape.minimum, shape.maximum
    if low is not None and high is not None and (high.value - low.value) / divisor <= _MAX_LISTED:
        first = -((-low.value) // divisor)
        multiples = (divisor * step for step in range(first, first + _MAX_LISTED + 2))
        listed = [value for value in multiples if _within(value, low, high)]
        if shape.integer is False:
            listed = [value for value in listed if value.denominator != 1]
        return alt(*(_spelled(value, digits, is_integer=is_integer) for value in listed)), ""
    words = _multiples(divisor, is_integer=is_integer)
    if words is None or shape.integer is False:
        return None, "its automaton is too large"
    most = digits.integer if is_integer else digits.whole
    counts = len(words.table.rows) * (most or 1) <= MAX_COUNTED_STATES
    limits = digits if counts else _UNCOUNTED
    if counts or low is not None or high is not None:
        words &= _language(range_expr(replace(shape, divisors=()), limits, exponents=False))
    endless = not (counts or is_integer) and (low is None or high is None)
    reason = "with so large a divisor digits are not counted, and a number of 310 is read as infinity"
    return words_expr(words, scope), reason if endless else ""


def _within(value: Fraction, low: Bound, high: Bound) -> bool:
    above = value > low.value or (value == low.value and not low.exclusive)
    return above and (value < high.value or (value == high.value and not high.exclusive))


def _spelled(value: Fraction, digits: DigitLimits, *, is_integer: bool) -> Expr:
    if is_integer:
        return literal(str(int(value)))
    decimals = decimal_expr(value, value, digits)
    if not value or _PLAIN[0] <= abs(value) < _PLAIN[1]:
        return decimals
    return alt(decimals, scientific_expr(value, value, digits))


@work_cache(maxsize=256)
def _language(expr: Expr) -> Dfa:
    """Return the automaton of an expression without nonterminals."""
    return found_in(Concatenation((Start(), _as_pattern(expr), End())))


def _as_pattern(expr: Expr) -> PatternNode:
    match expr:
        case Literal(text):
            return Concatenation(tuple(Chars(CharSet.single(ord(char))) for char in text))
        case CharClass(ranges):
            return Chars(CharSet.of(*ranges))
        case Seq(items):
            return Concatenation(tuple(map(_as_pattern, items)))
        case Alt(items):
            return Alternation(tuple(map(_as_pattern, items)))
        case Repeat(item, minimum, maximum):
            return Repetition(_as_pattern(item), minimum, maximum)
        case Ref() | TokenTerminal():
            raise InvalidArgumentError(f"{expr} has no pattern")


@work_cache(maxsize=64)
def _multiples(divisor: Fraction, *, is_integer: bool) -> Dfa | None:
    """Return the canonical decimals that are multiples of `divisor`.

    A state is the number read so far modulo `divisor`, in units of its last decimal, and the number of
    decimals read.
    """
    places = 0
    while (divisor * 10**places).denominator != 1:
        places += 1
        if places > _MAX_DECIMALS:
            return None
    unit = int(divisor * 10**places)
    if unit * (places + 1) > MAX_DIVISOR * 4 or unit > MAX_DIVISOR:
        return None
    alphabet, _ = minterms([CharSet.single(ord(char)) for char in "-.0123456789"])
    chars = [chr(char_set.ranges[0][0]) for char_set in alphabet.sets()]

    def after(char: str, decimals: int, remainder: int) -> tuple[int, int] | None:
        """Return the state after one more character. `decimals` is below 0 before the point."""
        if char == "-":
            return (_SIGN, 0) if decimals == _START else None
        if char == ".":
            return (0, remainder) if decimals in (_ZERO, _WHOLE) and not is_integer else None
        if not char.isdigit() or decimals == _ZERO:
            return None
        if decimals in (_START, _SIGN) and char == "0":
            return _ZERO, 0
        if decimals >= places:
            return (places + 1, remainder) if char == "0" else None
        return decimals + 1 if decimals >= 0 else _WHOLE, (remainder * 10 + int(char)) % unit

    def accepts(state: tuple[int, int]) -> bool:
        decimals, remainder = state
        missing = min(max(places - decimals, 0), places)
        return decimals not in (_START, _SIGN, 0) and remainder * 10**missing % unit == 0

    table = explore(
        alphabet,
        (_START, 0),
        lambda state: [after(char, *state) for char in chars],
        accepts,
        unit * (places + 3) + 4,
    )
    return Dfa(table)
