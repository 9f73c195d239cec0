"""Unicode properties of `\\p{...}`, compared with the package `regex`."""

from __future__ import annotations

import pytest
import regex

from gbnf.regular.charset import ANY_CHAR, CharSet
from gbnf.regular.unicode_properties import ignoring_case, unicode_property

#: Assigned for long, so that every version of Unicode has the same properties for them.
ESTABLISHED = [chr(code) for code in (*range(0x250), *range(0x391, 0x3A2), *range(0x410, 0x450))]


@pytest.mark.parametrize(
    "name",
    [
        *("Any", "ASCII", "Assigned", "White_Space", "space"),
        *("L", "Letter", "LC", "Lu", "Nd", "P", "Sc", "Zs", "Cc"),
        *("General_Category=Ll", "gc=Uppercase_Letter"),
    ],
)
def test_a_property_contains_the_characters_that_regex_finds(name: str) -> None:
    expected = regex.compile(rf"\p{{{name}}}")
    found = unicode_property(name)
    assert found is not None
    assert [char in found for char in ESTABLISHED] == [bool(expected.match(char)) for char in ESTABLISHED]


@pytest.mark.parametrize(
    "name",
    [
        *("Alphabetic", "Alpha", "Lowercase", "Lower", "Uppercase", "Upper"),
        *("Script=Latin", "sc=Greek", "scx=Cyrillic"),
    ],
)
def test_an_approximated_property_differs_only_in_ordinal_indicators(name: str) -> None:
    expected = regex.compile(rf"\p{{{name}}}")
    found = unicode_property(name)
    assert found is not None
    assert {char for char in ESTABLISHED if (char in found) != bool(expected.match(char))} <= {*"ªº"}


@pytest.mark.parametrize("name", ["", "Zz", "Latin", "gc=", "gc=Zz", "sc=Nowhere", "Block=ASCII", "Any=Any"])
def test_an_unknown_property_is_none(name: str) -> None:
    assert unicode_property(name) is None


@pytest.mark.parametrize("chars", [CharSet.of("k"), CharSet.of("K"), ANY_CHAR - CharSet.of("kK")])
def test_ignoring_case_adds_every_character_that_differs_only_in_case(chars: CharSet) -> None:
    assert all(char in ignoring_case(chars) for char in "kK\N{KELVIN SIGN}")


def test_ignoring_case_adds_no_other_character() -> None:
    assert ignoring_case(CharSet.of("k1")) == CharSet.of("1kK\N{KELVIN SIGN}")
    assert "1" not in ignoring_case(ANY_CHAR - CharSet.of("1"))
