"""From a conjunction of schema places to the set of values that satisfies them all.

The stages: follow references and `allOf` (both only add places), judge finite sets (`enum`, `const`) with
jsonschema, distribute `anyOf` and `oneOf` over everything that stands beside them, then intersect what is
left type by type. What the model can't hold is reported, never dropped in silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gbnf.errors import SchemaError
from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import CHECKED_FORMATS, TYPES, VALIDATOR_ONLY
from gbnf.schema.shapes import array_shape, bound_keywords, number_shape, object_shape, string_shape
from gbnf.schema.values import (
    Array,
    Boolean,
    Conjunction,
    Null,
    Number,
    Object,
    Shape,
    String,
    ValueSet,
    same_value,
    union,
)

#: How many combinations of `anyOf` and `oneOf` branches one place may open before it is loosened.
MAX_COMBINATIONS = 256

#: `report(pointer, keyword, reason)`: the grammar doesn't enforce the keyword at this place.
Report = Callable[[str, str, str], None]

_ALL_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})
_BRANCHING = ("anyOf", "oneOf")
_FLATTENED = frozenset({"$ref", "allOf", *_BRANCHING})
_NEED_SIBLINGS = frozenset({"unevaluatedItems", "unevaluatedProperties"})


class _Branching(NamedTuple):
    place: Subschema
    keyword: str
    branches: tuple[Subschema, ...]


class Expander:
    """Expands conjunctions of one document, each once.

    `closed`: objects that declare properties and say nothing of additional ones have none.
    """

    def __init__(self, document: Document, report: Report, *, closed: bool = False) -> None:
        self._document = document
        self._report = report
        self._closed = closed
        self._known: dict[Conjunction, ValueSet] = {}

    def expand(self, places: Conjunction) -> ValueSet:
        """The values that satisfy all of `places`. Raises SchemaError where one is malformed."""
        known = self._known.get(places)
        if known is None:
            facets, branchings = self._flatten(places, ())
            known = self._known[places] = self._solve(facets, branchings)
        return known

    def disjoint(self, left: ValueSet, right: ValueSet) -> bool:
        """Whether the sets certainly share no value; False where that isn't plain to see."""
        if any(same_value(one, other) for one in left.values for other in right.values):
            return False
        for values, shapes in ((left.values, right.shapes), (right.values, left.shapes)):
            kinds = {type(shape) for shape in shapes}
            if any(_kind(value) in kinds for value in values):
                return False
        return all(self._disjoint_shapes(one, other) for one in left.shapes for other in right.shapes)

    def _disjoint_shapes(self, left: Shape, right: Shape) -> bool:
        match left, right:
            case Number(), Number():
                return (
                    None not in (left.maximum, right.minimum) and left.maximum < right.minimum  # type: ignore[operator]  # None is excluded beside it
                ) or (None not in (right.maximum, left.minimum) and right.maximum < left.minimum)  # type: ignore[operator]  # likewise
            case String(), String():
                return _apart(left.min_length, left.max_length, right.min_length, right.max_length)
            case Array(), Array():
                return _apart(left.min_items, left.max_items, right.min_items, right.max_items)
            case Object(), Object():
                if any(name not in right.properties and right.additional is None for name in left.required):
                    return True
                if any(name not in left.properties and left.additional is None for name in right.required):
                    return True
                # A discriminator: a property that both require, with values that they don't share.
                shared = [name for name in left.required if name in right.required]
                return any(
                    self._discriminates(left.properties[name], right.properties[name]) for name in shared
                )
            case _:
                return type(left) is not type(right)

    def _discriminates(self, left: Conjunction, right: Conjunction) -> bool:
        one, other = self.expand(left), self.expand(right)
        scalars = (Object, Array)
        if any(isinstance(shape, scalars) for shape in (*one.shapes, *other.shapes)):
            return False
        return self.disjoint(one, other)

    def _flatten(
        self, places: Iterable[Subschema], known: tuple[Subschema, ...]
    ) -> tuple[tuple[Subschema, ...], tuple[_Branching, ...]]:
        """Follow references and `allOf`: the schema objects that must hold, and their open alternatives.

        Places in `known` hold already.
        """
        facets = dict.fromkeys(known)
        branchings: list[_Branching] = []
        pending = list(reversed(list(places)))
        while pending:
            place = self._document.enter(pending.pop())
            raw = place.raw
            if place in facets or raw is True:
                continue
            if raw is False:
                facets[place] = None
                continue
            if not isinstance(raw, Mapping):
                raise SchemaError(place.pointer, f"a schema is an object or a boolean, not {raw!r}")
            more: list[Subschema] = []
            if "$ref" in raw:
                more.append(self._document.follow(place, "$ref"))
                if self._document.refs_hide_siblings:
                    pending.extend(more)
                    continue
            facets[place] = None
            if "allOf" in raw:
                more += _members(place, "allOf")
            for keyword in _BRANCHING:
                if keyword in raw:
                    branches = _members(place, keyword)
                    if len(branches) == 1:
                        more += branches
                    else:
                        branchings.append(_Branching(place, keyword, tuple(branches)))
            pending.extend(reversed(more))
        return tuple(facets), tuple(branchings)

    def _solve(self, facets: tuple[Subschema, ...], branchings: tuple[_Branching, ...]) -> ValueSet:
        """The values of all facets and of one branch of each branching."""
        for facet in facets:
            if facet.raw is False:
                return ValueSet(reason=f"the schema at '{facet.pointer or '/'}' is false")
        too_many = math.prod(len(branching.branches) for branching in branchings) > MAX_COMBINATIONS
        source = next((facet for facet in facets if "enum" in facet.raw or "const" in facet.raw), None)
        if source is not None and (too_many or not branchings):
            return self._finite(source, facets, whole=too_many)
        if too_many:
            for place, keyword, branches in branchings:
                reason = f"{len(branches)} branches combine with others to more than {MAX_COMBINATIONS} cases"
                self._report(f"{place.pointer}/{keyword}", keyword, reason)
            branchings = ()
        if not branchings:
            return self._intersect(facets)
        (place, keyword, branches), *others = branchings
        sets = []
        for branch in branches:
            more_facets, more_branchings = self._flatten((branch,), facets)
            sets.append(self._solve(more_facets, (*others, *more_branchings)))
        if keyword == "oneOf":
            sets = self._exclusive(place, branches, sets)
        return union(sets)

    def _exclusive(
        self, place: Subschema, branches: tuple[Subschema, ...], sets: list[ValueSet]
    ) -> list[ValueSet]:
        """The sets of `oneOf`'s branches without what two of them share, as far as that can be held."""
        overlapping: list[tuple[int, int]] = []
        kept = []
        for one, values in enumerate(sets):
            single = []
            for value in values.values:
                rivals = [
                    other
                    for other, branch in enumerate(branches)
                    if other != one and self._document.allows(branch, value)
                ]
                overlapping += [(one, other) for other in rivals if sets[other].shapes]
                if not rivals:
                    single.append(value)
            kept.append(ValueSet(tuple(single), values.shapes, values.reason))
            overlapping += [
                (one, other)
                for other in range(one)
                if not all(
                    self._disjoint_shapes(left, right)
                    for left in values.shapes
                    for right in sets[other].shapes
                )
            ]
        if overlapping:
            one, other = sorted(overlapping[0])
            reason = f"a value may fit branches {one} and {other} at once, which the grammar does not refuse"
            self._report(f"{place.pointer}/oneOf", "oneOf", reason)
        return kept

    def _finite(self, source: Subschema, facets: tuple[Subschema, ...], *, whole: bool) -> ValueSet:
        """The values of `source` that every facet allows.

        Judged by each facet's own keywords: the branches of a combinator are facets themselves, and what
        two branches of a `oneOf` share is `_exclusive`'s business. `whole` judges by the combinators too.
        """
        raw = source.raw
        values = [raw["const"]] if "const" in raw else raw["enum"]
        if not isinstance(values, list):
            raise SchemaError(f"{source.pointer}/enum", f"enum must be an array, not {values!r}")
        judges = facets if whole else tuple(map(_own_keywords, facets))
        kept = [
            value
            for value in _distinct(values)
            if all(_plainly_allows(judge, value) or self._document.allows(judge, value) for judge in judges)
        ]
        reason = f"none of the values at '{source.pointer or '/'}' satisfies the keywords beside them"
        return ValueSet(tuple(kept), reason="" if kept else reason)

    def _intersect(self, facets: tuple[Subschema, ...]) -> ValueSet:
        allowed, integer = _types(facets)
        for facet in facets:
            self._report_unheld(facet, allowed, integer=integer)
        shapes: list[Shape] = []
        if "null" in allowed:
            shapes.append(Null())
        if "boolean" in allowed:
            shapes.append(Boolean())
        candidates = (
            ("number", lambda: number_shape(facets, integer=integer)),
            ("string", lambda: string_shape(facets)),
            ("array", lambda: array_shape(facets)),
            ("object", lambda: object_shape(facets, closed=self._closed)),
        )
        for name, build in candidates:
            if name in allowed and (shape := build()) is not None:
                shapes.append(shape)
        if shapes:
            return ValueSet(shapes=tuple(shapes))
        places = ", ".join(f"'{facet.pointer or '/'}'" for facet in facets)
        return ValueSet(reason=f"no value satisfies all keywords at {places}")

    def _report_unheld(self, facet: Subschema, allowed: frozenset[str], *, integer: bool) -> None:
        raw = facet.raw
        for keyword in raw.keys() & VALIDATOR_ONLY.keys():
            if not VALIDATOR_ONLY[keyword] & allowed:
                continue
            if keyword == "format" and raw[keyword] not in CHECKED_FORMATS:
                continue
            if keyword in ("minContains", "maxContains") and "contains" not in raw:
                continue
            if keyword == "if" and "then" not in raw and "else" not in raw:
                continue
            if keyword == "uniqueItems" and raw[keyword] is not True:
                continue
            self._report(f"{facet.pointer}/{keyword}", keyword, "the grammar does not hold this keyword")
        if "patternProperties" in raw and "additionalProperties" in raw and "object" in allowed:
            reason = "beside patternProperties, other properties are left open"
            self._report(f"{facet.pointer}/additionalProperties", "additionalProperties", reason)
        if "number" in allowed and not integer:
            for keyword in bound_keywords(facet):
                self._report(f"{facet.pointer}/{keyword}", keyword, "bounds are held for integers only")


