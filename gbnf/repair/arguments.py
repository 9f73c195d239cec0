"""Arguments, mended along their schema: where a value is not what its place declares, and nowhere else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from jsonschema import Draft202012Validator

from gbnf.applicators import Place, followed
from gbnf.calls.names import fold
from gbnf.effort import spend
from gbnf.repair.spots import Spot, item_schema
from gbnf.repair.values import Coercion, CoercionKind, as_type, is_of, spelled_in
from gbnf.schema.validators import taught
from gbnf.validation.complaints import place as place_text

UnknownKeys: TypeAlias = Literal["drop", "refuse"]

_DEPTH = 60
_SCHEMA_WORK = 30  # what one schema takes, in the units of `gbnf.effort`


class Mender:
    """Mends values under one root schema, and keeps the list of what it changed."""

    def __init__(self, root: Mapping[str, Any], *, clamp: bool, unknown: UnknownKeys) -> None:
        self._root, self._clamp, self._unknown = root, clamp, unknown
        self._validator = taught(Draft202012Validator, every_draft=True)(root)
        self.coercions: list[Coercion] = []

    def mended(self, value: Any) -> Any:
        """`value` as the root declares it, as far as it can be.

        Raises RecursionError and EffortSpent for endless schemas.
        """
        return self._mended(value, self._root, (), Spot((self._root,), self._root, whole=True))

    def _mended(self, value: Any, schema: Any, path: Place, spot: Spot) -> Any:
        """`value` as `schema` declares it, which is one part of what is said of its `spot`."""
        if not isinstance(schema, Mapping) or len(path) > _DEPTH:
            return value
        spend(_SCHEMA_WORK)
        value = self._named(value, path, spot)
        if "$ref" in schema:
            target = followed(schema["$ref"], self._root)
            value = value if target is None else self._mended(value, target[1], path, spot)
        for part in schema.get("allOf", ()):
            value = self._mended(value, part, path, spot)
        for keyword in ("anyOf", "oneOf"):
            value = self._one_of(value, schema.get(keyword, ()), path, spot)
        value = self._typed(value, schema, path)
        value = self._allowed(value, schema, path)
        if self._clamp:
            value = self._clamped(value, schema, path)
        if isinstance(value, dict):
            return self._object(self._named(value, path, spot), schema, path, spot)
        if isinstance(value, list):
            return [
                self._mended(member, item_schema(schema, at), (*path, at), spot.item(at))
                for at, member in enumerate(value)
            ]
        return value

    def _valid(self, value: Any, schema: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(value))

    def _change(self, path: Place, kind: CoercionKind, before: Any, after: Any) -> Any:
        """List a change; one that only undoes the last, where parts contradict each other, takes it back."""
        change = Coercion(place_text(path), kind, before, after)
        last = self.coercions[-1] if self.coercions else None
        if last and last.place == change.place and _same(last.before, after) and _same(last.after, before):
            self.coercions.pop()
        else:
            self.coercions.append(change)
        return after

    def _one_of(self, value: Any, branches: Any, path: Place, spot: Spot) -> Any:
        """Mend by the first branch that then takes the value; not at all where one takes it as it is."""
        if not branches or any(self._valid(value, branch) for branch in branches):
            return value
        kept = list(self.coercions)
        for branch in branches:
            found = self._mended(value, branch, path, spot)
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

    def _object(
        self, value: dict[str, Any], schema: Mapping[str, Any], path: Place, spot: Spot
    ) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        found: dict[str, Any] = {}
        for key, member in value.items():
            place = (*path, key)
            known = properties.get(key)
            optional = known is not None and key not in spot.required
            if member is None and optional and not self._valid(None, known):
                self._change(place, "dropped", None, None)
                continue
            found[key] = member if known is None else self._mended(member, known, place, spot.member(key))
        for key in schema.get("required", ()):
            default = properties.get(key)
            if key not in found and isinstance(default, Mapping) and "default" in default:
                found[key] = self._change((*path, key), "filled", None, default["default"])
        return found

    def _named(self, value: Any, path: Place, spot: Spot) -> Any:
        """An object's members under known names: other spellings are renamed, the rest dropped where asked.

        A key that any part of the schema declares for this place stays.
        """
        if not isinstance(value, dict) or not spot.closed or all(map(spot.knows, value)):
            return value
        found: dict[str, Any] = {}
        for key, member in value.items():
            if spot.knows(key):
                found[key] = member
                continue
            meant = [name for name in spot.names if fold(name) == fold(key) and name not in value]
            if len(meant) == 1 and meant[0] not in found:
                found[self._change((*path, meant[0]), "renamed", key, meant[0])] = member
            elif self._unknown == "drop":
                self._change((*path, key), "dropped", member, None)
            else:
                found[key] = member
        return found


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; for Python, true is 1."""
    return type(one) is type(other) and json.dumps(one) == json.dumps(other)


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
