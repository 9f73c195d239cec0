"""From subschemas to conjuncts and branchings: conjunction and choice, separated.

References and `allOf` add subschemas to the conjunction. `anyOf`, `oneOf`, `not`, `if` and the dependent
keywords become branchings, of which one branch each must be satisfied. The rest are the conjuncts: schema
objects whose remaining keywords each constrain one JSON type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import (
    CHOICES,
    CONDITION,
    HAS_ITEM,
    KEYWORDS,
    OPTIONAL,
    REFERENCES,
    UNEVALUATED,
    types_of,
)
from gbnf.schema.negation import NoComplementError, complement
from gbnf.schema.strings import ReportCallback
from gbnf.schema.value_sets import value_key
from gbnf.work_limits import WorkLimitError, spend

#: From a schema and its keyword to the choices, each a list of raw schemas.
_Rewrite = Callable[[Subschema, str], list[list[Any]]]

#: The work of visiting one subschema, in the units of `gbnf.work_limits`.
_SUBSCHEMA_WORK = 15
#: The keywords that add to a conjunction, or are reported.
_SPREADING = CHOICES | {*REFERENCES, "allOf", CONDITION, OPTIONAL, "required"}
#: How deeply complements are searched for keywords without one: the search is recursive.
_MAX_OBSTACLES = 20
_DRAFT_3 = "a flag is the form of draft 3; list the names beside `properties`"


@dataclass(frozen=True, slots=True)
class Branching:
    """A choice: one of `branches` must be satisfied; exactly one if `exclusive`. It comes from `keyword`."""

    subschema: Subschema
    keyword: str
    branches: tuple[Subschema, ...]
    exclusive: bool = False


@dataclass(slots=True)
class FlatSchema:
    """Schema objects that must all be satisfied, and the open choices beside them. Treat it as immutable."""

    conjuncts: tuple[Subschema, ...] = ()
    branchings: tuple[Branching, ...] = ()


class Flattener:
    """Flattens the subschemas of one document, and reports what it can't enforce."""

    def __init__(self, document: Document, report: ReportCallback) -> None:
        self._document = document
        self._report = report
        # for a schema without one, the keyword that has none (an error would keep its traceback alive)
        self._complements: dict[Subschema, tuple[Subschema, ...] | str] = {}
        self._rewritten: dict[tuple[Subschema, str], tuple[tuple[Subschema, ...], ...]] = {}
        # the branches of a choice come one after the other, beside the same conjuncts
        self._last_conjuncts: tuple[tuple[Subschema, ...], dict[Subschema, None]] = ((), {})
        self._nesting = 0  # of complements within one another
        self._has_generated = False  # so that a subschema may be reached inside a generated one

    def flatten(
        self, subschemas: Iterable[Subschema], earlier: tuple[Subschema, ...] = (), *, choices: bool = True
    ) -> FlatSchema:
        """Return the conjuncts of `subschemas` after those in `earlier`; with `choices`, the branchings too.

        Raises SchemaError.
        """
        if earlier is not self._last_conjuncts[0]:
            self._last_conjuncts = (earlier, dict.fromkeys(earlier))
        conjuncts = self._last_conjuncts[1].copy()
        branchings: list[Branching] = []
        pending = list(reversed(list(subschemas)))
        spend(_SUBSCHEMA_WORK + len(earlier))
        while pending:
            spend(_SUBSCHEMA_WORK)
            subschema = self._document.enter(self.with_own_pointer(pending.pop()))
            raw = subschema.raw
            if raw is True or subschema in conjuncts:
                continue
            if raw is False or _SPREADING.isdisjoint(raw):  # the latter of most
                conjuncts[subschema] = None
                continue
            members = [self._document.follow(subschema, keyword) for keyword in REFERENCES if keyword in raw]
            if members and self._document.refs_hide_siblings:
                pending.extend(members)
                continue
            conjuncts[subschema] = None
            if raw.get("required") is True:
                self._report(f"{subschema.pointer}/required", "required", _DRAFT_3)
            if choices and not (CHOICES.isdisjoint(raw) and OPTIONAL not in raw):
                for choice in self._choices(subschema):
                    if len(choice.branches) == 1:
                        members += choice.branches
                    else:
                        branchings.append(choice)
            if "allOf" in raw:
                members += subschema.members("allOf")
            if CONDITION in raw and subschema.is_generated:
                members.append(subschema.at(CONDITION))
            pending.extend(reversed(members))
        return FlatSchema(tuple(conjuncts), tuple(branchings))

    def evaluating(
        self, subschema: Subschema, conjuncts: Iterable[Subschema]
    ) -> tuple[tuple[Subschema, ...], bool]:
        """Return the schemas whose keywords evaluate parts of a value for `subschema`, itself included.

        The value satisfies all `conjuncts`, among which are the branches chosen. Also returns whether every
        choice was made and is enforced; of one that was not made, all branches count. Raises SchemaError.
        """
        satisfied = frozenset(conjuncts)
        evaluating: dict[Subschema, None] = {}
        pending = [subschema]
        is_decided = True
        while pending:
            spend(_SUBSCHEMA_WORK)
            here = self._document.enter(self.with_own_pointer(pending.pop()))
            raw = here.raw
            if not isinstance(raw, Mapping) or here in evaluating:
                continue
            members = [self._document.follow(here, keyword) for keyword in REFERENCES if keyword in raw]
            if members and self._document.refs_hide_siblings:
                pending += members
                continue
            evaluating[here] = None
            members += [here.at(CONDITION)] if CONDITION in raw else []
            members += here.members("allOf") if "allOf" in raw else []
            for choice in self._evaluating_choices(here):
                chosen = [branch for branch in choice.branches if self._document.enter(branch) in satisfied]
                is_decided = is_decided and bool(chosen)
                members += chosen or choice.branches
            if is_decided and "not" in raw:
                is_decided = not isinstance(self._complement_or_keyword(here.at("not")), str)
            pending.extend(reversed(members))
        return tuple(evaluating), is_decided

    def complement(self, subschema: Subschema) -> tuple[Subschema, ...]:
        """Return subschemas whose union is everything that `subschema` forbids. Raises NoComplementError."""
        branches = self._complement_or_keyword(subschema)
        if isinstance(branches, str):
            raise NoComplementError(branches)
        return branches

    def _complement_or_keyword(self, subschema: Subschema) -> tuple[Subschema, ...] | str:
        """Return the complement of `subschema`, or a keyword in it that has none."""
        subschema = self._document.enter(self.with_own_pointer(subschema))
        outcome = self._complements.get(subschema)
        if outcome is None:
            self._complements[subschema] = "$ref"  # for a schema that is its own complement
            self._nesting += 1
            try:
                outcome = self._complement(subschema)
            except NoComplementError as error:
                outcome = error.keyword
            except WorkLimitError:
                del self._complements[subschema]
                raise
            finally:
                self._nesting -= 1
            self._complements[subschema] = outcome
        return outcome

    def obstacle(self, subschema: Subschema, seen: frozenset[Subschema] = frozenset()) -> str:
        """Return a keyword in the complement of `subschema`, or inside it, that has none; else ""."""
        spend(_SUBSCHEMA_WORK)
        if subschema in seen:
            return ""
        if len(seen) > _MAX_OBSTACLES:
            return "not"
        branches = self._complement_or_keyword(subschema)
        if isinstance(branches, str):
            return branches
        inner = [part for branch in branches if branch.is_generated for part in (branch, *_parts(branch))]
        negated = [part.at("not") for part in inner if isinstance(part.raw, Mapping) and "not" in part.raw]
        return next(filter(None, (self.obstacle(negation, seen | {subschema}) for negation in negated)), "")

    def _complement(self, subschema: Subschema) -> tuple[Subschema, ...]:
        raw = subschema.raw
        if self._nesting > MAX_REFERENCES:
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
        branchings = self._evaluating_choices(subschema)
        branches = self._complement_or_keyword(subschema.at("not")) if "not" in raw else None
        if isinstance(branches, str):
            reason = f"the complement of {branches!r} has no schema"
            self._report(f"{subschema.pointer}/not", "not", reason)
        elif branches is not None:
            nothing = Subschema(False, subschema.pointer, None)
            branchings.append(Branching(subschema, "not", branches or (nothing,)))
        return branchings

    def _evaluating_choices(self, subschema: Subschema) -> list[Branching]:
        """Return the choices whose branches evaluate parts of the value: all but those of `not`."""
        raw = subschema.raw
        branchings = []
        for keyword in ("anyOf", "oneOf"):
            if keyword not in raw:
                continue
            if keyword == "anyOf" and subschema.observes:
                (branches,) = self._rewrite(
                    subschema, keyword, lambda schema, _: [branches_apart(schema, self._document)]
                )
            else:
                branches = tuple(self._visible(subschema, branch) for branch in subschema.members(keyword))
            branchings.append(Branching(subschema, keyword, branches, exclusive=keyword == "oneOf"))
        for keyword, rewrite in _REWRITES.items():
            if keyword in raw:
                choices = self._rewrite(subschema, keyword, rewrite)
                branchings += [Branching(subschema, keyword, branches) for branches in choices]
        return branchings

    def _visible(self, subschema: Subschema, branch: Subschema) -> Subschema:
        """Return a branch that is a conjunct where it is chosen, if `subschema` depends on that."""
        raw = branch.raw
        is_conjunct = isinstance(raw, Mapping) and not (self._document.refs_hide_siblings and "$ref" in raw)
        if is_conjunct or not subschema.observes:
            return branch
        step = branch.pointer.removeprefix(f"{subschema.pointer}/")
        return self._rewrite(subschema, step, lambda _, __: [[{"allOf": [raw]}]])[0][0]

    def _rewrite(
        self, subschema: Subschema, keyword: str, rewrite: _Rewrite
    ) -> tuple[tuple[Subschema, ...], ...]:
        key = (subschema, keyword)
        if key not in self._rewritten:
            choices = rewrite(subschema, keyword)
            self._rewritten[key] = tuple(self._generated(subschema, keyword, raws) for raws in choices)
        return self._rewritten[key]

    def with_own_pointer(self, subschema: Subschema) -> Subschema:
        """Return the subschema with its own JSON Pointer."""
        return self._document.with_own_pointer(subschema) if self._has_generated else subschema

    def _generated(self, subschema: Subschema, keyword: str, raws: list[Any]) -> tuple[Subschema, ...]:
        self._has_generated = True
        around = replace(
            subschema,
            pointer=f"{subschema.pointer}/{keyword}",
            entered=False,
            is_generated=True,
            is_observed=keyword != "not" and subschema.observes,
        )
        return tuple(replace(around, raw=raw) for raw in raws)


