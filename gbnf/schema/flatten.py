"""From places to facets and branchings: everything that is conjunction or choice made plain.

References and `allOf` add places. `anyOf`, `oneOf`, `not`, `if` and the dependent keywords become
branchings, of which one branch each must hold. What is left, the facets, are schema objects whose own
keywords speak of one JSON type at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gbnf.effort import spend
from gbnf.regular.errors import EffortSpent
from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import CHOICES, CONDITION, HOLDS, KEYWORDS, PRIVATE
from gbnf.schema.negation import NotHeldError, complement

Report = Callable[[str, str, str], None]

#: What it takes to look at one place, in the units of `gbnf.effort`.
_PLACE_WORK = 15
#: How deep complements are looked into for what has none: the functions call themselves.
_MAX_OBSTACLES = 20
#: How many references, one after the other, a complement may lead through.
_MAX_REFERENCES = 40
_DRAFT_3 = "a flag is how draft 3 wrote it; list the names beside `properties`"


@dataclass(frozen=True, slots=True)
class Branching:
    """A choice: one of `branches` must hold; exactly one where `exclusive`. `keyword` is what asks for it."""

    place: Subschema
    keyword: str
    branches: tuple[Subschema, ...]
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Flat:
    """Schema objects that must all hold, and the open choices beside them."""

    facets: tuple[Subschema, ...] = ()
    branchings: tuple[Branching, ...] = ()


class Flattener:
    def __init__(self, document: Document, report: Report) -> None:
        self._document = document
        self._report = report
        # a complement that isn't held: the keyword that has none (errors hold on to all that raised them)
        self._complements: dict[Subschema, tuple[Subschema, ...] | str] = {}
        self._rewritten: dict[tuple[Subschema, str], tuple[Subschema, ...]] = {}
        self._nesting = 0  # of complements within one another
        self._has_made = False  # so that a place may be reached inside a schema that was made

    def flatten(
        self, places: Iterable[Subschema], known: tuple[Subschema, ...] = (), *, choices: bool = True
    ) -> Flat:
        """The facets of `places`, behind those in `known`, which hold already; the choices where wanted.

        Raises SchemaError.
        """
        facets = dict.fromkeys(known)
        branchings: list[Branching] = []
        pending = list(reversed(list(places)))
        spend(_PLACE_WORK + len(known))
        while pending:
            spend(_PLACE_WORK)
            place = self._document.enter(self.home(pending.pop()))
            raw = place.raw
            if raw is True or place in facets:
                continue
            if raw is False:
                facets[place] = None
                continue
            more = [self._document.follow(place, "$ref")] if "$ref" in raw else []
            for keyword in ("$dynamicRef", "$recursiveRef"):
                if keyword in raw and self._document.is_static(raw[keyword]):
                    more.append(self._document.follow(place, keyword))
                elif keyword in raw:
                    reason = "it leads to different places, depending on the way to it"
                    self._report(f"{place.pointer}/{keyword}", keyword, reason)
            if more and self._document.refs_hide_siblings:
                pending.extend(more)
                continue
            facets[place] = None
            if raw.get("required") is True:
                self._report(f"{place.pointer}/required", "required", _DRAFT_3)
            if choices and not CHOICES.isdisjoint(raw):
                for choice in self._choices(place):
                    if len(choice.branches) == 1:
                        more += choice.branches
                    else:
                        branchings.append(choice)
            if "allOf" in raw:
                more += members(place, "allOf")
            if CONDITION in raw and place.made:
                more.append(replace(place.at(CONDITION), test="if"))
            pending.extend(reversed(more))
        return Flat(tuple(facets), tuple(branchings))

    def complement(self, place: Subschema) -> tuple[Subschema, ...]:
        """Places whose union is everything that `place` refuses. Raises NotHeldError."""
        place = self._document.enter(self.home(place))
        known = self._complements.get(place)
        if known is None:
            self._complements[place] = "$ref"  # for a schema that is its own complement
            self._nesting += 1
            try:
                known = self._complement(place)
            except NotHeldError as error:
                known = error.keyword
            except EffortSpent:
                del self._complements[place]
                raise
            finally:
                self._nesting -= 1
            self._complements[place] = known
        if isinstance(known, str):
            raise NotHeldError(known)
        return known

    def obstacle(self, place: Subschema, seen: frozenset[Subschema] = frozenset()) -> str:
        """The keyword, in the complement of `place` or inside it, that has none; "" where all is held."""
        spend(_PLACE_WORK)
        if place in seen:
            return ""
        if len(seen) > _MAX_OBSTACLES:
            return "not"
        try:
            branches = self.complement(place)
        except NotHeldError as error:
            return error.keyword
        inner = [one for branch in branches if branch.made for one in (branch, *_parts(branch))]
        negated = [one.at("not") for one in inner if isinstance(one.raw, Mapping) and "not" in one.raw]
        return next(filter(None, (self.obstacle(one, seen | {place}) for one in negated)), "")

    def _complement(self, place: Subschema) -> tuple[Subschema, ...]:
        raw = place.raw
        if self._nesting > _MAX_REFERENCES:
            raise NotHeldError("$ref")
        spend(_PLACE_WORK * (1 + len(raw) if isinstance(raw, Mapping) else 1))
        if isinstance(raw, Mapping) and not {"$dynamicRef", "$recursiveRef"}.isdisjoint(raw):
            raise NotHeldError("$dynamicRef")
        if isinstance(raw, Mapping) and "$ref" in raw:
            target = self.complement(self._document.follow(place, "$ref"))
            if self._document.refs_hide_siblings:
                return target
            return (*target, *self._made(place, "not", complement(place)))
        return self._made(place, "not", complement(place))

    def _choices(self, place: Subschema) -> list[Branching]:
        raw = place.raw
        found = [
            Branching(place, keyword, tuple(members(place, keyword)), exclusive=keyword == "oneOf")
            for keyword in ("anyOf", "oneOf")
            if keyword in raw
        ]
        if "not" in raw:
            try:
                branches = self.complement(place.at("not"))
            except NotHeldError as error:
                reason = f"the complement of {error.keyword!r} has no schema"
                self._report(f"{place.pointer}/not", "not", reason)
            else:
                found.append(Branching(place, "not", branches or (Subschema(False, place.pointer, None),)))
        for keyword, rewrite in (
            ("if", _if),
            ("dependentRequired", _dependent),
            ("dependentSchemas", _dependent),
            ("dependencies", _dependent),
        ):
            if keyword in raw:
                found += [
                    Branching(place, keyword, self._rewrite(place, keyword, number, some))
                    for number, some in enumerate(rewrite(place, keyword))
                ]
        return found

    def _rewrite(self, place: Subschema, keyword: str, number: int, raws: list[Any]) -> tuple[Subschema, ...]:
        key = (place, f"{keyword} {number}")
        if key not in self._rewritten:
            self._rewritten[key] = self._made(place, keyword, raws)
        return self._rewritten[key]

    def home(self, place: Subschema) -> Subschema:
        """The place by its own pointer."""
        return self._document.home(place) if self._has_made else place

    def _made(self, place: Subschema, keyword: str, raws: list[Any]) -> tuple[Subschema, ...]:
        self._has_made = True
        pointer = f"{place.pointer}/{keyword}"
        test = "inside" if keyword == "not" else place.test
        return tuple(Subschema(raw, pointer, place.resolver, made=True, test=test) for raw in raws)


def _parts(made: Subschema) -> list[Subschema]:
    """The places inside a branch of a complement at which something is negated again."""
    raw = made.raw
    if not isinstance(raw, Mapping):
        return []
    found = [made.at(keyword) for keyword in (HOLDS, "items") if isinstance(raw.get(keyword), Mapping)]
    found += [made.at("properties", name) for name in raw.get("properties", ())]
    return found + [made.at("allOf", index) for index in range(len(raw.get("allOf", ())))]


def members(place: Subschema, keyword: str) -> list[Subschema]:
    """The schemas that a combinator lists."""
    return [place.at(keyword, index) for index in range(len(place.raw[keyword]))]


def _if(place: Subschema, _keyword: str) -> list[list[Any]]:
    # if A then B else C  ->  A and B, or not A and C
    raw = place.raw
    condition, then, otherwise = raw["if"], raw.get("then", True), raw.get("else", True)
    if then is True and otherwise is True:
        return []
    return [[{CONDITION: condition, "allOf": [then]}, {"allOf": [{"not": condition}, otherwise]}]]


def _dependent(place: Subschema, keyword: str) -> list[list[Any]]:
    # a depends on B  ->  without a, or with a and B
    found = []
    for name, one in place.raw[keyword].items():
        needed = [one] if isinstance(one, str) else one  # a name alone, in draft 3
        if isinstance(needed, list) and needed:
            found.append([{"properties": {name: False}}, {"required": [name, *needed]}])
        elif isinstance(needed, Mapping | bool):
            found.append([{"properties": {name: False}}, {"allOf": [{"required": [name]}, needed]}])
    return found


def own_keywords(place: Subschema) -> Subschema:
    """The place without the keywords that add places, or branches of which one holds.

    `not`, `if` and the dependent keywords stay, and are judged as they stand.
    """
    raw = place.raw
    if raw.keys().isdisjoint(_FLATTENED) or not raw.keys().isdisjoint(_NEED_SIBLINGS):
        return place
    own = {keyword: value for keyword, value in raw.items() if keyword in (KEYWORDS | PRIVATE) - _FLATTENED}
    return Subschema(own, place.pointer, place.resolver)


_FLATTENED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_NEED_SIBLINGS = frozenset({"unevaluatedItems", "unevaluatedProperties"})
