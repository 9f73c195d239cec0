"""Numbers in keywords, whose form has been checked."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from gbnf.schema.document import Subschema


def integer_keyword(conjunct: Subschema, keyword: str) -> int | None:
    """Return a length or a number of items; None if the keyword is absent."""
    value = conjunct.raw.get(keyword)
    return None if value is None else int(value)


def number_keyword(conjunct: Subschema, keyword: str) -> Fraction | None:
    """Return a number, exactly as written; None if the keyword is absent, or a flag as up to draft 4."""
    value = conjunct.raw.get(keyword)
    return None if value is None or isinstance(value, bool) else Fraction(str(value))


def smallest(bounds: Iterable[int | None]) -> int | None:
    """Return the smallest of the bounds that are not None."""
    return min((bound for bound in bounds if bound is not None), default=None)
