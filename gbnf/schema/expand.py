"""From a conjunction of subschemas to the set of values that satisfies them all.

`gbnf.schema.flatten` separates conjunctions from choices. Here each choice is distributed over the keywords
beside it, jsonschema judges finite sets (`enum`, `const`) value by value, and the rest is intersected type by
type.

Invariants: a set contains every value that satisfies the conjunction; what it does not enforce is reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from gbnf.regular.automaton import Dfa
from gbnf.schema.case_splitting import cases, disjoint_shapes
from gbnf.schema.conjunct_validators import ConjunctValidator, is_deep
from gbnf.schema.document import Document, Subschema, UndecidedError
from gbnf.schema.flatten import Branching, FlatSchema, Flattener
from gbnf.schema.intersections import array_shape, number_shape
from gbnf.schema.keywords import CHOICES, OPTIONAL, UNEVALUATED
from gbnf.schema.negation import NoComplementError
from gbnf.schema.objects import object_shape
from gbnf.schema.pattern_matching import is_supported_pattern
from gbnf.schema.strings import ReportCallback, merge_strings, string_language, string_shape
from gbnf.schema.value_sets import (
    ALL_VALUES,
    Array,
    Boolean,
    Conjunction,
    Null,
    Object,
    Shape,
    String,
    ValueSet,
    allowed_types,
    distinct,
    plain_set,
    set_of_types,
    whole_numbers,
)
from gbnf.work_limits import WorkLimitError, limit_work_share, spend

#: How many combinations of branches one conjunction may have before some of its choices are not enforced.
MAX_COMBINATIONS = 200
#: How many cases the complement of a branch's rivals may have, for a `oneOf` to be enforced exactly.
MAX_EXCLUSIONS = 16
#: A conjunction may take this part of the work that is left, so that those after it are enforced too.
_SHARE = 4
#: How deeply expansions may nest when sets are compared: the functions are recursive.
_MAX_OPEN = 10
#: The work of visiting one conjunct in one combination of branches, in the units of `gbnf.work_limits`.
_CONJUNCT_WORK = 15
#: The work of visiting one value.
_VALUE_WORK = 3

#: The dialects in which 1.0 is not an integer.
_FLOATS_ARE_NO_INTEGERS = ("draft-03/schema", "draft-04/schema")


class Expander:
    """Expands conjunctions of one document, each once."""

    def __init__(self, document: Document, report: ReportCallback) -> None:
        self._document = document
        self._report = report
        self._flattener = Flattener(document, report)
        self._value_sets: dict[Conjunction, ValueSet] = {}
        self._orders: dict[frozenset[Subschema], Conjunction] = {}
        self._open: set[Conjunction] = set()
        self._validators: dict[tuple[Subschema, bool], ConjunctValidator] = {}

    def in_order(self, subschemas: Conjunction) -> Conjunction:
        """Return the same subschemas in the order in which they were found together first."""
        return (
            self._orders.setdefault(frozenset(subschemas), subschemas) if len(subschemas) > 1 else subschemas
        )

    def expand(self, subschemas: Conjunction) -> ValueSet:
        """Return the values that satisfy all of `subschemas`, or more where that takes too much work.

        Raises SchemaError if a subschema is malformed.
        """
        if not subschemas:
            return ALL_VALUES
        subschemas = self.in_order(subschemas)
        values = self._value_sets.get(subschemas)
        if values is None and len(subschemas) == 1 and (values := plain_set(subschemas[0].raw)) is not None:
            self._value_sets[subschemas] = values
        if values is not None:
            return values
        if self._open:  # expansions that compare sets count for the conjunction that needs them
            return self._expand(subschemas)
        try:
            with limit_work_share(_SHARE):
                return self._expand(subschemas)
        except WorkLimitError:
            return self._value_sets.setdefault(subschemas, self._loosened(subschemas))

    def _expand(self, subschemas: Conjunction) -> ValueSet:
        self._open.add(subschemas)
        try:
            values = self._value_sets[subschemas] = self._solve(self._flattener.flatten(subschemas))
        finally:
            self._open.discard(subschemas)
        return values

    def _loosened(self, subschemas: Conjunction) -> ValueSet:
        """Return the values without the choices; where even that takes too much work, those of the types."""
        try:
            with limit_work_share(_SHARE):
                flat = self._flattener.flatten(subschemas, choices=False)
                values = self._solve(flat)
            for conjunct in flat.conjuncts:
                keywords = CHOICES & conjunct.raw.keys() if isinstance(conjunct.raw, Mapping) else ()
                for keyword in sorted(keywords):
                    self._report(f"{conjunct.pointer}/{keyword}", keyword, _TOO_MUCH)
        except WorkLimitError:
            reason = f"{_TOO_MUCH}, so nearly any JSON value is allowed"
            self._report(self.pointer(subschemas[0]), "type", reason)
            return set_of_types(subschemas, self._document)
        return values

    def pointer(self, subschema: Subschema) -> str:
        """Return the JSON Pointer of the subschema in the document."""
        return self._flattener.with_own_pointer(subschema).pointer

    def _compared(self, subschemas: Conjunction) -> ValueSet:
        """Expand to compare sets; a conjunction whose expansion is under way counts as any value."""
        if self.in_order(subschemas) in self._open or len(self._open) > _MAX_OPEN:
            return ALL_VALUES
        return self.expand(subschemas)

    def _solve(self, flat: FlatSchema, budget: int = MAX_COMBINATIONS) -> ValueSet:
        """Return the values of all conjuncts and of one branch each of the branchings.

        At most `budget` combinations of branches are formed.
        """
        conjuncts, branchings = flat.conjuncts, flat.branchings
        spend(_CONJUNCT_WORK * (1 + len(conjuncts)))
        if not conjuncts:
            return ALL_VALUES
        for conjunct in conjuncts:
            if conjunct.raw is False:
                return ValueSet(reason=f"the schema at '{conjunct.pointer or '/'}' is false")
        source = next((schema for schema in conjuncts if "enum" in schema.raw or "const" in schema.raw), None)
        if not branchings:
            return self._finite(source, conjuncts, whole=False) if source else self._intersect(conjuncts)
        if not allowed_types(conjuncts)[0]:  # whichever branches are chosen
            return _contradiction(conjuncts)
        too_many = math.prod(len(branching.branches) for branching in branchings) > budget
        if source is not None and too_many:
            return self._finite(source, conjuncts, whole=True)
        if too_many or any(branching.keyword == OPTIONAL for branching in branchings):
            decided = cases(
                flat,
                self._flattener.flatten,
                lambda subschemas: self._compared(subschemas).is_empty,
                budget,
            )
            if decided is not None:
                if not decided:
                    return ValueSet(
                        reason=f"every choice at '{conjuncts[0].pointer or '/'}' contradicts another"
                    )
                most = budget // len(decided)
                return union([self._solve(case, most) for case in decided])
            branchings = self._fewer(branchings, budget)
        if not branchings:
            return self._intersect(conjuncts)
        first, *others = branchings
        most = budget // len(first.branches)
        rest = FlatSchema(conjuncts, tuple(others))
        sets = [self._branch(branch, rest, most) for branch in first.branches]
        return union(self._exclusive(first, rest, sets, most) if first.exclusive else sets)

    def _branch(self, branch: Subschema, rest: FlatSchema, budget: int) -> ValueSet:
        flat = self._flattener.flatten((branch,), rest.conjuncts)
        return self._solve(FlatSchema(flat.conjuncts, (*rest.branchings, *flat.branchings)), budget)

    def _fewer(self, branchings: tuple[Branching, ...], budget: int) -> tuple[Branching, ...]:
        """Return as many choices as stay within `budget`, the smallest first; the others are reported.

        Optional branches are all kept or none. What depends on them is reported where it is left open.
        """
        if math.prod(len(branching.branches) for branching in branchings) <= budget:
            return branchings
        branchings = tuple(branching for branching in branchings if branching.keyword != OPTIONAL)
        enforced: list[Branching] = []
        combinations = 1
        for branching in sorted(branchings, key=lambda branching: len(branching.branches)):
            if combinations * len(branching.branches) <= budget:
                combinations *= len(branching.branches)
                enforced.append(branching)
            else:
                subschema, keyword = branching.subschema, branching.keyword
                reason = f"with the choices beside it, it makes more than {MAX_COMBINATIONS} cases"
                self._report(f"{subschema.pointer}/{keyword}", keyword, reason)
        return tuple(branching for branching in branchings if branching in enforced)

    def _exclusive(
        self, choice: Branching, rest: FlatSchema, sets: list[ValueSet], budget: int
    ) -> list[ValueSet]:
        """Return the sets of `oneOf`'s branches without the values that two of them share, where possible."""
        wider = sets
        if choice.subschema.observes:  # a value counts as another branch's, whatever that leaves unevaluated
            loose = replace(rest, conjuncts=tuple(map(_without_unevaluated, rest.conjuncts)))
            wider = [self._branch(branch, loose, budget) for branch in choice.branches]
        rivals = [self._rivals(number, choice.branches, sets[number], wider) for number in range(len(sets))]
        apart = [
            replace(
                subset,
                values=tuple(v for v in subset.values if not self._allowed_elsewhere(v, number, choice)),
            )
            for number, subset in enumerate(sets)
        ]
        for number, mine in enumerate(rivals):
            if not mine:
                continue
            complements, obstacle = self._complements([choice.branches[other] for other in mine])
            if obstacle:
                first, second = sorted((number, mine[0]))
                reason = f"a value may fit branches {first} and {second} at once: {obstacle}"
                self._report(f"{choice.subschema.pointer}/oneOf", "oneOf", reason)
            if not all(complements):
                apart[number] = ValueSet(reason="another branch of oneOf allows everything")
            elif complements:
                without = [Branching(choice.subschema, "oneOf", branches) for branches in complements]
                excluding = replace(rest, branchings=(*rest.branchings, *without))
                apart[number] = self._branch(choice.branches[number], excluding, budget)
        return apart

    def _complements(self, branches: list[Subschema]) -> tuple[list[Conjunction], str]:
        """Return the complement of each branch, none if one can't be used, and what they leave out."""
        try:
            complements = [self._flattener.complement(branch) for branch in branches]
        except NoComplementError as error:
            return [], f"the complement of {error.keyword!r} has no schema"
        if math.prod(map(len, complements)) > MAX_EXCLUSIONS:
            return [], "their complements make too many cases"
        hidden = filter(None, map(self._flattener.obstacle, branches)) if all(complements) else ()
        inside = next(iter(hidden), "")
        return complements, f"inside, the complement of {inside!r} has no schema" if inside else ""

    def _rivals(
        self, number: int, branches: tuple[Subschema, ...], mine: ValueSet, sets: list[ValueSet]
    ) -> list[int]:
        """Return the branches whose sets may share a value with the shapes of this one."""
        rivals = []
        for other, theirs in enumerate(sets):
            if other == number:
                continue
            shapes_meet = not all(
                disjoint_shapes(shape, other_shape, self._compared)
                for shape in mine.shapes
                for other_shape in theirs.shapes
            )
            # The branch by itself: beside the others, a value that fits two branches is gone already.
            values_meet = bool(mine.shapes) and any(
                self._document.allows(branches[number], value)
                for value in self._compared((branches[other],)).values
            )
            if shapes_meet or values_meet:
                rivals.append(other)
        return rivals

    def _allowed_elsewhere(self, value: object, number: int, choice: Branching) -> bool:
        for other, branch in enumerate(choice.branches):
            with suppress(UndecidedError):
                if other != number and self._document.allows(branch, value):
                    return True
        return False

    def _finite(self, source: Subschema, conjuncts: tuple[Subschema, ...], *, whole: bool) -> ValueSet:
        """Return the values of `source` that every conjunct allows.

        Each conjunct's own keywords judge them: the branches of a combinator are conjuncts themselves, and
        `_exclusive` removes what two branches of a `oneOf` share. With `whole`, the combinators judge too.
        """
        raw = source.raw
        values = [raw["const"]] if "const" in raw else raw["enum"]
        keyword = "const" if "const" in raw else "enum"
        shallow = [value for value in values if not is_deep(value)]
        shapes: list[Shape] = []
        if len(shallow) < len(values):
            self._report(f"{source.pointer}/{keyword}", keyword, "a value in it nests too deeply")
            deep = [value for value in values if is_deep(value)]
            shapes += [Array()] if any(isinstance(value, list) for value in deep) else []
            shapes += [Object()] if any(isinstance(value, dict) for value in deep) else []
        spend(_VALUE_WORK * len(shallow))
        allowed = distinct(shallow)
        if self._document.dialect.endswith(_FLOATS_ARE_NO_INTEGERS):
            allowed = [spelling for value in allowed for spelling in (value, whole_numbers(value))]
        for conjunct in conjuncts:
            validator = self._validator(conjunct, whole=whole)
            if validator.allows_all:
                continue
            try:
                allowed = [value for value in allowed if validator.allows(value)]
            except UndecidedError as error:
                reason = f"the values beside it are not judged by this schema: {error}"
                self._report(conjunct.pointer, keyword, reason)
            pattern = conjunct.raw.get("pattern")
            if isinstance(pattern, str) and not is_supported_pattern(pattern):
                reason = "the pattern can't be read, so the values beside it are not judged by it"
                self._report(f"{conjunct.pointer}/pattern", "pattern", reason)
        reason = f"none of the values at '{source.pointer or '/'}' satisfies the keywords beside them"
        return ValueSet(tuple(distinct(allowed)), tuple(shapes), reason="" if allowed or shapes else reason)

    def _validator(self, conjunct: Subschema, *, whole: bool) -> ConjunctValidator:
        validator = self._validators.get((conjunct, whole))
        if validator is None:
            validator = ConjunctValidator(conjunct, self._document, whole=whole)
            self._validators[conjunct, whole] = validator
        return validator

    def _intersect(self, conjuncts: tuple[Subschema, ...]) -> ValueSet:
        allowed, integer = allowed_types(conjuncts)

        def evaluating(subschema: Subschema) -> tuple[tuple[Subschema, ...], bool]:
            return self._flattener.evaluating(subschema, conjuncts)

        shapes: tuple[Shape | None, ...] = (
            Null() if "null" in allowed else None,
            Boolean() if "boolean" in allowed else None,
            number_shape(conjuncts, self._report, integer=integer) if "number" in allowed else None,
            string_shape(conjuncts, self._report) if "string" in allowed else None,
            array_shape(conjuncts, self._report, evaluating) if "array" in allowed else None,
            object_shape(conjuncts, self._report, self._key_language, evaluating)
            if "object" in allowed
            else None,
        )
        satisfiable = tuple([shape for shape in shapes if shape is not None])
        return ValueSet(shapes=satisfiable) if satisfiable else _contradiction(conjuncts)

    def _key_language(self, subschema: Subschema) -> Dfa | None:
        """Return the strings that a schema allows; None for every string."""
        if (subschema,) in self._open or len(self._open) > _MAX_OPEN:
            self._report(subschema.pointer, "propertyNames", "it nests too deeply")
            return None
        values = self.expand((subschema,))
        language = Dfa.of_words([value for value in values.values if isinstance(value, str)])
        for shape in values.shapes:
            if shape == String():
                return None
            if isinstance(shape, String):
                language |= string_language(shape)
        return language


