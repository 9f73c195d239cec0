"""From a conjunction of schema places to the set of values that satisfies them all.

`gbnf.schema.flatten` makes conjunctions and choices plain; here each choice is distributed over everything
that stands beside it, finite sets (`enum`, `const`) are judged by jsonschema value by value, and what is left
is intersected type by type. What the model can't hold is reported, never dropped in silence.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

from gbnf.regular.automaton import Dfa
from gbnf.schema.cases import cases
from gbnf.schema.disjointness import disjoint_shapes
from gbnf.schema.document import Document, Subschema
from gbnf.schema.flatten import Branching, Flat, Flattener, Report, own_keywords
from gbnf.schema.keywords import KEYWORDS, PRIVATE
from gbnf.schema.negation import NotHeldError
from gbnf.schema.shapes import array_shape, closed_to, number_shape, object_shape
from gbnf.schema.strings import cut, joined, string_shape
from gbnf.schema.values import (
    EVERYTHING,
    Boolean,
    Conjunction,
    Null,
    Number,
    Shape,
    String,
    ValueSet,
    distinct,
    value_key,
    whole_numbers,
)

#: How many combinations of branches one place may open, all in all, before its choices are loosened.
MAX_COMBINATIONS = 200
#: How many cases the complement of a branch's rivals may have, for a `oneOf` to be held exactly.
MAX_EXCLUSIONS = 16

#: The dialects in which 1.0 is no integer.
_FRACTIONS_COUNT = ("draft-03/schema", "draft-04/schema")

_ALL_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})


class Expander:
    """Expands conjunctions of one document, each once.

    `closed`: objects that declare properties and say nothing of additional ones have none.
    """

    def __init__(self, document: Document, report: Report, *, closed: bool = False) -> None:
        self._document = document
        self._report = report
        self._closed = closed
        self._flattener = Flattener(document, report)
        self._known: dict[Conjunction, ValueSet] = {}
        self._open: set[Conjunction] = set()
        self.effort = 0  # the facets looked at so far, in every combination of branches

    def expand(self, places: Conjunction) -> ValueSet:
        """The values that satisfy all of `places`. Raises SchemaError where one is malformed."""
        known = self._known.get(places)
        if known is None and len(places) == 1:
            known = _plain(places[0].raw)
            if known is not None:
                self._known[places] = known
        if known is None:
            self._open.add(places)
            flat = self._flattener.flatten(places)
            known = self._known[places] = self._solve(flat.facets, flat.branchings)
            self._open.discard(places)
        return known

    def pointer(self, place: Subschema) -> str:
        """Where in the document the place stands."""
        return self._flattener.home(place).pointer

    def _compared(self, places: Conjunction) -> ValueSet:
        """As `expand`, for comparing sets: one that is being expanded just now may be anything."""
        return EVERYTHING if places in self._open else self.expand(places)

    def _solve(
        self, facets: tuple[Subschema, ...], branchings: tuple[Branching, ...], budget: int = MAX_COMBINATIONS
    ) -> ValueSet:
        """The values of all facets and of one branch of each branching, in at most `budget` combinations."""
        self.effort += 1 + len(facets)
        if not facets:
            return EVERYTHING
        for facet in facets:
            if facet.raw is False:
                return ValueSet(reason=f"the schema at '{facet.pointer or '/'}' is false")
        too_many = math.prod(len(branching.branches) for branching in branchings) > budget
        source = next((facet for facet in facets if "enum" in facet.raw or "const" in facet.raw), None)
        if source is not None and (too_many or not branchings):
            return self._finite(source, facets, whole=too_many)
        if too_many:
            found = cases(Flat(facets, branchings), self._flattener.flatten, self._is_impossible, budget)
            if found is not None:
                if not found:
                    return ValueSet(
                        reason=f"every choice at '{facets[0].pointer or '/'}' contradicts another"
                    )
                share = budget // len(found)
                return union([self._solve(case.facets, case.branchings, share) for case in found])
            branchings = self._fewer(branchings, budget)
        if not branchings:
            return self._intersect(facets)
        first, *others = branchings
        share = budget // len(first.branches)
        sets = [self._branch(facets, branch, tuple(others), share) for branch in first.branches]
        if first.exclusive:
            sets = self._exclusive(facets, first, tuple(others), sets, share)
        return union(sets)

    def _branch(
        self, facets: tuple[Subschema, ...], branch: Subschema, others: tuple[Branching, ...], budget: int
    ) -> ValueSet:
        flat = self._flattener.flatten((branch,), facets)
        return self._solve(flat.facets, (*others, *flat.branchings), budget)

    def _is_impossible(self, places: Conjunction) -> bool:
        return self._compared(places).empty

    def _fewer(self, branchings: tuple[Branching, ...], budget: int) -> tuple[Branching, ...]:
        """As many choices as stay within `budget`, the smallest first; the others are reported."""
        kept: list[Branching] = []
        combinations = 1
        for branching in sorted(branchings, key=lambda one: len(one.branches)):
            if combinations * len(branching.branches) <= budget:
                combinations *= len(branching.branches)
                kept.append(branching)
            else:
                place, keyword = branching.place, branching.keyword
                reason = f"with the choices beside it, it makes more than {MAX_COMBINATIONS} cases"
                self._report(f"{place.pointer}/{keyword}", keyword, reason)
        return tuple(branching for branching in branchings if branching in kept)

    def _exclusive(
        self,
        facets: tuple[Subschema, ...],
        choice: Branching,
        others: tuple[Branching, ...],
        sets: list[ValueSet],
        budget: int,
    ) -> list[ValueSet]:
        """The sets of `oneOf`'s branches without what two of them share, as far as that can be held."""
        rivals = [self._rivals(number, choice.branches, sets) for number in range(len(sets))]
        apart = [
            ValueSet(
                tuple(v for v in one.values if not self._allowed_elsewhere(v, number, choice)),
                one.shapes,
                one.reason,
            )
            for number, one in enumerate(sets)
        ]
        for number, mine in enumerate(rivals):
            if not mine:
                continue
            try:
                complements = [self._flattener.complement(choice.branches[other]) for other in mine]
            except NotHeldError as error:
                self._inexclusive(
                    choice, number, mine[0], f"the complement of {error.keyword!r} has no schema"
                )
                continue
            if math.prod(map(len, complements)) > MAX_EXCLUSIONS:
                self._inexclusive(choice, number, mine[0], "their complements make too many cases")
                continue
            without = [Branching(choice.place, "oneOf", branches) for branches in complements]
            if not all(one.branches for one in without):
                apart[number] = ValueSet(reason="another branch of oneOf allows everything")
                continue
            hidden = next(
                filter(None, [self._flattener.obstacle(choice.branches[other]) for other in mine]), ""
            )
            if hidden:
                self._inexclusive(
                    choice, number, mine[0], f"inside, the complement of {hidden!r} has no schema"
                )
            apart[number] = self._branch(facets, choice.branches[number], (*others, *without), budget)
        return apart

    def _inexclusive(self, choice: Branching, number: int, other: int, reason: str) -> None:
        text = f"a value may fit branches {min(number, other)} and {max(number, other)} at once: {reason}"
        self._report(f"{choice.place.pointer}/oneOf", "oneOf", text)

    def _rivals(self, number: int, branches: tuple[Subschema, ...], sets: list[ValueSet]) -> list[int]:
        """The branches that may share with this one a value that its shapes describe."""
        mine = sets[number]
        found = []
        for other, theirs in enumerate(sets):
            if other == number:
                continue
            shapes_meet = not all(
                disjoint_shapes(one, another, self._compared)
                for one in mine.shapes
                for another in theirs.shapes
            )
            # The branch by itself: beside the others, a value that fits two branches is gone already.
            values_meet = bool(mine.shapes) and any(
                self._document.allows(branches[number], value)
                for value in self._compared((branches[other],)).values
            )
            if shapes_meet or values_meet:
                found.append(other)
        return found

    def _allowed_elsewhere(self, value: object, number: int, choice: Branching) -> bool:
        others = (branch for other, branch in enumerate(choice.branches) if other != number)
        return any(self._document.allows(branch, value) for branch in others)

    def _finite(self, source: Subschema, facets: tuple[Subschema, ...], *, whole: bool) -> ValueSet:
        """The values of `source` that every facet allows.

        Judged by each facet's own keywords: the branches of a combinator are facets themselves, and what
        two branches of a `oneOf` share is `_exclusive`'s business. `whole` judges by the combinators too.
        """
        raw = source.raw
        kept = distinct([raw["const"]] if "const" in raw else raw["enum"])
        if self._document.dialect.endswith(_FRACTIONS_COUNT):
            kept = [spelling for value in kept for spelling in (value, whole_numbers(value))]
        declared = closed_to(facets) if self._closed else None
        if declared is not None:
            kept = [value for value in kept if not isinstance(value, dict) or value.keys() <= declared]
        for facet in facets:
            judge = _Judge(facet if whole else own_keywords(facet), self._document)
            kept = [value for value in kept if judge.allows(value)]
            if isinstance(pattern := facet.raw.get("pattern"), str) and not self._document.reads(pattern):
                reason = "it can't be read, so the values beside it are not judged by it"
                self._report(f"{facet.pointer}/pattern", "pattern", reason)
        reason = f"none of the values at '{source.pointer or '/'}' satisfies the keywords beside them"
        return ValueSet(tuple(distinct(kept)), reason="" if kept else reason)

    def _intersect(self, facets: tuple[Subschema, ...]) -> ValueSet:
        allowed, integer = _types(facets)
        shapes: list[Shape | None] = []
        if "null" in allowed:
            shapes.append(Null())
        if "boolean" in allowed:
            shapes.append(Boolean())
        if "number" in allowed:
            shapes.append(number_shape(facets, self._report, integer=integer))
        if "string" in allowed:
            shapes.append(string_shape(facets, self._report))
        if "array" in allowed:
            shapes.append(array_shape(facets, self._report, self._reached))
        if "object" in allowed:
            keys, reached = self._key_language, self._reached
            shapes.append(object_shape(facets, self._report, keys, reached, closed=self._closed))
        held = tuple(shape for shape in shapes if shape is not None)
        if held:
            return ValueSet(shapes=held)
        places = ", ".join(f"'{facet.pointer or '/'}'" for facet in facets)
        return ValueSet(reason=f"no value satisfies all keywords at {places}")

    def _reached(self, place: Subschema) -> frozenset[Subschema]:
        return frozenset(self._flattener.flatten((place,)).facets)

    def _key_language(self, place: Subschema) -> Dfa | None:
        """The strings that a schema allows; None for every string."""
        values = self.expand((place,))
        language = Dfa.of_words([value for value in values.values if isinstance(value, str)])
        for shape in values.shapes:
            if shape == String():
                return None
            if isinstance(shape, String):
                language |= cut(shape)
        return language


