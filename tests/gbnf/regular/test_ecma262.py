from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import compile_schema
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import ANY_CHAR, CharSet
from gbnf.regular.ecma262 import search
from gbnf.regular.pattern_syntax import MalformedPatternError, UnsupportedPatternError
from gbnf.regular.unicode_properties import ignoring_case, unicode_property
from gbnf.work_limits import TooManyStatesError
from support.effort import scaled
from support.patterns import CHARACTERS, TEXTS, patterns, python_finds
from support.pools import BUNDLED
from support.random_texts import generate


@settings(max_examples=scaled(400))
@given(patterns(), st.lists(TEXTS, min_size=3, max_size=6))
def test_python_finds_the_same(pattern: str, texts: list[str]) -> None:
    language = search(pattern)
    for text in texts:
        assert language.accepts(text) == python_finds(pattern, text), text


_NODE = """
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
const verdicts = cases.map(([pattern, texts]) => texts.map((text) => new RegExp(pattern, "u").test(text)));
console.log(JSON.stringify(verdicts));
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="node is the judge")
@settings(max_examples=scaled(10), deadline=None)
@given(st.lists(st.tuples(patterns(), st.lists(TEXTS, min_size=3, max_size=6)), min_size=60, max_size=60))
def test_ecmascript_finds_the_same(cases: list[tuple[str, list[str]]]) -> None:
    plain = [(each if "[" in each else each.replace("-", "\\x2d"), texts) for each, texts in cases]
    assert_same_in_ecmascript(plain)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="node is the judge")
def test_ecmascript_finds_the_same_with_the_patterns_of_the_bundled_tools() -> None:
    source = random.Random(0)
    cases = []
    for pattern in {each for tool in BUNDLED for each in _patterns(tool.args)}:
        rules = compile_schema({"type": "string", "pattern": pattern}).rules
        texts = [json.loads(generate(rules, source)) for _ in range(30)]
        for text in texts[:]:
            at = source.randint(0, len(text))
            texts.append(
                text[:at] + source.choice(" ./~,-@T\n\u2028\x85(xé") + text[at + source.randint(0, 1) :]
            )
        cases.append((pattern, texts))
    assert len(cases) > 5
    assert_same_in_ecmascript(cases)


def _patterns(schema: Any) -> Iterator[str]:
    """Yield the values of `pattern` in a schema."""
    if isinstance(schema, Mapping):
        yield from (value for key, value in schema.items() if key == "pattern" and isinstance(value, str))
    if isinstance(schema, Mapping | list | tuple):
        for inner in schema.values() if isinstance(schema, Mapping) else schema:
            yield from _patterns(inner)


def assert_same_in_ecmascript(cases: list[tuple[str, list[str]]]) -> None:
    done = subprocess.run(
        ["node", "-e", _NODE], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    for (pattern, texts), verdicts in zip(cases, json.loads(done.stdout), strict=True):
        assert [search(pattern).accepts(text) for text in texts] == verdicts, pattern


@given(patterns(looks=False), patterns(looks=False))
def test_lookaheads_at_the_start_are_boolean_operations(left: str, right: str) -> None:
    assert search(f"^(?=[^]*?(?:{left}))[^]*$") == search(f"(?:{left})")
    assert search(f"^(?!(?:{left}))(?:{right})") == search(f"^(?:{right})") - search(f"^(?:{left})")


FOUND = [
    # pattern, texts in which it is found, texts in which it isn't
    ("", ["", "x"], []),
    ("a^b|$", ["", "x"], []),
    ("^$|^x", ["", "xy"], ["y"]),
    ("(^|/)a(/|$)", ["a", "x/a/y", "x/a"], ["ab", "xa"]),
    ("^\\d{4}-\\d{2}$", ["2024-11"], ["2024-1", "२०२४-११"]),
    ("^\\s$", [" ", "\u00a0", "\u2029", "\ufeff"], ["\x1c", "\x85", "\u200b"]),
    ("^.$", ["x", "\x85", "😀"], ["\n", "\r", "\u2028", "\u2029"]),
    ("^[^]$", ["\n", "😀"], ["ab"]),
    ("^a[]|b$", ["b"], ["a"]),
    ("^[\\w-.]+$", ["a-b.c"], ["a,b"]),
    ("^[a-z-9]+$", ["a-9"], ["8"]),
    ("^[-+]$", ["-", "+"], [","]),
    ("^[\\b]$", ["\b"], ["b"]),
    ("^[$^.*]+$", ["$^.*"], ["a"]),
    ("^\\u{1F600}\\ud83d\\ude00\\x41\\u0042\\cJ\\0$", ["😀😀AB\n\0"], ["😀"]),
    ("^\\/\\-\\_\\@\\ \\#$", ["/-_@ #"], [""]),
    ("^{a}]}{$", ["{a}]}{"], ["a"]),
    ("^x{,3}$", ["x{,3}"], ["xx"]),
    ("^(?:a|b)(?<name>c)(?P<other>d)$", ["acd"], ["cd"]),
    ("(?i)^straße$", ["STRAßE", "straße"], ["strasse"]),
    ("^(?i:ab)c$", ["ABc", "abc"], ["ABC"]),
    ("(?i)^[^a]$", ["b", "B"], ["a", "A"]),
    ("(?i)^[\\u0061-\\u{ffff}]$", ["A", "z", "\u212a"], ["0"]),
    ("(?s)^.$", ["\n"], [""]),
    ("(?m)^b$", ["a\nb\nc", "b"], ["ab"]),
    ("\\Aab\\Z", ["ab"], ["abc", "xab"]),
    ("^a(?#comment)b$", ["ab"], ["a"]),
    ("\\bfoo\\b", ["foo", "a foo.", "é foo"], ["foobar", "_foo"]),
    ("^\\Bx", [], ["x", "ax"]),
    ("\\B-\\B", ["-", "--", " - "], ["a-b", "a-", "-b"]),
    ("^\\p{Lu}\\p{Letter}*\\P{L}$", ["Éa1", "Ж "], ["éa1", "Éaa"]),
    ("^\\p{Script=Greek}+$", ["λόγος"], ["logos"]),
    ("^\\p{Nd}\\p{sc=Han}[\\p{P}\\d]$", ["٣漢!"], ["a漢!"]),
    ("^(?!.*--)[a-z-]+$", ["a-b-c", "-"], ["a--b", "--"]),
    ("^(?!foo|bar$).+$", ["ba", "barx", "x"], ["foo", "foox", "bar"]),
    ("^(?!^a|b).", ["c"], ["ax", "b"]),
    ("^((?!ab).)*$", ["", "ba", "aab"[1:2]], ["ab", "xaby"]),
    ("^((?!mode)(?!Mode).)*$", ["mod", "odeM"], ["amode", "Mode"]),
    ("^(?=.*\\d)(?=.*[a-z]).{4,6}$", ["abc1", "1abcde"], ["abcd", "1234", "abcdef1"]),
    ("^a(?=b)(?:b|c)c?$", ["ab", "abc"], ["ac", "acc"]),
    ("(?:a(?=b)|b(?=a))+b$", ["ab", "bab", "abab"], ["aa", "ba"]),
    ("(?=a)*b", ["b"], ["a"]),
    ("^(?=(?!b)a)", ["a"], ["b"]),
    ("^(?:(?<=b)a|b(?<!bb))+$", ["ba", "bab"], ["a", "bb"]),
    ("(?<=^a)b", ["ab"], ["aab"]),
    ("\\1(?:a)", ["\x01a"], ["a"]),
    ("^\\k$", ["k"], []),
]


@pytest.mark.parametrize(("pattern", "found", "missed"), FOUND, ids=[pattern for pattern, _, _ in FOUND])
def test_patterns_are_found_where_they_should_be(pattern: str, found: list[str], missed: list[str]) -> None:
    language = search(pattern)
    assert [text for text in found if not language.accepts(text)] == []
    assert [text for text in missed if language.accepts(text)] == []


@pytest.mark.parametrize(
    ("pattern", "position"),
    [("(a", 0), ("a)", 1), ("[a", 0), ("*a", 0), ("a**", 2), ("a{3,2}", 1), ("[b-a]", 1), ("\\", 0),
     ("{1}", 0), ("(?", 0), ("(?<!a", 0), ("^*", 0), ("a|*", 2), ("[\\", 1), ("(?#", 0), ("\\u{110000}", 0),
     ("x(?<)", 1)],
)  # fmt: skip
def test_malformed_patterns_say_where(pattern: str, position: int) -> None:
    with pytest.raises(MalformedPatternError) as caught:
        search(pattern)
    assert caught.value.position == position
    assert repr(pattern) in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    ["(a)\\1", "(?<x>a)\\k<x>", "(?P<x>a)(?P=x)", "(?>a)", "\\p{Klingon}", "(?x)a", "(?<=a$)b", "(?=(?<=a)b)",
     "(" * 200 + "a" + ")" * 200],
    ids=range(9),
)  # fmt: skip
def test_unsupported_patterns_are_distinguished_from_invalid_ones(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        search(pattern)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        "^(a|b)*a(a|b){30}$",
        "^((a{1,100}){1,100}){1,100}$",
        "((((a?){1,50}b?){1,50}c?){1,50})$",
        "^a{1,99999999}$",
        "^(a{1,3000}|b{1,3000}){2}$",
        "^(?:(?!a.{20}b).)*$",
        "(?=.*a.{12}$)(?=.*b.{11}$)(?=.*c.{10}$).*",
    ],
)
def test_bombs_are_stopped(pattern: str) -> None:
    with pytest.raises(TooManyStatesError):
        search(pattern)


def test_the_same_language_by_different_patterns_is_the_same_value() -> None:
    assert search("^(?:a|b)*$") == search("^(?:a*b*)*$") == search("^[ab]*?$")
    assert search("a|b|c") == search("[a-c]")
    assert search("(?:)") == search("^") == search("$") == search(".*") == Dfa.all_words()
    assert search("^(?=a)b") == search("[]") == Dfa.of_words([])


def test_the_characters_of_the_sampled_texts_are_distinguished() -> None:
    assert all(search(f"^[{char}]$") != search("^$") for char in CHARACTERS)


#: Assigned for long, so that every version of Unicode has the same properties for them.
ESTABLISHED = [chr(code) for code in (*range(0x250), *range(0x391, 0x3A2), *range(0x410, 0x450))]


@pytest.mark.parametrize(
    "name",
    [
        *("Any", "ASCII", "Assigned", "White_Space", "space"),
        *("L", "Letter", "LC", "Lu", "Nd", "P", "Sc", "Zs", "Cc"),
        *("General_Category=Ll", "gc=Uppercase_Letter"),
        *("Alphabetic", "Alpha", "Lowercase", "Lower", "Uppercase", "Upper"),
        *("Script=Latin", "sc=Greek", "scx=Cyrillic"),
    ],
)
def test_a_property_contains_the_characters_that_regex_finds(name: str) -> None:
    expected = regex.compile(rf"\p{{{name}}}")
    found = unicode_property(name)
    assert found is not None
    assert [char in found for char in ESTABLISHED] == [bool(expected.match(char)) for char in ESTABLISHED]


@pytest.mark.parametrize("name", ["", "Zz", "Latin", "gc=", "gc=Zz", "sc=Nowhere", "Block=ASCII", "Any=Any"])
def test_an_unknown_property_is_none(name: str) -> None:
    assert unicode_property(name) is None


@pytest.mark.parametrize("chars", [CharSet.of("k"), CharSet.of("K"), ANY_CHAR - CharSet.of("kK")])
def test_ignoring_case_adds_every_character_that_differs_only_in_case(chars: CharSet) -> None:
    assert all(char in ignoring_case(chars) for char in "kK\N{KELVIN SIGN}")


def test_ignoring_case_adds_no_other_character() -> None:
    assert ignoring_case(CharSet.of("k1")) == CharSet.of("1kK\N{KELVIN SIGN}")
    assert "1" not in ignoring_case(ANY_CHAR - CharSet.of("1"))
