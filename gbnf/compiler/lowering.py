"""From the value sets of a schema to productions.

Each conjunction becomes an expression: scalars inline, objects, arrays and unions as rules of their own,
named after the path to them. Equal conjunctions are the same rule, so recursive
schemas become recursive grammars; with `max_depth`, deeper objects and arrays become generic JSON instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from typing import Literal as OneOf

from gbnf.compiler.any_order import OrderBudget, permuted_expr
from gbnf.compiler.arrays import (
    MAX_UNIQUE,
    ArrayItems,
    array_expr,
    containing_expr,
    possible_items,
    unique_expr,
)
from gbnf.compiler.decimals import BOUNDED_DIGITS, UNBOUNDED_DIGITS, DigitLimits
from gbnf.compiler.layout import LAYOUTS, Whitespace
from gbnf.compiler.literals import JoinPairs, factor_prefixes, join_expressions, value_expr, values_expr
from gbnf.compiler.multiples import multiples_expr
from gbnf.compiler.numbers import range_expr
from gbnf.compiler.objects import MAX_ANY_ORDER, object_expr
from gbnf.compiler.repetitions import MAX_BOUND, bounded_repetition
from gbnf.compiler.report import Report
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.effort import EffortSpent, TooManyStates, is_spent, spend
from gbnf.grammar.ir import EMPTY_LANGUAGE, Alt, Expr, Literal, Ref, Repeat, Seq, alt, seq
from gbnf.regular.automaton import Dfa
from gbnf.schema.document import Document
from gbnf.schema.expand import Expander
from gbnf.schema.keywords import HAS_ITEM, KEYWORDS, REFERENCES
from gbnf.schema.strings import string_language
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    Array,
    Boolean,
    Conjunction,
    Null,
    Number,
    Object,
    Shape,
    String,
    ValueSet,
    conjunction,
    distinct,
)

PropertyOrder = OneOf["declared", "any"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a schema becomes a grammar.

    `whitespace`: see `gbnf.compiler.layout`. `max_depth`: the most objects and arrays around one that is
    still constrained; None: any number. If `closed`, an object that declares properties but not
    `additionalProperties` allows no others. `property_order`: properties in declared order, or in any, as far
    as `gbnf.compiler.objects.MAX_ANY_ORDER` and `gbnf.compiler.any_order` go. With `bounded_digits`,
    numbers have at most the digits of `gbnf.compiler.decimals.BOUNDED_DIGITS`.
    """

    whitespace: Whitespace = "default"
    max_depth: int | None = None
    closed: bool = False
    property_order: PropertyOrder = "declared"
    bounded_digits: bool = True

    @property
    def digits(self) -> DigitLimits:
        """How many digits numbers may have."""
        return BOUNDED_DIGITS if self.bounded_digits else UNBOUNDED_DIGITS


#: The most rules of one schema; beyond, the rest of it is not constrained.
MAX_RULES = 8_000
#: The most properties of an object; beyond, it is not constrained.
MAX_PROPERTIES = 8_000
#: How deeply rules are compiled recursively before one is postponed: Python's stack is finite.
_MAX_NESTING = 25


class _Postponed(NamedTuple):
    """A rule whose production is still to be compiled."""

    ref: Ref
    values: ValueSet
    scope: Scope
    pointer: str
    depth: int


