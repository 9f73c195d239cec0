"""Sets of characters, and alphabets: partitions of all characters into a few classes.

A character is a Unicode code point that is not a surrogate: what a JSON string consists of.

Invariants: sets are immutable and in one normal form (sorted, disjoint, inclusive ranges that do not touch),
so equal sets are equal values. The transitions of automata are on classes of characters that none of the
sets in use distinguishes (minterms). Classes are numbered in the order of their first characters, so equal
partitions are equal values.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

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
        i = j = 0
        while i < len(left) and j < len(right):
            low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
            if low <= high:
                shared.append((low, high))
            if left[i][1] < right[j][1]:
                i += 1
            else:
                j += 1
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


Label = TypeVar("Label", bound=Hashable)

_OUTSIDE = -1  # the class of the surrogates, on which no automaton ever steps


@dataclass(frozen=True, slots=True)
class Alphabet:
    """A partition of the characters into classes 0 to `size - 1`.

    The code points from `starts[i]` up to the next start are of class `classes[i]`.
    """

    starts: tuple[int, ...]
    classes: tuple[int, ...]
    size: int

    def class_of(self, char: str) -> int:
        """Return the number of the character's class; -1 for a surrogate."""
        return self.classes[bisect_right(self.starts, ord(char)) - 1]

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield the partition from the first character to the last: (low, high, class)."""
        ends = (*self.starts[1:], sys.maxunicode + 1)
        for low, end, number in zip(self.starts, ends, self.classes, strict=True):
            if number != _OUTSIDE:
                yield low, end - 1, number

    def sets(self) -> tuple[CharSet, ...]:
        """Return the characters of each class."""
        pairs: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        for low, high, number in self.ranges():
            pairs[number].append((low, high))
        return tuple(CharSet(tuple(ranges)) for ranges in pairs)

    def merged(self, labels: Sequence[Hashable]) -> Alphabet:
        """Return the coarser alphabet that joins the classes with the same label."""
        intervals = zip(self.starts, self.classes, strict=True)
        return _partition((start, labels[number]) for start, number in intervals)[0]

    def classes_at(self, starts: Sequence[int]) -> Iterator[int]:
        """Yield the class at each of the code points, which ascend and include all of `self.starts`."""
        current = dict(zip(self.starts, self.classes, strict=True))
        number = _OUTSIDE
        for start in starts:
            number = current.get(start, number)
            yield number


ONE_CLASS = Alphabet((0, SURROGATES[0], SURROGATES[1] + 1), (0, _OUTSIDE, 0), 1)


def minterms(sets: Sequence[CharSet]) -> tuple[Alphabet, list[int]]:
    """Return the coarsest alphabet that distinguishes the sets, and which sets contain each class.

    Bit `i` of the second value's entry for a class says whether set `i` contains the class.
    """
    changes = {0: 0}  # where membership changes, and in which sets
    for index, chars in enumerate(sets):
        bit = 1 << index
        for low, high in chars.ranges:
            changes[low] = changes.get(low, 0) ^ bit
            changes[high + 1] = changes.get(high + 1, 0) ^ bit
    low, high = SURROGATES
    changes.pop(sys.maxunicode + 1, None)
    changes.setdefault(low, 0)
    changes.setdefault(high + 1, 0)
    holders, intervals = 0, []
    for start in sorted(changes):
        holders ^= changes[start]
        intervals.append((start, holders))
    return _partition(intervals)


def common_refinement(left: Alphabet, right: Alphabet) -> tuple[Alphabet, list[tuple[int, int]]]:
    """Return the coarsest alphabet finer than both, and for each of its classes the pair that contains it."""
    if left == right:
        return left, [(number, number) for number in range(left.size)]
    starts = sorted({*left.starts, *right.starts})
    pairs = zip(left.classes_at(starts), right.classes_at(starts), strict=True)
    return _partition(zip(starts, pairs, strict=True))


def _partition(intervals: Iterable[tuple[int, Label]]) -> tuple[Alphabet, list[Label]]:
    """Return the alphabet whose classes are the labels of the intervals, given by their first code points."""
    numbers: dict[Label, int] = {}
    starts: list[int] = []
    classes: list[int] = []
    last: int | None = None
    for start, label in intervals:
        number = _OUTSIDE if start == SURROGATES[0] else numbers.setdefault(label, len(numbers))
        if number != last:
            starts.append(start)
            classes.append(number)
            last = number
    return Alphabet(tuple(starts), tuple(classes), len(numbers)), list(numbers)
