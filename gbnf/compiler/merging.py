"""Alternatives of a union that begin alike, as one: so that no text has many derivations at once.

Where alternatives of arrays or objects begin with the same text, llama.cpp's engine follows each of them
until the text tells them apart, and such unions inside each other multiply (`gbnf.grammar.stacks`). Here,
what comes at the same index or under the same key in several of them is one union. Alternatives stay apart
where a value that is listed, such as a tag, tells them apart. What is accepted beyond is reported.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gbnf.compiler.arrays import ArrayItems, array_expr, possible_items
from gbnf.compiler.objects import Other, joint_expr, members_expr, members_of
from gbnf.compiler.scalars import report_keyword
from gbnf.compiler.structures import (
    ANY_ARRAY,
    ANY_OBJECT,
    BEGIN_ALIKE,
    MAX_PROPERTIES,
    PART_WORK,
    AnySyntax,
    SchemaLocation,
    StructureLowering,
)
from gbnf.compiler.value_syntax import ValueSyntax
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr
from gbnf.schema.value_sets import (
    UNCONSTRAINED,
    UNSATISFIABLE,
    Array,
    Conjunction,
    KeyClass,
    Object,
    Shape,
    ValueSet,
    value_key,
)
from gbnf.work_limits import spend

#: How many names the shapes of objects may have that are compiled together.
_JOINT_NAMES = 200

#: Compiles the values of any of several conjunctions at an index or under a key.
_Either = Callable[[Sequence[Conjunction], str], Expr]


def _listed(values: ValueSet) -> frozenset[Any] | None:
    """Return keys of all values of a set; None where it has other shapes than null and booleans."""
    few = values.listed()
    if few is None or any(isinstance(value, list | dict) for value in few):
        return None
    return frozenset(map(value_key, few))


def _told_apart(sets: Sequence[ValueSet]) -> bool:
    """Return whether the values are listed, and those of any two sets are the same or have none in common."""
    found: set[frozenset[Any]] = set()
    taken: set[Any] = set()
    for values in sets:
        keys = _listed(values)
        if keys is None:
            return False
        if keys not in found:
            if not taken.isdisjoint(keys):
                return False
            found.add(keys)
            taken |= keys
    return True


def _clusters(arrays: Sequence[Array], expand: Callable[[Conjunction], ValueSet]) -> list[list[Array]]:
    """Return the arrays by what their first item is, where it is listed and tells them apart."""
    firsts = [array.prefix[0] if array.prefix else array.items for array in arrays]
    if any(not array.min_items for array in arrays):
        return [list(arrays)]
    sets = [expand(first) for first in firsts]
    if not _told_apart(sets):
        return [list(arrays)]
    found: dict[Any, list[Array]] = {}
    for array, values in zip(arrays, sets, strict=True):
        found.setdefault(_listed(values), []).append(array)
    return list(found.values())


def _merged_items(arrays: Sequence[Array], either: _Either) -> ArrayItems:
    """Return the items of any of the arrays, whatever the others are."""
    length = max(len(array.prefix) for array in arrays)

    def at(index: int) -> list[Conjunction]:
        return [
            array.prefix[index] if index < len(array.prefix) else array.items
            for array in arrays
            if array.max_items is None or array.max_items > index
        ]

    prefix = tuple(either(at(index), f"/prefixItems/{index}") for index in range(length))
    bounds = [array.max_items for array in arrays if array.max_items is not None]
    maximum = max(bounds) if len(bounds) == len(arrays) else None
    return ArrayItems(prefix, either(at(length), "/items"), min(array.min_items for array in arrays), maximum)


def _any_of(objects: Sequence[Object]) -> Object:
    """Return objects that contain those of each shape, with any values."""
    names = dict.fromkeys(name for shape in objects for name in shape.properties)
    required = frozenset(objects[0].required).intersection(*(shape.required for shape in objects))
    return Object(
        dict.fromkeys(names, UNCONSTRAINED),
        tuple(name for name in names if name in required),
        (KeyClass(None, UNCONSTRAINED),) if any(shape.others for shape in objects) else (),
    )


class _Children(NamedTuple):
    """Values by name, and other properties (none: each shape has its own), that several objects share."""

    values: Mapping[str, Expr]
    others: list[Other]


class UnionLowering(StructureLowering):
    """The part of a compilation for several arrays or objects of a union."""

    @abstractmethod
    def either(self, choices: Iterable[Conjunction], location: SchemaLocation, syntax: AnySyntax) -> Expr:
        """Return an expression for the values of any of several conjunctions."""

    def _merged(self, shapes: Sequence[Shape], location: SchemaLocation, syntax: ValueSyntax) -> list[Expr]:
        """Return the arrays and the objects of a union, each as few alternatives that begin differently."""
        arrays = [shape for shape in shapes if type(shape) is Array]
        objects = [shape for shape in shapes if type(shape) is Object]
        found: list[Expr] = []
        if ANY_ARRAY in arrays:
            arrays = [ANY_ARRAY]
        for cluster in _clusters(arrays, self._expander.expand) if arrays else ():
            if len(cluster) == 1 or self._too_deep(location, "items"):
                found.append(self._array(cluster[0], location, syntax))
                continue
            self.report.add("unenforced", location.pointer, "anyOf", BEGIN_ALIKE)
            inner = location._replace(scope=location.scope.inside("Array"))

            def item(choices: Sequence[Conjunction], path: str, inner: SchemaLocation = inner) -> Expr:
                return self.either(choices, inner.inside("Item", path), syntax.item())

            items = possible_items(_merged_items(cluster, item))
            if items is not None:
                found.append(array_expr(items, syntax.arrays, inner.scope)[0])
        if ANY_OBJECT in objects:
            objects = [ANY_OBJECT]
        if len(objects) == 1:
            found.append(self._object(objects[0], location, syntax))
        elif objects:
            joint = self._joint(objects, location, syntax)
            found.append(self._either_object(objects, location, syntax) if joint is None else joint)
        return found

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
        before = len(self.table.productions)
        built = joint_expr(alternatives, syntax.objects, location.scope, self._order_budget)
        self._any_order_rules += len(self.table.productions) - before
        if built is None:
            return None
        for shape in shapes:
            for keyword, reason in built.loosened:
                report_keyword(self.report, shape, location.pointer, keyword, reason)
        return built.expr

    def _either_object(self, shapes: Sequence[Object], location: SchemaLocation, syntax: ValueSyntax) -> Expr:
        """Return the objects of several shapes as those of one, whose properties any of them allows."""
        whole = _any_of(shapes)
        if self._too_deep(location, "properties") or len(whole.properties) > MAX_PROPERTIES:
            return self._anything.values("object", syntax)
        self.report.add("unenforced", location.pointer, "anyOf", BEGIN_ALIKE)
        merged = self._merged_children(shapes, list(whole.properties), location, syntax)
        values = {
            name: merged.values.get(name) or self._either_child(shapes, name, location, syntax)
            for name in whole.properties
        }
        open_shape = next((shape for shape in shapes if shape.others), whole)
        others = merged.others or self._others(open_shape, location, syntax)
        members = members_of(whole, values, others, syntax.objects, location.scope)
        if members is None:
            return EMPTY_LANGUAGE
        return members_expr(members, syntax.objects, location.scope, self._order_budget).expr

    def _either_child(
        self, shapes: Sequence[Object], name: str, location: SchemaLocation, syntax: ValueSyntax
    ) -> Expr:
        """Return the values that any of several objects has under a name."""
        inner = location.inside(name, f"/properties/{name}")
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
            if not _told_apart([self._expander.expand(child) for child in children]):
                values[name] = self._either_child(shapes, name, location, syntax)
        others = [shape.others for shape in shapes if shape.others]
        inner = syntax.other()
        if inner is None or all(one == others[0] for one in others):
            return _Children(values, [])
        children = [other.value for several in others for other in several]
        self.report.add("unenforced", location.pointer, "anyOf", BEGIN_ALIKE)
        at = location.inside("Value", "/additionalProperties")
        return _Children(values, [(None, self.either(children, at, inner))])
