"""Repair of arguments by their schema: only values that their schema does not allow are changed.

Several schemas may apply to one location of a value; the keys that they declare count together. A value is
converted to another JSON type only where its text spells one.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias

from gbnf.calls.parsing.lenient_json import load_complete
from gbnf.calls.parsing.tool_names import fold
from gbnf.calls.validation.messages import path_text, short_repr
from gbnf.requests.values import whole_date
from gbnf.schema.closing import close_arguments
from gbnf.schema.keywords import SchemaPath, resolve_pointer
from gbnf.schema.locations import Location
from gbnf.strict_json import has_type, json_type
from gbnf.work_limits import spend

UnknownKeys: TypeAlias = Literal["drop", "refuse"]

_DEPTH = 60
_SCHEMA_WORK = 30  # the cost of one schema, in the units of `gbnf.work_limits`
_VOWELS = frozenset("aeiou")
_LETTER_PART = re.compile(r"[_\W][A-Za-z]$|[a-z][A-Z]$")
_FIRST_WORD = re.compile(r"[A-Za-z][a-z]*|\Z")
_SYNONYMS = (
    frozenset({"text", "message", "msg", "body", "content", "contents"}),
    frozenset({"path", "file", "filename", "filepath"}),
    frozenset({"query", "q", "search", "searchquery", "searchterm"}),
    frozenset({"url", "uri", "link"}),
)
"""Names that mean the same, folded."""


class ArgumentRepairer:
    """Repairs values by one root schema, and lists the changes."""

    def __init__(
        self, args: Mapping[str, Any], *, clamp: bool, unknown: UnknownKeys, only_reads: bool
    ) -> None:
        from jsonschema import Draft202012Validator  # noqa: PLC0415  # most calls need no repair

        from gbnf.schema.validators import extend_validator  # noqa: PLC0415  # as above

        self._root, self._clamp, self._unknown = close_arguments(args), clamp, unknown
        self._only_reads = only_reads
        self._validator = extend_validator(Draft202012Validator, every_draft=True)(self._root)
        self.coercions: list[Coercion] = []

    def repaired(self, value: Any) -> Any:
        """Return `value`, changed to what the root schema allows as far as possible.

        Raises RecursionError and WorkLimitError for infinitely recursive schemas.
        """
        return self._repaired(value, self._root, (), Location.of(self._root))

    def _repaired(self, value: Any, schema: Any, path: SchemaPath, location: Location) -> Any:
        """Return `value`, changed to what `schema` allows, one of the schemas of its `location`."""
        if not isinstance(schema, Mapping) or len(path) > _DEPTH:
            return value
        spend(_SCHEMA_WORK)
        value = self._named(value, path, location)
        if "$ref" in schema:
            target = resolve_pointer(schema["$ref"], self._root)
            value = value if target is None else self._repaired(value, target[1], path, location)
        for part in schema.get("allOf", ()):
            value = self._repaired(value, part, path, location)
        for keyword in ("anyOf", "oneOf"):
            value = self._one_of(value, schema.get(keyword, ()), path, location)
        value = self._typed(value, schema, path)
        value = self._allowed(value, schema, path)
        value = self._dated(value, schema, path)
        if self._clamp:
            value = self._clamped(value, schema, path)
        if isinstance(value, dict):
            return self._object(self._named(value, path, location), schema, path, location)
        if isinstance(value, list):
            return [
                self._repaired(member, item_schema(schema, index), (*path, index), location.item(index))
                for index, member in enumerate(value)
            ]
        return value

    def _valid(self, value: Any, schema: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(value))

    def _change(self, path: SchemaPath, kind: CoercionKind, before: Any, after: Any) -> Any:
        """List a change. One that reverts the last, as of contradictory schemas, removes that."""
        change = Coercion(path_text(path), kind, before, after)
        last = self.coercions[-1] if self.coercions else None
        if last and last.path == change.path and _same(last.before, after) and _same(last.after, before):
            self.coercions.pop()
        else:
            self.coercions.append(change)
        return after

    def _one_of(self, value: Any, branches: Any, path: SchemaPath, location: Location) -> Any:
        """Repair by the first branch that then accepts the value, unless a branch accepts it unchanged."""
        if not branches or any(self._valid(value, branch) for branch in branches):
            return value
        before = list(self.coercions)
        for branch in branches:
            repaired = self._repaired(value, branch, path, location)
            if self._valid(repaired, branch):
                return repaired
            self.coercions = list(before)
        return value

    def _typed(self, value: Any, schema: Mapping[str, Any], path: SchemaPath) -> Any:
        declared = schema.get("type")
        types = [declared] if isinstance(declared, str) else declared
        if not types or has_type(value, types):
            return value
        if "enum" in schema and spelled_in(value, schema["enum"]):
            return value  # the enumeration determines the value
        converted = as_type(value, types)
        return value if converted is None else self._change(path, converted[0], value, converted[1])

    def _allowed(self, value: Any, schema: Mapping[str, Any], path: SchemaPath) -> Any:
        allowed = [schema["const"]] if "const" in schema else schema.get("enum")
        if allowed is None or self._valid(value, {"enum": allowed}):
            return value
        spelled = spelled_in(value, allowed)
        return value if spelled is None else self._change(path, "enum", value, spelled[0])

    def _dated(self, value: Any, schema: Mapping[str, Any], path: SchemaPath) -> Any:
        day = whole_date(value) if schema.get("format") == "date" and isinstance(value, str) else None
        written = value if day is None else day.isoformat()
        return value if written == value else self._change(path, "typed", value, written)

    def _clamped(self, value: Any, schema: Mapping[str, Any], path: SchemaPath) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        low, high = _bounds(schema, integers=schema.get("type") == "integer")
        bound = (
            low if low is not None and value < low else high if high is not None and value > high else None
        )
        return value if bound is None else self._change(path, "clamped", value, bound)

    def _object(
        self, value: dict[str, Any], schema: Mapping[str, Any], path: SchemaPath, location: Location
    ) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        members: dict[str, Any] = {}
        for key, member in value.items():
            inner = (*path, key)
            declared = properties.get(key)
            optional = declared is not None and key not in location.required
            if member in (None, []) and optional and not self._valid(member, declared):
                self._change(inner, "dropped", member, None)
                continue
            members[key] = (
                member
                if declared is None
                else self._repaired(member, declared, inner, location.property(key))
            )
        for key in schema.get("required", ()):
            default = properties.get(key)
            if key not in members and isinstance(default, Mapping) and "default" in default:
                members[key] = self._change((*path, key), "filled", None, default["default"])
        return members

    def _named(self, value: Any, path: SchemaPath, location: Location) -> Any:
        """Return an object with known keys: others are renamed (`_nearest`), the rest dropped if requested.

        A key that any part of the schema declares for this location stays.
        """
        if not isinstance(value, dict) or all(map(location.knows, value)):
            return value
        members: dict[str, Any] = {}
        nearest = self._nearest(value, path, location)
        for key, member in value.items():
            if location.knows(key):
                members[key] = member
                continue
            meant = [name for name in location.names if fold(name) == fold(key) and name not in value]
            meant = [nearest[key]] if key in nearest else meant
            if len(meant) == 1 and meant[0] not in members:
                members[self._change((*path, meant[0]), "renamed", key, meant[0])] = member
            elif self._unknown == "drop":
                self._change((*path, key), "dropped", member, None)
            else:
                members[key] = member
        return members

    def _nearest(self, value: dict[str, Any], path: SchemaPath, location: Location) -> dict[str, str]:
        """Return the missing properties that unknown keys stand for: names by key.

        A key stands for a property whose schema accepts its value, repaired, if the names differ by one
        substituted, extra, missing or transposed letter; or if the property is required, has no default, and
        the key abbreviates it or is a synonym; or, for a tool that only reads, if it is the only such
        property that is missing, the key is the only unknown one, and the value is a text. A key that may
        stand for two properties, or two keys for one, are not renamed.
        """
        forms = {form for name in location.names for form in (name, fold(name))}
        unknown = [key for key in value if not location.knows(key) and fold(key) not in forms]
        missing = forms.difference(value, map(fold, value)).intersection(location.names) if unknown else set()
        needed = {
            name for name in missing & location.always_required if not location.property(name).has_default
        }
        pairs = [(key, name) for key in unknown for name in missing if _resembles(key, name, name in needed)]
        if not pairs and self._only_reads and len(needed) == len(unknown) == 1:
            pairs = [(key, name) for key in unknown for name in needed if isinstance(value[key], str)]
        fitting = [
            (key, name) for key, name in pairs if self._fits(value[key], path, location.property(name))
        ]
        counts = Counter(chain(*fitting))
        return {key: name for key, name in fitting if counts[key] == counts[name] == 1}

    def _fits(self, value: Any, path: SchemaPath, location: Location) -> bool:
        """Return whether a property takes a value, repaired, but not a number or a boolean as a text."""
        if isinstance(value, dict | list):  # its content is repaired once, after the renaming
            return json_type(value) in location.types
        before = list(self.coercions)
        for schemas in location.choices:
            result = value
            for schema in schemas:
                result = self._repaired(result, schema, (*path, ""), location)
            self.coercions = list(before)
            if isinstance(result, str) <= isinstance(value, str) and self._valid(result, {"allOf": schemas}):
                return True
        return False


def _resembles(key: str, name: str, short: bool) -> bool:
    """Return whether a key differs from a name by one letter, or, if `short`, stands for it otherwise.

    Names of five letters or more; a last part of one letter, as in "point_x", is no mistake. Otherwise the
    key is a synonym, or an abbreviation: the first word of the name, its first four letters or more, or its
    first letter and two or more of its later consonants.
    """
    written, meant = fold(key), fold(name)
    if short and any(written in words and meant in words for words in _SYNONYMS):
        return True
    shared = next((i for i in range(len(written)) if written[i] != meant[i : i + 1]), len(written))
    has_letter_part = _LETTER_PART.search(key) or _LETTER_PART.search(name)
    if not shared or has_letter_part or not f"{written}{meant}".isalpha():
        return False
    rest, others, letters = written[shared:], meant[shared:], iter(meant)
    is_near = others in (rest[1:], rest[1::-1] + rest[2:]) or others[1:] in (rest, rest[1:])
    is_beginning, has_no_vowel = meant.startswith(written), _VOWELS.isdisjoint(written[1:])
    has_consonants = has_no_vowel and not is_beginning and all(letter in letters for letter in written)
    is_short = len(written) > 2 and (
        has_consonants or (is_beginning and len(written) > 3) or written == fold(_FIRST_WORD.findall(name)[0])
    )
    return (is_near and max(len(written), len(meant)) > 4) or (short and is_short)


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are the same JSON value; in Python, True equals 1."""
    return type(left) is type(right) and json.dumps(left) == json.dumps(right)


