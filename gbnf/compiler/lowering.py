"""From the value sets of a schema to productions.

Each conjunction becomes an expression: scalars in place, objects, arrays and unions as rules of their own,
named after the path that leads to them. A conjunction that is met again is the same rule, so recursive
schemas become recursive grammars; with `max_depth`, deeper objects and arrays become generic JSON instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gbnf.compiler.layout import LAYOUTS, Whitespace
from gbnf.compiler.literals import factor, values_expr
from gbnf.compiler.numbers import integer_expr
from gbnf.compiler.objects import object_expr
from gbnf.compiler.repetitions import MAX_BOUND, bounded, separated
from gbnf.compiler.report import Finding
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.grammar.ir import EMPTY, NOTHING, Expr, Literal, Ref, optional, seq
from gbnf.schema.document import Document
from gbnf.schema.expand import Expander
from gbnf.schema.values import (
    ANYTHING,
    Array,
    Boolean,
    Conjunction,
    Null,
    Number,
    Object,
    Shape,
    String,
    ValueSet,
)

#: Keywords that say nothing about values: a reference beside them alone is the reference.
_ANNOTATIONS = frozenset({"$ref", "description", "title", "default", "examples", "$comment", "deprecated"})


@dataclass(frozen=True, slots=True)
class Options:
    """How a schema becomes a grammar.

    `whitespace`: see `gbnf.compiler.layout`. `max_depth`: how many objects and arrays may stand around one
    that is still held; None: any number. `closed`: objects that declare properties and say nothing of
    additional ones have none.
    """

    whitespace: Whitespace = "default"
    max_depth: int | None = None
    closed: bool = False


@dataclass
class Lowering:
    """One compilation of one document into a table of rules.

    `overrides` replaces the value of top-level properties by expressions.
    """

    document: Document
    options: Options
    table: RuleTable
    tool: str = ""
    overrides: Mapping[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.findings: dict[tuple[str, str], Finding] = {}
        self.reason = ""  # why the last impossible place is impossible
        self._layout = LAYOUTS[self.options.whitespace]
        self._expander = Expander(self.document, self._unenforced, closed=self.options.closed)
        self._known: dict[tuple[Conjunction, int], Expr] = {}

    def root(self, ref: Ref, scope: Scope) -> Ref:
        """Compile the document's root as the production of `ref`."""
        places: Conjunction = (self.document.root,)
        values = self._expander.expand(places)
        if not self.overrides:
            self._known[places, 0] = ref
        if values.everything:
            self._free_form("", "type", "the schema allows every JSON value")
            return self.table.define(ref, Ref("jsonValue"))
        return self.table.define(ref, self._union(values, scope, "", 0))

    def value(self, places: Conjunction, scope: Scope, pointer: str, depth: int) -> Expr:
        """An expression for the values that satisfy `places`, which stand in `depth` objects and arrays."""
        places, scope = self._canonical(places, scope)
        key = (places, depth if self.options.max_depth is not None else 0)
        if key in self._known:
            return self._known[key]
        pointer = places[0].pointer if places else pointer
        values = self._expander.expand(places)
        if values.everything:
            self._free_form(pointer, "type", "nothing says what stands here, so any JSON value may")
            return self._known.setdefault(key, Ref("jsonValue"))
        if values.empty:
            self.reason = values.reason
            return self._known.setdefault(key, NOTHING)
        if not _needs_rule(values):
            return self._known.setdefault(key, self._union(values, scope, pointer, depth))
        ref = self.table.reserve(*scope.hint)
        self._known[key] = ref
        production = self._union(values, scope, pointer, depth)
        self.table.define(ref, production)
        if isinstance(production, Ref) or production == NOTHING:
            self._known[key] = production
        return self._known[key]

    def _canonical(self, places: Conjunction, scope: Scope) -> tuple[Conjunction, Scope]:
        """A lone reference is the place that it leads to, and lends it its name."""
        seen = set()
        while len(places) == 1 and places not in seen:
            seen.add(places)
            raw = places[0].raw
            if not isinstance(raw, Mapping) or "$ref" not in raw:
                break
            if not self.document.refs_hide_siblings and not raw.keys() <= _ANNOTATIONS:
                break
            places = (self.document.follow(self.document.enter(places[0]), "$ref"),)
            name = places[0].pointer.rpartition("/")[2]
            if name:
                scope = Scope(scope.table, (*scope.hint[:1], name) if self.tool else (name,))
        return places, scope

    def _union(self, values: ValueSet, scope: Scope, pointer: str, depth: int) -> Expr:
        alternatives = [values_expr(values.values, self._layout)] if values.values else []
        structured = sum(isinstance(shape, Object | Array) for shape in values.shapes)
        for number, shape in enumerate(values.shapes, 1):
            inner = scope.inside(f"Option {number}") if structured > 1 and len(values.shapes) > 1 else scope
            alternatives.append(self._shape(shape, inner, pointer, depth))
        if not alternatives:
            self.reason = values.reason
        return factor([one for one in alternatives if one != NOTHING])

    def _shape(self, shape: Shape, scope: Scope, pointer: str, depth: int) -> Expr:
        match shape:
            case Null():
                return Ref("null")
            case Boolean():
                return Ref("boolean")
            case Number(integer, low, high):
                if not integer:
                    return Ref("number")
                return integer_expr(None if low is None else int(low), None if high is None else int(high))
            case String(low_length, high_length):
                return self._string(low_length, high_length, scope, pointer)
            case Array():
                return self._array(shape, scope, pointer, depth)
            case Object():
                return self._object(shape, scope, pointer, depth)

    def _string(self, low: int, high: int | None, scope: Scope, pointer: str) -> Expr:
        if low == 0 and high is None:
            return Ref("string")
        chars = bounded(Ref("char"), low, high, scope)
        if not chars.exact:
            self._loosened(pointer, "minLength" if low > MAX_BOUND else "maxLength")
        return seq(Literal('"'), chars.expr, Literal('"'))

    def _array(self, shape: Array, scope: Scope, pointer: str, depth: int) -> Expr:
        if shape == Array():
            self._free_form(pointer, "items", "nothing says what the items are")
            return Ref("jsonArray")
        if self._too_deep(depth, pointer, "items"):
            return Ref("jsonArray")
        layout = self._layout
        prefix = [
            self.value(
                places, scope.inside(f"Item {number}"), f"{pointer}/prefixItems/{number - 1}", depth + 1
            )
            for number, places in enumerate(shape.prefix, 1)
        ]
        if NOTHING in prefix:
            prefix = prefix[: prefix.index(NOTHING)]
            shape = Array(shape.prefix, shape.items, shape.min_items, len(prefix))
        maximum = shape.max_items
        if maximum is not None and maximum < shape.min_items:
            return NOTHING
        rest: Expr = NOTHING
        if maximum is None or maximum > len(prefix):
            rest = self.value(shape.items, scope.inside("Item"), f"{pointer}/items", depth + 1)
        if rest == NOTHING:
            maximum = len(prefix)
            if maximum < shape.min_items:
                return NOTHING
        filled = self._items(prefix, rest, shape.min_items, maximum, scope, pointer)
        body = seq(layout.begin_array, filled, layout.end_array)
        return factor([body, layout.empty_array]) if shape.min_items == 0 else body

    def _items(
        self, prefix: list[Expr], rest: Expr, minimum: int, maximum: int | None, scope: Scope, pointer: str
    ) -> Expr:
        """At least one item, and as many as the bounds say; NOTHING where there can be none."""
        if maximum == 0:
            return NOTHING
        comma = self._layout.comma
        if not prefix:
            items = separated(rest, comma, max(minimum, 1), maximum, scope)
            self._check_bounds(pointer, minimum, exact=items.exact)
            return items.expr
        tail: Expr = EMPTY
        if rest != NOTHING:
            room = None if maximum is None else maximum - len(prefix)
            more = bounded(seq(comma, rest), max(minimum - len(prefix), 0), room, scope)
            self._check_bounds(pointer, minimum, exact=more.exact)
            tail = more.expr
        for index in range(len(prefix) - 1, 0, -1):
            tail = seq(comma, prefix[index], tail)
            if index >= minimum:
                tail = optional(tail)
        return seq(prefix[0], tail)

    def _check_bounds(self, pointer: str, minimum: int, *, exact: bool) -> None:
        if not exact:
            self._loosened(pointer, "minItems" if minimum > MAX_BOUND else "maxItems")

    def _object(self, shape: Object, scope: Scope, pointer: str, depth: int) -> Expr:
        if shape == Object():
            self._free_form(
                pointer, "properties", "no properties are declared, so the object may hold anything"
            )
            return Ref("jsonObject")
        if self._too_deep(depth, pointer, "properties"):
            return Ref("jsonObject")
        values = {
            name: self.overrides[name]
            if depth == 0 and name in self.overrides
            else self.value(places, scope.inside(name), f"{pointer}/properties/{name}", depth + 1)
            for name, places in shape.properties.items()
        }
        additional: Expr = NOTHING
        if shape.additional == ANYTHING:
            additional = Ref("jsonValue")
        elif shape.additional is not None:
            inner = scope.inside("Value")
            additional = self.value(shape.additional, inner, f"{pointer}/additionalProperties", depth + 1)
        return object_expr(shape, values, additional, self._layout, scope)

    def _too_deep(self, depth: int, pointer: str, keyword: str) -> bool:
        limit = self.options.max_depth
        if limit is None or depth <= limit:
            return False
        self._unenforced(f"{pointer}/{keyword}", keyword, f"nested deeper than max_depth={limit}")
        return True

    def _loosened(self, pointer: str, keyword: str) -> None:
        self._unenforced(f"{pointer}/{keyword}", keyword, f"bounds above {MAX_BOUND} are not held")

    def _unenforced(self, pointer: str, keyword: str, reason: str) -> None:
        self.findings.setdefault(
            (pointer, keyword), Finding(self.tool, pointer, keyword, "unenforced", reason)
        )

    def _free_form(self, pointer: str, keyword: str, reason: str) -> None:
        self.findings.setdefault(
            (pointer, keyword), Finding(self.tool, pointer, keyword, "free_form", reason)
        )


def _needs_rule(values: ValueSet) -> bool:
    if len(values.values) > 1:
        return True
    plain = (Null, Boolean, Number, String)
    return len(values.shapes) + len(values.values) > 1 or not all(
        isinstance(shape, plain) for shape in values.shapes
    )
