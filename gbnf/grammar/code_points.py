"""The code points that a class can match in a text.

llama.cpp matches classes against decoded UTF-8 that ends at a NUL: no class ever matches NUL or a surrogate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache

from gbnf.grammar.ir import CharClass, char_class

Ranges = tuple[tuple[int, int], ...]

SURROGATES = (0xD800, 0xDFFF)
_UNMATCHABLE = ((0, 0), SURROGATES)


@lru_cache(maxsize=4096)
def matchable(of: CharClass) -> Ranges:
    """Return the class's code points that can occur in a text, as sorted, disjoint, inclusive ranges."""
    ranges = char_class(*of.ranges).ranges
    if of.negated:
        return complement((*ranges, *_UNMATCHABLE))
    return complement((*complement(ranges), *_UNMATCHABLE))


def complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the code points that are in none of the ranges."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted(ranges):
        if start < low:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    if start <= sys.maxunicode:
        gaps.append((start, sys.maxunicode))
    return tuple(gaps)


@lru_cache(maxsize=4096)
def first_bytes(of: CharClass) -> frozenset[int]:
    """Return the first bytes of the UTF-8 of the class's characters (they increase with the code point)."""
    return frozenset(
        byte for low, high in matchable(of) for byte in range(_first_byte(low), _first_byte(high) + 1)
    )


def _first_byte(code_point: int) -> int:
    return chr(code_point).encode()[0]
