"""Derivations end, spread, and hold no character that cannot be matched."""

from __future__ import annotations

from collections import Counter
from random import Random

from gbnf.grammar.parse import parse_gbnf
from support.random_texts import generate


def test_all_alternatives_come() -> None:
    rules = parse_gbnf('root ::= "a" | "b" | x\nx ::= "c" | "d"')
    random = Random(1)
    seen = Counter(generate(rules, random) for _ in range(400))
    assert set(seen) == set("abcd")
    assert min(seen.values()) > 30


def test_characters_spread_over_the_planes_and_none_is_unmatchable() -> None:
    random = Random(2)
    rules = parse_gbnf("root ::= .")
    chars = [ord(generate(rules, random)) for _ in range(3000)]
    assert sum(char < 0x80 for char in chars) > 1500
    assert any(0x800 <= char < 0x10000 for char in chars)
    assert any(char >= 0x10000 for char in chars)
    assert not any(char == 0 or 0xD800 <= char <= 0xDFFF for char in chars)


def test_repetitions_reach_their_upper_bound() -> None:
    random = Random(3)
    rules = parse_gbnf('root ::= "a"{2,30}')
    assert {len(generate(rules, random)) for _ in range(300)} >= {2, 3, 30}
