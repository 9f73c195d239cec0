"""Single values and sets of them, as expressions.

A value is written in its canonical spelling: in JSON that of `json.dumps` with `ensure_ascii=False`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from gbnf.compiler.decimals import INFINITE
from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes, join_expressions
from gbnf.compiler.value_syntax import ElementForm, FormsSyntax, ValueSyntax
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, alt, literal, seq
from gbnf.schema.keywords import JSON_TYPES, JsonType
from gbnf.schema.value_sets import Shape, ValueSet, shape_type

_encode = json.JSONEncoder(ensure_ascii=False).encode
#: The longest spelling of a double that is listed: a sign and 39 digits.
_LONGEST = 40
_ALL_TYPES = frozenset(JSON_TYPES)

#: From the values of an object's properties, by name, and its layout to the expression of the object.
JoinPairs: TypeAlias = Callable[[Mapping[str, Expr], Layout], Expr]


def value_expr(value: Any, syntax: ValueSyntax | FormsSyntax, pairs: JoinPairs | None = None) -> Expr:
    """Return one JSON value in the notation of a syntax; EMPTY_LANGUAGE if it cannot be written there.

    The pairs of an object keep their order, unless `pairs` is given.
    """
    if isinstance(syntax, FormsSyntax):
        return _in_forms(value, syntax, pairs)
    match value:
        case dict():
            layout = syntax.objects
            if not value:
                return layout.empty_object
            values = {
                key: value_expr(item, syntax.child(key), pairs) if layout.can_write(key) else EMPTY_LANGUAGE
                for key, item in value.items()
            }
            if EMPTY_LANGUAGE in values.values():
                return EMPTY_LANGUAGE
            if pairs is not None and len(value) > 1:
                return pairs(values, layout)
            written = [seq(literal(layout.key(key)), layout.colon, item) for key, item in values.items()]
            return seq(layout.begin_object, join_expressions(written, layout.comma), layout.end_object)
        case list():
            layout, inner = syntax.arrays, syntax.item()
            if not value:
                return layout.empty_array
            items = [value_expr(item, inner, pairs) for item in value]
            return seq(layout.begin_array, join_expressions(items, layout.comma), layout.end_array)
        case int() | float() if not isinstance(value, bool):
            return alt(*map(literal, _number_texts(value)))
        case str():
            return syntax.text(value)
        case None:
            return syntax.null
        case _:
            return syntax.true if value else syntax.false


def _in_forms(value: Any, syntax: FormsSyntax, pairs: JoinPairs | None) -> Expr:
    """Return a value inside a listed one, where nothing says which JSON types the schema allows."""

    def raw(form: ElementForm) -> Expr:
        is_readable = syntax.readable(form, _ALL_TYPES).accepts(value)
        return literal(value + form.after) if is_readable else EMPTY_LANGUAGE

    def write(_kind: JsonType, inner: ValueSyntax) -> Expr:
        return value_expr(value, inner, pairs)

    return factor_prefixes(syntax.written(json_type(value), _ALL_TYPES, write, raw))


def json_type(value: Any) -> JsonType:
    """Return the JSON type of a value."""
    return "number" if type(value) is int else _TYPES[type(value)]


_TYPES = dict(zip((type(None), bool, float, str, list, dict), JSON_TYPES, strict=True))


def values_by_type(values: ValueSet) -> dict[JsonType, ValueSet]:
    """Return the part of each JSON type that a set of values has any of."""
    by_type: dict[JsonType, tuple[list[Any], list[Shape]]] = {}
    for value in values.values:
        by_type.setdefault(json_type(value), ([], []))[0].append(value)
    for shape in values.shapes:
        by_type.setdefault(shape_type(shape), ([], []))[1].append(shape)
    return {kind: ValueSet(tuple(listed), tuple(shapes)) for kind, (listed, shapes) in by_type.items()}


def _number_texts(value: float) -> Iterable[str]:
    """Return the spellings of a number by `json.dumps` and `JSON.stringify`, and without an exponent."""
    text = _encode(value)
    if isinstance(value, int):
        # From 1e21 on, JavaScript writes an exponent.
        is_double = 10**21 <= abs(value) < INFINITE and float(value) == value
        return (text, repr(float(value))) if is_double else (text,)
    if value.is_integer():
        texts = [str(int(value)), text]
    else:
        # Python writes 1e-07, JavaScript 1e-7; and 1e-05 and 0.00001
        texts = [text, text.replace("e-0", "e-"), format(Decimal(text), "f")]
    return [spelling for spelling in dict.fromkeys(texts) if len(spelling) <= _LONGEST]