def union(sets: list[ValueSet]) -> ValueSet:
    """Every value of any of the sets; equal values and equal shapes once, strings as one language."""
    shapes: list[Shape] = []
    for one in sets:
        shapes += [shape for shape in one.shapes if shape not in shapes]
    strings = [shape for shape in shapes if isinstance(shape, String)]
    if len(strings) > 1:
        place = shapes.index(strings[0])
        shapes = [shape for shape in shapes if not isinstance(shape, String)]
        shapes[place:place] = joined(strings)
    values = distinct([value for one in sets for value in one.values])
    if values or shapes:
        return ValueSet(tuple(values), tuple(shapes))
    return ValueSet(reason="; ".join(dict.fromkeys(one.reason for one in sets if one.reason)))


def _types(facets: tuple[Subschema, ...]) -> tuple[frozenset[str], bool]:
    """The JSON types that every facet allows, and whether numbers must be integers."""
    allowed, integer = _ALL_TYPES, False
    for facet in facets:
        declared = facet.raw.get("type")
        if declared is None:
            continue
        names = [declared] if isinstance(declared, str) else declared
        if "integer" in names and "number" not in names:
            integer = True
        allowed &= frozenset("number" if name == "integer" else name for name in names)
    return allowed, integer


_PLAIN: dict[str, ValueSet] = {
    "null": ValueSet(shapes=(Null(),)),
    "boolean": ValueSet(shapes=(Boolean(),)),
    "integer": ValueSet(shapes=(Number(integer=True),)),
    "number": ValueSet(shapes=(Number(),)),
    "string": ValueSet(shapes=(String(),)),
}


