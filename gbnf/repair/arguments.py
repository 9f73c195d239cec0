"""Arguments, mended along their schema: where a value is not what its place declares, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from jsonschema import Draft202012Validator

from gbnf.applicators import Place, followed
from gbnf.calls.names import fold
from gbnf.repair.values import Coercion, CoercionKind, as_type, is_of, spelled_in
from gbnf.validation.complaints import place as place_text

UnknownKeys: TypeAlias = Literal["drop", "refuse"]

_DEPTH = 60
_DECLARES_MORE = frozenset(
    {
        "patternProperties", "unevaluatedProperties", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if",
        "dependentSchemas",
    }
)  # fmt: skip


class Mender:
    """Mends values under one root schema, and keeps the list of what it changed."""

    def __init__(self, root: Mapping[str, Any], *, clamp: bool, unknown: UnknownKeys) -> None:
        self._root, self._clamp, self._unknown = root, clamp, unknown
        self._validator = Draft202012Validator(root)
        self.coercions: list[Coercion] = []

    def mended(self, value: Any, schema: Any, path: Place = ()) -> Any:
        """`value` as `schema` declares it, as far as it can be. Raises RecursionError for endless schemas."""
        if not isinstance(schema, Mapping) or len(path) > _DEPTH:
            return value
        if "$ref" in schema:
            target = followed(schema["$ref"], self._root)
            value = value if target is None else self.mended(value, target[1], path)
        for part in schema.get("allOf", ()):
            value = self.mended(value, part, path)
        for keyword in ("anyOf", "oneOf"):
            value = self._one_of(value, schema.get(keyword, ()), path)
        value = self._typed(value, schema, path)
        value = self._allowed(value, schema, path)
        if self._clamp:
            value = self._clamped(value, schema, path)
        if isinstance(value, dict) and "properties" in schema:
            return self._object(value, schema, path)
        if isinstance(value, list):
            return self._array(value, schema, path)
        return value

    def _valid(self, value: Any, schema: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(value))

    def _change(self, path: Place, kind: CoercionKind, before: Any, after: Any) -> Any:
        self.coercions.append(Coercion(place_text(path), kind, before, after))
        return after

    def _one_of(self, value: Any, branches: Any, path: Place) -> Any:
        """Mend by the first branch that then takes the value; not at all where one takes it as it is."""
        if not branches or any(self._valid(value, branch) for branch in branches):
            return value
        kept = list(self.coercions)
        for branch in branches:
            found = self.mended(value, branch, path)
            if self._valid(found, branch):
                return found
            self.coercions = list(kept)
        return value

    def _typed(self, value: Any, schema: Mapping[str, Any], path: Place) -> Any:
        declared = schema.get("type")
        types = [declared] if isinstance(declared, str) else declared
        if not types or is_of(value, types):
            return value
        if "enum" in schema and spelled_in(value, schema["enum"]):
            return value  # the enumeration says better what was meant
        found = as_type(value, types)
        return value if found is None else self._change(path, found[0], value, found[1])

    def _allowed(self, value: Any, schema: Mapping[str, Any], path: Place) -> Any:
        allowed = [schema["const"]] if "const" in schema else schema.get("enum")
        if allowed is None or self._valid(value, {"enum": allowed}):
            return value
        found = spelled_in(value, allowed)
        return value if found is None else self._change(path, "enum", value, found[0])

    def _clamped(self, value: Any, schema: Mapping[str, Any], path: Place) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        low, high = _bounds(schema, whole=schema.get("type") == "integer")
        bound = (
            low if low is not None and value < low else high if high is not None and value > high else None
        )
        return value if bound is None else self._change(path, "clamped", value, bound)

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], path: Place) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema["properties"]
        required = schema.get("required", ())
        found: dict[str, Any] = {}
        for key, member in self._named(value, schema, path).items():
            place = (*path, key)
            known = properties.get(key)
            if member is None and key in properties and key not in required and not self._valid(None, known):
                self._change(place, "dropped", None, None)
                continue
            found[key] = self.mended(member, known, place)
        for key in required:
            default = properties.get(key)
            if key not in found and isinstance(default, Mapping) and "default" in default:
                found[key] = self._change((*path, key), "filled", None, default["default"])
        return found

    def _named(self, value: dict[str, Any], schema: Mapping[str, Any], path: Place) -> dict[str, Any]:
        """The members with declared names: other spellings are renamed, the rest dropped where asked."""
        properties = schema["properties"]
        if _DECLARES_MORE & schema.keys() or schema.get("additionalProperties", False) is not False:
            return value
        found: dict[str, Any] = {}
        for key, member in value.items():
            if key in properties:
                found[key] = member
                continue
            meant = [name for name in properties if fold(name) == fold(key) and name not in value]
            if len(meant) == 1 and meant[0] not in found:
                found[self._change((*path, meant[0]), "renamed", key, meant[0])] = member
            elif self._unknown == "drop":
                self._change((*path, key), "dropped", member, None)
            else:
                found[key] = member
        return found

    def _array(self, value: list[Any], schema: Mapping[str, Any], path: Place) -> list[Any]:
        first = schema.get("prefixItems", ())
        rest = schema.get("items")
        return [
            self.mended(member, first[at] if at < len(first) else rest, (*path, at))
            for at, member in enumerate(value)
        ]


def _bounds(schema: Mapping[str, Any], *, whole: bool) -> tuple[Any, Any]:
    """The least and the greatest number that a schema allows; for exclusive bounds of a fraction, none."""
    low, high = schema.get("minimum"), schema.get("maximum")
    over, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if whole:
        lows = [math.ceil(low)] if low is not None else []
        lows += [math.floor(over) + 1] if over is not None else []
        highs = [math.floor(high)] if high is not None else []
        highs += [math.ceil(under) - 1] if under is not None else []
        return max(lows, default=None), min(highs, default=None)
    return low, high
