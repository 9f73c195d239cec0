"""What a schema allows at each location of a value, as the compiler reads it, for readers of values.

Invariants: rather too much is allowed than too little; a malformed schema, and one that takes too much work,
allows any value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any

from gbnf.errors import GbnfError, SchemaError
from gbnf.schema import value_sets
from gbnf.schema.document import Document
from gbnf.schema.expand import Expander
from gbnf.strict_json import json_type
from gbnf.work_limits import limit_work

#: The work that the values of one location may take, in the units of `gbnf.work_limits`.
_MAX_WORK = 300_000


class Location:
    """The values that are allowed at one location: those of any of some conjunctions."""

    def __init__(self, expander: Expander | None, choices: Iterable[value_sets.Conjunction]) -> None:
        self._expander, self._choices = expander, tuple(dict.fromkeys(choices))

    @staticmethod
    def of(schema: Any) -> Location:
        """Return the location of a whole value."""
        try:
            document = Document(schema)
        except SchemaError:
            return Location(None, ())
        return Location(Expander(document, lambda *_: None), [(document.root,)])

    @cached_property
    def _set(self) -> value_sets.ValueSet:
        if self._expander is None:
            return value_sets.ALL_VALUES
        try:
            with limit_work(_MAX_WORK):
                sets = [self._expander.expand(choice) for choice in self._choices]
        except (GbnfError, RecursionError):
            return value_sets.ALL_VALUES
        values = chain.from_iterable(part.values for part in sets)
        return value_sets.ValueSet(tuple(values), tuple(chain.from_iterable(part.shapes for part in sets)))

    @cached_property
    def types(self) -> frozenset[str]:
        """The types; "integer" beside every "number"."""
        types = {json_type(value) for value in self._set.values}
        for shape in self._set.shapes:
            is_integer = isinstance(shape, value_sets.Number) and shape.integer
            types.add("integer" if is_integer else value_sets.shape_type(shape))
        return frozenset(types | ({"integer"} if "number" in types else set()))

    @cached_property
    def listed(self) -> tuple[Any, ...]:
        """The values, where no other is allowed, as of an enumeration; () otherwise."""
        return () if self._set.shapes else self._set.values

    @cached_property
    def _objects(self) -> list[value_sets.Object]:
        return [shape for shape in self._set.shapes if isinstance(shape, value_sets.Object)]

    @cached_property
    def _declared(self) -> dict[str, None]:
        return dict.fromkeys(chain.from_iterable(shape.properties for shape in self._objects))

    def _may_have(self, name: str) -> bool:
        return any(shape.child(name) != value_sets.UNSATISFIABLE for shape in self._objects)

    @property
    def names(self) -> Iterator[str]:
        """The declared properties that an object may have."""
        return (name for name in self._declared if self._may_have(name))

    @property
    def required(self) -> frozenset[str]:
        """The properties that some of the objects must have."""
        return frozenset(name for shape in self._objects for name in shape.required)

    @property
    def always_required(self) -> frozenset[str]:
        """The properties that each of the objects must have."""
        return self.required.intersection(*(shape.required for shape in self._objects))

    @property
    def choices(self) -> tuple[tuple[Any, ...], ...]:
        """The schemas of the location: a value must be valid by each of one of these tuples."""
        return tuple(tuple(schema.raw for schema in choice) for choice in self._choices)

    @property
    def has_default(self) -> bool:
        """Whether a schema of the location has a default."""
        return any(isinstance(schema, dict) and "default" in schema for schema in chain(*self.choices))

    def knows(self, name: str) -> bool:
        """Return whether a property is declared, or an object may have it; True if there are no objects."""
        return (
            not self._objects
            or name in self._declared
            or self._may_have(name)
            or any(isinstance(value, dict) and name in value for value in self._set.values)
        )

    def property(self, name: str) -> Location:
        """Return the location of a property."""
        return self._inside(shape.child(name) for shape in self._objects)

    def item(self, index: int) -> Location:
        """Return the location of an item."""
        arrays = (shape for shape in self._set.shapes if isinstance(shape, value_sets.Array))
        return self._inside(array.child(index) for array in arrays)

    def _inside(self, choices: Iterable[value_sets.Conjunction]) -> Location:
        return Location(self._expander, list(choices) or [value_sets.UNCONSTRAINED])
