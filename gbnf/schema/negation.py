"""The complement of a schema, as schemas.

A schema object is the conjunction of its keywords, so its complement is a union with one branch for each
keyword: `not {required: [a], properties: {k: S}}` is "an object without a, or one whose k is not S". The
branches are schema objects again, so everything else works on them unchanged. They contain only keywords that
mean the same in every draft, and private ones (`gbnf.schema.keywords`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

from gbnf.errors import GbnfError
from gbnf.schema import keywords
from gbnf.schema.document import Subschema
from gbnf.schema.value_sets import distinct, value_key

#: The most branches of a `oneOf` that has a complement: each pair of them is a case.
MAX_ONE_OF = 5
#: The most members of the arrays and objects in an `enum` that has a complement.
MAX_MEMBERS = 100


class NoComplementError(GbnfError):
    """The complement can't be expressed: `keyword` has none."""

    def __init__(self, keyword: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword


def complement(subschema: Subschema) -> list[Any]:
    """Return raw schemas whose union is everything that the subschema forbids.

    They are resolved as the subschema is; the caller handles its references. Raises NoComplementError.
    """
    raw = subschema.raw
    if isinstance(raw, bool):
        return [] if raw else [True]
    if not isinstance(raw, Mapping):
        raise NoComplementError("not")
    branches: list[Any] = []
    for keyword, value in raw.items():
        if keyword not in keywords.KEYWORDS or keyword in keywords.REFERENCES:
            continue
        rule = _RULES.get(keyword)
        if rule is not None:
            branches += rule(value, raw)
        elif keyword not in _FOR_OTHERS or not _allows_all(value):
            raise NoComplementError(keyword)
    return branches


_FOR_OTHERS = frozenset({"additionalProperties", "unevaluatedProperties", "unevaluatedItems"})
_Complement = Callable[[Any, Mapping[str, Any]], list[Any]]


def _allows_all(schema: Any) -> bool:
    return schema is True or schema == {}


def _not_type(value: Any, _raw: Mapping[str, Any]) -> list[Any]:
    names = [value] if isinstance(value, str) else list(value)
    others = [name for name in keywords.TYPES if name not in names and name != "integer"]
    fractions: list[Any] = []
    if "integer" in names and "number" not in names:
        others.remove("number")
        fractions = [{"type": "number", keywords.NOT_INTEGER: True}]
    return [{"type": others}, *fractions] if others else fractions


def _not_values(values: list[Any]) -> list[Any]:
    """Return schemas for everything but the values, one JSON type at a time."""
    if _has_more_members(values, MAX_MEMBERS):
        raise NoComplementError("enum")
    branches: list[Any] = [] if None in values else [{"type": "null"}]
    flags = [flag for flag in (True, False) if not any(value is flag for value in values)]
    branches += [{"enum": flags}] if flags else []
    words = [value for value in values if isinstance(value, str)]
    branches.append({"type": "string", keywords.NOT_WORDS: words} if words else {"type": "string"})
    numbers = sorted(
        {value for value in values if isinstance(value, int | float) and not isinstance(value, bool)}
    )
    bounds: list[Any] = [None, *numbers, None]
    for low, high in pairwise(bounds):
        between: dict[str, Any] = {"type": "number"}
        if low is not None:
            between[keywords.ABOVE] = low
        if high is not None:
            between[keywords.BELOW] = high
        branches.append(between)
    branches += _not_rows("array", [value for value in values if isinstance(value, list)])
    return branches + _not_rows("object", [value for value in values if isinstance(value, dict)])


def _has_more_members(values: list[Any], most: int) -> bool:
    """Return whether the arrays and objects among the values have more members than `most`, at any depth."""
    pending = [value for value in values if isinstance(value, list | dict)]
    for container in pending:
        members = list(container.values()) if isinstance(container, dict) else container
        most -= len(members)
        pending += [member for member in members if isinstance(member, list | dict)]
        if most < 0:
            return True
    return False


_Row = Mapping[Any, Any]
"""The members of an array or object, by index or name."""


def _not_rows(kind: str, values: list[Any]) -> list[Any]:
    """Return schemas for every array, or every object, but the values."""
    groups: dict[frozenset[Any], list[_Row]] = {}
    for value in distinct(values):
        row: _Row = dict(enumerate(value)) if kind == "array" else value
        groups.setdefault(frozenset(row), []).append(row)
    apart = [
        [_with_members(kind, {}, more_than=len(keys)), *_unlike(kind, rows, [*rows[0]], {})]
        for keys, rows in groups.items()
    ]
    match apart:
        case []:
            return [{"type": kind}]
        case [branches]:
            return branches
    return [{"type": kind, "allOf": [{"anyOf": branches} for branches in apart]}]


def _unlike(kind: str, rows: list[_Row], keys: list[Any], fixed: dict[Any, Any]) -> Iterator[Any]:
    """Yield schemas that differ from all rows at one of `keys`, or lack it; the members `fixed` are theirs.

    The rows differ from each other at `keys`. Their number of cases is at most that of all their members.
    """
    if len(rows) == 1:
        for key in keys:
            yield _with_members(kind, fixed, unlike={key: [rows[0][key]]})
        return
    key, *others = keys
    by_value: dict[Any, list[_Row]] = {}
    for row in rows:
        by_value.setdefault(value_key(row[key]), []).append(row)
    yield _with_members(kind, fixed, unlike={key: [same[0][key] for same in by_value.values()]})
    for same in by_value.values():
        yield from _unlike(kind, same, others, {**fixed, key: _equal_to(same[0][key])})


def _with_members(
    kind: str, fixed: Mapping[Any, Any], *, unlike: Mapping[Any, list[Any]] | None = None, more_than: int = -1
) -> dict[str, Any]:
    """Return the schema of arrays or objects with all members `fixed`, and others than those in `unlike`."""
    schemas = {**fixed, **{key: {"not": {"enum": values}} for key, values in (unlike or {}).items()}}
    if kind == "object":
        limits = {"minProperties": more_than + 1} if more_than >= 0 else {"required": [*fixed]}
        return {"type": kind, "properties": schemas, **limits}
    items = [schemas.get(index, True) for index in range(max(schemas, default=-1) + 1)]
    return {"type": kind, keywords.FIRST_ITEMS: items, "minItems": max(more_than + 1, len(fixed))}


def _equal_to(value: Any) -> Any:
    """Return a schema for a value, however it is written: `enum` means one spelling of each number."""
    match value:
        case dict():
            members = {key: _equal_to(member) for key, member in value.items()}
            return {**_with_members("object", members), "maxProperties": len(value)}
        case list():
            items = {index: _equal_to(item) for index, item in enumerate(value)}
            return {**_with_members("array", items), "maxItems": len(value)}
        case bool() | None | str():
            return {"const": value}
    return {"type": "number", "minimum": value, "maximum": value}


def _not_bound(exclusive: str, opposite: str, beyond: str) -> _Complement:
    return lambda value, raw: [{"type": "number", opposite if raw.get(exclusive) is True else beyond: value}]


def _fewer(kind: str, keyword: str) -> _Complement:
    return lambda value, _raw: [{"type": kind, keyword: int(value) - 1}] if value > 0 else []


def _more(kind: str, keyword: str) -> _Complement:
    return lambda value, _raw: [{"type": kind, keyword: int(value) + 1}]


def _not_items(value: Any, raw: Mapping[str, Any]) -> list[Any]:
    if _allows_all(value):
        return []
    if isinstance(value, list) or "prefixItems" in raw:
        raise NoComplementError("items")
    return [{"type": "array", keywords.HAS_ITEM: {"not": value}}]


def _not_contains(value: Any, raw: Mapping[str, Any]) -> list[Any]:
    if not {"minContains", "maxContains"}.isdisjoint(raw):
        raise NoComplementError("contains")
    return [{"type": "array", "items": {"not": value}}]


def _not_one_of(branches: list[Any], _raw: Mapping[str, Any]) -> list[Any]:
    """Return none of the branches, or two of them."""
    if len(branches) > MAX_ONE_OF:
        raise NoComplementError("oneOf")
    none = {"allOf": [{"not": branch} for branch in branches]}
    return [none, *({"allOf": [*pair]} for pair in combinations(branches, 2))]


_RULES: dict[str, _Complement] = {
    "type": _not_type,
    "enum": lambda value, _raw: _not_values(value),
    "const": lambda value, _raw: _not_values([value]),
    "required": lambda names, _raw: [
        {"type": "object", "properties": {name: False}}
        for name in (names if isinstance(names, list) else ())  # a flag, as in draft 3, allows everything
    ],
    "properties": lambda properties, _raw: [
        {"type": "object", "required": [name], "properties": {name: {"not": schema}}}
        for name, schema in properties.items()
        if not _allows_all(schema)
    ],
    "minimum": _not_bound("exclusiveMinimum", "maximum", keywords.BELOW),
    "maximum": _not_bound("exclusiveMaximum", "minimum", keywords.ABOVE),
    "exclusiveMinimum": lambda v, _raw: [] if isinstance(v, bool) else [{"type": "number", "maximum": v}],
    "exclusiveMaximum": lambda v, _raw: [] if isinstance(v, bool) else [{"type": "number", "minimum": v}],
    "minLength": _fewer("string", "maxLength"),
    "maxLength": _more("string", "minLength"),
    "minItems": _fewer("array", "maxItems"),
    "maxItems": _more("array", "minItems"),
    "minProperties": _fewer("object", "maxProperties"),
    "maxProperties": _more("object", "minProperties"),
    "pattern": lambda value, _raw: [{"type": "string", keywords.NOT_PATTERN: value}],
    "format": lambda value, _raw: [{"type": "string", keywords.NOT_FORMAT: value}],
    "items": _not_items,
    "contains": _not_contains,
    "oneOf": _not_one_of,
    "anyOf": lambda value, _raw: [{"allOf": [{"not": branch} for branch in value]}],
    "allOf": lambda value, _raw: [{"not": branch} for branch in value],
    "not": lambda value, _raw: [value],
}
