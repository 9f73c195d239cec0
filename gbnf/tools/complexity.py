"""How hard it is for a small model to write a tool's arguments, as a deterministic score.

The score is a sum of four parts, in points: roughly one for each decision beyond a few scalar values.
Annotations such as descriptions do not count, nor does the order of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gbnf.schema.keywords import SchemaPath, resolve_pointer, subschemas

COMPLEXITY_THRESHOLD = 6
"""The score from which arguments count as complex: two levels of objects, or three alternatives more."""

_DEPTH_LIMIT = 8
_PART_KEYWORDS = frozenset(
    {"properties", "items", "prefixItems", "additionalProperties", "patternProperties"}
)
_SAME_VALUE_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "then", "else", "dependentSchemas"})
_STRUCTURAL_KEYWORDS = frozenset(
    {"enum", "const", "$ref", "allOf", "anyOf", "oneOf", "properties", "patternProperties"}
)
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})


@dataclass(frozen=True, slots=True)
class Complexity:
    """The parts of a score, each at least 0.

    `polymorphism`: 2 for each alternative beyond the first (`anyOf`, `oneOf`, several types, conditions) and
    for each group of `requires_one_of`. `nesting`: 3 for each level of objects or arrays of objects below the
    arguments, at the deepest. `free_form`: 2 for each subschema that allows any value or any object.
    `width`: 1 for every two properties beyond four, over all objects.
    """

    polymorphism: int = 0
    nesting: int = 0
    free_form: int = 0
    width: int = 0

    @property
    def score(self) -> int:
        """The sum of the parts."""
        return self.polymorphism + self.nesting + self.free_form + self.width


def args_complexity(schema: Any) -> Complexity:
    """Return the complexity of arguments with this JSON Schema, which may be recursive or invalid.

    The target of several references counts once. A recursive schema has the greatest depth that is counted.
    """
    measure = _ComplexityCounter(schema)
    measure.visit((), schema, 0)
    groups = schema.get("requires_one_of") if isinstance(schema, Mapping) else None
    alternatives = measure.alternatives + (len(groups) if isinstance(groups, list) else 0)
    width = max(0, measure.properties - 4) // 2
    return Complexity(2 * alternatives, 3 * measure.deepest, 2 * len(measure.free), width)


def is_complex(schema: Any, threshold: int = COMPLEXITY_THRESHOLD) -> bool:
    """Return whether the score reaches `threshold`."""
    return args_complexity(schema).score >= threshold


class _ComplexityCounter:
    """Counts over the subschemas of a schema, each counted once and visited once at each depth."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._visited: set[tuple[SchemaPath, int]] = set()
        self._counted: set[SchemaPath] = set()
        self.free: set[SchemaPath] = set()
        self.alternatives = self.deepest = self.properties = 0

    def visit(self, base: SchemaPath, schema: Any, depth: int) -> None:
        """Count `schema` and the subschemas below it. `depth`: levels of objects above its value."""
        if not isinstance(schema, Mapping) or depth > _DEPTH_LIMIT or (base, depth) in self._visited:
            return
        self._visited.add((base, depth))
        self.deepest = max(self.deepest, depth)
        if base not in self._counted:
            self._counted.add(base)
            self._count(schema)
        if "$ref" in schema and (target := resolve_pointer(schema["$ref"], self._root)) is not None:
            self.visit(*target, depth)
        for path, member in subschemas(schema):
            if path[0] in _PART_KEYWORDS and member is not False:
                if not isinstance(member, Mapping) or self._is_free(member):
                    self.free.add((*base, *path))
                self.visit((*base, *path), member, depth + 1 if self._is_object(member) else depth)
            elif path[0] in _SAME_VALUE_KEYWORDS:
                self.visit((*base, *path), member, depth)

    def _is_object(self, schema: Any) -> bool:
        if not isinstance(schema, Mapping):
            return False
        for _ in range(_DEPTH_LIMIT):
            target = resolve_pointer(schema["$ref"], self._root) if "$ref" in schema else None
            if target is None or not isinstance(target[1], Mapping):
                break
            schema = target[1]
        return "properties" in schema or "object" in _types(schema)

    def _count(self, schema: Mapping[str, Any]) -> None:
        for members in (schema.get("anyOf"), schema.get("oneOf"), _types(schema)):
            self.alternatives += max(0, len(members) - 1) if isinstance(members, list | tuple) else 0
        self.alternatives += "if" in schema
        properties = schema.get("properties")
        self.properties += len(properties) if isinstance(properties, Mapping) else 0

    @staticmethod
    def _is_free(schema: Mapping[str, Any]) -> bool:
        """Return whether the schema allows any value, any object or an array of anything."""
        types = set(_types(schema))
        if schema.keys() & _STRUCTURAL_KEYWORDS or (types and types <= _SCALARS):
            return False
        if types == {"array"}:
            return not schema.keys() & {"items", "prefixItems"}
        return types != {"object"} or not isinstance(schema.get("additionalProperties"), Mapping)


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    declared = schema.get("type")
    if isinstance(declared, list):
        return tuple(map(str, declared))
    return (declared,) if isinstance(declared, str) else ()
