"""Sets of characters.

A character is a Unicode code point that is not a surrogate: what a JSON string consists of.

Invariants: sets are immutable and in one normal form (sorted, disjoint, inclusive ranges that do not touch),
so equal sets are equal values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

SURROGATES = (0xD800, 0xDFFF)

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CharSet:
    """A set of characters. Build it with `CharSet.of`; `ranges` must be in normal form."""

    ranges: Ranges = ()

    @staticmethod
    def of(*parts: str | tuple[int, int] | CharSet) -> CharSet:
        """Return the union of the characters of strings, inclusive ranges of code points and other sets."""
        pairs: list[tuple[int, int]] = []
        for part in parts:
            if isinstance(part, str):
                pairs += [(code, code) for code in map(ord, part)]
            elif isinstance(part, CharSet):
                pairs += part.ranges
            else:
                pairs.append(part)
        return CharSet(_normal(pairs))

    @staticmethod
    @lru_cache(maxsize=1024)
    def single(code_point: int) -> CharSet:
        """Return the set of one character; empty for a surrogate."""
        return CharSet(_normal([(code_point, code_point)]))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, char: str) -> bool:
        code = ord(char)
        return any(low <= code <= high for low, high in self.ranges)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def __iter__(self) -> Iterator[str]:
        """Return the characters, in the order of their code points."""
        return (chr(code) for low, high in self.ranges for code in range(low, high + 1))

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet(_normal([*self.ranges, *other.ranges]))

    def __invert__(self) -> CharSet:
        """Return every other character."""
        gaps, start = [], 0
        for low, high in (*self.ranges, (sys.maxunicode + 1, 0)):
            if start < low:
                gaps.append((start, low - 1))
            start = high + 1
        return CharSet(_normal(gaps))

    def __and__(self, other: CharSet) -> CharSet:
        shared: list[tuple[int, int]] = []
        left, right = self.ranges, other.ranges
        one = two = 0
        while one < len(left) and two < len(right):
            low, high = max(left[one][0], right[two][0]), min(left[one][1], right[two][1])
            if low <= high:
                shared.append((low, high))
            if left[one][1] < right[two][1]:
                one += 1
            else:
                two += 1
        return CharSet(tuple(shared))

    def __sub__(self, other: CharSet) -> CharSet:
        return self & ~other


def _normal(pairs: list[tuple[int, int]]) -> Ranges:
    if len(pairs) > 1:
        pairs.sort()
        merged = [pairs[0]]
        for low, high in pairs:
            last_low, last_high = merged[-1]
            if low > last_high + 1:
                merged.append((low, high))
            elif high > last_high:
                merged[-1] = (last_low, high)
        pairs = merged
    first, last = SURROGATES
    if not any(low <= last and high >= first for low, high in pairs):
        return tuple(pairs)
    halves = [
        half for low, high in pairs for half in ((low, min(high, first - 1)), (max(low, last + 1), high))
    ]
    return tuple((low, high) for low, high in halves if low <= high)


ANY_CHAR = CharSet(((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, sys.maxunicode)))