def _plain(raw: Any) -> ValueSet | None:
    """The values of a schema that only names a scalar type, or lists strings: most schemas do."""
    if not isinstance(raw, Mapping):
        return None
    asking = [keyword for keyword in raw if keyword in KEYWORDS]
    declared = raw.get("type")
    if asking == ["type"]:
        return _PLAIN.get(declared) if isinstance(declared, str) else None
    if len(asking) <= 2 and "enum" in asking and (len(asking) == 1 or declared == "string"):
        listed = raw["enum"]
        if isinstance(listed, list) and listed and all(isinstance(value, str) for value in listed):
            return ValueSet(tuple(dict.fromkeys(listed)))
    return None


class _Judge:
    """Which values one facet allows: what it lists, or denies, is looked up, all else left to jsonschema."""

    def __init__(self, facet: Subschema, document: Document) -> None:
        raw = facet.raw
        self._document = document
        self._listed: frozenset[Hashable] | None = None
        for values in (raw.get("enum"), [raw["const"]] if "const" in raw else None):
            if isinstance(values, list):
                keys = frozenset(map(value_key, values))
                self._listed = keys if self._listed is None else self._listed & keys
        self._denied = _denied(raw.get("not"))
        left = (KEYWORDS | PRIVATE) - {"enum", "const"} - ({"not"} if self._denied else set())
        self._place = _only(facet, left)
        declared = raw.get("type", "string")
        allows_strings = "string" in ([declared] if isinstance(declared, str) else declared)
        self._string_place = _only(facet, left - {"type"}) if allows_strings else self._place

    def allows(self, value: Any) -> bool:
        """Whether the facet allows the value."""
        place = self._string_place if isinstance(value, str) else self._place
        if self._listed is not None and value_key(value) not in self._listed:
            return False
        if self._denied and value_key(value) in self._denied:
            return False
        return place is None or self._document.allows(place, value)


def _denied(raw: Any) -> frozenset[Hashable]:
    """The values that a `not` denies where it does nothing else; none where it does."""
    if not isinstance(raw, Mapping):
        return frozenset()
    match {keyword: value for keyword, value in raw.items() if keyword in KEYWORDS}:
        case {"const": value, **rest} if not rest:
            return frozenset([value_key(value)])
        case {"enum": list(values), **rest} if not rest:
            return frozenset(map(value_key, values))
    return frozenset()


def _only(facet: Subschema, keywords: frozenset[str]) -> Subschema | None:
    """The place with these of its keywords; None where it has none of them."""
    raw = {keyword: value for keyword, value in facet.raw.items() if keyword in keywords}
    return Subschema(raw, facet.pointer, facet.resolver) if raw else None
