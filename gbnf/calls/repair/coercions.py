"""Conversion of a value to another JSON type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from gbnf.calls.parsing.lenient_json import load_complete
from gbnf.calls.parsing.tool_names import fold
from gbnf.calls.validation.messages import short_repr
from gbnf.strict_json import has_type, json_type

CoercionKind: TypeAlias = Literal[
    "typed", "parsed", "wrapped", "unwrapped", "enum", "clamped", "renamed", "dropped", "filled"
]
"""typed: a scalar as another type; parsed: JSON from its text; wrapped: a value as a list of one; unwrapped:
the reverse; enum: another spelling of an allowed value; clamped: a number at its bound; renamed, dropped,
filled: a key."""


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
        found = _CONVERSIONS[name](value)
        if found is not None:
            return ("parsed" if json_type(found[0]) in ("array", "object") else "typed"), found[0]
    if isinstance(value, list) and len(value) == 1:
        inner = ("unwrapped", value[0]) if has_type(value[0], wanted) else as_type(value[0], wanted)
        return None if inner is None else ("unwrapped", inner[1])
    if "array" in wanted and value is not None:
        return "wrapped", [value]
    return None


def _integer(value: Any) -> tuple[Any] | None:
    found = _number(value)
    if found is None or (isinstance(found[0], float) and not found[0].is_integer()):
        return None
    return (int(found[0]),)


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
    found = load_complete(value) if isinstance(value, str) else None
    return (found,) if isinstance(found, kind) else None


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
    for form in (str.strip, lambda one: one.strip().casefold(), fold):
        if form(text):
            found = [member for member in members if form(_text(member)) == form(text)]
            if len(found) == 1:
                return (found[0],)
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
