"""Alternatives of a union that begin alike, as one: so that no text has many derivations at once.

Where alternatives of arrays or objects begin with the same text, llama.cpp's engine follows each of them
until the text tells them apart, and such unions inside each other multiply (`gbnf.grammar.stacks`). Here,
what comes at the same index or under the same key in several of them is one union. Alternatives stay apart
where a value that is listed, such as a tag, tells them apart. What is accepted beyond is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gbnf.compiler.arrays import ArrayItems
from gbnf.grammar.ir import Expr
from gbnf.schema.value_sets import UNCONSTRAINED, Array, Conjunction, KeyClass, Object, ValueSet, value_key

#: Compiles the values of any of several conjunctions at an index or under a key.
_Either = Callable[[Sequence[Conjunction], str], Expr]


def _listed(values: ValueSet) -> frozenset[Any] | None:
    """Return keys of all values of a set; None where it has other shapes than null and booleans."""
    few = values.listed()
    if few is None or any(isinstance(value, list | dict) for value in few):
        return None
    return frozenset(map(value_key, few))


def told_apart(sets: Sequence[ValueSet]) -> bool:
    """Return whether the values are listed, and those of any two sets are the same or have none in common."""
    seen: set[frozenset[Any]] = set()
    taken: set[Any] = set()
    for values in sets:
        keys = _listed(values)
        if keys is None:
            return False
        if keys not in seen:
            if not taken.isdisjoint(keys):
                return False
            seen.add(keys)
            taken |= keys
    return True


def clusters(arrays: Sequence[Array], expand: Callable[[Conjunction], ValueSet]) -> list[list[Array]]:
    """Return the arrays by what their first item is, where it is listed and tells them apart."""
    firsts = [array.prefix[0] if array.prefix else array.items for array in arrays]
    if any(not array.min_items for array in arrays):
        return [list(arrays)]
    sets = [expand(first) for first in firsts]
    if not told_apart(sets):
        return [list(arrays)]
    groups: dict[Any, list[Array]] = {}
    for array, values in zip(arrays, sets, strict=True):
        groups.setdefault(_listed(values), []).append(array)
    return list(groups.values())


def merged_items(arrays: Sequence[Array], either: _Either) -> ArrayItems:
    """Return the items of any of the arrays, whatever the others are."""
    length = max(len(array.prefix) for array in arrays)

    def choices_at(index: int) -> list[Conjunction]:
        return [
            array.prefix[index] if index < len(array.prefix) else array.items
            for array in arrays
            if array.max_items is None or array.max_items > index
        ]

    prefix = tuple(either(choices_at(index), f"/prefixItems/{index}") for index in range(length))
    bounds = [array.max_items for array in arrays if array.max_items is not None]
    maximum = max(bounds) if len(bounds) == len(arrays) else None
    minimum = min(array.min_items for array in arrays)
    return ArrayItems(prefix, either(choices_at(length), "/items"), minimum, maximum)


def any_of(objects: Sequence[Object]) -> Object:
    """Return objects that contain those of each shape, with any values."""
    names = dict.fromkeys(name for shape in objects for name in shape.properties)
    required = frozenset(objects[0].required).intersection(*(shape.required for shape in objects))
    return Object(
        dict.fromkeys(names, UNCONSTRAINED),
        tuple(name for name in names if name in required),
        (KeyClass(None, UNCONSTRAINED),) if any(shape.others for shape in objects) else (),
    )
