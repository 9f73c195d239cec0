"""From the value sets of a schema to productions.

Each conjunction becomes an expression: scalars inline, objects, arrays and unions as rules of their own,
named after the path to them. Equal conjunctions are the same rule, so recursive
schemas become recursive grammars; with `max_depth`, deeper objects and arrays become generic JSON instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.merging import UnionLowering
from gbnf.compiler.notations import JSON_TYPES, JsonType
from gbnf.compiler.rules import Scope
from gbnf.compiler.scalars import LEFT_OPEN, VALUE_WORK
from gbnf.compiler.structures import BEGIN_ALIKE, AnySyntax, Anything, SchemaLocation
from gbnf.compiler.value_syntax import ElementForm, FormsSyntax, ValueSyntax
from gbnf.compiler.values import json_type, shape_type, value_expr, values_by_type
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Ref, alt
from gbnf.schema.document import Subschema
from gbnf.schema.keywords import KEYWORDS, REFERENCES
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    UNSATISFIABLE,
    Array,
    Conjunction,
    Object,
    Shape,
    ValueSet,
    distinct,
)
from gbnf.work_limits import WorkLimitError, is_spent, spend

#: The most rules of one schema; beyond, the rest of it is not constrained.
MAX_RULES = 8_000
#: How deeply rules are compiled recursively before one is postponed: Python's stack is finite.
_MAX_NESTING = 25


#: What an expression is kept under: a conjunction, or several of which one holds; its depth and its syntax.
_Key: TypeAlias = "tuple[Conjunction | frozenset[Conjunction], int, AnySyntax]"


class _Postponed(NamedTuple):
    """A rule whose production is still to be compiled."""

    ref: Ref
    values: ValueSet
    location: SchemaLocation
    syntax: AnySyntax


class Lowering(UnionLowering):
    """One compilation of one document into a table of rules."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._known: dict[_Key, Expr] = {}
        self._nesting = 0
        self._postponed: deque[_Postponed] = deque()

    def root(self, ref: Ref, scope: Scope) -> Ref:
        """Compile the document's root as the production of `ref`."""
        self._anything = Anything(self._scalars, scope)
        subschemas: Conjunction = (self.document.root,)
        values = self._expander.expand(subschemas)
        if not self.overrides:
            self._known[subschemas, 0, self._root] = ref
        is_json = self._root is self._json
        if values.is_everything:
            self.report.add("free_form", "", "type", "the schema allows every JSON value")
            return self.table.define(ref, self._anything.values(None if is_json else "object", self._root))
        if not is_json:  # arguments are an object
            values = values_by_type(values).get("object", ValueSet(reason="they are no object"))
        self._rule = ref.name
        self.table.define(ref, self._union(values, SchemaLocation(scope), self._root))
        while self._postponed:
            late = self._postponed.popleft()
            self._rule = late.ref.name
            production = self._union(late.values, late.location, late.syntax)
            self.table.define(late.ref, production)
        return ref

    def value(self, subschemas: Conjunction, location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return an expression for the values of a conjunction in a syntax."""
        subschemas, scope = self._canonical(subschemas, location.scope)
        key = (subschemas, self._counted(location), syntax)
        if key in self._known:
            return self._known[key]
        pointer = self._expander.pointer(subschemas[0]) if subschemas else location.pointer
        if self._is_spent() and subschemas:
            self.report.add("unenforced", pointer, "type", _TOO_LARGE)
            return self._known.setdefault(key, self._anything.values(None, syntax))
        values = self._expander.expand(subschemas)
        if values.is_everything:
            self.report.add(
                "free_form", pointer, "type", "nothing is declared here, so any JSON value is allowed"
            )
            return self._known.setdefault(key, self._anything.values(None, syntax))
        if values.is_empty:
            self.reason = values.reason
            return self._known.setdefault(key, EMPTY_LANGUAGE)
        return self._named(key, values, SchemaLocation(scope, pointer, location.depth), syntax)

    def _named(self, key: _Key, values: ValueSet, location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return an expression for a set of values, a rule where it is worth one, and keep it under `key`."""
        shapes = values.shapes
        if len(shapes) + len(values.values) < 2 and not (shapes and type(shapes[0]) in _STRUCTURED):
            return self._known.setdefault(key, self._union(values, location, syntax))
        ref = self.table.reserve(*location.scope.hint)
        self._known[key] = ref
        if self._nesting == _MAX_NESTING:
            self._postponed.append(_Postponed(ref, values, location, syntax))
            return ref
        self._nesting += 1
        outer, self._rule = self._rule, ref.name
        production = self._union(values, location, syntax)
        self._rule = outer
        self._nesting -= 1
        self.table.define(ref, production)
        if isinstance(production, Ref) or production == EMPTY_LANGUAGE:
            self._known[key] = production
        return self._known[key]

    def either(self, choices: Iterable[Conjunction], location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return an expression for the values of any of several conjunctions."""
        several = dict.fromkeys(self._canonical(one, location.scope)[0] for one in choices)
        several.pop(UNSATISFIABLE, None)
        if len(several) < 2:
            return self.value(next(iter(several), UNSATISFIABLE), location, syntax)
        self.report.add("unenforced", location.pointer, "anyOf", BEGIN_ALIKE)
        key = (frozenset(several), self._counted(location), syntax)
        if key in self._known:
            return self._known[key]
        if self._is_spent() or UNCONSTRAINED in several:
            return self._known.setdefault(key, self._anything.values(None, syntax))
        sets = [self._expander.expand(one) for one in several]
        shapes: list[Shape] = []
        for shape in chain.from_iterable(one.shapes for one in sets):
            if shape not in shapes:
                shapes.append(shape)
        values = ValueSet(tuple(distinct([value for one in sets for value in one.values])), tuple(shapes))
        if any(one.is_everything for one in sets):
            return self._known.setdefault(key, self._anything.values(None, syntax))
        if values.is_empty:
            return self._known.setdefault(key, EMPTY_LANGUAGE)
        return self._named(key, values, location, syntax)

    def _counted(self, location: SchemaLocation) -> int:
        """Return the depth, if it matters."""
        return location.depth if self.options.max_depth is not None else 0

    @property
    def compiled(self) -> Mapping[_Key, Expr]:
        """What each conjunction has become, by depth and syntax."""
        return self._known

    def shapes(self, subschemas: Conjunction) -> tuple[Shape, ...]:
        """Return the shapes of a conjunction that was compiled. Raises SchemaError and WorkLimitError."""
        return self._expander.expand(subschemas).shapes

    def target(self, subschemas: Conjunction) -> Conjunction:
        """Return the conjunction that `compiled` has for this one: a lone reference leads to its target."""
        return self._canonical(subschemas, Scope(self.table, ()))[0]

    def pointer(self, subschema: Subschema) -> str:
        """Return the JSON Pointer of a subschema in the document."""
        return self._expander.pointer(subschema)

    def _is_spent(self) -> bool:
        """Return whether the limits are reached, so that new conjunctions are not constrained any more."""
        rules = len(self.table.productions) - self._any_order_rules
        return rules > MAX_RULES or is_spent()

    def _canonical(self, subschemas: Conjunction, scope: Scope) -> tuple[Conjunction, Scope]:
        """Resolve a lone reference to its target, which gets the name of the reference; order several."""
        seen = set()
        while len(subschemas) == 1:
            raw = subschemas[0].raw
            if type(raw) is dict and raw.keys().isdisjoint(REFERENCES):  # as for most, and fast
                break
            keyword = next((one for one in REFERENCES if one in raw), "") if isinstance(raw, Mapping) else ""
            if not keyword or subschemas in seen:
                break
            seen.add(subschemas)
            subschema = self.document.enter(subschemas[0])
            if keyword not in subschema.raw:  # its draft doesn't have it
                break
            if not self.document.refs_hide_siblings and KEYWORDS & raw.keys() != {keyword}:
                break
            subschemas = (self.document.follow(subschema, keyword),)
            name = subschemas[0].pointer.rpartition("/")[2]
            if name:
                scope = Scope(scope.table, (*scope.hint[:1], name) if self.tool else (name,))
        return self._expander.in_order(subschemas), scope

    def _union(self, values: ValueSet, location: SchemaLocation, syntax: AnySyntax) -> Expr:
        if isinstance(syntax, FormsSyntax):
            return self._in_forms(values, location, syntax)
        alternatives = [self._enumerated(values.values, location, syntax)] if values.values else []
        shapes = values.shapes
        kinds = [type(shape) for shape in shapes if type(shape) in _STRUCTURED]
        objects = [shape for shape in shapes if type(shape) is Object]
        self._begin_alike(max(len(objects), len(kinds) - len(objects)))
        if self.merges:
            try:
                alternatives += self._merged(shapes, location, syntax)
            except WorkLimitError:
                self.report.add("unenforced", location.pointer, "type", LEFT_OPEN)
                for kind in dict.fromkeys(type(shape) for shape in shapes if type(shape) in _STRUCTURED):
                    alternatives.append(self._anything.values(_STRUCTURED[kind], syntax))
            shapes = tuple(shape for shape in shapes if type(shape) not in _STRUCTURED)
        elif self._order_budget.any_order and len(objects) >= _MANY_SHAPES:
            with suppress(WorkLimitError):  # it is reported for each shape below
                joint = self._joint(objects, location, syntax)
                if joint is not None:
                    alternatives.append(joint)
                    shapes = tuple(shape for shape in shapes if type(shape) is not Object)
        structured = sum([type(shape) in _STRUCTURED for shape in shapes])
        for number, shape in enumerate(shapes, 1):
            inner = location
            if structured > 1 and len(shapes) > 1:
                inner = location._replace(scope=location.scope.inside(f"Option {number}"))
            try:
                alternatives.append(self._shape(shape, inner, syntax))
            except WorkLimitError:
                self.report.add("unenforced", location.pointer, "type", LEFT_OPEN)
                alternatives.append(self._anything.values(shape_type(shape), syntax))
        if not alternatives:
            self.reason = values.reason
        return factor_prefixes(alternatives)

    def _in_forms(self, values: ValueSet, location: SchemaLocation, syntax: FormsSyntax) -> Expr:
        """Return the values with what comes before and after each, by their JSON types."""
        parts = values_by_type(values)

        def raw(form: ElementForm) -> Expr:
            scope, pointer = location.scope, location.pointer
            return self._scalars.raw(parts["string"], form, frozenset(parts), scope, pointer, syntax)

        def write(kind: JsonType, inner: ValueSyntax) -> Expr:
            return self._union(parts[kind], location, inner)

        alternatives = []
        for kind in parts:
            if not syntax.forms(kind):
                reason = f"the format cannot write values of the type {kind}"
                self.report.add("inexpressible", location.pointer, "type", reason)
            alternatives += syntax.written(kind, frozenset(parts), write, raw)
        if parts.keys() >= {"array", "object"}:
            self._begin_alike(2)
        if syntax.has_same_empties and parts.keys() >= {"array", "object"}:
            reason = "the format writes an empty object as an empty array"
            self.report.add("inexpressible", location.pointer, "type", reason)
        if "string" in parts:
            self._scalars.report_lost(parts["string"].values, frozenset(parts), location.pointer, syntax)
        written = factor_prefixes(alternatives)
        if written == EMPTY_LANGUAGE:
            self.reason = self.reason or values.reason or "the format cannot write its values"
        return written

    def _enumerated(self, values: Sequence[Any], location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        """Return any of the values; small objects in them in any order, if that is wanted."""
        try:
            spend(sum(VALUE_WORK + (len(value) // 4 if isinstance(value, str) else 0) for value in values))
        except WorkLimitError:
            self.report.add("unenforced", location.pointer, "enum", LEFT_OPEN)
            kinds = {json_type(value) for value in values}
            return alt(*(self._anything.values(kind, syntax) for kind in JSON_TYPES if kind in kinds))
        texts = [value_expr(value, syntax, self._pairs(location)) for value in values]
        if EMPTY_LANGUAGE in texts:
            lost = [value for value, text in zip(values, texts, strict=True) if text == EMPTY_LANGUAGE]
            self.report.unwritten(lost, location.pointer)
        return factor_prefixes(texts)

    def _shape(self, shape: Shape, location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        if type(shape) is Object:
            return self._object(shape, location, syntax)
        if type(shape) is Array:
            return self._array(shape, location, syntax)
        assert not isinstance(shape, (Object, Array))
        return self._scalars.scalar(shape, location.scope, location.pointer, syntax)


#: How many shapes of objects in one union are compiled together, in any order.
_MANY_SHAPES = 4
_TOO_LARGE = "the schema is too large, so any JSON value is allowed"
_STRUCTURED: Mapping[type, JsonType] = {Array: "array", Object: "object"}
