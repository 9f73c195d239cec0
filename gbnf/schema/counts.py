"""Numbers that keywords hold, read with care."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

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