def _parts(branch: Subschema) -> list[Subschema]:
    """Return the subschemas inside a branch of a complement that may contain another `not`."""
    raw = branch.raw
    if not isinstance(raw, Mapping):
        return []
    parts = [branch.at(keyword) for keyword in (HAS_ITEM, "items") if isinstance(raw.get(keyword), Mapping)]
    parts += [branch.at("properties", name) for name in raw.get("properties", ())]
    return parts + (branch.members("allOf") if "allOf" in raw else [])


def _if(subschema: Subschema, _keyword: str) -> list[list[Any]]:
    # if A then B else C  ->  A and B, or not A and C
    raw = subschema.raw
    condition, then, otherwise = raw["if"], raw.get("then", True), raw.get("else", True)
    if then is True and otherwise is True:
        return [[{}, {CONDITION: condition}]] if subschema.observes else []
    return [[{CONDITION: condition, "allOf": [then]}, {"allOf": [{"not": condition}, otherwise]}]]


def _dependent(subschema: Subschema, keyword: str) -> list[list[Any]]:
    # a depends on B  ->  without a, or with a and B
    choices = []
    for name, dependency in subschema.raw[keyword].items():
        needed = [dependency] if isinstance(dependency, str) else dependency  # a name alone, in draft 3
        if isinstance(needed, list) and needed:
            choices.append([{"properties": {name: False}}, {"required": [name, *needed]}])
        elif isinstance(needed, Mapping | bool):
            choices.append([{"properties": {name: False}}, {"allOf": [{"required": [name]}, needed]}])
    return choices


