"""Numbers that keywords hold, read with care."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from gbnf.errors import SchemaError
from gbnf.schema.document import Subschema


def count(facet: Subschema, keyword: str) -> int | None:
    """A length or number of items. Raises SchemaError for what is none."""
    value = facet.raw.get(keyword)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0 or value != int(value):
        place = f"{facet.pointer}/{keyword}"
        raise SchemaError(place, f"{keyword} must be a whole number of at least 0, not {value!r}")
    return int(value)


def fraction(facet: Subschema, keyword: str) -> Fraction | None:
    """A number, exactly as it is written. None where the keyword is absent, or a flag as up to draft 4."""
    value = facet.raw.get(keyword)
    if value is None or isinstance(value, bool):
        return None
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        place = f"{facet.pointer}/{keyword}"
        raise SchemaError(place, f"{keyword} must be a number, not {value!r}") from error


def least(bounds: Iterable[int | None]) -> int | None:
    """The smallest of the bounds that are there."""
    return min((bound for bound in bounds if bound is not None), default=None)


_NUMERIC = frozenset(
    {
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
        "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties",
    }
)  # fmt: skip
_LISTING = frozenset({"const", "enum"})
_MAPS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
_ANNOTATIONS = frozenset({"default", "examples"})
#: Bits of the greatest integer that Python writes: it refuses more than 4,300 digits.
_MOST_BITS = 14_000


def check_numbers(schema: Any) -> None:
    """Raise SchemaError for a number that JSON can't hold, in a keyword that says what is valid.

    A schema given as Python values may hold NaN, an infinity, or an integer of too many digits to be written.
    """
    pending: list[tuple[Any, str, bool]] = [(schema, "", False)]
    while pending:
        raw, pointer, is_map = pending.pop()
        if isinstance(raw, list):
            pending += [(one, f"{pointer}/{index}", False) for index, one in enumerate(raw)]
        elif isinstance(raw, Mapping):
            for key, value in raw.items():
                place = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
                if not is_map and (key in _LISTING or (key in _NUMERIC and isinstance(value, int | float))):
                    _check_value(value, place)
                elif isinstance(value, Mapping | list) and (is_map or key not in _ANNOTATIONS):
                    pending.append((value, place, not is_map and key in _MAPS))


def _check_value(value: Any, pointer: str) -> None:
    pending = [(value, pointer)]
    while pending:
        one, place = pending.pop()
        if isinstance(one, float) and not math.isfinite(one):
            raise SchemaError(
                place, f"{one!r} is no number of JSON", "Write a finite number, or take it out."
            )
        if isinstance(one, int) and one.bit_length() > _MOST_BITS:
            problem = f"the integer has about {one.bit_length() * 3 // 10:,} digits"
            raise SchemaError(place, problem, "Write at most 4,200 digits.")
        if isinstance(one, list):
            pending += [(item, f"{place}/{index}") for index, item in enumerate(one)]
        elif isinstance(one, Mapping):
            pending += [(item, f"{place}/{key}") for key, item in one.items()]
