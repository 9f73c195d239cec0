"""Generation of values that often satisfy a schema, deliberately naive, and their canonical JSON text.

The schemas that apply together are collected, branches are drawn, and a value of an allowed type is generated
near the bounds. Values may be invalid: the caller validates them. Keys are in declared order: a schema's own
before those of its `$ref`, its `allOf` and its branches.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from gbnf.compiler.layout import Whitespace
from gbnf.schema.keywords import resolve_pointer
from gbnf.schema.value_sets import whole_numbers
from gbnf.strict_json import json_of

_TOO_LARGE = 10**39
_TIMES = st.times().map(lambda time: f"{time.isoformat()}Z")

SAMPLES: Mapping[str, st.SearchStrategy[str]] = {
    "date": st.dates().map(dt.date.isoformat),
    "time": _TIMES,
    "date-time": st.builds(lambda day, time: f"{day.isoformat()}T{time}", st.dates(), _TIMES),
    "duration": st.sampled_from(["P1D", "PT5M", "P1Y2M3DT4H5M6S", "P2W"]),
    "email": st.sampled_from(["a@b.co", "first.last+tag@mail.example.org"]),
    "hostname": st.sampled_from(["a", "example.org", "a-b.c1"]),
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "uri": st.sampled_from(["a:b", "https://example.org/a?b=c#d", "mailto:a@b.co"]),
    "uri-reference": st.sampled_from(["", "a/b", "/a", "https://example.org"]),
    "uuid": st.uuids().map(str),
    "json-pointer": st.sampled_from(["", "/a", "/a/0/b~1c"]),
    "regex": st.sampled_from(["a", "^a+$", "[0-9]"]),
}
"""Strings of a format, simple ones first."""


def canonical(value: Any) -> Any:
    """Return the value with whole numbers as integers: a grammar writes `1.0` as `1`.

    Numbers with more digits than a grammar allows are unchanged.
    """
    return whole_numbers(value, _TOO_LARGE)


def fits(text: str) -> bool:
    """Return whether a number without exponent has few enough digits for every grammar."""
    integer, _, fraction = text.removeprefix("-").partition(".")
    return len(integer) <= 39 and len(fraction) <= 20


def canonical_json(value: Any, *, comma: str = ", ", colon: str = ": ") -> str:
    """Return the canonical JSON text: keys in order, only necessary escapes and exponents."""
    match value:
        case float():
            number = canonical(value)
            text = str(number) if isinstance(number, int) else format(Decimal(repr(value)), "f")
            return text if fits(text) else repr(value)
        case list():
            return "[" + comma.join(canonical_json(item, comma=comma, colon=colon) for item in value) + "]"
        case dict():
            pairs = (
                json_of(key) + colon + canonical_json(item, comma=comma, colon=colon)
                for key, item in value.items()
            )
            return "{" + comma.join(pairs) + "}"
        case _:
            return json_of(value)


def _compact(value: Any) -> str:
    return canonical_json(value, comma=",", colon=":")


SPELLINGS: Mapping[Whitespace, tuple[Callable[[Any], str], ...]] = {
    "default": (canonical_json, _compact),
    "compact": (_compact,),
    "spaced": (canonical_json,),
    "free": (canonical_json, _compact),
}
"""The texts of a value that a grammar of each layout accepts."""


_MANY = 3  # items beyond the required ones
_DEPTH = 5  # levels below which optional parts are left out
_KEYS = st.sampled_from(["x", "y", "extra", "x y", 'x"y', "é"])
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1000, 1000), st.floats(-1e9, 1e9).map(canonical), _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_KEYS, inner, max_size=2)),
    max_leaves=4,
)


class ValueGenerator:
    """Generates values near the schemas of a document."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def conjuncts(self, schemas: Sequence[Any], draw: st.DrawFn | None = None) -> list[Mapping[str, Any]]:
        """Return the schemas that apply together: references, `allOf` and, with `draw`, a drawn branch."""
        collected: list[Mapping[str, Any]] = []
        pending, later = list(schemas), list[list[Any]]()
        while pending or later:
            if not pending:
                assert draw is not None
                pending = [draw(st.sampled_from(later.pop(0)))]
                pending = pending[0] if isinstance(pending[0], list) else pending
            schema = pending.pop(0)
            if schema is False:
                assume(condition=False)
            if not isinstance(schema, Mapping) or any(schema is conjunct for conjunct in collected):
                continue
            collected.append(schema)
            target = resolve_pointer(schema.get("$ref"), self._root)
            inside = [] if target is None else [target[1]]
            pending = [*inside, *schema.get("allOf", ()), *pending]
            if draw is not None:
                later += [list(schema[keyword]) for keyword in ("anyOf", "oneOf") if keyword in schema]
                if "if" in schema:
                    then = [schema["if"], schema.get("then", True)]
                    later.append([[schema.get("else", True)], then])
        return collected

    def value(self, draw: st.DrawFn, schemas: Sequence[Any], depth: int = 0) -> Any:
        """Draw a value that often satisfies all of the schemas."""
        conjuncts = self.conjuncts(schemas, draw)
        for conjunct in conjuncts:
            if "const" in conjunct:
                return canonical(conjunct["const"])
            if "enum" in conjunct:
                return canonical(draw(st.sampled_from(conjunct["enum"])))
        kinds = _types(conjuncts)
        if kinds is None:
            implied = [
                _IMPLIED_TYPES[key] for conjunct in conjuncts for key in conjunct if key in _IMPLIED_TYPES
            ]
            if not implied:
                return draw(_ANYTHING)
            kinds = list(dict.fromkeys(implied))
        assume(kinds)
        kind = draw(st.sampled_from(kinds))
        match kind:
            case "null":
                return None
            case "boolean":
                return draw(st.booleans())
            case "integer" | "number":
                return canonical(draw(_numbers(conjuncts, only_integers=kind == "integer")))
            case "string":
                return draw(_strings(conjuncts))
            case "array":
                return self._array(draw, conjuncts, depth)
            case _:
                return self._object(draw, conjuncts, depth)

    def items(self, conjuncts: Sequence[Mapping[str, Any]], index: int) -> list[Any]:
        """Return the schemas of the item at `index`."""
        schemas = []
        for conjunct in conjuncts:
            rest = conjunct.get("items", True)
            prefix = conjunct.get("prefixItems", ())
            if isinstance(rest, list):
                prefix, rest = rest, conjunct.get("additionalItems", True)
            schemas.append(prefix[index] if index < len(prefix) else rest)
        return schemas

    def _array(self, draw: st.DrawFn, conjuncts: Sequence[Mapping[str, Any]], depth: int) -> list[Any]:
        low = max((conjunct.get("minItems", 0) for conjunct in conjuncts), default=0)
        low = max(low, *(1 for conjunct in conjuncts if "contains" in conjunct), 0)
        high = min(
            (conjunct["maxItems"] for conjunct in conjuncts if "maxItems" in conjunct), default=low + _MANY
        )
        tuples = [conjunct.get("prefixItems", ()) for conjunct in conjuncts]
        if any(self.items(conjuncts, len(max(tuples, key=len)))[i] is False for i in range(len(conjuncts))):
            high = min(high, max(map(len, tuples)))
        assume(low <= high)
        items: list[Any] = []
        while len(items) < low or (
            len(items) < min(high, low + _MANY) and depth < _DEPTH and draw(st.booleans())
        ):
            needed = [conjunct["contains"] for conjunct in conjuncts if "contains" in conjunct and not items]
            items.append(self.value(draw, [*self.items(conjuncts, len(items)), *needed], depth + 1))
        return items

    def property(self, conjuncts: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
        """Return the schemas of the property `name`."""
        schemas = []
        for conjunct in conjuncts:
            own = [conjunct["properties"][name]] if name in conjunct.get("properties", {}) else []
            own += [
                schema
                for pattern, schema in conjunct.get("patternProperties", {}).items()
                if _matches(pattern, name)
            ]
            schemas += own or [conjunct.get("additionalProperties", True)]
        return schemas

    @staticmethod
    def is_closed(conjuncts: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether undeclared properties are invalid."""
        return any(
            False in (conjunct.get("additionalProperties"), conjunct.get("unevaluatedProperties"))
            for conjunct in conjuncts
        )

    def _object(self, draw: st.DrawFn, conjuncts: Sequence[Mapping[str, Any]], depth: int) -> dict[str, Any]:
        declared, required = (
            list(dict.fromkeys(name for conjunct in conjuncts for name in conjunct.get(keyword, ())))
            for keyword in ("properties", "required")
        )
        present = {
            name: name in required or (depth < _DEPTH and draw(st.booleans()))
            for name in declared
            if not any(schema is False for schema in self.property(conjuncts, name))
        }
        for group in (group for conjunct in conjuncts for group in conjunct.get("requires_one_of", ())):
            if not any(present.get(name) for name in group):
                present[draw(st.sampled_from(group))] = True
        for conjunct in conjuncts:
            for name, needed in conjunct.get("dependentRequired", {}).items():
                if present.get(name):
                    present |= dict.fromkeys(needed, True)
        names = [name for name in declared if present.get(name)]
        names += [name for name in (*required, *present) if name not in declared and name not in names]
        least = max((conjunct.get("minProperties", 0) for conjunct in conjuncts), default=0)
        if not self.is_closed(conjuncts) and depth < _DEPTH:
            keys = draw(st.lists(_KEYS, max_size=2, min_size=min(2, max(0, least - len(names))), unique=True))
            for key in keys:
                if key not in declared and key not in names:
                    names.insert(len(names) - draw(st.integers(0, len(names))), key)
        return {
            name: self.value(draw, self.property(conjuncts, name), depth + 1) for name in dict.fromkeys(names)
        }


def _types(conjuncts: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the types that all conjuncts allow, None if no conjunct declares a type."""
    allowed: list[str] | None = None
    for conjunct in conjuncts:
        if "type" not in conjunct:
            continue
        names = [conjunct["type"]] if isinstance(conjunct["type"], str) else list(conjunct["type"])
        if allowed is None:
            allowed = names
            continue
        both = [name for name in allowed if name in names]
        if "integer" in {*allowed, *names} and "number" in {*allowed, *names} and "integer" not in both:
            both.append("integer")
        allowed = both
    return allowed


_IMPLIED_TYPES = {
    "properties": "object", "required": "object", "additionalProperties": "object", "items": "array",
    "prefixItems": "array", "minItems": "array", "maxItems": "array", "pattern": "string", "format": "string",
    "minLength": "string", "maxLength": "string", "minimum": "number", "maximum": "number",
    "multipleOf": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
}  # fmt: skip


def _numbers(conjuncts: Sequence[Mapping[str, Any]], *, only_integers: bool) -> st.SearchStrategy[Any]:
    lows: list[Any] = []
    highs: list[Any] = []
    divisors = [Fraction(str(conjunct["multipleOf"])) for conjunct in conjuncts if "multipleOf" in conjunct]
    for conjunct in conjuncts:
        for ends, keywords in (
            (lows, ("minimum", "exclusiveMinimum")),
            (highs, ("maximum", "exclusiveMaximum")),
        ):
            ends += [conjunct[key] for key in keywords if not isinstance(conjunct.get(key, True), bool)]
    low, high = max(lows, default=None), min(highs, default=None)
    near = [end + step for end in (*lows, *highs) for step in (0, 1, -1)]
    if divisors:
        divisor = max(divisors)
        first = -20 if low is None else math.ceil(Fraction(str(low)) / divisor)
        last = first + 40 if high is None else math.floor(Fraction(str(high)) / divisor)
        return st.integers(min(first, last), last).map(lambda step: canonical(float(step * divisor)))
    first = math.floor(-1000 if low is None else low)
    integers = st.integers(first, max(first, math.ceil(first + 2000 if high is None else high)))
    if only_integers:
        return st.one_of(integers, st.sampled_from([math.floor(end) for end in near])) if near else integers
    floats = st.floats(
        None if low is None else float(low),
        None if high is None else float(high),
        allow_nan=False,
        allow_infinity=False,
    )
    return st.one_of(integers, floats, *([st.sampled_from(near)] if near else []))


def _strings(conjuncts: Sequence[Mapping[str, Any]]) -> st.SearchStrategy[str]:
    low = max((conjunct.get("minLength", 0) for conjunct in conjuncts), default=0)
    high = min((conjunct["maxLength"] for conjunct in conjuncts if "maxLength" in conjunct), default=low + 8)
    patterns = [conjunct["pattern"] for conjunct in conjuncts if "pattern" in conjunct]
    formats = [conjunct["format"] for conjunct in conjuncts if conjunct.get("format") in SAMPLES]
    if patterns:
        return _matching(patterns[0])
    return SAMPLES[formats[0]] if formats else _texts(low, max(low, min(high, low + 8)))


@lru_cache(maxsize=256)
def _matching(pattern: str) -> st.SearchStrategy[str]:
    """Return strings that match a pattern. To build the strategy takes longer than to draw from it."""
    try:
        # For ASCII without line ends, ECMA-262 and Python agree on classes and anchors.
        texts = st.from_regex(re.compile(pattern, re.ASCII), alphabet=st.characters(min_codepoint=0x20))
    except re.error:
        return _TEXT
    return texts.filter(lambda text: not re.search("[\r\n\u2028\u2029\x85]", text))


@lru_cache(maxsize=256)
def _texts(least: int, most: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=most)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name, re.ASCII) is not None
    except re.error:
        return False
