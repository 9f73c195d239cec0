"""The set of JSON values that a schema allows, in normal form.

A `ValueSet` is a union: finitely many values, and shapes, each of one JSON type. The children of a shape
are `Conjunction`s: sets of subschemas that must all be satisfied. So the model is closed under intersection
by construction (concatenate two conjunctions), recursion needs no special case (a conjunction is expanded on
demand), and equal conjunctions are equal values.

`conjuncts` are the schema objects that a shape comes from, for reports; they don't count in comparisons.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from gbnf.regular.automaton import Dfa
from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import JSON_TYPES, KEYWORDS, JsonType, types_of
from gbnf.strict_json import map_json

#: Subschemas that must all be satisfied, in the order in which they were found. The empty one
#: allows every JSON value.
Conjunction: TypeAlias = tuple[Subschema, ...]
UNCONSTRAINED: Conjunction = ()
#: A conjunction that nothing satisfies.
UNSATISFIABLE: Conjunction = (Subschema(False, "", None),)


def conjunction(*parts: Conjunction) -> Conjunction:
    """Return all the subschemas of the parts, each once; `UNSATISFIABLE` where one of them is."""
    subschemas = tuple(dict.fromkeys(subschema for part in parts for subschema in part))
    return UNSATISFIABLE if UNSATISFIABLE[0] in subschemas else subschemas


def child(conjunct: Subschema, *steps: str | int) -> Conjunction:
    """Return the conjunction of the schema under a keyword."""
    subschema = conjunct.at(*steps)
    if subschema.raw is False:
        return UNSATISFIABLE
    return UNCONSTRAINED if subschema.raw is True else (subschema,)


@dataclass(frozen=True, slots=True)
class Null:
    """The value null."""


@dataclass(frozen=True, slots=True)
class Boolean:
    """The values true and false."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range of numbers; it belongs to the range unless `exclusive`."""

    value: Fraction
    exclusive: bool = False


def is_no_range(low: Bound | None, high: Bound | None) -> bool:
    """Return whether no number is between two bounds."""
    if low is None or high is None:
        return False
    return low.value > high.value or (low.value == high.value and (low.exclusive or high.exclusive))


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers between two bounds (None: without bound): all, integers only, or all but integers.

    `divisors`: the number is a multiple of each.
    """

    integer: bool | None = None
    minimum: Bound | None = None
    maximum: Bound | None = None
    divisors: tuple[Fraction, ...] = ()
    conjuncts: Conjunction = field(default=(), compare=False, repr=False)

    def few_integers(self, most: int) -> range | None:
        """Return all the numbers, where they are integers and not more than `most`."""
        if not self.integer or self.divisors or self.minimum is None or self.maximum is None:
            return None
        low, high = math.ceil(self.minimum.value), math.floor(self.maximum.value)
        return range(low, high + 1) if high - low < most else None


@dataclass(frozen=True, slots=True)
class String:
    """Strings of a regular language (None: every string), with bounds on the number of code points."""

    language: Dfa | None = None
    min_length: int = 0
    max_length: int | None = None
    conjuncts: Conjunction = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Array:
    """Arrays: the first items each under their own conjunction, the others under `items`.

    At least one item satisfies each of `contains`. `unique`: no two items are equal.
    """

    prefix: tuple[Conjunction, ...] = ()
    items: Conjunction = UNCONSTRAINED
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Conjunction, ...] = ()
    unique: bool = False
    conjuncts: Conjunction = field(default=(), compare=False, repr=False)

    def child(self, index: int) -> Conjunction:
        """Return the conjunction of the item at an index."""
        return self.prefix[index] if index < len(self.prefix) else self.items


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Keys of properties that are not declared (None: every key), and the conjunction of their values."""

    keys: Dfa | None
    value: Conjunction