_REWRITES: dict[str, _Rewrite] = {
    "if": _if,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent,
    "dependencies": _dependent,
    OPTIONAL: lambda subschema, _: [[{}, {"allOf": [schema]}] for schema in subschema.raw[OPTIONAL]],
}


#: How many references in a row are followed from a branch, or by the complement of a schema.
MAX_REFERENCES = 40


def branches_apart(subschema: Subschema, document: Document) -> list[Any]:
    """Return one schema for each branch: the first that is satisfied, and those after it that may be.

    Those that contradict it, or evaluate nothing more, are left out, so that most unions stay small.
    """
    certain = _evaluated(subschema.raw)
    branches = [_Branch(branch, subschema, document) for branch in subschema.members("anyOf")]
    schemas = []
    for index, branch in enumerate(branches):
        spend(1 + len(branches) - index)
        evaluated = certain | branch.evaluated
        optional = [
            later.raw
            for later in branches[index + 1 :]
            if (later.evaluates_more or not later.evaluated <= evaluated) and not branch.excludes(later)
        ]
        schemas.append({"allOf": [branch.raw], **({OPTIONAL: optional} if optional else {})})
    return schemas


def _evaluated(raw: Any) -> frozenset[tuple[str, str | int]]:
    """Return what the keywords of a schema itself evaluate: names, patterns, and positions of arrays."""
    if not isinstance(raw, Mapping):
        return frozenset()
    named = [
        (keyword, name) for keyword in ("properties", "patternProperties") for name in raw.get(keyword, ())
    ]
    return frozenset([*named, *(("prefixItems", index) for index in range(len(raw.get("prefixItems", ()))))])


