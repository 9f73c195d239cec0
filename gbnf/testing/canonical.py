"""The canonical JSON text of values, and samples of formats."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from gbnf.compiler.layout import Whitespace

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
    match value:
        case float() if value.is_integer() and abs(value) < _TOO_LARGE:
            return int(value)
        case list():
            return [canonical(item) for item in value]
        case dict():
            return {key: canonical(item) for key, item in value.items()}
        case _:
            return value


def fits(text: str) -> bool:
    """Return whether a number without exponent has few enough digits for every grammar."""
    whole, _, fraction = text.removeprefix("-").partition(".")
    return len(whole) <= 39 and len(fraction) <= 20


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
                json.dumps(key, ensure_ascii=False) + colon + canonical_json(item, comma=comma, colon=colon)
                for key, item in value.items()
            )
            return "{" + comma.join(pairs) + "}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _compact(value: Any) -> str:
    return canonical_json(value, comma=",", colon=":")


SPELLINGS: Mapping[Whitespace, tuple[Callable[[Any], str], ...]] = {
    "default": (canonical_json, _compact),
    "compact": (_compact,),
    "spaced": (canonical_json,),
    "free": (canonical_json, _compact),
}
"""The texts of a value that a grammar of each layout accepts."""