def _bounds(schema: Mapping[str, Any], *, integers: bool) -> tuple[Any, Any]:
    """Return the least and the greatest number that a schema allows, None for exclusive bounds."""
    low, high = schema.get("minimum"), schema.get("maximum")
    over, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if integers:
        lows = [math.ceil(low)] if low is not None else []
        lows += [math.floor(over) + 1] if over is not None else []
        highs = [math.floor(high)] if high is not None else []
        highs += [math.ceil(under) - 1] if under is not None else []
        return max(lows, default=None), min(highs, default=None)
    return low, high


def item_schema(schema: Mapping[str, Any], index: int) -> Any:
    """Return the schema of a list's item, None if there is none."""
    first = schema.get("prefixItems", ())
    return first[index] if index < len(first) else schema.get("items")


CoercionKind: TypeAlias = Literal[
    "typed", "parsed", "wrapped", "unwrapped", "enum", "clamped", "renamed", "dropped", "filled"
]
"""typed: a scalar as another type, or a date in words as one in digits; parsed: JSON from its text; wrapped:
a value as a list of one; unwrapped: the reverse; enum: another spelling of an allowed value; clamped: a
number at its bound; renamed, dropped, filled: a key."""


@dataclass(frozen=True, slots=True)
class Coercion:
    """One change. `path` is where, as `files[0].path`; `before` and `after` are JSON values.

    For `renamed` they are the keys. For `dropped`, `after` is None; for `filled`, `before` is None.
    """

    path: str
    kind: CoercionKind
    before: Any
    after: Any

    def __str__(self) -> str:
        match self.kind:
            case "dropped":
                return f"{self.path}: dropped {short_repr(self.before)}"
            case "filled":
                return f"{self.path}: filled with the default {short_repr(self.after)}"
            case _:
                return f"{self.path}: {self.kind} {short_repr(self.before)} as {short_repr(self.after)}"


