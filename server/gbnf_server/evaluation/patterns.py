"""Patterns: what an expected value may look like, from the predicates of a suite file to a match.

A pattern is written as a plain value, which is meant exactly, or as a table of one predicate:

    {equals = value}            exactly this, a table too
    {contains = "text"}         the text is in it, whatever the case; in a list: one of its members
    {contains = [...]}          each of these is in it
    {matches = "regex"}         the regular expression (Python's) is found in the text
    {one_of = [...]}            one of these patterns fits
    {unordered = [...]}         a list with these members, in any order
    {any = true}                any value, and none
    {optional = pattern}        none, or one that fits

A table without a predicate is an object whose members fit, and which has no others but those whose patterns
allow none; a list has members that fit, in this order. Text meant exactly is compared as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from gbnf_server.evaluation.errors import Fault, KeyPath

PREDICATES = ("equals", "contains", "matches", "one_of", "unordered", "any", "optional")


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
"""The value of a member that is not there."""


@dataclass(frozen=True, slots=True)
class Equals:
    value: Any


@dataclass(frozen=True, slots=True)
class Contains:
    members: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class OneOf:
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Unordered:
    members: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Anything:
    pass


@dataclass(frozen=True, slots=True)
class OptionalPattern:
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class ObjectPattern:
    """An object, member by member."""

    patterns: Mapping[str, Pattern]


@dataclass(frozen=True, slots=True)
class ListPattern:
    """A list, item by item."""

    patterns: tuple[Pattern, ...]


Pattern: TypeAlias = (
    Equals | Contains | Matches | OneOf | Unordered | Anything | OptionalPattern | ObjectPattern | ListPattern
)


def read_pattern(value: Any, at: KeyPath = ()) -> Pattern:
    """The pattern that a value of a suite file stands for. Raises Fault."""
    match value:
        case Mapping():
            return _read_table(value, at)
        case list() | tuple():
            return ListPattern(_read_all(value, at))
        case _:
            return Equals(value)


def matches(pattern: Pattern, value: Any) -> bool:
    """Whether a JSON value, or MISSING, fits."""
    match pattern:
        case Anything():
            return True
        case OptionalPattern(inner):
            return value is MISSING or matches(inner, value)
        case OneOf(patterns):
            return any(matches(each, value) for each in patterns)
        case _ if value is MISSING:
            return False
        case Equals(wanted):
            return _same(wanted, value)
        case Contains(members):
            return all(_contains(value, member) for member in members)
        case Matches(regex):
            return isinstance(value, str) and regex.search(value) is not None
        case Unordered(members):
            return isinstance(value, list) and has_perfect_matching(members, value)
        case ObjectPattern(patterns):
            return isinstance(value, Mapping) and fits_members(patterns, value)
        case ListPattern(patterns):
            return (
                isinstance(value, list) and len(value) == len(patterns) and all(map(matches, patterns, value))
            )
        case _:
            assert_never(pattern)


def fits_members(patterns: Mapping[str, Pattern], value: Mapping[str, Any]) -> bool:
    """Whether each member fits its pattern, and there is none without one."""
    return value.keys() <= patterns.keys() and all(
        matches(pattern, value.get(key, MISSING)) for key, pattern in patterns.items()
    )


def exact_number(pattern: Pattern | None) -> int | None:
    """The integer that a pattern asks for, perhaps as an option; None where it is another pattern."""
    if isinstance(pattern, OptionalPattern):
        pattern = pattern.pattern
    if isinstance(pattern, Equals) and isinstance(pattern.value, int) and not isinstance(pattern.value, bool):
        return pattern.value
    return None


def has_perfect_matching(patterns: Sequence[Pattern], values: Sequence[Any]) -> bool:
    """Whether each pattern can have a value of its own, and no value is left: a perfect matching."""
    if len(patterns) != len(values):
        return False
    chosen = maximum_matching(
        len(patterns), len(values), lambda pattern, value: matches(patterns[pattern], values[value])
    )
    return len(chosen) == len(patterns)


def maximum_matching(seekers: int, offers: int, fits: Callable[[int, int], bool]) -> dict[int, int]:
    """Seeker -> an offer of its own that fits, for as many seekers as can be: a maximum matching.

    Both are counted from 0; `fits(seeker, offer)`. Of equals, the first seekers and offers are taken.
    """
    owner: dict[int, int] = {}

    def place(seeker: int, tried: set[int]) -> bool:
        for offer in range(offers):
            if offer not in tried and fits(seeker, offer):
                tried.add(offer)
                if offer not in owner or place(owner[offer], tried):
                    owner[offer] = seeker
                    return True
        return False

    for seeker in range(seekers):
        place(seeker, set())
    return {seeker: offer for offer, seeker in sorted(owner.items(), key=lambda pair: pair[1])}


def _read_table(table: Mapping[str, Any], at: KeyPath) -> Pattern:
    named = [key for key in table if key in PREDICATES]
    if not named:
        return ObjectPattern({key: read_pattern(member, (*at, key)) for key, member in table.items()})
    if len(table) > 1:
        raise Fault(
            at, dict(table), "a predicate stands alone in its table",
            "Give one of them; a member of that name is written {equals = {…}}.",
        )  # fmt: skip
    key = named[0]
    value, inside = table[key], (*at, key)
    match key:
        case "equals":
            return Equals(value)
        case "optional":
            return OptionalPattern(read_pattern(value, inside))
        case "any":
            if value is not True:
                raise Fault(inside, value, "any takes only true", "Write {any = true}.")
            return Anything()
        case "matches":
            return Matches(_regex(value, inside))
        case "contains":
            if value == []:
                raise Fault(inside, value, "contains takes a value, or several", 'Write {contains = "a"}.')
            return Contains(_read_all(value if isinstance(value, list) else [value], inside))
        case _:
            if not isinstance(value, list) or not value:
                raise Fault(inside, value, f"{key} takes a list", f'Write {{{key} = ["a", "b"]}}.')
            members = _read_all(value, inside)
            return OneOf(members) if key == "one_of" else Unordered(members)


def _read_all(values: Sequence[Any], at: KeyPath) -> tuple[Pattern, ...]:
    return tuple(read_pattern(value, (*at, index)) for index, value in enumerate(values))


def _regex(text: Any, at: KeyPath) -> re.Pattern[str]:
    hint = "Write a regular expression of Python's re, in single quotes, so that \\ stays as it is."
    if not isinstance(text, str):
        raise Fault(at, text, "matches takes a text", hint)
    try:
        return re.compile(text)
    except re.error as error:
        raise Fault(at, text, f"this is no regular expression: {error}", hint) from None


def _contains(value: Any, member: Pattern) -> bool:
    if isinstance(value, str):
        if isinstance(member, Equals) and isinstance(member.value, str):
            return member.value.casefold() in value.casefold()
        return matches(member, value)
    return isinstance(value, list) and any(matches(member, each) for each in value)


def _same(wanted: Any, value: Any) -> bool:
    """Equality of JSON values: true is not 1, but 2.0 is 2."""
    match wanted:
        case bool() | None:
            return wanted is value
        case int() | float():
            return isinstance(value, int | float) and not isinstance(value, bool) and wanted == value
        case Mapping():
            return (
                isinstance(value, Mapping)
                and wanted.keys() == value.keys()
                and all(_same(each, value[key]) for key, each in wanted.items())
            )
        case list() | tuple():
            return (
                isinstance(value, list | tuple)
                and len(wanted) == len(value)
                and all(map(_same, wanted, value))
            )
        case _:
            return type(wanted) is type(value) and wanted == value