def _own_keywords(place: Subschema) -> Subschema:
    raw = place.raw
    if raw.keys().isdisjoint(_FLATTENED) or not raw.keys().isdisjoint(_NEED_SIBLINGS):
        return place
    own = {keyword: value for keyword, value in raw.items() if keyword not in _FLATTENED}
    return Subschema(own, place.pointer, place.resolver)


def _distinct(values: list[object]) -> list[object]:
    """Each JSON value once: 1 and 1.0 are the same, 1 and true are not."""
    strings = dict.fromkeys(value for value in values if isinstance(value, str))
    others: list[object] = []
    for value in values:
        if not isinstance(value, str) and not any(same_value(value, other) for other in others):
            others.append(value)
    return [*strings, *others]


def _members(place: Subschema, keyword: str) -> list[Subschema]:
    branches = place.raw[keyword]
    if not isinstance(branches, list) or not branches:
        raise SchemaError(
            f"{place.pointer}/{keyword}", f"{keyword} must be a non-empty array of schemas, not {branches!r}"
        )
    return [place.at(keyword, index) for index in range(len(branches))]


def _types(facets: tuple[Subschema, ...]) -> tuple[frozenset[str], bool]:
    """The JSON types that every facet allows, and whether numbers must be integers."""
    allowed, integer = _ALL_TYPES, False
    for facet in facets:
        declared = facet.raw.get("type")
        if declared is None:
            continue
        names = [declared] if isinstance(declared, str) else declared
        if not isinstance(names, list) or not names or any(name not in TYPES for name in names):
            raise SchemaError(
                f"{facet.pointer}/type", f"{declared!r} is no JSON type", f"The types are {', '.join(TYPES)}."
            )
        if "integer" in names and "number" not in names:
            integer = True
        allowed &= frozenset("number" if name == "integer" else name for name in names)
    return allowed, integer


#: Keywords beside `enum` and `const` that a string in the set satisfies when its type is allowed.
_HARMLESS = frozenset({"type", "enum", "const", "description", "title", "default", "examples", "$comment"})


def _plainly_allows(facet: Subschema, value: object) -> bool:
    """A quick yes for the usual enumeration of strings; False says nothing."""
    raw = facet.raw
    if not isinstance(value, str) or not raw.keys() <= _HARMLESS:
        return False
    if raw.get("type", "string") != "string":
        return False
    return ("enum" not in raw or value in raw["enum"]) and ("const" not in raw or raw["const"] == value)


def _apart(low: int, high: int | None, other_low: int, other_high: int | None) -> bool:
    return (high is not None and high < other_low) or (other_high is not None and other_high < low)


def _kind(value: object) -> type:
    match value:
        case None:
            return Null
        case bool():
            return Boolean
        case int() | float():
            return Number
        case str():
            return String
        case list():
            return Array
        case _:
            return Object