TRUE = frozenset({"true", "yes", "y", "on", "1"})
FALSE = frozenset({"false", "no", "n", "off", "0"})
_NULL = frozenset({"null", "none"})
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MOST_DIGITS = 400


def as_type(value: Any, types: Iterable[str]) -> tuple[CoercionKind, Any] | None:
    """Convert `value` to one of `types`: the kind of change and the result, None if there is none."""
    wanted = list(types)
    for name in [name for name in _ORDER if name in wanted]:
        converted = _CONVERSIONS[name](value)
        if converted is not None:
            return ("parsed" if json_type(converted[0]) in ("array", "object") else "typed"), converted[0]
    if isinstance(value, list) and len(value) == 1:
        inner = ("unwrapped", value[0]) if has_type(value[0], wanted) else as_type(value[0], wanted)
        return None if inner is None else ("unwrapped", inner[1])
    if "array" in wanted and value is not None:
        return "wrapped", [value]
    return None


def _integer(value: Any) -> tuple[Any] | None:
    number = _number(value)
    if number is None or (isinstance(number[0], float) and not number[0].is_integer()):
        return None
    return (int(number[0]),)


def _number(value: Any) -> tuple[Any] | None:
    """Parse a number. A whole number keeps digits beyond the precision of a double."""
    text = value.strip() if isinstance(value, str) else ""
    if not _NUMBER.fullmatch(text) or len(text) > _MOST_DIGITS:
        return None
    number = int(text) if text.lstrip("+-").isdecimal() else float(text)
    return None if math.isinf(number) else (number,)


def _boolean(value: Any) -> tuple[Any] | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    word = str(value).strip().casefold()
    return (True,) if word in TRUE else (False,) if word in FALSE else None


def _json_of(kind: type, value: Any) -> tuple[Any] | None:
    loaded = load_complete(value) if isinstance(value, str) else None
    return (loaded,) if isinstance(loaded, kind) else None


_CONVERSIONS: Mapping[str, Any] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": lambda value: (None,) if isinstance(value, str) and value.strip().casefold() in _NULL else None,
    "array": partial(_json_of, list),
    "object": partial(_json_of, dict),
    "string": lambda value: (json.dumps(value),) if isinstance(value, bool | int | float) else None,
}
_ORDER = tuple(_CONVERSIONS)


def spelled_in(value: Any, allowed: Iterable[Any]) -> tuple[Any] | None:
    """Return the one allowed value that `value` is another spelling of, None if there is none or several."""
    if isinstance(value, list | dict):
        return None
    text = _text(value)
    members = [member for member in allowed if not isinstance(member, list | dict)]
    for form in (str.strip, lambda spelling: spelling.strip().casefold(), fold):
        if form(text):
            equal = [member for member in members if form(_text(member)) == form(text)]
            if len(equal) == 1:
                return (equal[0],)
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