def union(sets: list[ValueSet]) -> ValueSet:
    """Return the union of the sets: equal values and shapes once, strings as one language."""
    shapes: list[Shape] = []
    for subset in sets:
        spend(1 + len(shapes) * len(subset.shapes))
        shapes += [shape for shape in subset.shapes if shape not in shapes]
    strings = [shape for shape in shapes if isinstance(shape, String)]
    if len(strings) > 1:
        position = shapes.index(strings[0])
        shapes = [shape for shape in shapes if not isinstance(shape, String)]
        shapes[position:position] = merge_strings(strings)
    values = distinct([value for subset in sets for value in subset.values])
    if values or shapes:
        return ValueSet(tuple(values), tuple(shapes))
    return ValueSet(reason="; ".join(dict.fromkeys(subset.reason for subset in sets if subset.reason)))


def _contradiction(conjuncts: tuple[Subschema, ...]) -> ValueSet:
    pointers = ", ".join(f"'{conjunct.pointer or '/'}'" for conjunct in conjuncts)
    return ValueSet(reason=f"no value satisfies all keywords at {pointers}")


_TOO_MUCH = "the schema takes too much work"


def _without_unevaluated(conjunct: Subschema) -> Subschema:
    """Return a conjunct that allows whatever it leaves unevaluated."""
    if UNEVALUATED.isdisjoint(conjunct.raw):
        return conjunct
    others = {key: value for key, value in conjunct.raw.items() if key not in UNEVALUATED}
    return replace(conjunct, raw=others)
