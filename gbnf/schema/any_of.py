"""The branches of an `anyOf` on which an `unevaluated…` keyword depends.

Several may be satisfied at once, and then what each of them evaluates counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import CHOICES, KEYWORDS, OPTIONAL, REFERENCES, TYPES, UNEVALUATED
from gbnf.schema.value_sets import value_key
from gbnf.work_limits import spend

#: How many references in a row are followed from a branch, or by the complement of a schema.
MAX_REFERENCES = 40


def branches_apart(subschema: Subschema, document: Document) -> list[Any]:
    """Return one schema for each branch: the first that is satisfied, and those after it that may be.

    Those that contradict it, or evaluate nothing more, are left out, so that most unions stay small.
    """
    certain = _evaluated(subschema.raw)
    branches = [_Branch.of(one, subschema, document) for one in subschema.members("anyOf")]
    found = []
    for index, branch in enumerate(branches):
        spend(1 + len(branches) - index)
        known = certain | branch.evaluated
        more = [
            one.raw
            for one in branches[index + 1 :]
            if (one.evaluates_more or not one.evaluated <= known) and not branch.excludes(one)
        ]
        found.append({"allOf": [branch.raw], **({OPTIONAL: more} if more else {})})
    return found


def _types(raw: Mapping[str, Any]) -> frozenset[str]:
    declared = raw.get("type", TYPES)
    names = frozenset([declared] if isinstance(declared, str) else declared)
    return names | {"integer"} if "number" in names else names


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


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch, and the constraints on objects in its own keywords or in the schema that it refers to."""

    raw: Any
    evaluated: frozenset[tuple[str, str | int]]
    evaluates_more: bool
    types: frozenset[str]
    required: frozenset[str]
    listed: Mapping[str, frozenset[Hashable]]  # the values of properties with `const` or `enum`

    @staticmethod
    def of(branch: Subschema, around: Subschema, document: Document) -> _Branch:
        """Describe a branch of the schema `around`. Raises SchemaError."""
        target = document.enter(branch)
        for _ in range(MAX_REFERENCES):
            if not isinstance(target.raw, Mapping) or KEYWORDS & target.raw.keys() != {"$ref"}:
                break
            target = document.enter(document.follow(target, "$ref"))
        raw = target.raw if isinstance(target.raw, Mapping) else {}
        required = raw.get("required", ())
        return _Branch(
            branch.raw,
            _evaluated(raw),
            not _EVALUATING_MORE.isdisjoint(raw),
            _types(raw) & _types(around.raw),
            frozenset(required if isinstance(required, list) else ()),
            {
                name: frozenset(map(value_key, values))
                for name, one in raw.get("properties", {}).items()
                if isinstance(one, Mapping)
                and (values := [one["const"]] if "const" in one else one.get("enum", ()))
                and not any(isinstance(value, list | dict) for value in values)
            },
        )

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
