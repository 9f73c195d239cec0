"""Stop strings: where a text ends, however it arrives."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls.stop_strings import StopStrings

TEXTS = st.text("abc", max_size=12)


@given(TEXTS, st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.lists(st.integers(0, 12)))
def test_pieces_make_no_difference_and_no_stop_string_is_passed_on(
    text: str, strings: list[str], cuts: list[int]
) -> None:
    ends = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(strings))]
    found = max((each for each in strings if ends and text[: ends[0]].endswith(each)), key=len, default=None)
    expected = text if found is None else text[: ends[0] - len(found)]
    stops, passed = StopStrings(strings), []
    bounds = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    for start, end in pairwise(bounds):
        passed.append(stops.feed(text[start:end]))
        assert expected.startswith("".join(passed))
    assert "".join([*passed, stops.end()]) == expected
    assert stops.found == found


@pytest.mark.parametrize(
    ("pieces", "passed"),
    [
        (["one\n", "\ntwo"], ["one", ""]),  # the line breaks might have been one
        (["one\n", "two"], ["one", "\ntwo"]),
    ],
)
def test_what_may_begin_a_stop_string_is_retained(pieces: list[str], passed: list[str]) -> None:
    stops = StopStrings(["\n\n"])
    assert [stops.feed(piece) for piece in pieces] == passed
