"""Scalars of a shape as expressions; equal shapes share one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any, NamedTuple

from gbnf.compiler.decimals import DigitLimits
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.numbers import multiples_expr, range_expr
from gbnf.compiler.raw_texts import delimited_expr, plain_texts, readable_texts
from gbnf.compiler.repetitions import BEYOND, MAX_BOUND, bounded_repetition
from gbnf.compiler.report import Report
from gbnf.compiler.rules import Scope
from gbnf.compiler.value_syntax import ElementForm, FormsSyntax, ValueSyntax
from gbnf.grammar.ir import Alt, Expr, Ref, Repeat, Seq, alt, literal, seq
from gbnf.regular.automaton import Dfa
from gbnf.schema.keywords import HAS_ITEM, JsonType
from gbnf.schema.strings import string_language
from gbnf.schema.value_sets import Array, Boolean, Null, Number, Object, String, ValueSet
from gbnf.work_limits import MAX_STATES, TooManyStatesError, WorkLimitError, spend

LEFT_OPEN = "the schema is too large, so any value of the same JSON type is allowed"
#: The work of emitting a value, in the units of `gbnf.work_limits`.
VALUE_WORK = 6
#: The greatest weight of an expression that is repeated inline: about the engine's rules for it.
_LIGHT = 24
#: The multiples of a divisor that are tried in floats.
_MULTIPLES_TRIED = 200
_ANY_STRING = String()


class Scalars:
    """The expressions of one compilation, which are reported to `report`."""

    def __init__(self, report: Report, digits: DigitLimits, json: ValueSyntax) -> None:
        self.report = report
        self.json = json
        self._digits = digits
        self._numbers: dict[Number, tuple[Expr, str]] = {}
        self._strings: dict[tuple[Any, ...], StringExpr] = {}

    def scalar(
        self, shape: Null | Boolean | Number | String, scope: Scope, pointer: str, syntax: ValueSyntax
    ) -> Expr:
        """Return the values of a shape, as they are written in a syntax."""
        if isinstance(shape, String):
            return self._string(shape, scope, pointer, syntax)
        if isinstance(shape, Number):
            return self._number(shape, scope, pointer)
        if isinstance(shape, Boolean):
            return Ref("boolean") if syntax is self.json else alt(syntax.true, syntax.false)
        return Ref("null") if syntax is self.json else syntax.null

    def _number(self, shape: Number, scope: Scope, pointer: str) -> Expr:
        """Return the expression of a number; equal shapes share one."""
        number = self._numbers.get(shape)
        if number is None:
            expr, reason = None, ""
            if shape.divisors:
                try:
                    expr, reason = multiples_expr(shape, self._digits, scope)
                except TooManyStatesError:
                    reason = "its automaton is too large"
            if expr is None:
                expr = range_expr(shape, self._digits)
            expr = _named(expr, scope, "Number")
            number = self._numbers[shape] = (expr, reason)
        expr, reason = number
        if reason:
            report_keyword(self.report, shape, pointer, "multipleOf", reason)
        if shape.divisors and (refused := _refused_in_floats(shape)) is not None:
            reason = (
                f"it is enforced in exact decimals; validators that divide floats, such as jsonschema, "
                f"refuse some of its multiples, such as {refused!r}: prefer an integer"
            )
            bases = [conjunct.pointer for conjunct in shape.conjuncts if "multipleOf" in conjunct.raw]
            for base in bases or [pointer]:
                self.report.add("disputed", f"{base}/multipleOf", "multipleOf", reason)
        return expr

    def _string(self, shape: String, scope: Scope, pointer: str, syntax: ValueSyntax) -> Expr:
        """Return the expression of a string; equal shapes share one."""
        if syntax is self.json and shape == _ANY_STRING:
            return Ref("string")
        string = self._strings.get((shape, syntax))
        if string is None:
            built = quoted_string(shape, syntax, scope)
            string = self._strings[shape, syntax] = built._replace(expr=_named(built.expr, scope))
        for keyword, reason in string.loosened:
            report_keyword(self.report, shape, pointer, keyword, reason)
        return string.expr

    def raw(
        self, strings: ValueSet, form: ElementForm, kinds: frozenset[JsonType], scope: Scope, pointer: str,
        syntax: FormsSyntax,
    ) -> Expr:  # fmt: skip
        """Return strings without quotes, with what comes after them."""
        spend(sum(VALUE_WORK + len(value) // 4 for value in strings.values))
        readable = syntax.readable(form, kinds) if strings.values else None
        texts = [
            literal(value + form.after) for value in strings.values if readable and readable.accepts(value)
        ]
        for shape in strings.shapes:
            assert isinstance(shape, String)
            try:
                built = self.raw_shape(shape, form, kinds, scope, syntax)
            except TooManyStatesError:  # or too much work
                self.report.add("unenforced", pointer, "type", LEFT_OPEN)
                built = self.raw_shape(String(), form, kinds, scope, syntax)
            for keyword, reason in built.loosened:
                report_keyword(self.report, shape, pointer, keyword, reason)
            if built.lost is not None:
                reason = f"the format cannot write some strings, such as {built.lost!r}"
                self.report.add("inexpressible", pointer, "type", reason)
            if form.trimmed:
                self.report.add(
                    "inexpressible", "", "type", "the format cannot write whitespace around strings"
                )
            if built.excludes:
                self.report.excludes_delimiters()
            texts.append(built.expr)
        return factor_prefixes(texts)

    def raw_shape(
        self, shape: String, form: ElementForm, kinds: frozenset[JsonType], scope: Scope, syntax: FormsSyntax
    ) -> StringExpr:
        """Return the strings of a shape without quotes, with what comes after them."""
        key = (shape, syntax.unmistakable(form, kinds), form.after)
        string = self._strings.get(key)
        if string is None:
            built = raw_string(shape, syntax, form, kinds, scope)
            string = self._strings[key] = built._replace(expr=_named(built.expr, scope))
        return string

    def report_lost(
        self, values: Sequence[str], kinds: frozenset[JsonType], pointer: str, syntax: FormsSyntax
    ) -> None:
        """Report listed strings that cannot be written in any form."""
        forms = syntax.forms("string")
        if not values or any(form.syntax is not None for form in forms):
            return
        readable = [syntax.readable(form, kinds) for form in forms]
        self.report.unwritten(
            [value for value in values if not any(language.accepts(value) for language in readable)], pointer
        )


def _named(expr: Expr, scope: Scope, hint: str = "Text") -> Expr:
    """Return the expression, as a rule if it is heavy."""
    return scope.add(hint, expr) if _weight(expr) > _LIGHT else expr


def _weight(expr: Expr) -> int:
    match expr:
        case Repeat(item, minimum, maximum):
            return _weight(item) * max(minimum, maximum or 1, 1)
        case Seq(items) | Alt(items):
            return sum(map(_weight, items))
        case _:
            return 1


def _refused_in_floats(shape: Number) -> float | None:
    """Return one of the first numbers of the shape whose quotient by a divisor is no integer in floats."""
    for divisor in shape.divisors:
        if divisor.denominator & (divisor.denominator - 1) == 0:  # divides exactly
            continue
        first = math.ceil(shape.minimum.value / divisor) if shape.minimum is not None else 1
        near_zero = range(max(first, -_MULTIPLES_TRIED), _MULTIPLES_TRIED)
        for number in (*range(first, first + _MULTIPLES_TRIED), *near_zero):
            multiple = number * divisor
            if shape.maximum is not None and multiple > shape.maximum.value:
                continue
            if not _contains(shape, multiple):
                continue
            with suppress(OverflowError):
                if not (float(multiple) / float(divisor)).is_integer():
                    return float(multiple)
    return None


def _contains(shape: Number, value: Fraction) -> bool:
    is_integer = value.denominator == 1
    bounds = [bound for bound in (shape.minimum, shape.maximum) if bound is not None and bound.exclusive]
    return (
        shape.integer in (None, is_integer)
        and all((value / divisor).denominator == 1 for divisor in shape.divisors)
        and all(value != bound.value for bound in bounds)
    )


def report_keyword(
    report: Report, shape: Number | String | Array | Object, pointer: str, keyword: str, reason: str
) -> None:
    """Report a keyword at every schema that the shape has it from."""
    locations = [(conjunct.pointer, keyword) for conjunct in shape.conjuncts if keyword in conjunct.raw]
    if keyword == "contains":  # or the complement of `items`
        locations += [(conjunct.pointer, "items") for conjunct in shape.conjuncts if HAS_ITEM in conjunct.raw]
    for base, name in locations or [(pointer, keyword)]:
        report.add("unenforced", f"{base}/{name}", name, reason)


#: The least characters of a delimiter that a long bounded text does without.
_LEAST_PREFIX = 2


class StringExpr(NamedTuple):
    """The expression of a string, and each keyword that it doesn't enforce, with the reason.

    `lost`: a shortest string of the shape that it does not contain, although it contains no delimiter; None
    if there is none. `excludes`: whether there are others, such as those with the delimiter.
    """

    expr: Expr
    loosened: tuple[tuple[str, str], ...] = ()
    lost: str | None = None
    excludes: bool = False


def quoted_string(shape: String, syntax: ValueSyntax, scope: Scope) -> StringExpr:
    """Return the strings of a shape between quotes."""
    low, high = shape.min_length, shape.max_length
    if shape.language is not None:
        language, loosened = shape.language, tuple[tuple[str, str], ...]()
        try:
            language = string_language(shape)
        except TooManyStatesError:
            loosened = _without_bounds(shape, "with the pattern beside it, it makes too large an automaton")
        return StringExpr(syntax.string_expr(language, scope), loosened)
    texts = [
        seq(literal(quote), bounded_repetition(char, low, high, scope), literal(quote))
        for quote, char in syntax.quoted_chars(scope)
    ]
    beyond = "minLength" if low > MAX_BOUND else "maxLength"
    return StringExpr(alt(*texts), ((beyond, BEYOND),) if max(low, high or 0) > MAX_BOUND else ())


def raw_string(
    shape: String, syntax: FormsSyntax, form: ElementForm, kinds: frozenset[JsonType], scope: Scope
) -> StringExpr:
    """Return the strings of a shape as they are, with what comes after them.

    `kinds`: the JSON types that the schema allows beside. Where the automaton of a bounded text and the whole
    delimiter is too large, texts with a shorter beginning of it are left out, too.
    """
    strings = Dfa.all_words() if shape.language is None else shape.language
    language = strings & syntax.unmistakable(form, kinds)
    excludes = _shortest(strings - (language & readable_texts(form.after)), shape) is not None
    bounded: Dfa | None = language
    try:
        if shape.min_length or shape.max_length is not None:
            bounded = language & Dfa.of_length(shape.min_length, shape.max_length)
    except WorkLimitError:
        raise
    except TooManyStatesError:
        bounded = None
    if bounded is not None:
        for delimiter in _delimiters(form.after, len(bounded.table.rows)):
            try:
                expr = delimited_expr(bounded, delimiter, scope)
            except WorkLimitError:
                raise
            except TooManyStatesError:
                continue
            after = seq(expr, literal(form.after[len(delimiter) :]))
            unwritten = strings & syntax.mistaken(form, kinds)
            if delimiter != form.after:
                unwritten = unwritten | (language & (readable_texts(form.after) - readable_texts(delimiter)))
            return StringExpr(after, (), _shortest(unwritten, shape), excludes)
    reason = "with the delimiter of the text, it makes too large an automaton"
    lost = _shortest(strings & syntax.mistaken(form, kinds), shape)
    return StringExpr(
        delimited_expr(language, form.after, scope), _without_bounds(shape, reason), lost, excludes
    )


def _delimiters(after: str, states: int) -> list[str]:
    """Return the delimiter, and shorter beginnings of it as far as the number of states demands them."""
    longest = MAX_STATES // states
    shorter = [after[:length] for length in range(min(longest, len(after) - 1), _LEAST_PREFIX - 1, -1)]
    return [after, *shorter] if states < MAX_STATES // 8 or longest >= len(after) else shorter


def _shortest(lost: Dfa, shape: String) -> str | None:
    example = (lost & plain_texts()).shortest()
    too_long = example is not None and shape.max_length is not None and len(example) > shape.max_length
    return None if too_long else example


def _without_bounds(shape: String, reason: str) -> tuple[tuple[str, str], ...]:
    bounds = (("minLength", shape.min_length), ("maxLength", shape.max_length))
    return tuple((keyword, reason) for keyword, bound in bounds if bound)