@dataclass(slots=True)  # not frozen, so that it is made fast: treat it as immutable
class Object:
    """Objects: declared properties in order, those required, and classes of other keys.

    Every required property is declared. The classes are disjoint, and a key of no class is not allowed. Of
    each set in `one_of_groups` at least one property must be present. `chains` are the properties grouped by
    the schema that declares them first, each chain in declared order; a required property that no schema
    declares is a chain of its own.
    """

    properties: dict[str, Conjunction] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    others: tuple[KeyClass, ...] = (KeyClass(None, UNCONSTRAINED),)
    one_of_groups: tuple[frozenset[str], ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    chains: tuple[tuple[str, ...], ...] = ()
    conjuncts: Conjunction = field(default=(), compare=False, repr=False)

    def child(self, name: str) -> Conjunction:
        """Return the conjunction of the values under a key, declared or not."""
        if name in self.properties:
            return self.properties[name]
        for other in self.others:
            if other.keys is None or other.keys.accepts(name):
                return other.value
        return UNSATISFIABLE


Shape: TypeAlias = Null | Boolean | Number | String | Array | Object


@dataclass(slots=True)  # as above
class ValueSet:
    """A union of single values and of shapes. `reason` says why nothing is allowed, where both are empty."""

    values: tuple[Any, ...] = ()
    shapes: tuple[Shape, ...] = ()
    reason: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether no value is allowed."""
        return not self.values and not self.shapes

    @property
    def is_everything(self) -> bool:
        """Whether every JSON value is allowed; only the shapes are checked."""
        return len(self.shapes) == len(ALL_VALUES.shapes) and self.shapes == ALL_VALUES.shapes

    def listed(self, most_integers: int = 0) -> list[Any] | None:
        """Return all the values, where they are few: at most so many integers in a row; None elsewhere."""
        values = list(self.values)
        for shape in self.shapes:
            few: Iterable[Any] | None = None
            match shape:
                case Null():
                    few = [None]
                case Boolean():
                    few = [False, True]
                case Number():
                    few = shape.few_integers(most_integers)
            if few is None:
                return None
            values += few
        return distinct(values)


ALL_VALUES = ValueSet(shapes=(Null(), Boolean(), Number(), String(), Array(), Object()))


def distinct(values: list[Any]) -> list[Any]:
    """Return each JSON value once, strings first: 1 and 1.0 are the same, 1 and true are not."""
    strings = dict.fromkeys(value for value in values if isinstance(value, str))
    others: dict[Hashable, Any] = {}
    for value in values:
        if not isinstance(value, str):
            others.setdefault(value_key(value), value)
    return [*strings, *others.values()]


def value_key(value: Any) -> Hashable:
    """Return a hashable key, the same for equal JSON values only: 1 and 1.0 are equal, 1 and true are not.

    Source: core, 4.2.2.
    """
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, dict):
        return dict, frozenset([(key, value_key(item)) for key, item in value.items()])
    if isinstance(value, list):
        return list, tuple([value_key(item) for item in value])
    return value  # type: ignore[no-any-return]  # text, a number or null


def whole_numbers(value: Any, below: float = math.inf) -> Any:
    """Return the same JSON value, whole numbers without a fraction if they are `below` this one."""

    def whole(scalar: Any) -> Any:
        is_whole = isinstance(scalar, float) and scalar.is_integer() and abs(scalar) < below
        return int(scalar) if is_whole else scalar

    return map_json(value, whole)


def equality_key(value: Any) -> str:
    """Return the same JSON text for equal values, whatever the order of their keys: 1 and 1.0 are equal."""
    return json.dumps(whole_numbers(value), sort_keys=True)


#: The shape of all values of a type.
SHAPES: dict[JsonType, Shape] = dict(zip(JSON_TYPES, ALL_VALUES.shapes, strict=True))
_TYPE_OF_SHAPE = {type(shape): kind for kind, shape in SHAPES.items()}
_ALL_TYPES = frozenset[str](JSON_TYPES)
_SINGLE = {name: frozenset[str]([name]) for name in JSON_TYPES} | {"integer": frozenset(["number"])}


def shape_type(shape: Shape) -> JsonType:
    """Return the JSON type of the values of a shape."""
    return _TYPE_OF_SHAPE[type(shape)]


def allowed_types(conjuncts: tuple[Subschema, ...]) -> tuple[frozenset[str], bool]:
    """Return the JSON types that every conjunct allows, and whether numbers must be integers."""
    allowed, integer = _ALL_TYPES, False
    for conjunct in conjuncts:
        declared = conjunct.raw.get("type")
        if declared is None:
            continue
        if allowed is _ALL_TYPES and isinstance(declared, str):  # most often, one schema declares one type
            integer = declared == "integer"
            allowed = _SINGLE[declared]
            continue
        names = [declared] if isinstance(declared, str) else declared
        if "integer" in names and "number" not in names:
            integer = True
        allowed &= frozenset("number" if name == "integer" else name for name in names)
    return allowed, integer


def set_of_types(subschemas: Conjunction, document: Document) -> ValueSet:
    """Return every value of the types that the subschemas name themselves."""
    types = _ALL_TYPES
    for subschema in subschemas:
        raw = document.enter(subschema).raw
        if isinstance(raw, Mapping) and not (document.refs_hide_siblings and "$ref" in raw):
            types &= types_of(raw)
    shapes = tuple(shape for shape in ALL_VALUES.shapes if shape_type(shape) in types)
    return ValueSet(shapes=shapes, reason="no JSON type is left")


_SCALARS: tuple[Shape, ...] = (Null(), Boolean(), Number(), String())
#: The values of the scalar types.
PLAIN = {str(shape_type(shape)): ValueSet(shapes=(shape,)) for shape in _SCALARS}
PLAIN["integer"] = ValueSet(shapes=(Number(integer=True),))


def plain_type(raw: Any) -> str | None:
    """Return the type of a schema with just a scalar type, as most have; else None."""
    declared = raw.get("type") if type(raw) is dict else None
    if not isinstance(declared, str) or declared not in PLAIN:
        return None
    return declared if len([keyword for keyword in raw if keyword in KEYWORDS]) == 1 else None


def plain_set(raw: Any) -> ValueSet | None:
    """Return the values of a schema with just a scalar type or a list of strings, as most have; else None."""
    if not (type(raw) is dict or isinstance(raw, Mapping)):  # the first is much faster
        return None
    asking = [keyword for keyword in raw if keyword in KEYWORDS]
    declared = raw.get("type")
    if asking == ["type"]:
        return PLAIN.get(declared) if isinstance(declared, str) else None
    if len(asking) <= 2 and "enum" in asking and (len(asking) == 1 or declared == "string"):
        listed = raw["enum"]
        if isinstance(listed, list) and listed and all(isinstance(value, str) for value in listed):
            return ValueSet(tuple(dict.fromkeys(listed)))
    return None
