"""From the value sets of a schema to productions.

Each conjunction becomes an expression: scalars inline, objects, arrays and unions as rules of their own,
named after the path to them. Equal conjunctions are the same rule, so recursive
schemas become recursive grammars; with `max_depth`, deeper objects and arrays become generic JSON instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from gbnf.compiler.any_order import (
    DUPLICATES_COUNT,
    ObjectMembers,
    OrderBudget,
    any_order_expr,
    joint_expr,
)
from gbnf.compiler.anything import DECLARED_ONLY, AnyPlace, Anything
from gbnf.compiler.arrays import (
    MAX_UNIQUE,
    ArrayItems,
    array_expr,
    containing_expr,
    possible_items,
    unique_expr,
)
from gbnf.compiler.layout import Layout
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.merging import BEGIN_ALIKE, any_of, clusters, merged_items, told_apart
from gbnf.compiler.notations import JSON, JSON_TYPES, JsonType, Notation
from gbnf.compiler.objects import Other, members_of, object_expr
from gbnf.compiler.options import CompileOptions
from gbnf.compiler.places import ElementForm, FormsPlace, Place, place_of
from gbnf.compiler.repetitions import BEYOND, MAX_BOUND
from gbnf.compiler.report import Report
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.compiler.scalars import LEFT_OPEN, VALUE_WORK, Scalars, report_keyword
from gbnf.compiler.values import JoinPairs, json_type, shape_type, value_expr, values_by_type
from gbnf.effort import EffortSpentError, is_spent, spend
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Ref, alt
from gbnf.schema.document import Document, Subschema
from gbnf.schema.expand import Expander
from gbnf.schema.keywords import KEYWORDS, REFERENCES
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    UNSATISFIABLE,
    Array,
    Boolean,
    Conjunction,
    Null,
    Number,
    Object,
    Shape,
    ValueSet,
    conjunction,
    distinct,
)

#: The most rules of one schema; beyond, the rest of it is not constrained.
MAX_RULES = 8_000
#: The most properties of an object; beyond, it is not constrained.
MAX_PROPERTIES = 8_000
#: How deeply rules are compiled recursively before one is postponed: Python's stack is finite.
_MAX_NESTING = 25


#: What an expression is kept under: a conjunction, or several of which one holds; its depth and its place.
_Key: TypeAlias = "tuple[Conjunction | frozenset[Conjunction], int, AnyPlace]"


class _Children(NamedTuple):
    """Values by name, and other properties (none: each shape has its own), that several objects share."""

    values: Mapping[str, Expr]
    others: list[Other]


class _Postponed(NamedTuple):
    """A rule whose production is still to be compiled."""

    ref: Ref
    values: ValueSet
    scope: Scope
    pointer: str
    depth: int
    place: AnyPlace


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

    def __post_init__(self) -> None:
        self.report = Report(self.tool)
        self.reason = ""  # why the last unsatisfiable conjunction has no values
        self._root = place_of(self.notation, self.options.whitespace)
        self._json = place_of(JSON, self.options.whitespace)
        self._order_budget = OrderBudget(any_order=self.options.property_order == "any")
        self._any_order_rules = 0  # rules that any order takes beyond the declared one
        self._expander = Expander(self.document, self.report.unenforced)
        self._known: dict[_Key, Expr] = {}
        self._nesting = 0
        self.unions: dict[str, int] = {}  # how many alternatives of a rule may begin with the same text
        self._rule = ""  # that is being compiled
        self._postponed: deque[_Postponed] = deque()
        self._scalars = Scalars(self.report, self.options.digits, self._json)

    def root(self, ref: Ref, scope: Scope) -> Ref:
        """Compile the document's root as the production of `ref`."""
        self._anything = Anything(self._scalars, scope)
        subschemas: Conjunction = (self.document.root,)
        values = self._expander.expand(subschemas)
        if not self.overrides:
            self._known[subschemas, 0, self._root] = ref
        is_json = self._root is self._json
        if values.is_everything:
            self.report.free_form("", "type", "the schema allows every JSON value")
            return self.table.define(ref, self._anything.values(None if is_json else "object", self._root))
        if not is_json:  # arguments are an object
            values = values_by_type(values).get("object", ValueSet(reason="they are no object"))
        self._rule = ref.name
        self.table.define(ref, self._union(values, scope, "", 0, self._root))
        while self._postponed:
            late = self._postponed.popleft()
            self._rule = late.ref.name
            production = self._union(late.values, late.scope, late.pointer, late.depth, late.place)
            self.table.define(late.ref, production)
        return ref

    def value(self, subschemas: Conjunction, scope: Scope, pointer: str, depth: int, place: AnyPlace) -> Expr:
        """Return an expression for the values of a conjunction at a place.

        They are inside `depth` objects and arrays.
        """
        subschemas, scope = self._canonical(subschemas, scope)
        key = (subschemas, depth if self.options.max_depth is not None else 0, place)
        if key in self._known:
            return self._known[key]
        pointer = self._expander.pointer(subschemas[0]) if subschemas else pointer
        if self._is_spent() and subschemas:
            self.report.unenforced(pointer, "type", _TOO_LARGE)
            return self._known.setdefault(key, self._anything.values(None, place))
        values = self._expander.expand(subschemas)
        if values.is_everything:
            self.report.free_form(pointer, "type", "nothing is declared here, so any JSON value is allowed")
            return self._known.setdefault(key, self._anything.values(None, place))
        if values.is_empty:
            self.reason = values.reason
            return self._known.setdefault(key, EMPTY_LANGUAGE)
        return self._named(key, values, scope, pointer, depth, place)

    def _named(
        self, key: _Key, values: ValueSet, scope: Scope, pointer: str, depth: int, place: AnyPlace
    ) -> Expr:
        """Return an expression for a set of values, a rule where it is worth one, and keep it under `key`."""
        if not _needs_rule(values):
            return self._known.setdefault(key, self._union(values, scope, pointer, depth, place))
        ref = self.table.reserve(*scope.hint)
        self._known[key] = ref
        if self._nesting == _MAX_NESTING:
            self._postponed.append(_Postponed(ref, values, scope, pointer, depth, place))
            return ref
        self._nesting += 1
        outer, self._rule = self._rule, ref.name
        production = self._union(values, scope, pointer, depth, place)
        self._rule = outer
        self._nesting -= 1
        self.table.define(ref, production)
        if isinstance(production, Ref) or production == EMPTY_LANGUAGE:
            self._known[key] = production
        return self._known[key]

    def either(
        self, choices: Iterable[Conjunction], scope: Scope, pointer: str, depth: int, place: AnyPlace
    ) -> Expr:
        """Return an expression for the values of any of several conjunctions."""
        several = dict.fromkeys(self._canonical(one, scope)[0] for one in choices)
        several.pop(UNSATISFIABLE, None)
        if len(several) < 2:
            return self.value(next(iter(several), UNSATISFIABLE), scope, pointer, depth, place)
        self.report.unenforced(pointer, "anyOf", BEGIN_ALIKE)
        key = (frozenset(several), depth if self.options.max_depth is not None else 0, place)
        if key in self._known:
            return self._known[key]
        if self._is_spent() or UNCONSTRAINED in several:
            return self._known.setdefault(key, self._anything.values(None, place))
        sets = [self._expander.expand(one) for one in several]
        shapes: list[Shape] = []
        for shape in chain.from_iterable(one.shapes for one in sets):
            if shape not in shapes:
                shapes.append(shape)
        values = ValueSet(tuple(distinct([value for one in sets for value in one.values])), tuple(shapes))
        if any(one.is_everything for one in sets):
            return self._known.setdefault(key, self._anything.values(None, place))
        if values.is_empty:
            return self._known.setdefault(key, EMPTY_LANGUAGE)
        return self._named(key, values, scope, pointer, depth, place)

    @property
    def compiled(self) -> Mapping[_Key, Expr]:
        """What each conjunction has become, by depth and place."""
        return self._known

    def shapes(self, subschemas: Conjunction) -> tuple[Shape, ...]:
        """Return the shapes of a conjunction that was compiled. Raises SchemaError and EffortSpentError."""
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
        """Resolve a lone reference to its target, which gets the name of the reference."""
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
        return subschemas, scope

    def _union(self, values: ValueSet, scope: Scope, pointer: str, depth: int, place: AnyPlace) -> Expr:
        if isinstance(place, FormsPlace):
            return self._in_forms(values, scope, pointer, depth, place)
        alternatives = [self._enumerated(values.values, scope, pointer, place)] if values.values else []
        shapes = values.shapes
        kinds = [type(shape) for shape in shapes if type(shape) in _STRUCTURED]
        objects = [shape for shape in shapes if type(shape) is Object]
        self._begin_alike(max(len(objects), len(kinds) - len(objects)))
        if self.merges:
            try:
                alternatives += self._merged(shapes, scope, pointer, depth, place)
            except EffortSpentError:
                self.report.unenforced(pointer, "type", LEFT_OPEN)
                for kind in dict.fromkeys(type(shape) for shape in shapes if type(shape) in _STRUCTURED):
                    alternatives.append(self._anything.values(_STRUCTURED[kind], place))
            shapes = tuple(shape for shape in shapes if type(shape) not in _STRUCTURED)
        elif self._order_budget.any_order and len(objects) >= _MANY_SHAPES:
            with suppress(EffortSpentError):  # it is reported for each shape below
                joint = self._joint(objects, scope, pointer, depth, place)
                if joint is not None:
                    alternatives.append(joint)
                    shapes = tuple(shape for shape in shapes if type(shape) is not Object)
        structured = sum([type(shape) in _STRUCTURED for shape in shapes])
        for number, shape in enumerate(shapes, 1):
            inner = scope.inside(f"Option {number}") if structured > 1 and len(shapes) > 1 else scope
            try:
                alternatives.append(self._shape(shape, inner, pointer, depth, place))
            except EffortSpentError:
                self.report.unenforced(pointer, "type", LEFT_OPEN)
                alternatives.append(self._anything.values(shape_type(shape), place))
        if not alternatives:
            self.reason = values.reason
        return factor_prefixes([one for one in alternatives if one != EMPTY_LANGUAGE])

    def _begin_alike(self, alternatives: int) -> None:
        """Count alternatives of the current rule that may begin with the same text."""
        if alternatives > 1:
            self.unions[self._rule] = self.unions.get(self._rule, 1) * alternatives

    def _in_forms(self, values: ValueSet, scope: Scope, pointer: str, depth: int, place: FormsPlace) -> Expr:
        """Return the values with what comes before and after each, by their JSON types."""
        parts = values_by_type(values)

        def raw(form: ElementForm) -> Expr:
            return self._scalars.raw(parts["string"], form, frozenset(parts), scope, pointer, place)

        def write(kind: JsonType, inner: Place) -> Expr:
            return self._union(parts[kind], scope, pointer, depth, inner)

        alternatives = []
        for kind in parts:
            if not place.forms(kind):
                self.report.inexpressible(
                    pointer, "type", f"the format cannot write values of the type {kind}"
                )
            alternatives += place.written(kind, frozenset(parts), write, raw)
        if parts.keys() >= {"array", "object"}:
            self._begin_alike(2)
        if place.has_same_empties and parts.keys() >= {"array", "object"}:
            reason = "the format writes an empty object as an empty array"
            self.report.inexpressible(pointer, "type", reason)
        if "string" in parts:
            self._scalars.report_lost(parts["string"].values, frozenset(parts), pointer, place)
        written = factor_prefixes([one for one in alternatives if one != EMPTY_LANGUAGE])
        if written == EMPTY_LANGUAGE:
            self.reason = self.reason or values.reason or "the format cannot write its values"
        return written

    def _enumerated(self, values: Sequence[Any], scope: Scope, pointer: str, place: Place) -> Expr:
        """Return any of the values; small objects in them in any order, if that is wanted."""
        try:
            spend(sum(VALUE_WORK + (len(value) // 4 if isinstance(value, str) else 0) for value in values))
        except EffortSpentError:
            self.report.unenforced(pointer, "enum", LEFT_OPEN)
            kinds = {json_type(value) for value in values}
            return alt(*(self._anything.values(kind, place) for kind in JSON_TYPES if kind in kinds))
        texts = [value_expr(value, place, self._pairs(scope, pointer)) for value in values]
        if EMPTY_LANGUAGE in texts:
            lost = [value for value, text in zip(values, texts, strict=True) if text == EMPTY_LANGUAGE]
            self.report.unwritten(lost, pointer)
            texts = [text for text in texts if text != EMPTY_LANGUAGE]
        return factor_prefixes(texts)

    def _pairs(self, scope: Scope, pointer: str) -> JoinPairs | None:
        """Return how to combine the pairs of a listed object; None: in their order."""
        if not self._order_budget.any_order:
            return None

        def combine(values: Mapping[str, Expr], layout: Layout) -> Expr:
            before = len(self.table.productions)
            members = ObjectMembers(values, frozenset(values))
            built = any_order_expr(members, layout, scope, self._order_budget)
            self._any_order_rules += len(self.table.productions) - before
            if built.loosened:
                for keyword in ("enum", "const"):
                    self.report.unenforced(f"{pointer}/{keyword}", keyword, DUPLICATES_COUNT)
            return built.expr

        return combine

    def _shape(self, shape: Shape, scope: Scope, pointer: str, depth: int, place: Place) -> Expr:
        if type(shape) is Object:
            return self._object(shape, scope, pointer, depth, place)
        if type(shape) is Array:
            return self._array(shape, scope, pointer, depth, place)
        assert not isinstance(shape, (Object, Array))
        return self._scalars.scalar(shape, scope, pointer, place)

    def _array(self, shape: Array, scope: Scope, pointer: str, depth: int, place: Place) -> Expr:
        if shape == _ANY_ARRAY:
            self.report.free_form(
                pointer, "items", "no items are declared, so the array may contain anything"
            )
            return self._anything.values("array", place)
        if self._too_deep(depth, pointer, "items"):
            return self._anything.values("array", place)
        spend(_PART_WORK * (1 + len(shape.prefix)))
        items = self._items(shape, scope, pointer, depth, place.item())
        if items is None:
            return EMPTY_LANGUAGE
        special = self._special_array(shape, items, scope, pointer, depth, place)
        if special is not None:
            return special
        expr, exact = array_expr(items, place.arrays, scope)
        if not exact:
            beyond = "minItems" if items.minimum > MAX_BOUND else "maxItems"
            report_keyword(self.report, shape, pointer, beyond, BEYOND)
        return expr

    def _items(
        self, shape: Array, scope: Scope, pointer: str, depth: int, place: AnyPlace
    ) -> ArrayItems | None:
        """Return the items as expressions."""
        prefix = tuple(
            self.value(
                conjunction(subschemas),
                scope.inside(f"Item {number}"),
                f"{pointer}/prefixItems/{number - 1}",
                depth + 1,
                place,
            )
            for number, subschemas in enumerate(shape.prefix, 1)
        )
        rest: Expr = EMPTY_LANGUAGE
        if shape.max_items is None or shape.max_items > len(prefix):
            rest = self.value(
                conjunction(shape.items), scope.inside("Item"), f"{pointer}/items", depth + 1, place
            )
        return possible_items(ArrayItems(prefix, rest, shape.min_items, shape.max_items))

    def _special_array(
        self, shape: Array, items: ArrayItems, scope: Scope, pointer: str, depth: int, place: Place
    ) -> Expr | None:
        """Return arrays with `contains` or unique items; None if there are neither, or they are reported."""
        if shape.unique and not (items.maximum is not None and items.maximum <= 1):
            values = None if shape.prefix or shape.contains else self._few_values(shape.items)
            if values is not None:
                pairs = self._pairs(scope, pointer)
                texts = [value_expr(value, place.item(), pairs) for value in values]
                written = [text for text in texts if text != EMPTY_LANGUAGE]
                return unique_expr(written, items.minimum, items.maximum, place.arrays, scope)
            report_keyword(self.report, shape, pointer, "uniqueItems", "the items are not a small finite set")
        if not shape.contains:
            return None
        self._begin_alike(3)
        if self.merges:
            report_keyword(self.report, shape, pointer, "contains", BEGIN_ALIKE)
            return None
        if len(shape.contains) == 1:
            matching = [
                self.value(
                    conjunction(subschemas, shape.contains[0]),
                    scope.inside("Match"),
                    f"{pointer}/contains",
                    depth + 1,
                    place.item(),
                )
                for subschemas in (*shape.prefix[: len(items.prefix)], shape.items)
            ]
            expr = containing_expr(items, matching, place.arrays, scope)
            if expr is not None:
                return expr
        report_keyword(
            self.report, shape, pointer, "contains", "it takes too many states beside the other bounds"
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

    def _object(self, shape: Object, scope: Scope, pointer: str, depth: int, place: Place) -> Expr:
        if shape == _ANY_OBJECT:
            self.report.free_form(
                pointer, "properties", "no properties are declared, so the object may contain anything"
            )
            return self._anything.values("object", place)
        if self._too_deep(depth, pointer, "properties"):
            return self._anything.values("object", place)
        if len(shape.properties) > MAX_PROPERTIES:
            reason = f"it declares more than {MAX_PROPERTIES} properties, so any object is allowed"
            self.report.unenforced(pointer, "type", reason)
            return self._anything.values("object", place)
        spend(_PART_WORK * (1 + len(shape.properties)))
        values = {
            name: self._property(name, subschemas, scope, pointer, depth, place)
            for name, subschemas in shape.properties.items()
        }
        others = self._others(shape, scope, pointer, depth, place)
        before = len(self.table.productions)
        built = object_expr(shape, values, others, place.objects, scope, self._order_budget)
        if self._order_budget.any_order:
            added = len(self.table.productions) - before
            self._any_order_rules += max(added - 2 * len(shape.properties), 0)
        for keyword, reason in built.loosened:
            report_keyword(self.report, shape, pointer, keyword, reason)
        return built.expr

    def _joint(
        self, shapes: Sequence[Object], scope: Scope, pointer: str, depth: int, place: Place
    ) -> Expr | None:
        """Return the objects of several shapes as one automaton; None where that is not possible."""
        limit = self.options.max_depth
        if limit is not None and depth > limit:
            return None
        names = list(dict.fromkeys(name for shape in shapes for name in shape.properties))
        if len(names) > _JOINT_NAMES or _ANY_OBJECT in shapes:
            return None
        spend(_PART_WORK * (1 + len(names)) * len(shapes))
        alternatives = []
        merged = self._merged_children(shapes, names, scope, pointer, depth, place) if self.merges else None
        for shape in shapes:
            values = {
                name: self._property(name, shape.properties[name], scope, pointer, depth, place)
                if name in shape.properties
                else self._other(shape.child(name), scope, pointer, depth, place)
                for name in names
            }
            others = self._others(shape, scope, pointer, depth, place)
            if merged is not None:
                values |= {
                    name: merged.values[name] for name in merged.values if values[name] != EMPTY_LANGUAGE
                }
                others = merged.others if others and merged.others else others
            members = members_of(shape, values, others, place.objects, scope)
            if members is not None:
                alternatives.append(members)
        if any(members.least or members.most is not None for members in alternatives) or not alternatives:
            return None
        before = len(self.table.productions)
        built = joint_expr(alternatives, place.objects, scope, self._order_budget)
        self._any_order_rules += len(self.table.productions) - before
        if built is None:
            return None
        for shape in shapes:
            for keyword, reason in built.loosened:
                report_keyword(self.report, shape, pointer, keyword, reason)
        return built.expr

    def _merged(
        self, shapes: Sequence[Shape], scope: Scope, pointer: str, depth: int, place: Place
    ) -> list[Expr]:
        """Return the arrays and the objects of a union, each as few alternatives that begin differently."""
        arrays = [shape for shape in shapes if type(shape) is Array]
        objects = [shape for shape in shapes if type(shape) is Object]
        found: list[Expr] = []
        if _ANY_ARRAY in arrays:
            arrays = [_ANY_ARRAY]
        for cluster in clusters(arrays, self._expander.expand) if arrays else ():
            if len(cluster) == 1 or self._too_deep(depth, pointer, "items"):
                found.append(self._array(cluster[0], scope, pointer, depth, place))
                continue
            self.report.unenforced(pointer, "anyOf", BEGIN_ALIKE)
            inner = scope.inside("Array")

            def item(choices: Sequence[Conjunction], at: str, inner: Scope = inner) -> Expr:
                return self.either(choices, inner.inside("Item"), pointer + at, depth + 1, place.item())

            items = possible_items(merged_items(cluster, item))
            if items is not None:
                found.append(array_expr(items, place.arrays, inner)[0])
        if _ANY_OBJECT in objects:
            objects = [_ANY_OBJECT]
        if len(objects) == 1:
            found.append(self._object(objects[0], scope, pointer, depth, place))
        elif objects:
            joint = self._joint(objects, scope, pointer, depth, place)
            found.append(self._any_of(objects, scope, pointer, depth, place) if joint is None else joint)
        return found

    def _any_of(self, shapes: Sequence[Object], scope: Scope, pointer: str, depth: int, place: Place) -> Expr:
        """Return the objects of several shapes as those of one, whose properties any of them allows."""
        whole = any_of(shapes)
        if self._too_deep(depth, pointer, "properties") or len(whole.properties) > MAX_PROPERTIES:
            return self._anything.values("object", place)
        self.report.unenforced(pointer, "anyOf", BEGIN_ALIKE)
        names = list(whole.properties)
        merged = self._merged_children(shapes, names, scope, pointer, depth, place)
        values = {
            name: merged.values.get(name)
            or self.either(
                [shape.child(name) for shape in shapes],
                scope.inside(name),
                f"{pointer}/properties/{name}",
                depth + 1,
                place.child(name),
            )
            for name in names
        }
        open_shape = next((shape for shape in shapes if shape.others), whole)
        pairs = merged.others or self._others(open_shape, scope, pointer, depth, place)
        members = members_of(whole, values, pairs, place.objects, scope)
        if members is None:
            return EMPTY_LANGUAGE
        return any_order_expr(members, place.objects, scope, self._order_budget).expr

    def _merged_children(
        self,
        shapes: Sequence[Object],
        names: Sequence[str],
        scope: Scope,
        pointer: str,
        depth: int,
        place: Place,
    ) -> _Children:
        """Return the values under each name, and of other keys, that the objects have in common."""

        def value(choices: Sequence[Conjunction], name: str) -> Expr:
            inner = place.child(name)
            return self.either(choices, scope.inside(name), f"{pointer}/properties/{name}", depth + 1, inner)

        values: dict[str, Expr] = {}
        for name in names:
            children = [child for shape in shapes if (child := shape.child(name)) != UNSATISFIABLE]
            overridden = depth == 0 and name in self.overrides
            if len(set(children)) < 2 or overridden or not place.objects.can_write(name):
                continue
            if not told_apart([self._expander.expand(child) for child in children]):
                values[name] = value(children, name)
        others = [shape.others for shape in shapes if shape.others]
        if all(one == others[0] for one in others) or place.other() is None:
            return _Children(values, [])
        inner = place.other()
        assert inner is not None
        children = [other.value for several in others for other in several]
        at = f"{pointer}/additionalProperties"
        self.report.unenforced(pointer, "anyOf", BEGIN_ALIKE)
        return _Children(values, [(None, self.either(children, scope.inside("Value"), at, depth + 1, inner))])

    def _property(
        self, name: str, subschemas: Conjunction, scope: Scope, pointer: str, depth: int, place: Place
    ) -> Expr:
        """Return the values of a declared property."""
        pointer = f"{pointer}/properties/{name}"
        if not place.objects.can_write(name):
            self.reason = f"the format cannot write the key {name!r}"
            self.report.inexpressible(pointer, "type", self.reason)
            return EMPTY_LANGUAGE
        inner = place.child(name)
        if depth == 0 and name in self.overrides:
            number = self.overrides[name]
            if len(subschemas) > 1:
                self.report.unenforced(
                    pointer, "not", "the steps that a reference may name are not known yet"
                )
            if isinstance(inner, Place):
                return number
            return factor_prefixes(inner.written("number", _NUMBER_ONLY, lambda *_: number))
        return self.value(subschemas, scope.inside(name), pointer, depth + 1, inner)

    def _others(self, shape: Object, scope: Scope, pointer: str, depth: int, place: Place) -> list[Other]:
        """Return the classes of other properties, with their values."""
        others = [
            (other.keys, self._other(other.value, scope, pointer, depth, place)) for other in shape.others
        ]
        if place is not self._json and any(
            other.value != UNCONSTRAINED and not place.objects.can_write_all(other.keys)
            for other in shape.others
        ):
            reason = "the format cannot write some keys"
            self.report.inexpressible(f"{pointer}/additionalProperties", "type", reason)
        return others

    def _other(self, subschemas: Conjunction, scope: Scope, pointer: str, depth: int, place: Place) -> Expr:
        """Return the values of other properties."""
        inner = place.other()
        if inner is None:
            if subschemas != UNSATISFIABLE:
                where = "" if subschemas == UNCONSTRAINED else f"{pointer}/additionalProperties"
                self.report.inexpressible(where, "additionalProperties", DECLARED_ONLY)
            return EMPTY_LANGUAGE
        if subschemas == UNCONSTRAINED:
            return self._anything.values(None, inner)
        return self.value(
            subschemas, scope.inside("Value"), f"{pointer}/additionalProperties", depth + 1, inner
        )

    def _too_deep(self, depth: int, pointer: str, keyword: str) -> bool:
        limit = self.options.max_depth
        if limit is None or depth <= limit:
            return False
        self.report.unenforced(f"{pointer}/{keyword}", keyword, f"nested deeper than max_depth={limit}")
        return True


#: How many shapes of objects in one union are compiled together, in any order, and up to how many names.
_MANY_SHAPES = 4
_JOINT_NAMES = 200
_TOO_LARGE = "the schema is too large, so any JSON value is allowed"
_STRUCTURED: Mapping[type, JsonType] = {Array: "array", Object: "object"}
_ANY_ARRAY, _ANY_OBJECT = Array(), Object()
_NUMBER_ONLY: frozenset[JsonType] = frozenset({"number"})
#: The work of emitting a property or an item, in the units of `gbnf.effort`.
_PART_WORK = 40


def _needs_rule(values: ValueSet) -> bool:
    if len(values.values) > 1:
        return True
    shapes = values.shapes
    return len(shapes) + len(values.values) > 1 or (len(shapes) == 1 and type(shapes[0]) in _STRUCTURED)
