"""Many choices beside each other, decided one after the other.

Ten `if`s beside each other make a thousand combinations, yet where they test one property for different
values, nearly all are contradictory. So a branch that obviously contradicts the earlier decisions is dropped
before anything is combined with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gbnf.effort import spend
from gbnf.schema.document import Subschema
from gbnf.schema.flatten import FlatSchema
from gbnf.schema.keywords import TYPES
from gbnf.schema.value_sets import Conjunction

#: Maximum branches that are tried.
MAX_DECISIONS = 1000

#: The work of visiting one facet, in the units of `gbnf.effort`.
_FACET_WORK = 8
_SETTLING = frozenset({"const", "enum"})
#: Maximum values of an enumeration whose types are checked.
_FEW = 20
_TYPE_OF = {
    type(None): "null", bool: "boolean", int: "number", float: "number",
    str: "string", list: "array", dict: "object",
}  # fmt: skip


def cases(
    flat: FlatSchema,
    flatten: Callable[[Iterable[Subschema], tuple[Subschema, ...]], FlatSchema],
    impossible: Callable[[Conjunction], bool],
    most: int,
) -> list[FlatSchema] | None:
    """Return the cases after deciding every choice but the exclusive ones, at most `most`.

    `impossible` returns whether no value satisfies a conjunction. None if there are too many cases, or
    nothing to decide.
    """
    found: list[FlatSchema] = []
    pending = [flat]
    decisions = 0
    while pending:
        case = pending.pop()
        choice = next((one for one in case.branchings if not one.exclusive), None)
        if choice is None:
            found.append(case)
            if len(found) > most:
                return None
            continue
        decisions += len(choice.branches)
        if decisions > MAX_DECISIONS:
            return None
        others = tuple(one for one in case.branchings if one is not choice)
        for branch in reversed(choice.branches):
            decided = flatten((branch,), case.facets)
            if not _contradictory(decided.facets, len(case.facets), impossible):
                pending.append(FlatSchema(decided.facets, (*others, *decided.branchings)))
    return found if found != [flat] else None


def _contradictory(
    facets: tuple[Subschema, ...], known: int, impossible: Callable[[Conjunction], bool]
) -> bool:
    """Return whether the facets obviously contradict each other; the first `known` do not."""
    spend(_FACET_WORK * (1 + len(facets)))
    new = facets[known:]
    if any(facet.raw is False for facet in new):
        return True
    types = _types(facets)
    if not types:
        return True
    if types != {"object"}:
        return False
    touched = {
        name for facet in new for keyword in ("required", "properties") for name in _names(facet, keyword)
    }
    needed = {name for facet in facets for name in _names(facet, "required")}
    for name in sorted(touched & needed):
        subschemas = tuple(
            facet.at("properties", name) for facet in facets if name in _names(facet, "properties")
        )
        settled = any(subschema.raw is False or _settles(subschema) for subschema in subschemas)
        if settled and impossible(subschemas):
            return True
    return False


def _types(facets: tuple[Subschema, ...]) -> set[str]:
    """Return the types that all facets allow; a malformed `type` counts as every type, and raises later."""
    allowed = {*TYPES} - {"integer"}
    for facet in facets:
        declared = facet.raw.get("type")
        names = [declared] if isinstance(declared, str) else declared
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            allowed &= {"number" if name == "integer" else name for name in names}
        listed = [facet.raw["const"]] if "const" in facet.raw else facet.raw.get("enum")
        if isinstance(listed, list) and len(listed) <= _FEW:
            allowed &= {_TYPE_OF[type(value)] for value in listed}
    return allowed


def _names(facet: Subschema, keyword: str) -> Iterable[str]:
    names = facet.raw.get(keyword, ())
    return names if isinstance(names, list | Mapping) else ()


def _settles(subschema: Subschema) -> bool:
    return isinstance(subschema.raw, Mapping) and not _SETTLING.isdisjoint(subschema.raw)