_EVALUATING_MORE = (CHOICES - {"not", "dependentRequired"}) | UNEVALUATED | {
    *REFERENCES, "allOf", "additionalProperties", "items", "additionalItems", "contains"
}  # fmt: skip


class _Branch:
    """A branch, and the constraints on objects in its own keywords or in the schema that it refers to."""

    def __init__(self, branch: Subschema, around: Subschema, document: Document) -> None:
        """Describe a branch of the schema `around`. Raises SchemaError."""
        target = document.enter(branch)
        for _ in range(MAX_REFERENCES):
            if not isinstance(target.raw, Mapping) or KEYWORDS & target.raw.keys() != {"$ref"}:
                break
            target = document.enter(document.follow(target, "$ref"))
        raw = target.raw if isinstance(target.raw, Mapping) else {}
        required = raw.get("required", ())
        self.raw, self.evaluated = branch.raw, _evaluated(raw)
        self.evaluates_more = not _EVALUATING_MORE.isdisjoint(raw)
        self.types = types_of(raw) & types_of(around.raw)
        self.required = frozenset(required if isinstance(required, list) else ())
        self.listed = {  # the values of properties with `const` or `enum`
            name: frozenset(map(value_key, values))
            for name, schema in raw.get("properties", {}).items()
            if isinstance(schema, Mapping)
            and (values := [schema["const"]] if "const" in schema else schema.get("enum", ()))
            and not any(isinstance(value, list | dict) for value in values)
        }

    def excludes(self, other: _Branch) -> bool:
        """Return whether no value that `other` evaluates satisfies both: by its type, or by a tag."""
        evaluates_items = other.evaluates_more or any(
            keyword == "prefixItems" for keyword, _ in other.evaluated
        )
        return self.types.isdisjoint(other.types) or (
            not ("array" in self.types & other.types and evaluates_items)
            and any(
                self.listed[name].isdisjoint(other.listed[name])
                for name in (self.required | other.required) & self.listed.keys() & other.listed.keys()
            )
        )