@dataclass
class Lowering:
    """One compilation of one document into a table of rules.

    `overrides` replaces the value of top-level properties by expressions.
    """

    document: Document
    options: CompileOptions
    table: RuleTable
    tool: str = ""
    overrides: Mapping[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.report = Report(self.tool)
        self.reason = ""  # why the last unsatisfiable conjunction has no values
        self._layout = LAYOUTS[self.options.whitespace]
        self._order_budget = OrderBudget(any_order=self.options.property_order == "any")
        self._any_order_rules = 0  # rules that any order takes beyond the declared one
        self._expander = Expander(self.document, self.report.unenforced)
        self._known: dict[tuple[Conjunction, int], Expr] = {}
        self._nesting = 0
        self._postponed: deque[_Postponed] = deque()
        self._numbers: dict[Number, tuple[Expr, str]] = {}
        self._strings: dict[String, tuple[Expr, tuple[tuple[str, str], ...]]] = {}

    def root(self, ref: Ref, scope: Scope) -> Ref:
        """Compile the document's root as the production of `ref`."""
        subschemas: Conjunction = (self.document.root,)
        values = self._expander.expand(subschemas)
        if not self.overrides:
            self._known[subschemas, 0] = ref
        if values.is_everything:
            self.report.free_form("", "type", "the schema allows every JSON value")
            return self.table.define(ref, Ref("jsonValue"))
        self.table.define(ref, self._union(values, scope, "", 0))
        while self._postponed:
            late = self._postponed.popleft()
            self.table.define(late.ref, self._union(late.values, late.scope, late.pointer, late.depth))
        return ref

    def value(self, subschemas: Conjunction, scope: Scope, pointer: str, depth: int) -> Expr:
        """Return an expression for the values of a conjunction, inside `depth` objects and arrays."""
        subschemas, scope = self._canonical(subschemas, scope)
        key = (subschemas, depth if self.options.max_depth is not None else 0)
        if key in self._known:
            return self._known[key]
        pointer = self._expander.pointer(subschemas[0]) if subschemas else pointer
        if self._is_spent() and subschemas:
            self.report.unenforced(pointer, "type", _TOO_LARGE)
            return self._known.setdefault(key, Ref("jsonValue"))
        values = self._expander.expand(subschemas)
        if values.is_everything:
            self.report.free_form(pointer, "type", "nothing is declared here, so any JSON value is allowed")
            return self._known.setdefault(key, Ref("jsonValue"))
        if values.is_empty:
            self.reason = values.reason
            return self._known.setdefault(key, EMPTY_LANGUAGE)
        if not _needs_rule(values):
            return self._known.setdefault(key, self._union(values, scope, pointer, depth))
        ref = self.table.reserve(*scope.hint)
        self._known[key] = ref
        if self._nesting == _MAX_NESTING:
            self._postponed.append(_Postponed(ref, values, scope, pointer, depth))
            return ref
        self._nesting += 1
        production = self._union(values, scope, pointer, depth)
        self._nesting -= 1
        self.table.define(ref, production)
        if isinstance(production, Ref) or production == EMPTY_LANGUAGE:
            self._known[key] = production
        return self._known[key]

    def _is_spent(self) -> bool:
        """Return whether the limits are reached, so that new conjunctions are not constrained any more."""
        rules = len(self.table.productions) - self._any_order_rules
        return rules > MAX_RULES or is_spent()

    def _canonical(self, subschemas: Conjunction, scope: Scope) -> tuple[Conjunction, Scope]:
        """Resolve a lone reference to its target, which gets the name of the reference."""
        seen = set()
        while len(subschemas) == 1:
            raw = subschemas[0].raw
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
        return subschemas, scope

    def _union(self, values: ValueSet, scope: Scope, pointer: str, depth: int) -> Expr:
        alternatives = [self._enumerated(values.values, scope, pointer)] if values.values else []
        structured = sum(isinstance(shape, Object | Array) for shape in values.shapes)
        for number, shape in enumerate(values.shapes, 1):
            inner = scope.inside(f"Option {number}") if structured > 1 and len(values.shapes) > 1 else scope
            try:
                alternatives.append(self._shape(shape, inner, pointer, depth))
            except EffortSpent:
                self.report.unenforced(pointer, "type", _LEFT_OPEN)
                alternatives.append(_ANY_OF_TYPE[type(shape)])
        if not alternatives:
            self.reason = values.reason
        return factor_prefixes([one for one in alternatives if one != EMPTY_LANGUAGE])

    def _enumerated(self, values: Sequence[Any], scope: Scope, pointer: str) -> Expr:
        """Return any of the values; small objects in them in any order, if that is wanted."""
        try:
            spend(sum(_VALUE_WORK + (len(value) // 4 if isinstance(value, str) else 0) for value in values))
        except EffortSpent:
            self.report.unenforced(pointer, "enum", _LEFT_OPEN)
            kinds = {
                Boolean if isinstance(value, bool) else _SHAPE_OF.get(type(value), Null) for value in values
            }
            return alt(*(expr for kind, expr in _ANY_OF_TYPE.items() if kind in kinds))
        return values_expr(values, self._layout, self._pairs(scope, pointer))

    def _pairs(self, scope: Scope, pointer: str) -> JoinPairs | None:
        """Return how to combine the pairs of a listed object; None: in their order."""
        if not self._order_budget.any_order:
            return None

        def combine(pairs: Sequence[Expr]) -> Expr:
            count = len(pairs)
            if count > 1:
                before = len(self.table.productions)
                if count <= MAX_ANY_ORDER and self._order_budget.reserve_any_order(
                    count << count - 1, share=8
                ):
                    expr = permuted_expr(pairs, self._layout, scope)
                    self._any_order_rules += len(self.table.productions) - before
                    return expr
                reason = f"a listed object of {count} properties is accepted in its own order only"
                self.report.add_finding(pointer, "enum", "declared_order", reason)
            return join_expressions(pairs, self._layout.comma)

        return combine

    def _shape(self, shape: Shape, scope: Scope, pointer: str, depth: int) -> Expr:
        match shape:
            case Null():
                return Ref("null")
            case Boolean():
                return Ref("boolean")
            case Number():
                return self._number(shape, scope, pointer)
            case String():
                return self._string(shape, scope, pointer)
            case Array():
                return self._array(shape, scope, pointer, depth)
            case Object():
                return self._object(shape, scope, pointer, depth)

    def _number(self, shape: Number, scope: Scope, pointer: str) -> Expr:
        """Return the expression of a number; equal shapes share one."""
        known = self._numbers.get(shape)
        if known is None:
            expr, reason = None, ""
            if shape.divisors:
                try:
                    expr, reason = multiples_expr(shape, self.options.digits, scope)
                except TooManyStates:
                    reason = "its automaton is too large"
            if expr is None:
                expr = range_expr(shape, self.options.digits)
            if _weight(expr) > _LIGHT:
                expr = scope.add("Number", expr)
            known = self._numbers[shape] = (expr, reason)
        expr, reason = known
        if reason:
            self._report_unenforced(shape, pointer, "multipleOf", reason)
        return expr

    def _string(self, shape: String, scope: Scope, pointer: str) -> Expr:
        """Return the expression of a string; equal shapes share one."""
        if shape == String():
            return Ref("string")
        known = self._strings.get(shape)
        if known is None:
            expr, loosened = self._new_string(shape, scope)
            if _weight(expr) > _LIGHT:
                expr = scope.add("Text", expr)
            known = self._strings[shape] = (expr, loosened)
        expr, loosened = known
        for keyword, reason in loosened:
            self._report_unenforced(shape, pointer, keyword, reason)
        return expr

    def _new_string(self, shape: String, scope: Scope) -> tuple[Expr, tuple[tuple[str, str], ...]]:
        """Return an expression, and each keyword that it doesn't enforce, with the reason."""
        low, high = shape.min_length, shape.max_length
        if shape.language is not None:
            return self._regular(shape, shape.language, scope)
        chars = bounded_repetition(Ref("char"), low, high, scope)
        beyond = "minLength" if low > MAX_BOUND else "maxLength"
        loosened = () if chars.exact else ((beyond, _BEYOND),)
        return seq(Literal('"'), chars.expr, Literal('"')), loosened

    @staticmethod
    def _regular(shape: String, language: Dfa, scope: Scope) -> tuple[Expr, tuple[tuple[str, str], ...]]:
        from gbnf.compiler.automaton_rules import string_expr  # noqa: PLC0415  # most strings need no automaton

        loosened: tuple[tuple[str, str], ...] = ()
        try:
            language = string_language(shape)
        except TooManyStates:
            bounds = (("minLength", shape.min_length), ("maxLength", shape.max_length))
            reason = "with the pattern beside it, it makes too large an automaton"
            loosened = tuple((keyword, reason) for keyword, bound in bounds if bound)
        return string_expr(language, scope), loosened

    def _array(self, shape: Array, scope: Scope, pointer: str, depth: int) -> Expr:
        if shape == Array():
            self.report.free_form(
                pointer, "items", "no items are declared, so the array may contain anything"
            )
            return Ref("jsonArray")
        if self._too_deep(depth, pointer, "items"):
            return Ref("jsonArray")
        spend(_PART_WORK * (1 + len(shape.prefix)))
        items = self._items(shape, UNCONSTRAINED, scope, pointer, depth)
        if items is None:
            return EMPTY_LANGUAGE
        special = self._special_array(shape, items, scope, pointer, depth)
        if special is not None:
            return special
        expr, exact = array_expr(items, self._layout, scope)
        if not exact:
            beyond = "minItems" if items.minimum > MAX_BOUND else "maxItems"
            self._report_unenforced(shape, pointer, beyond, _BEYOND)
        return expr

    def _items(
        self, shape: Array, also: Conjunction, scope: Scope, pointer: str, depth: int
    ) -> ArrayItems | None:
        """Return the items as expressions, each of which satisfies `also` too."""
        hint = "Match " if also else ""
        prefix = tuple(
            self.value(
                conjunction(subschemas, also),
                scope.inside(f"{hint}Item {number}"),
                f"{pointer}/prefixItems/{number - 1}",
                depth + 1,
            )
            for number, subschemas in enumerate(shape.prefix, 1)
        )
        rest: Expr = EMPTY_LANGUAGE
        if shape.max_items is None or shape.max_items > len(prefix):
            subschemas = conjunction(shape.items, also)
            rest = self.value(subschemas, scope.inside(f"{hint}Item"), f"{pointer}/items", depth + 1)
        return possible_items(ArrayItems(prefix, rest, shape.min_items, shape.max_items))

    def _special_array(
        self, shape: Array, items: ArrayItems, scope: Scope, pointer: str, depth: int
    ) -> Expr | None:
        """Return arrays with `contains` or unique items; None if there are neither, or they are reported."""
        if shape.unique and not (items.maximum is not None and items.maximum <= 1):
            values = None if shape.prefix or shape.contains else self._few_values(shape.items)
            if values is not None:
                pairs = self._pairs(scope, pointer)
                values_exprs = [value_expr(value, self._layout, pairs) for value in values]
                return unique_expr(values_exprs, items.minimum, items.maximum, self._layout, scope)
            self._report_unenforced(shape, pointer, "uniqueItems", "the items are not a small finite set")
        if not shape.contains:
            return None
        if len(shape.contains) == 1:
            matching = [
                self.value(
                    conjunction(subschemas, shape.contains[0]),
                    scope.inside("Match"),
                    f"{pointer}/contains",
                    depth + 1,
                )
                for subschemas in (*shape.prefix[: len(items.prefix)], shape.items)
            ]
            expr = containing_expr(items, matching, self._layout, scope)
            if expr is not None:
                return expr
        self._report_unenforced(
            shape, pointer, "contains", "it takes too many states beside the other bounds"
        )
        return None

    def _few_values(self, subschemas: Conjunction) -> list[Any] | None:
        """Return all values that satisfy `subschemas`, where they are few."""
        allowed = self._expander.expand(subschemas)
        values = list(allowed.values)
        for shape in allowed.shapes:
            if isinstance(shape, Null):
                values.append(None)
            elif isinstance(shape, Boolean):
                values += [False, True]
            elif isinstance(shape, Number) and (few := shape.few_integers(MAX_UNIQUE)) is not None:
                values += few
            else:
                return None
        values = distinct(values)
        return values if len(values) <= MAX_UNIQUE else None

    def _object(self, shape: Object, scope: Scope, pointer: str, depth: int) -> Expr:
        if shape == Object():
            self.report.free_form(
                pointer, "properties", "no properties are declared, so the object may contain anything"
            )
            return Ref("jsonObject")
        if self._too_deep(depth, pointer, "properties"):
            return Ref("jsonObject")
        if len(shape.properties) > MAX_PROPERTIES:
            reason = f"it declares more than {MAX_PROPERTIES} properties, so any object is allowed"
            self.report.unenforced(pointer, "type", reason)
            return Ref("jsonObject")
        spend(_PART_WORK * (1 + len(shape.properties)))
        values = {
            name: self.overrides[name]
            if depth == 0 and name in self.overrides
            else self.value(subschemas, scope.inside(name), f"{pointer}/properties/{name}", depth + 1)
            for name, subschemas in shape.properties.items()
        }
        others = []
        for other in shape.others:
            if other.value == UNCONSTRAINED:
                value: Expr = Ref("jsonValue")
            else:
                value = self.value(
                    other.value, scope.inside("Value"), f"{pointer}/additionalProperties", depth + 1
                )
            others.append((other.keys, value))
        before = len(self.table.productions)
        built = object_expr(shape, values, others, self._layout, scope, self._order_budget)
        if self._order_budget.any_order:
            added = len(self.table.productions) - before
            self._any_order_rules += max(added - 2 * len(shape.properties), 0)
        if built.rejected_orders:
            self.report.add_finding(pointer, "properties", "declared_order", built.rejected_orders)
        for keyword, reason in built.loosened:
            self._report_unenforced(shape, pointer, keyword, reason)
        return built.expr

    def _too_deep(self, depth: int, pointer: str, keyword: str) -> bool:
        limit = self.options.max_depth
        if limit is None or depth <= limit:
            return False
        self.report.unenforced(f"{pointer}/{keyword}", keyword, f"nested deeper than max_depth={limit}")
        return True

    def _report_unenforced(
        self, shape: Number | String | Array | Object, pointer: str, keyword: str, reason: str
    ) -> None:
        """Report a keyword at every schema that the shape has it from."""
        found = [(facet.pointer, keyword) for facet in shape.facets if keyword in facet.raw]
        if keyword == "contains":  # or the complement of `items`
            found += [(facet.pointer, "items") for facet in shape.facets if HAS_ITEM in facet.raw]
        for base, name in found or [(pointer, keyword)]:
            self.report.unenforced(f"{base}/{name}", name, reason)


_TOO_LARGE = "the schema is too large, so any JSON value is allowed"
_LEFT_OPEN = "the schema is too large, so any value of the same JSON type is allowed"
#: The work of emitting a value, or a property or an item, in the units of `gbnf.effort`.
_VALUE_WORK = 6
_PART_WORK = 40
_SHAPE_OF: Mapping[type, type] = {
    str: String, int: Number, float: Number, list: Array, dict: Object,
}  # fmt: skip
_ANY_OF_TYPE: Mapping[type, Expr] = {
    Null: Ref("null"),
    Boolean: Ref("boolean"),
    Number: Ref("number"),
    String: Ref("string"),
    Array: Ref("jsonArray"),
    Object: Ref("jsonObject"),
}

_BEYOND = f"bounds above {MAX_BOUND} are not enforced"

#: The greatest weight of an expression that is repeated inline: about the engine's rules for it.
_LIGHT = 24


def _weight(expr: Expr) -> int:
    match expr:
        case Repeat(item, minimum, maximum):
            return _weight(item) * max(minimum, maximum or 1, 1)
        case Seq(items) | Alt(items):
            return sum(map(_weight, items))
        case _:
            return 1


def _needs_rule(values: ValueSet) -> bool:
    if len(values.values) > 1:
        return True
    plain = (Null, Boolean, Number, String)
    return len(values.shapes) + len(values.values) > 1 or not all(
        isinstance(shape, plain) for shape in values.shapes
    )
