"""Every value of a JSON type, where a schema says no more."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TypeAlias

from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.rules import Scope
from gbnf.compiler.scalars import Scalars
from gbnf.compiler.value_syntax import ElementForm, ElementsSyntax, FormsSyntax, ValueSyntax
from gbnf.grammar.ir import Expr, Ref, alt, repeat, seq
from gbnf.schema.keywords import JSON_TYPES, JsonType
from gbnf.schema.value_sets import SHAPES, Array, Object, String

AnySyntax: TypeAlias = ValueSyntax | FormsSyntax
DECLARED_ONLY = "the format can write declared properties only"
_PRIMITIVES: Mapping[JsonType | None, str] = {None: "jsonValue", "array": "jsonArray", "object": "jsonObject"}
"""The rules of JSON values whose names are not those of the types."""


class Anything:
    """The expressions of one compilation, whose rules are added to `scope`."""

    def __init__(self, scalars: Scalars, scope: Scope) -> None:
        self._scalars, self._scope = scalars, scope
        self._any: dict[tuple[JsonType | None, AnySyntax], Expr] = {}

    def values(self, kind: JsonType | None, syntax: AnySyntax) -> Expr:
        """Return every value of a JSON type (None: of any type), as it is written in a syntax."""
        if syntax is self._scalars.json:
            return Ref(_PRIMITIVES.get(kind) or str(kind))
        if (kind, syntax) not in self._any:
            if isinstance(syntax, FormsSyntax | ElementsSyntax):
                self._scalars.report.excludes_delimiters()
            ref = self._any[kind, syntax] = self._scope.table.reserve(
                *self._scope.path, "Any", kind or "value"
            )
            self._any[kind, syntax] = self._scope.table.define(ref, self._new(kind, syntax))
        return self._any[kind, syntax]

    def _new(self, kind: JsonType | None, syntax: AnySyntax) -> Expr:
        if isinstance(syntax, FormsSyntax):
            kinds = JSON_TYPES if kind is None else (kind,)

            def raw(form: ElementForm) -> Expr:
                return self._scalars.raw_shape(String(), form, frozenset(kinds), self._scope, syntax).expr

            texts = [syntax.written(json_type, frozenset(kinds), self.values, raw) for json_type in kinds]
            return factor_prefixes(list(chain.from_iterable(texts)))
        match kind:
            case None:
                return alt(*[self.values(json_type, syntax) for json_type in JSON_TYPES])
            case "array":
                layout, item = syntax.arrays, self.values(None, syntax.item())
                items = seq(item, repeat(seq(layout.comma, item)))
                return factor_prefixes([seq(layout.begin_array, items, layout.end_array), layout.empty_array])
            case "object":
                layout, other = syntax.objects, syntax.other()
                if other is None:
                    self._scalars.report.add("inexpressible", "", "additionalProperties", DECLARED_ONLY)
                    return layout.empty_object
                key = self._scope.add("AnyKey", layout.other_keys(None, (), self._scope))
                pair = seq(key, layout.colon, self.values(None, other))
                pairs = seq(pair, repeat(seq(layout.comma, pair)))
                return factor_prefixes(
                    [seq(layout.begin_object, pairs, layout.end_object), layout.empty_object]
                )
            case _:
                shape = SHAPES[kind]
                assert not isinstance(shape, Array | Object)
                return self._scalars.scalar(shape, self._scope, "", syntax)
