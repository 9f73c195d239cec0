"""From the value sets of a schema to productions.

Each conjunction becomes an expression: scalars inline, objects, arrays and unions as rules of their own,
named after the path to them. Equal conjunctions are the same rule, so recursive schemas become recursive
grammars; with `max_depth`, deeper objects and arrays become generic JSON instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from gbnf.compiler.anything import DECLARED_ONLY, AnySyntax, Anything
from gbnf.compiler.arrays import (
    MAX_UNIQUE,
    ArrayItems,
    array_expr,
    containing_expr,
    possible_items,
    unique_expr,
)
from gbnf.compiler.layout import CompileOptions, Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.merging import any_of, clusters, merged_items, told_apart
from gbnf.compiler.notations import JSON, Notation
from gbnf.compiler.objects import (
    ObjectExpr,
    OrderBudget,
    Other,
    joint_expr,
    members_expr,
    members_of,
    object_expr,
)
from gbnf.compiler.property_automaton import ObjectMembers
from gbnf.compiler.repetitions import BEYOND
from gbnf.compiler.report import Report
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.compiler.scalars import LEFT_OPEN, VALUE_WORK, Scalars, report_keyword
from gbnf.compiler.value_syntax import ElementForm, FormsSyntax, ValueSyntax, syntax_of
from gbnf.compiler.values import JoinPairs, json_type, value_expr, values_by_type
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Ref, alt
from gbnf.schema.document import Document
from gbnf.schema.expand import Expander
from gbnf.schema.keywords import JSON_TYPES, KEYWORDS, REFERENCES, JsonType, child_pointer
from gbnf.schema.value_sets import (
    PLAIN,
    UNCONSTRAINED,
    UNSATISFIABLE,
    Array,
    Conjunction,
    Object,
    Shape,
    ValueSet,
    conjunction,
    distinct,
    plain_type,
    shape_type,
)
from gbnf.work_limits import WorkLimitError, is_spent, spend

#: The most rules of one schema; beyond, the rest of it is not constrained.
MAX_RULES = 8_000
#: The most properties of an object; beyond, it is not constrained.
MAX_PROPERTIES = 8_000
#: The work of emitting a property or an item, in the units of `gbnf.work_limits`.
PART_WORK = 40
#: How deeply rules are compiled recursively before one is postponed: Python's stack is finite.
_MAX_NESTING = 25
#: How many names the shapes of objects may have that are compiled together.
_JOINT_NAMES = 200
#: How many shapes of objects in one union are compiled together, in any order.
_MANY_SHAPES = 4
_TOO_LARGE = "the schema is too large, so any JSON value is allowed"
BEGIN_ALIKE = (
    "the alternatives begin with the same text, so llama.cpp would follow too many of them at once: parts of "
    "one may come with parts of another"
)
ANY_ARRAY, ANY_OBJECT = Array(), Object()
_NUMBER_ONLY: frozenset[JsonType] = frozenset({"number"})
#: The rules of all values of a type.
_PRIMITIVES = {name: Ref(name) for name in PLAIN}
_STRUCTURED: Mapping[type, JsonType] = {Array: "array", Object: "object"}
#: What an expression is kept under: a conjunction, or several of which one holds; its depth and its syntax.
_Key: TypeAlias = "tuple[Conjunction | frozenset[Conjunction], int, AnySyntax]"


class SchemaLocation(NamedTuple):
    """Where in a schema values are, inside `depth` objects and arrays, and the scope of their rules."""

    scope: Scope
    pointer: str = ""
    depth: int = 0

    def inside(self, hint: str, path: str = "") -> SchemaLocation:
        """Return the location of what is inside an array or object; `path` follows the JSON Pointer."""
        return SchemaLocation(self.scope.inside(hint), self.pointer + path, self.depth + 1)


class _Postponed(NamedTuple):
    """A rule whose production is still to be compiled."""

    ref: Ref
    values: ValueSet
    location: SchemaLocation
    syntax: AnySyntax


class _Children(NamedTuple):
    """Values by name, and other properties (none: each shape has its own), that several objects share."""

    values: Mapping[str, Expr]
    others: list[Other]


@dataclass
class Lowering:
    """One compilation of one document into a table of rules.

    `overrides` replaces the value of top-level properties by expressions, which derive numbers. If `merges`,
    alternatives that begin alike are merged, see `gbnf.compiler.merging`.
    """

    document: Document
    options: CompileOptions
    table: RuleTable
    tool: str = ""
    overrides: Mapping[str, Expr] = field(default_factory=dict)
    notation: Notation = JSON
    merges: bool = False
    _anything: Anything = field(init=False)  # set for the scope of the root

    def __post_init__(self) -> None:
        self.report = Report(self.tool)
        self.reason = ""  # why the last unsatisfiable conjunction has no values
        self.unions: dict[str, int] = {}  # how many alternatives of a rule may begin with the same text
        self._rule = ""  # that is being compiled
        self._root = syntax_of(self.notation, self.options.whitespace)
        self._json = syntax_of(JSON, self.options.whitespace)
        self._order_budget = OrderBudget(any_order=self.options.property_order == "any")
        self._expander = Expander(self.document, partial(self.report.add, "unenforced"))
        self._scalars = Scalars(self.report, self.options.digits, self._json)
        self._exprs: dict[_Key, Expr] = {}
        self._nesting = 0
        self._postponed: deque[_Postponed] = deque()

    # Conjunctions

    def root(self, ref: Ref, scope: Scope) -> Ref:
        """Compile the document's root as the production of `ref`."""
        self._anything = Anything(self._scalars, scope)
        subschemas: Conjunction = (self.document.root,)
        values = self._expander.expand(subschemas)
        if not self.overrides:
            self._exprs[subschemas, 0, self._root] = ref
        is_json = self._root is self._json
        if values.is_everything:
            self.report.add("free_form", "", "type", "the schema allows every JSON value")
            return self.table.define(ref, self._anything.values(None if is_json else "object", self._root))
        if not is_json:  # arguments are an object
            values = values_by_type(values).get("object", ValueSet(reason="they are no object"))
        self._rule = ref.name
        self.table.define(ref, self._lower(values, SchemaLocation(scope), self._root))
        while self._postponed:
            late = self._postponed.popleft()
            self._rule = late.ref.name
            self.table.define(late.ref, self._lower(late.values, late.location, late.syntax))
        return ref

    def value(self, subschemas: Conjunction, location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return an expression for the values of a conjunction in a syntax."""
        subschemas, scope = self._canonical(subschemas, location.scope)
        key = (subschemas, self._counted(location), syntax)
        known = self._exprs.get(key)
        if known is not None:
            return known
        pointer = self._expander.pointer(subschemas[0]) if subschemas else location.pointer
        if self._is_spent() and subschemas:
            self.report.add("unenforced", pointer, "type", _TOO_LARGE)
            return self._exprs.setdefault(key, self._anything.values(None, syntax))
        values = self._expander.expand(subschemas)
        if values.is_everything:
            self.report.add(
                "free_form", pointer, "type", "nothing is declared here, so any JSON value is allowed"
            )
            return self._exprs.setdefault(key, self._anything.values(None, syntax))
        if values.is_empty:
            self.reason = values.reason
            return self._exprs.setdefault(key, EMPTY_LANGUAGE)
        return self._named(key, values, SchemaLocation(scope, pointer, location.depth), syntax)

    def _named(self, key: _Key, values: ValueSet, location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return an expression for a set of values, a rule where it is worth one, and keep it under `key`."""
        shapes = values.shapes
        if len(shapes) + len(values.values) < 2 and not (shapes and type(shapes[0]) in _STRUCTURED):
            return self._exprs.setdefault(key, self._lower(values, location, syntax))
        ref = self.table.reserve(*location.scope.path)
        self._exprs[key] = ref
        if self._nesting == _MAX_NESTING:
            self._postponed.append(_Postponed(ref, values, location, syntax))
            return ref
        self._nesting += 1
        outer, self._rule = self._rule, ref.name
        production = self._lower(values, location, syntax)
        self._rule = outer
        self._nesting -= 1
        self.table.define(ref, production)
        if type(production) is Ref or production == EMPTY_LANGUAGE:
            self._exprs[key] = production
            return production
        return ref

    def either(self, choices: Iterable[Conjunction], location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return an expression for the values of any of several conjunctions."""
        several = dict.fromkeys(self._canonical(choice, location.scope)[0] for choice in choices)
        several.pop(UNSATISFIABLE, None)
        if len(several) < 2:
            return self.value(next(iter(several), UNSATISFIABLE), location, syntax)
        self.report.add("unenforced", location.pointer, "anyOf", BEGIN_ALIKE)
        key = (frozenset(several), self._counted(location), syntax)
        if key in self._exprs:
            return self._exprs[key]
        if self._is_spent() or UNCONSTRAINED in several:
            return self._exprs.setdefault(key, self._anything.values(None, syntax))
        sets = [self._expander.expand(choice) for choice in several]
        shapes: list[Shape] = []
        for shape in chain.from_iterable(subset.shapes for subset in sets):
            if shape not in shapes:
                shapes.append(shape)
        values = ValueSet(
            tuple(distinct([value for subset in sets for value in subset.values])), tuple(shapes)
        )
        if any(subset.is_everything for subset in sets):
            return self._exprs.setdefault(key, self._anything.values(None, syntax))
        if values.is_empty:
            return self._exprs.setdefault(key, EMPTY_LANGUAGE)
        return self._named(key, values, location, syntax)

    def _counted(self, location: SchemaLocation) -> int:
        """Return the depth, if it matters."""
        return location.depth if self.options.max_depth is not None else 0

    def _is_spent(self) -> bool:
        """Return whether the limits are reached, so that new conjunctions are not constrained any more."""
        rules = len(self.table.productions) - self._order_budget.rules
        return rules > MAX_RULES or is_spent()

    def _canonical(self, subschemas: Conjunction, scope: Scope) -> tuple[Conjunction, Scope]:
        """Resolve a lone reference to its target, which gets the name of the reference; order several."""
        seen = set()
        while len(subschemas) == 1:
            raw = subschemas[0].raw
            if type(raw) is dict and raw.keys().isdisjoint(REFERENCES):  # as for most, and fast
                break
            keyword = next((key for key in REFERENCES if key in raw), "") if isinstance(raw, Mapping) else ""
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
                scope = Scope(scope.table, (*scope.prefix, name), scope.prefix)
        return self._expander.in_order(subschemas), scope

    # Unions

    def _lower(self, values: ValueSet, location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return the expression of a union; shapes over the work limit are left open, and reported."""
        if isinstance(syntax, FormsSyntax):
            return self._in_forms(values, location, syntax)
        alternatives = [self._enumerated(values.values, location, syntax)] if values.values else []
        shapes = values.shapes
        if len(shapes) > 1:
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
            return self._lower(parts[kind], location, inner)

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

    def _merged(self, shapes: Sequence[Shape], location: SchemaLocation, syntax: ValueSyntax) -> list[Expr]:
        """Return the arrays and the objects of a union, each as few alternatives that begin differently."""
        arrays = [shape for shape in shapes if type(shape) is Array]
        objects = [shape for shape in shapes if type(shape) is Object]
        alternatives: list[Expr] = []
        if ANY_ARRAY in arrays:
            arrays = [ANY_ARRAY]
        for cluster in clusters(arrays, self._expander.expand) if arrays else ():
            if len(cluster) == 1 or self._too_deep(location, "items"):
                alternatives.append(self._array(cluster[0], location, syntax))
                continue
            self.report.add("unenforced", location.pointer, "anyOf", BEGIN_ALIKE)
            inner = location._replace(scope=location.scope.inside("Array"))

            def item(choices: Sequence[Conjunction], path: str, inner: SchemaLocation = inner) -> Expr:
                return self.either(choices, inner.inside("Item", path), syntax.item())

            items = possible_items(merged_items(cluster, item))
            if items is not None:
                alternatives.append(array_expr(items, syntax.arrays, inner.scope))
        if ANY_OBJECT in objects:
            objects = [ANY_OBJECT]
        if len(objects) == 1:
            alternatives.append(self._object(objects[0], location, syntax))
        elif objects:
            joint = self._joint(objects, location, syntax)
            alternatives.append(self._either_object(objects, location, syntax) if joint is None else joint)
        return alternatives

    def _begin_alike(self, alternatives: int) -> None:
        """Count alternatives of the current rule that may begin with the same text."""
        if alternatives > 1:
            self.unions[self._rule] = self.unions.get(self._rule, 1) * alternatives

    def _too_deep(self, location: SchemaLocation, keyword: str) -> bool:
        limit = self.options.max_depth
        if limit is None or location.depth <= limit:
            return False
        reason = f"nested deeper than max_depth={limit}"
        self.report.add("unenforced", f"{location.pointer}/{keyword}", keyword, reason)
        return True

    def _pairs(self, location: SchemaLocation) -> JoinPairs | None:
        """Return how to combine the pairs of a listed object; None: in their order."""
        if not self._order_budget.any_order:
            return None

        def combine(values: Mapping[str, Expr], layout: Layout) -> Expr:
            members = ObjectMembers(values, frozenset(values))
            return members_expr(members, layout, location.scope, self._order_budget).expr

        return combine

    # Arrays

    def _array(self, shape: Array, location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        if is_any := shape == ANY_ARRAY:
            reason = "no items are declared, so the array may contain anything"
            self.report.add("free_form", location.pointer, "items", reason)
        if is_any or self._too_deep(location, "items"):
            return self._anything.values("array", syntax)
        spend(PART_WORK * (1 + len(shape.prefix)))
        items = self._items(shape, location, syntax.item())
        if items is None:
            return EMPTY_LANGUAGE
        special = self._special_array(shape, items, location, syntax)
        if special is not None:
            return special
        if items.unenforced:
            report_keyword(self.report, shape, location.pointer, items.unenforced, BEYOND)
        return array_expr(items, syntax.arrays, location.scope)

    def _items(self, shape: Array, location: SchemaLocation, syntax: AnySyntax) -> ArrayItems | None:
        """Return the items as expressions."""
        prefix = []
        for index, subschemas in enumerate(shape.prefix):
            inner = location.inside(f"Item {index + 1}", f"/prefixItems/{index}")
            prefix.append(self.value(conjunction(subschemas), inner, syntax))
        rest: Expr = EMPTY_LANGUAGE
        if shape.max_items is None or shape.max_items > len(prefix):
            rest = self.value(conjunction(shape.items), location.inside("Item", "/items"), syntax)
        return possible_items(ArrayItems(tuple(prefix), rest, shape.min_items, shape.max_items))

    def _special_array(
        self, shape: Array, items: ArrayItems, location: SchemaLocation, syntax: ValueSyntax
    ) -> Expr | None:
        """Return arrays with `contains` or unique items; None if there are neither, or they are reported."""

        def not_enforced(keyword: str, reason: str) -> None:
            report_keyword(self.report, shape, location.pointer, keyword, reason)

        if shape.unique and not (items.maximum is not None and items.maximum <= 1):
            is_plain = not shape.prefix and not shape.contains
            values = self._expander.expand(shape.items).listed(MAX_UNIQUE) if is_plain else None
            if values is not None and len(values) <= MAX_UNIQUE:
                pairs = self._pairs(location)
                texts = [value_expr(value, syntax.item(), pairs) for value in values]
                written = [text for text in texts if text != EMPTY_LANGUAGE]
                return unique_expr(written, items.minimum, items.maximum, syntax.arrays, location.scope)
            not_enforced("uniqueItems", "the items are not a small finite set")
        if not shape.contains:
            return None
        self._begin_alike(3)
        if self.merges:
            not_enforced("contains", BEGIN_ALIKE)
            return None
        if len(shape.contains) == 1:
            inner = location.inside("Match", "/contains")
            matching = [
                self.value(conjunction(subschemas, shape.contains[0]), inner, syntax.item())
                for subschemas in (*shape.prefix[: len(items.prefix)], shape.items)
            ]
            expr = containing_expr(items, matching, syntax.arrays, location.scope)
            if expr is not None:
                return expr
        not_enforced("contains", "it takes too many states beside the other bounds")
        return None

    # Objects

    def _object(self, shape: Object, location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        if is_any := shape == ANY_OBJECT:
            reason = "no properties are declared, so the object may contain anything"
            self.report.add("free_form", location.pointer, "properties", reason)
        if is_any or self._too_deep(location, "properties"):
            return self._anything.values("object", syntax)
        if len(shape.properties) > MAX_PROPERTIES:
            reason = f"it declares more than {MAX_PROPERTIES} properties, so any object is allowed"
            self.report.add("unenforced", location.pointer, "type", reason)
            return self._anything.values("object", syntax)
        spend(PART_WORK * (1 + len(shape.properties)))
        reason = self.reason
        values = {
            name: self._property(name, subschemas, location, syntax)
            for name, subschemas in shape.properties.items()
        }
        others = self._others(shape, location, syntax)
        built = object_expr(shape, values, others, syntax.objects, location.scope, self._order_budget)
        if built.expr != EMPTY_LANGUAGE:  # it may do without what has no values
            self.reason = reason
        return self._reported(built, [shape], location)

    def _reported(self, built: ObjectExpr, shapes: Iterable[Object], location: SchemaLocation) -> Expr:
        for shape in shapes:
            for keyword, reason in built.loosened:
                report_keyword(self.report, shape, location.pointer, keyword, reason)
        return built.expr

    def _property(
        self, name: str, subschemas: Conjunction, location: SchemaLocation, syntax: ValueSyntax
    ) -> Expr:
        """Return the values of a declared property."""
        is_limited = self.overrides or self.options.max_depth is not None or self._is_spent()
        if len(subschemas) == 1 and syntax is self._json and not is_limited:
            primitive = plain_type(subschemas[0].raw)
            if primitive is not None:  # as of most: without all that others need
                return self._exprs.setdefault((subschemas, 0, syntax), _PRIMITIVES[primitive])
        inner = location.inside(name, child_pointer("/properties", name))
        if not syntax.objects.can_write(name):
            self.reason = f"the format cannot write the key {name!r}"
            self.report.add("inexpressible", inner.pointer, "type", self.reason)
            return EMPTY_LANGUAGE
        inner_syntax = syntax.child(name)
        if location.depth or name not in self.overrides:
            return self.value(subschemas, inner, inner_syntax)
        number = self.overrides[name]
        if len(subschemas) > 1:
            reason = "the steps that a reference may name are not known yet"
            self.report.add("unenforced", inner.pointer, "not", reason)
        if isinstance(inner_syntax, ValueSyntax):
            return number
        return factor_prefixes(inner_syntax.written("number", _NUMBER_ONLY, lambda *_: number))

    def _others(self, shape: Object, location: SchemaLocation, syntax: ValueSyntax) -> list[Other]:
        """Return the classes of other properties, with their values."""
        others = [(other.keys, self._other(other.value, location, syntax)) for other in shape.others]
        if syntax is not self._json and any(
            other.value != UNCONSTRAINED and not syntax.objects.can_write_all(other.keys)
            for other in shape.others
        ):
            reason = "the format cannot write some keys"
            self.report.add("inexpressible", f"{location.pointer}/additionalProperties", "type", reason)
        return others

    def _other(self, subschemas: Conjunction, location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        """Return the values of other properties."""
        inner = syntax.other()
        if inner is None:
            if subschemas != UNSATISFIABLE:
                where = "" if subschemas == UNCONSTRAINED else f"{location.pointer}/additionalProperties"
                self.report.add("inexpressible", where, "additionalProperties", DECLARED_ONLY)
            return EMPTY_LANGUAGE
        if subschemas == UNCONSTRAINED:
            return self._anything.values(None, inner)
        return self.value(subschemas, location.inside("Value", "/additionalProperties"), inner)

    def _joint(self, shapes: Sequence[Object], location: SchemaLocation, syntax: ValueSyntax) -> Expr | None:
        """Return the objects of several shapes as one automaton; None where that is not possible."""
        limit = self.options.max_depth
        if limit is not None and location.depth > limit:
            return None
        names = list(dict.fromkeys(name for shape in shapes for name in shape.properties))
        if len(names) > _JOINT_NAMES or ANY_OBJECT in shapes:
            return None
        spend(PART_WORK * (1 + len(names)) * len(shapes))
        alternatives = []
        merged = self._merged_children(shapes, names, location, syntax) if self.merges else None
        for shape in shapes:
            values = {
                name: self._property(name, shape.properties[name], location, syntax)
                if name in shape.properties
                else self._other(shape.child(name), location, syntax)
                for name in names
            }
            others = self._others(shape, location, syntax)
            if merged is not None:
                values |= {
                    name: merged.values[name] for name in merged.values if values[name] != EMPTY_LANGUAGE
                }
                others = merged.others if others and merged.others else others
            members = members_of(shape, values, others, syntax.objects, location.scope)
            if members is not None:
                alternatives.append(members)
        if any(members.least or members.most is not None for members in alternatives) or not alternatives:
            return None
        built = joint_expr(alternatives, syntax.objects, location.scope, self._order_budget)
        return None if built is None else self._reported(built, shapes, location)

    def _either_object(self, shapes: Sequence[Object], location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        """Return the objects of several shapes as those of one, whose properties any of them allows."""
        any_shape = any_of(shapes)
        if self._too_deep(location, "properties") or len(any_shape.properties) > MAX_PROPERTIES:
            return self._anything.values("object", syntax)
        self.report.add("unenforced", location.pointer, "anyOf", BEGIN_ALIKE)
        merged = self._merged_children(shapes, list(any_shape.properties), location, syntax)
        values = {
            name: merged.values.get(name) or self._either_child(shapes, name, location, syntax)
            for name in any_shape.properties
        }
        open_shape = next((shape for shape in shapes if shape.others), any_shape)
        others = merged.others or self._others(open_shape, location, syntax)
        members = members_of(any_shape, values, others, syntax.objects, location.scope)
        if members is None:
            return EMPTY_LANGUAGE
        return members_expr(members, syntax.objects, location.scope, self._order_budget).expr

    def _either_child(
        self, shapes: Sequence[Object], name: str, location: SchemaLocation, syntax: ValueSyntax
    ) -> Expr:
        """Return the values that any of several objects has under a name."""
        inner = location.inside(name, child_pointer("/properties", name))
        return self.either([shape.child(name) for shape in shapes], inner, syntax.child(name))

    def _merged_children(
        self, shapes: Sequence[Object], names: Sequence[str], location: SchemaLocation, syntax: ValueSyntax
    ) -> _Children:
        """Return the values under each name, and of other keys, that the objects have in common."""
        values: dict[str, Expr] = {}
        for name in names:
            children = [child for shape in shapes if (child := shape.child(name)) != UNSATISFIABLE]
            overridden = location.depth == 0 and name in self.overrides
            if len(set(children)) < 2 or overridden or not syntax.objects.can_write(name):
                continue
            if not told_apart([self._expander.expand(child) for child in children]):
                values[name] = self._either_child(shapes, name, location, syntax)
        others = [shape.others for shape in shapes if shape.others]
        inner = syntax.other()
        if inner is None or all(classes == others[0] for classes in others):
            return _Children(values, [])
        children = [other.value for several in others for other in several]
        self.report.add("unenforced", location.pointer, "anyOf", BEGIN_ALIKE)
        value_location = location.inside("Value", "/additionalProperties")
        return _Children(values, [(None, self.either(children, value_location, inner))])
