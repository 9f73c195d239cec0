"""The set of JSON values that a schema allows, in normal form.

A `ValueSet` is a union: finitely many values, and shapes, each of one JSON type. The children of a shape
are `Conjunction`s: sets of places in the document that must all hold. So the model is closed under
intersection by construction (put two conjunctions together), recursion needs no special case (a
conjunction is expanded only when somebody asks), and equal conjunctions are equal values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from gbnf.schema.document import Subschema

#: The places that must all hold, in the order in which they were met. The empty one allows every JSON value.
Conjunction: TypeAlias = tuple[Subschema, ...]
ANYTHING: Conjunction = ()
#: A conjunction that nothing satisfies.
NEVER: Conjunction = (Subschema(False, "", None),)


def conjunction(*parts: Conjunction) -> Conjunction:
    """All the places of all the parts, each once."""
    return tuple(dict.fromkeys(place for part in parts for place in part))


@dataclass(frozen=True, slots=True)
class Null:
    """The value null."""


@dataclass(frozen=True, slots=True)
class Boolean:
    """The values true and false."""


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers, or integers only, between two inclusive bounds (None: without bound)."""

    integer: bool = False
    minimum: Fraction | None = None
    maximum: Fraction | None = None


@dataclass(frozen=True, slots=True)
class String:
    """Strings of so many code points."""

    min_length: int = 0
    max_length: int | None = None


@dataclass(frozen=True, slots=True)
class Array:
    """Arrays: the first items each under their own conjunction, the others under `items`."""

    prefix: tuple[Conjunction, ...] = ()
    items: Conjunction = ANYTHING
    min_items: int = 0
    max_items: int | None = None


@dataclass(frozen=True, slots=True)
class Object:
    """Objects: declared properties in order, those required, and what other properties must satisfy.

    Every required property is declared. `additional` is None where no other property may appear. Of each
    set in `one_of_groups` at least one property must be present.
    """

    properties: dict[str, Conjunction] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    additional: Conjunction | None = ANYTHING
    one_of_groups: tuple[frozenset[str], ...] = ()


Shape: TypeAlias = Null | Boolean | Number | String | Array | Object


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A union of single values and of shapes. Where both are empty, `reason` says why nothing is allowed."""

    values: tuple[Any, ...] = ()
    shapes: tuple[Shape, ...] = ()
    reason: str = ""

    @property
    def empty(self) -> bool:
        return not self.values and not self.shapes

    @property
    def everything(self) -> bool:
        """Whether this is plainly every JSON value."""
        return self.shapes == EVERYTHING.shapes


EVERYTHING = ValueSet(shapes=(Null(), Boolean(), Number(), String(), Array(), Object()))


def union(sets: list[ValueSet]) -> ValueSet:
    """Every value of any of the sets; equal shapes once."""
    values: list[Any] = []
    shapes: list[Shape] = []
    for one in sets:
        values += [value for value in one.values if not any(same_value(value, other) for other in values)]
        shapes += [shape for shape in one.shapes if shape not in shapes]
    if values or shapes:
        return ValueSet(tuple(values), tuple(shapes))
    return ValueSet(reason="; ".join(dict.fromkeys(one.reason for one in sets if one.reason)))


def same_value(left: Any, right: Any) -> bool:
    """Equality of JSON values: 1 and 1.0 are the same, true and 1 are not. Source: core, 4.2.2."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    return bool(left == right)
