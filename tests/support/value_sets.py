"""Whether a value is in a set of `gbnf.schema.value_sets`, decided member by member."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from gbnf.schema.document import Document
from gbnf.schema.expand import Expander
from gbnf.schema.value_sets import (
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
from support.values import canonical


class ExpandedSchema:
    """A schema by its value sets; conjunctions are expanded where a value leads to them.

    `reports` grows with them: the keywords that the sets do not enforce, each with its JSON Pointer.
    """

    def __init__(self, schema: Any) -> None:
        self.reports: list[tuple[str, str]] = []
        document = Document(schema)
        self.root: Conjunction = (document.root,)
        self.expander = Expander(document, lambda pointer, keyword, _reason: self._report(pointer, keyword))

    def _report(self, pointer: str, keyword: str) -> None:
        self.reports.append((pointer, keyword))

    @property
    def values(self) -> ValueSet:
        """The set of the whole schema."""
        return self.expander.expand(self.root)

    def __contains__(self, value: Any) -> bool:
        return self._allows(self.root, value)

    def _allows(self, subschemas: Conjunction, value: Any) -> bool:
        allowed = self.expander.expand(subschemas)
        return any(same(value, one) for one in allowed.values) or any(
            self._fits(shape, value) for shape in allowed.shapes
        )

    def _fits(self, shape: Shape, value: Any) -> bool:
        match shape, value:
            case Null(), None:
                return True
            case Boolean(), bool():
                return True
            case Number(), int() | float() if not isinstance(value, bool):
                return _fits_number(shape, Fraction(str(value)))
            case String(), str():
                longest = len(value) if shape.max_length is None else shape.max_length
                fits = shape.language is None or shape.language.accepts(value)
                return fits and shape.min_length <= len(value) <= longest
            case Array(), list():
                return self._fits_array(shape, value)
            case Object(), dict():
                return self._fits_object(shape, value)
        return False

    def _fits_array(self, shape: Array, value: list[Any]) -> bool:
        longest = len(value) if shape.max_items is None else shape.max_items
        if not shape.min_items <= len(value) <= longest:
            return False
        if shape.unique and any(same(one, other) for at, one in enumerate(value) for other in value[:at]):
            return False
        below = [*shape.prefix[: len(value)], *[shape.items] * (len(value) - len(shape.prefix))]
        return all(map(self._allows, below, value)) and all(
            any(self._allows(contained, item) for item in value) for contained in shape.contains
        )

    def _fits_object(self, shape: Object, value: dict[str, Any]) -> bool:
        most = len(value) if shape.max_properties is None else shape.max_properties
        return (
            shape.min_properties <= len(value) <= most
            and value.keys() >= set(shape.required)
            and all(group & value.keys() for group in shape.one_of_groups)
            and all(self._fits_member(shape, key, item) for key, item in value.items())
        )

    def _fits_member(self, shape: Object, key: str, item: Any) -> bool:
        if key in shape.properties:
            return self._allows(shape.properties[key], item)
        classes = [one for one in shape.others if one.keys is None or one.keys.accepts(key)]
        assert len(classes) < 2, "classes of keys are disjoint"
        return any(self._allows(one.value, item) for one in classes)


def _fits_number(shape: Number, value: Fraction) -> bool:
    low, high = shape.minimum, shape.maximum
    return (
        (shape.integer is None or shape.integer == (value.denominator == 1))
        and (low is None or value > low.value or (value == low.value and not low.exclusive))
        and (high is None or value < high.value or (value == high.value and not high.exclusive))
        and all((value / divisor).denominator == 1 for divisor in shape.divisors)
    )


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON value; 1 and 1.0 are one, and the order of keys doesn't count."""
    return json.dumps(canonical(one), sort_keys=True) == json.dumps(canonical(other), sort_keys=True)
