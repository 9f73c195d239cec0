"""From subschemas to facets and branchings: conjunction and choice, separated.

References and `allOf` add subschemas to the conjunction. `anyOf`, `oneOf`, `not`, `if` and the dependent
keywords become branchings, of which one branch each must be satisfied. The rest are the facets: schema
objects whose remaining keywords each constrain one JSON type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gbnf.effort import EffortSpent, spend
from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import CHOICES, CONDITION, HAS_ITEM, KEYWORDS, PRIVATE, REFERENCES
from gbnf.schema.negation import NoComplementError, complement

ReportCallback = Callable[[str, str, str], None]

#: The work of looking at one subschema, in the units of `gbnf.effort`.
_SUBSCHEMA_WORK = 15
#: How deeply complements are searched for keywords without one: the search is recursive.
_MAX_OBSTACLES = 20
#: How many references in a row the complement of a schema may follow.
_MAX_REFERENCES = 40
_DRAFT_3 = "a flag is the form of draft 3; list the names beside `properties`"


@dataclass(frozen=True, slots=True)
class Branching:
    """A choice: one of `branches` must be satisfied; exactly one if `exclusive`. It comes from `keyword`."""

    subschema: Subschema
    keyword: str
    branches: tuple[Subschema, ...]
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class FlatSchema:
    """Schema objects that must all be satisfied, and the open choices beside them."""

    facets: tuple[Subschema, ...] = ()
    branchings: tuple[Branching, ...] = ()


class Flattener:
    """Flattens the subschemas of one document, and reports what it can't enforce."""

    def __init__(self, document: Document, report: ReportCallback) -> None:
        self._document = document
        self._report = report
        # for a schema without one, the keyword that has none (an error would keep its traceback alive)
        self._complements: dict[Subschema, tuple[Subschema, ...] | str] = {}
        self._rewritten: dict[tuple[Subschema, str], tuple[Subschema, ...]] = {}
        self._nesting = 0  # of complements within one another
        self._has_generated = False  # so that a subschema may be reached inside a generated one

    def flatten(
        self, subschemas: Iterable[Subschema], known: tuple[Subschema, ...] = (), *, choices: bool = True
    ) -> FlatSchema:
        """Return the facets of `subschemas` after those in `known`; with `choices`, the branchings too.

        Raises SchemaError.
        """
        facets = dict.fromkeys(known)
        branchings: list[Branching] = []
        pending = list(reversed(list(subschemas)))
        spend(_SUBSCHEMA_WORK + len(known))
        while pending:
            spend(_SUBSCHEMA_WORK)
            subschema = self._document.enter(self.with_own_pointer(pending.pop()))
            raw = subschema.raw
            if raw is True or subschema in facets:
                continue
            if raw is False:
                facets[subschema] = None
                continue
            more = [self._document.follow(subschema, keyword) for keyword in REFERENCES if keyword in raw]
            if more and self._document.refs_hide_siblings:
                pending.extend(more)
                continue
            facets[subschema] = None
            if raw.get("required") is True:
                self._report(f"{subschema.pointer}/required", "required", _DRAFT_3)
            if choices and not CHOICES.isdisjoint(raw):
                for choice in self._choices(subschema):
                    if len(choice.branches) == 1:
                        more += choice.branches
                    else:
                        branchings.append(choice)
            if "allOf" in raw:
                more += members(subschema, "allOf")
            if CONDITION in raw and subschema.is_generated:
                more.append(replace(subschema.at(CONDITION), condition_role="if"))
            pending.extend(reversed(more))
        return FlatSchema(tuple(facets), tuple(branchings))

    def complement(self, subschema: Subschema) -> tuple[Subschema, ...]:
        """Return subschemas whose union is everything that `subschema` forbids. Raises NoComplementError."""
        subschema = self._document.enter(self.with_own_pointer(subschema))
        known = self._complements.get(subschema)
        if known is None:
            self._complements[subschema] = "$ref"  # for a schema that is its own complement
            self._nesting += 1
            try:
                known = self._complement(subschema)
            except NoComplementError as error:
                known = error.keyword
            except EffortSpent:
                del self._complements[subschema]
                raise
            finally:
                self._nesting -= 1
            self._complements[subschema] = known
        if isinstance(known, str):
            raise NoComplementError(known)
        return known

    def obstacle(self, subschema: Subschema, seen: frozenset[Subschema] = frozenset()) -> str:
        """Return a keyword in the complement of `subschema`, or inside it, that has none; else ""."""
        spend(_SUBSCHEMA_WORK)
        if subschema in seen:
            return ""
        if len(seen) > _MAX_OBSTACLES:
            return "not"
        try:
            branches = self.complement(subschema)
        except NoComplementError as error:
            return error.keyword
        inner = [one for branch in branches if branch.is_generated for one in (branch, *_parts(branch))]
        negated = [one.at("not") for one in inner if isinstance(one.raw, Mapping) and "not" in one.raw]
        return next(filter(None, (self.obstacle(one, seen | {subschema}) for one in negated)), "")

    def _complement(self, subschema: Subschema) -> tuple[Subschema, ...]:
        raw = subschema.raw
        if self._nesting > _MAX_REFERENCES:
            raise NoComplementError("$ref")
        spend(_SUBSCHEMA_WORK * (1 + len(raw) if isinstance(raw, Mapping) else 1))
        targets: list[Subschema] = []
        for keyword in REFERENCES if isinstance(raw, Mapping) else ():
            if keyword in raw:
                targets += self.complement(self._document.follow(subschema, keyword))
                if self._document.refs_hide_siblings:
                    return tuple(targets)
        return (*targets, *self._generated(subschema, "not", complement(subschema)))

    def _choices(self, subschema: Subschema) -> list[Branching]:
        raw = subschema.raw
        found = [
            Branching(subschema, keyword, tuple(members(subschema, keyword)), exclusive=keyword == "oneOf")
            for keyword in ("anyOf", "oneOf")
            if keyword in raw
        ]
        if "not" in raw:
            try:
                branches = self.complement(subschema.at("not"))
            except NoComplementError as error:
                reason = f"the complement of {error.keyword!r} has no schema"
                self._report(f"{subschema.pointer}/not", "not", reason)
            else:
                found.append(
                    Branching(subschema, "not", branches or (Subschema(False, subschema.pointer, None),))
                )
        for keyword, rewrite in (
            ("if", _if),
            ("dependentRequired", _dependent),
            ("dependentSchemas", _dependent),
            ("dependencies", _dependent),
        ):
            if keyword in raw:
                found += [
                    Branching(subschema, keyword, self._rewrite(subschema, keyword, number, some))
                    for number, some in enumerate(rewrite(subschema, keyword))
                ]
        return found

    def _rewrite(
        self, subschema: Subschema, keyword: str, number: int, raws: list[Any]
    ) -> tuple[Subschema, ...]:
        key = (subschema, f"{keyword} {number}")
        if key not in self._rewritten:
            self._rewritten[key] = self._generated(subschema, keyword, raws)
        return self._rewritten[key]

    def with_own_pointer(self, subschema: Subschema) -> Subschema:
        """Return the subschema with its own JSON Pointer."""
        return self._document.with_own_pointer(subschema) if self._has_generated else subschema

    def _generated(self, subschema: Subschema, keyword: str, raws: list[Any]) -> tuple[Subschema, ...]:
        self._has_generated = True
        pointer = f"{subschema.pointer}/{keyword}"
        condition_role = "inside" if keyword == "not" else subschema.condition_role
        resolver, dynamic_scope = subschema.resolver, subschema.dynamic_scope
        return tuple(
            Subschema(
                raw,
                pointer,
                resolver,
                is_generated=True,
                condition_role=condition_role,
                dynamic_scope=dynamic_scope,
            )
            for raw in raws
        )


