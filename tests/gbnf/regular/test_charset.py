from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.regular.charset import ANY_CHAR, CharSet, common_refinement, minterms

CODES = st.integers(0, 40) | st.integers(0xD7F0, 0xE010) | st.integers(0x10FFF0, 0x10FFFF)
PAIRS = st.tuples(CODES, CODES).map(lambda pair: (min(pair), max(pair)))
SETS = st.lists(PAIRS, max_size=4).map(lambda pairs: CharSet.of(*pairs))
CHARS = CODES.filter(lambda code: not 0xD800 <= code <= 0xDFFF).map(chr)


@given(SETS, SETS, CHARS)
def test_operations_are_those_of_sets(left: CharSet, right: CharSet, char: str) -> None:
    assert (char in left | right) == (char in left or char in right)
    assert (char in left & right) == (char in left and char in right)
    assert (char in left - right) == (char in left and char not in right)
    assert (char in ~left) == (char not in left)


@given(SETS, SETS)
def test_equal_sets_are_equal_values(left: CharSet, right: CharSet) -> None:
    assert ~~left == left
    assert ~(left | right) == ~left & ~right
    assert left - right == left & ~right
    assert (left | right) - left == right - left
    assert len(left | right) == len(left) + len(right) - len(left & right)


@given(SETS)
def test_normal_form(chars: CharSet) -> None:
    edges = [edge for pair in chars.ranges for edge in pair]
    assert edges == sorted(edges)
    assert all(high + 1 < low for (_, high), (low, _) in zip(chars.ranges, chars.ranges[1:], strict=False))
    assert not any(low <= 0xDFFF and high >= 0xD800 for low, high in chars.ranges)


@given(st.lists(SETS, max_size=4), CHARS)
def test_minterms_tell_apart_what_the_sets_do(sets: list[CharSet], char: str) -> None:
    alphabet, membership = minterms(sets)
    containing = membership[alphabet.class_of(char)]
    assert [bool(containing >> index & 1) for index in range(len(sets))] == [char in chars for chars in sets]
    assert len(set(membership)) == len(membership) == alphabet.size
    union = CharSet.of(*alphabet.sets())
    assert union == ANY_CHAR


@given(st.lists(SETS, max_size=3), st.lists(SETS, max_size=3), CHARS)
def test_a_common_refinement_maps_to_both_alphabets(
    left: list[CharSet], right: list[CharSet], char: str
) -> None:
    one, two = minterms(left)[0], minterms(right)[0]
    alphabet, pairs = common_refinement(one, two)
    assert pairs[alphabet.class_of(char)] == (one.class_of(char), two.class_of(char))
    assert alphabet == minterms([*left, *right])[0]


@pytest.mark.parametrize(
    ("parts", "ranges"),
    [
        (("cab",), ((0x61, 0x63),)),
        (((0x30, 0x39), "5"), ((0x30, 0x39),)),
        (((0, 0x10FFFF),), ((0, 0xD7FF), (0xE000, 0x10FFFF))),
        (((0xD900, 0xDA00),), ()),
        (((0xD000, 0xD900), (0xDA00, 0xE001)), ((0xD000, 0xD7FF), (0xE000, 0xE001))),
        ((), ()),
    ],
)
def test_sets_are_built_from_parts(
    parts: tuple[str | tuple[int, int]], ranges: tuple[tuple[int, int], ...]
) -> None:
    assert CharSet.of(*parts).ranges == ranges


def test_a_surrogate_has_no_class() -> None:
    assert minterms([ANY_CHAR])[0].class_of("\ud800") == -1
