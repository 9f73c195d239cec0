"""Whether a pattern can fit at all what it is compared with: a text, a time, a list of addresses.

What can never fit is told when a suite is read; a pattern that leaves something open is taken on trust.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any

from gbnf_server.evaluation.errors import Fault, KeyPath
from gbnf_server.evaluation.patterns import (
    PREDICATES,
    Anything,
    Contains,
    Equals,
    ListPattern,
    Matches,
    ObjectPattern,
    OneOf,
    OptionalPattern,
    Pattern,
    Unordered,
)

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d)?")


def check_text(pattern: Pattern, written: Any, at: KeyPath) -> None:
    """Raises Fault where no text fits; `written` is the pattern as the suite has it."""
    if not fits_some_text(pattern):
        raise Fault(at, written, "a text is looked at here, and none fits this", _way_out(pattern, "a text"))


def check_addresses(pattern: Pattern, written: Any, at: KeyPath) -> None:
    """Raises Fault where no list of addresses fits."""
    if not _some(pattern, _is_addresses):
        raise Fault(
            at, written, "an array of addresses is looked at here, and none fits this",
            _way_out(pattern, 'an array, ["anna@example.com"],'),
        )  # fmt: skip


def check_moment(pattern: Pattern, written: Any, at: KeyPath) -> None:
    """Raises Fault where no time fits as a calendar is read: to the minute, or a whole day."""
    if not _some(pattern, _is_moment):
        raise Fault(
            at, written, "times are read as 2026-11-24T18:00, and days as 2026-11-24; none fits this",
            _way_out(pattern, "one of these"),
        )  # fmt: skip


def fits_some_text(pattern: Pattern) -> bool:
    """Whether the pattern may fit a text."""
    return _some(pattern, _is_text)


def fits_some_list(pattern: Pattern) -> bool:
    """Whether the pattern may fit a list."""
    return _some(
        pattern, lambda each: isinstance(each, Unordered | ListPattern | Contains) or _equals(each, list)
    )


def _some(pattern: Pattern, fits: Callable[[Pattern], bool]) -> bool:
    match pattern:
        case Anything():
            return True
        case OptionalPattern(inner):
            return _some(inner, fits)
        case OneOf(patterns):
            return any(_some(each, fits) for each in patterns)
        case _:
            return fits(pattern)


def _equals(pattern: Pattern, kind: type) -> bool:
    return isinstance(pattern, Equals) and isinstance(pattern.value, kind)


def _is_text(pattern: Pattern) -> bool:
    if isinstance(pattern, Contains):
        return all(fits_some_text(each) for each in pattern.members)
    return isinstance(pattern, Matches) or _equals(pattern, str)


def _is_moment(pattern: Pattern) -> bool:
    if not (isinstance(pattern, Equals) and isinstance(pattern.value, str)):
        return _is_text(pattern)
    text = pattern.value
    if _MOMENT.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_addresses(pattern: Pattern) -> bool:
    match pattern:
        case ListPattern(members) | Unordered(members) | Contains(members):
            return all(fits_some_text(each) for each in members)
        case Equals(list() as addresses):
            return all(isinstance(each, str) for each in addresses)
        case _:
            return False


def _way_out(pattern: Pattern, what: str) -> str:
    """What to write; the predicate that was meant, where a table's key is nearly one."""
    if isinstance(pattern, ObjectPattern):
        for key in pattern.patterns:
            if close := get_close_matches(key, PREDICATES, n=1):
                return f"Did you mean {close[0]}? The predicates are {', '.join(PREDICATES)}."
    return f"Write {what} or a table of one predicate: {', '.join(PREDICATES)}."
