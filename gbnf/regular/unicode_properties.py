"""The named sets of characters of ECMA-262: `\\d \\w \\s .`, `\\p{...}`, and letters of either case."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import chain

from gbnf.regular.charset import ANY_CHAR, CharSet

DIGIT = CharSet.of((0x30, 0x39))
WORD = CharSet.of((0x30, 0x39), (0x41, 0x5A), "_", (0x61, 0x7A))
#: ECMA-262, WhiteSpace and LineTerminator.
SPACE = CharSet.of("\t\n\v\f\r \u00a0\u1680", (0x2000, 0x200A), "\u2028\u2029\u202f\u205f\u3000\ufeff")
LINE_END = CharSet.of("\n\r\u2028\u2029")

ESCAPED: Mapping[str, CharSet] = {
    "d": DIGIT, "D": ~DIGIT, "w": WORD, "W": ~WORD, "s": SPACE, "S": ~SPACE,
}  # fmt: skip

_KEYS = ("General_Category", "gc", "Script", "sc", "Script_Extensions", "scx")


@cache
def unicode_property(text: str) -> CharSet | None:
    """Return the characters of a property, as named between the braces of `\\p{...}`; None if it is unknown.

    Known are Any, ASCII, Assigned, and what the package `regex` knows of general categories, scripts and
    binary properties, by its version of Unicode.
    """
    import regex  # noqa: PLC0415  # most patterns name no property

    if text in ("Any", "ASCII"):
        return ANY_CHAR if text == "Any" else CharSet.of((0, 0x7F))
    if text == "Assigned":
        return ~(unicode_property("Cn") or CharSet())
    key, equals, value = text.partition("=")
    if not key or (equals and not (key in _KEYS and value)):
        return None
    for name in [text] if equals else [f"gc={text}", f"{text}=Yes"]:
        with suppress(regex.error):
            runs = regex.compile(rf"\p{{{name}}}+").finditer(_every_char())
            return CharSet.of(*[(ord(run[0][0]), ord(run[0][-1])) for run in runs])
    return None


@cache
def _every_char() -> str:
    codes = array("I", chain.from_iterable(range(low, high + 1) for low, high in ANY_CHAR.ranges))
    return codes.tobytes().decode(f"utf-32-{sys.byteorder[0]}e")


def ignoring_case(chars: CharSet) -> CharSet:
    """Return the characters of the set, and those that differ from one of them only in case."""
    if len(chars) > len(_cased()):
        return CharSet.of(chars, *[orbit for orbit in _orbits() if any(char in chars for char in orbit)])
    return CharSet.of(chars, *[orbit for char in chars if (orbit := _cased().get(char))])


@cache
def _orbits() -> tuple[str, ...]:
    """Return the characters that are one when case is ignored, as strings of at least two."""
    orbits: dict[str, str] = {}
    for char in map(chr, range(0x1E944)):  # no letter beyond has a case
        folded = char.casefold()
        if len(folded) == 1 and folded != char:
            orbits[folded] = orbits.get(folded, folded) + char
    return tuple(orbits.values())


@cache
def _cased() -> Mapping[str, str]:
    return {char: orbit for orbit in _orbits() for char in orbit}
