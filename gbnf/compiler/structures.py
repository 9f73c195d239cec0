"""Arrays and objects of value sets as expressions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

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
from gbnf.compiler.notations import JSON, JSON_TYPES, JsonType, Notation
from gbnf.compiler.objects import DUPLICATES_COUNT, OrderBudget, Other, members_expr, object_expr
from gbnf.compiler.property_automaton import ObjectMembers
from gbnf.compiler.repetitions import BEYOND, MAX_BOUND
from gbnf.compiler.report import Report
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.compiler.scalars import Scalars, report_keyword
from gbnf.compiler.value_syntax import ElementsSyntax, FormsSyntax, ValueSyntax, syntax_of
from gbnf.compiler.values import SHAPES, JoinPairs, value_expr
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Ref, alt, repeat, seq
from gbnf.schema.document import Document
from gbnf.schema.expand import Expander
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    UNSATISFIABLE,
    Array,
    Conjunction,
    Object,
    String,
    conjunction,
)
from gbnf.work_limits import spend

AnySyntax: TypeAlias = ValueSyntax | FormsSyntax
DECLARED_ONLY = "the format can write declared properties only"
_ANY_OF_TYPE: Mapping[JsonType | None, Expr] = {
    None: Ref("jsonValue"),
    "null": Ref("null"),
    "boolean": Ref("boolean"),
    "number": Ref("number"),
    "string": Ref("string"),
    "array": Ref("jsonArray"),
    "object": Ref("jsonObject"),
}


class Anything:
    """The expressions of one compilation, whose rules are added to `scope`."""

    def __init__(self, scalars: Scalars, scope: Scope) -> None:
        self._scalars, self._scope = scalars, scope
        self._any: dict[tuple[JsonType | None, AnySyntax], Expr] = {}

    def values(self, kind: JsonType | None, syntax: AnySyntax) -> Expr:
        """Return every value of a JSON type (None: of any type), as it is written in a syntax."""
        if syntax is self._scalars.json:
            return _ANY_OF_TYPE[kind]
        if (kind, syntax) not in self._any:
            if isinstance(syntax, FormsSyntax | ElementsSyntax):
                self._scalars.report.excludes_delimiters()
            ref = self._any[kind, syntax] = self._scope.reserve("Any", kind or "value")
            self._any[kind, syntax] = self._scope.define(ref, self._new(kind, syntax))
        return self._any[kind, syntax]

    def _new(self, kind: JsonType | None, syntax: AnySyntax) -> Expr:
        if isinstance(syntax, FormsSyntax):
            kinds = frozenset(JSON_TYPES if kind is None else (kind,))
            texts: list[Expr] = []
            for one in JSON_TYPES if kind is None else (kind,):
                texts += syntax.written(
                    one,
                    kinds,
                    self.values,
                    lambda form: self._scalars.raw_shape(String(), form, kinds, self._scope, syntax).expr,
                )
            return factor_prefixes(texts)
        match kind:
            case None:
                return alt(*[self.values(one, syntax) for one in JSON_TYPES])
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


#: The most properties of an object; beyond, it is not constrained.
MAX_PROPERTIES = 8_000
#: The work of emitting a property or an item, in the units of `gbnf.work_limits`.
PART_WORK = 40
BEGIN_ALIKE = (
    "the alternatives begin with the same text, so llama.cpp would follow too many of them at once: parts of "
    "one may come with parts of another"
)
ANY_ARRAY, ANY_OBJECT = Array(), Object()
_NUMBER_ONLY: frozenset[JsonType] = frozenset({"number"})


class SchemaLocation(NamedTuple):
    """Where in a schema values are, inside `depth` objects and arrays, and the scope of their rules."""

    scope: Scope
    pointer: str = ""
    depth: int = 0

    def inside(self, hint: str, path: str = "") -> SchemaLocation:
        """Return the location of what is inside an array or object; `path` follows the JSON Pointer."""
        return SchemaLocation(self.scope.inside(hint), self.pointer + path, self.depth + 1)


@dataclass
class StructureLowering(ABC):
    """One compilation of one document into a table of rules: the part for arrays and objects.

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
        self._any_order_rules = 0  # rules that any order takes beyond the declared one
        self._expander = Expander(self.document, partial(self.report.add, "unenforced"))
        self._scalars = Scalars(self.report, self.options.digits, self._json)

    @abstractmethod
    def value(self, subschemas: Conjunction, location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return an expression for the values of a conjunction in a syntax."""

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
            before = len(self.table.productions)
            members = ObjectMembers(values, frozenset(values))
            built = members_expr(members, layout, location.scope, self._order_budget)
            self._any_order_rules += len(self.table.productions) - before
            if built.loosened:
                for keyword in ("enum", "const"):
                    self.report.add("unenforced", f"{location.pointer}/{keyword}", keyword, DUPLICATES_COUNT)
            return built.expr

        return combine

    def _array(self, shape: Array, location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        if shape == ANY_ARRAY:
            reason = "no items are declared, so the array may contain anything"
            self.report.add("free_form", location.pointer, "items", reason)
            return self._anything.values("array", syntax)
        if self._too_deep(location, "items"):
            return self._anything.values("array", syntax)
        spend(PART_WORK * (1 + len(shape.prefix)))
        items = self._items(shape, location, syntax.item())
        if items is None:
            return EMPTY_LANGUAGE
        special = self._special_array(shape, items, location, syntax)
        if special is not None:
            return special
        expr, exact = array_expr(items, syntax.arrays, location.scope)
        if not exact:
            beyond = "minItems" if items.minimum > MAX_BOUND else "maxItems"
            report_keyword(self.report, shape, location.pointer, beyond, BEYOND)
        return expr

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

    def _object(self, shape: Object, location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        if shape == ANY_OBJECT:
            reason = "no properties are declared, so the object may contain anything"
            self.report.add("free_form", location.pointer, "properties", reason)
            return self._anything.values("object", syntax)
        if self._too_deep(location, "properties"):
            return self._anything.values("object", syntax)
        if len(shape.properties) > MAX_PROPERTIES:
            reason = f"it declares more than {MAX_PROPERTIES} properties, so any object is allowed"
            self.report.add("unenforced", location.pointer, "type", reason)
            return self._anything.values("object", syntax)
        spend(PART_WORK * (1 + len(shape.properties)))
        values = {
            name: self._property(name, subschemas, location, syntax)
            for name, subschemas in shape.properties.items()
        }
        others = self._others(shape, location, syntax)
        before = len(self.table.productions)
        built = object_expr(shape, values, others, syntax.objects, location.scope, self._order_budget)
        if self._order_budget.any_order:
            added = len(self.table.productions) - before
            self._any_order_rules += max(added - 2 * len(shape.properties), 0)
        for keyword, reason in built.loosened:
            report_keyword(self.report, shape, location.pointer, keyword, reason)
        return built.expr

    def _property(
        self, name: str, subschemas: Conjunction, location: SchemaLocation, syntax: ValueSyntax
    ) -> Expr:
        """Return the values of a declared property."""
        inner = location.inside(name, f"/properties/{name}")
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
