"""Strings of a shape as expressions: quoted, as in JSON, or raw."""

from __future__ import annotations

from typing import NamedTuple

from gbnf.compiler.notations import JsonType
from gbnf.compiler.raw_texts import MAX_STATES, delimited_expr, plain_texts, readable_texts
from gbnf.compiler.repetitions import BEYOND, MAX_BOUND, bounded_repetition
from gbnf.compiler.rules import Scope
from gbnf.compiler.value_syntax import ElementForm, FormsSyntax, ValueSyntax
from gbnf.grammar.ir import Expr, alt, literal, seq
from gbnf.regular.automaton import Dfa
from gbnf.schema.strings import string_language
from gbnf.schema.value_sets import String
from gbnf.work_limits import TooManyStatesError, WorkLimitError

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
        return _regular(shape, shape.language, syntax, scope)
    texts, is_exact = [], True
    for quote, char in syntax.quoted_chars(scope):
        chars = bounded_repetition(char, low, high, scope)
        is_exact = chars.exact
        texts.append(seq(literal(quote), chars.expr, literal(quote)))
    beyond = "minLength" if low > MAX_BOUND else "maxLength"
    return StringExpr(alt(*texts), () if is_exact else ((beyond, BEYOND),))


def _regular(shape: String, language: Dfa, syntax: ValueSyntax, scope: Scope) -> StringExpr:
    loosened: tuple[tuple[str, str], ...] = ()
    try:
        language = string_language(shape)
    except TooManyStatesError:
        loosened = _without_bounds(shape, "with the pattern beside it, it makes too large an automaton")
    return StringExpr(syntax.string_expr(language, scope), loosened)


def raw_string(
    shape: String, syntax: FormsSyntax, form: ElementForm, kinds: frozenset[JsonType], scope: Scope
) -> StringExpr:
    """Return the strings of a shape as they are, with what comes after them.

    `kinds`: the JSON types that the schema allows beside. Where the automaton of a bounded text and the whole
    delimiter is too large, texts with a shorter beginning of it are left out, too.
    """
    whole = Dfa.all_words() if shape.language is None else shape.language
    language = whole & syntax.unmistakable(form, kinds)
    excludes = _shortest(whole - (language & readable_texts(form.after)), shape) is not None
    try:
        bounded = _bounded(shape, language)
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
            unwritten = whole & syntax.mistaken(form, kinds)
            if delimiter != form.after:
                unwritten = unwritten | (language & (readable_texts(form.after) - readable_texts(delimiter)))
            return StringExpr(after, (), _shortest(unwritten, shape), excludes)
    reason = "with the delimiter of the text, it makes too large an automaton"
    lost = _shortest(whole & syntax.mistaken(form, kinds), shape)
    return StringExpr(
        delimited_expr(language, form.after, scope), _without_bounds(shape, reason), lost, excludes
    )


def _bounded(shape: String, language: Dfa) -> Dfa:
    if not shape.min_length and shape.max_length is None:
        return language
    return language & Dfa.of_length(shape.min_length, shape.max_length, limit=MAX_STATES)


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