def _parts(is_generated: Subschema) -> list[Subschema]:
    """Return the subschemas inside a branch of a complement that may contain another `not`."""
    raw = is_generated.raw
    if not isinstance(raw, Mapping):
        return []
    found = [
        is_generated.at(keyword) for keyword in (HAS_ITEM, "items") if isinstance(raw.get(keyword), Mapping)
    ]
    found += [is_generated.at("properties", name) for name in raw.get("properties", ())]
    return found + [is_generated.at("allOf", index) for index in range(len(raw.get("allOf", ())))]


def members(subschema: Subschema, keyword: str) -> list[Subschema]:
    """Return the schemas that a combinator lists."""
    return [subschema.at(keyword, index) for index in range(len(subschema.raw[keyword]))]


def _if(subschema: Subschema, _keyword: str) -> list[list[Any]]:
    # if A then B else C  ->  A and B, or not A and C
    raw = subschema.raw
    condition, then, otherwise = raw["if"], raw.get("then", True), raw.get("else", True)
    if then is True and otherwise is True:
        return []
    return [[{CONDITION: condition, "allOf": [then]}, {"allOf": [{"not": condition}, otherwise]}]]


def _dependent(subschema: Subschema, keyword: str) -> list[list[Any]]:
    # a depends on B  ->  without a, or with a and B
    found = []
    for name, one in subschema.raw[keyword].items():
        needed = [one] if isinstance(one, str) else one  # a name alone, in draft 3
        if isinstance(needed, list) and needed:
            found.append([{"properties": {name: False}}, {"required": [name, *needed]}])
        elif isinstance(needed, Mapping | bool):
            found.append([{"properties": {name: False}}, {"allOf": [{"required": [name]}, needed]}])
    return found


def own_keywords(subschema: Subschema) -> Subschema:
    """Return the subschema without references and combinators.

    `not`, `if` and the dependent keywords stay: jsonschema judges by them.
    """
    raw = subschema.raw
    if raw.keys().isdisjoint(_FLATTENED) or not raw.keys().isdisjoint(_NEED_SIBLINGS):
        return subschema
    own = {keyword: value for keyword, value in raw.items() if keyword in (KEYWORDS | PRIVATE) - _FLATTENED}
    return Subschema(own, subschema.pointer, subschema.resolver)


_FLATTENED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_NEED_SIBLINGS = frozenset({"unevaluatedItems", "unevaluatedProperties"})
