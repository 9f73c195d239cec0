"""Any text is a grammar or refused with a location and a reason, and any grammar can be traversed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gbnf.errors import AmbiguousGrammarError, GrammarSyntaxError
from gbnf.grammar.analysis import MAX_BYTES, cheapest_costs
from gbnf.grammar.ir import Ref, Rules
from gbnf.grammar.match import Matcher
from gbnf.grammar.parse import MAX_DEPTH, MAX_NESTING, parse_gbnf
from gbnf.grammar.passes import _ends
from support.effort import scaled
from support.hostile_grammars import HOSTILE, hostile_grammar, walk
from support.random_texts import generate, shortest_text


def parsed(text: str) -> Rules | None:
    """The rules; None if the text is refused as it should be."""
    try:
        return parse_gbnf(text)
    except GrammarSyntaxError as error:
        refused = error
    assert 1 <= refused.line <= text.count("\n") + 1
    assert refused.column >= 1
    assert refused.hint
    assert len(str(refused)) < 1_000
    return None


def below(depth: int, text: str) -> None:
    """Parse and walk with `depth` frames on the stack."""
    if depth:
        below(depth - 1, text)
    elif (rules := parsed(text)) is not None:
        walk(text, rules)


@pytest.mark.parametrize(
    "size", [2, 12, *(pytest.param(size, marks=pytest.mark.slow) for size in (60, 1_200))]
)
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_the_table(name: str, size: int) -> None:
    below(100, HOSTILE[name](size))


@settings(max_examples=scaled(200))
@given(st.randoms(use_true_random=False))
def test_hostile_texts(random: Random) -> None:
    text = hostile_grammar(random, largest=300)
    rules = parsed(text)
    if rules is not None:
        walk(text, rules)


@given(st.text() | st.text('root:=a"|()[]{}?*+,0129^\\-. \n#').map("root ::= ".__add__))
@example("")
@example("\ufeffroot ::= 'a'")
def test_any_text(text: str) -> None:
    rules = parsed(text)
    if rules is not None:
        walk(text, rules)


@pytest.mark.parametrize(
    ("text", "column", "limit"),
    [
        ('root ::= "a"' + "*" * 600, 13 + MAX_DEPTH, MAX_DEPTH),
        ("root ::= " + "(" * 5_000 + '"a"' + ")" * 5_000, 10 + MAX_NESTING, MAX_NESTING),
    ],
)
def test_excessive_nesting_is_reported_with_its_location_and_the_limit(
    text: str, column: int, limit: int
) -> None:
    with pytest.raises(GrammarSyntaxError, match=f"deeper than {limit}") as caught:
        parse_gbnf(text)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_a_text_too_large_for_memory_is_not_derived() -> None:
    for name in ("doubling", "doubling of nothing", "doubling by repetition"):
        rules = parse_gbnf(HOSTILE[name](64))
        with pytest.raises(ValueError, match=f"none of at most {MAX_BYTES:,} bytes"):
            shortest_text(rules)
    optional = parse_gbnf(HOSTILE["optional doubling"](64))
    assert len(generate(optional, Random(1), budget=400)) < 400 * MAX_BYTES
    assert max(cheapest_costs(parse_gbnf(HOSTILE["doubling"](10))).values())


@pytest.mark.slow
def test_a_grammar_with_too_many_ways_is_refused_while_it_is_followed() -> None:
    matcher = Matcher(parse_gbnf(HOSTILE["doubling of nothing"](60)))
    with pytest.raises(AmbiguousGrammarError, match="more than 20,000 derivations"):
        matcher.start()


def test_a_chain_of_aliases_is_followed_once() -> None:
    looked_up = 0

    class Counted(dict[str, Ref]):
        def __getitem__(self, name: str) -> Ref:
            nonlocal looked_up
            looked_up += 1
            return super().__getitem__(name)

    aliases = Counted({f"r{i}": Ref(f"r{i + 1}") for i in range(500)})
    assert set(_ends(aliases).values()) == {Ref("r500")}
    assert looked_up < 2 * len(aliases)
