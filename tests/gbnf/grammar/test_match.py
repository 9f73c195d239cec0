"""Where a text leaves a grammar, and what the matcher must do without blowing up."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.grammar.ir import Literal, Ref, Rules, Seq
from gbnf.grammar.match import END_OF_TEXT, Match, Matcher, MatchState
from gbnf.grammar.parse import parse_gbnf

CALL = parse_gbnf(r"""
root ::= "{\"name\": \"" ("find" | "read") "\", \"n\": " [0-9]{1,3} "}"
""")


def test_it_says_where_and_what_was_expected() -> None:
    assert Matcher(CALL).match('{"name": "rust') == Match(
        accepted=False, complete=False, position=11, line=1, column=12, expected=('"ead"',)
    )
    assert Matcher(CALL).match('{"name": "find", "n": 1').expected == ("[0-9]", '"}"')
    assert Matcher(parse_gbnf('root ::= "a"{1,2}')).match("ab").expected == ('"a"', END_OF_TEXT)


def test_lines_and_columns() -> None:
    found = Matcher(parse_gbnf('root ::= ("a\\n")* "b"')).match("a\na\nx")
    assert (found.position, found.line, found.column) == (4, 3, 1)


def test_forced_text() -> None:
    state = Matcher(CALL).start()
    assert state.forced() == '{"name": "'
    after = state.advance('{"name": "r')
    assert after is not None
    assert after.forced() == 'ead", "n": '
    assert Matcher(parse_gbnf('root ::= "abc" | "abd"')).start().forced() == "ab"
    assert Matcher(parse_gbnf('root ::= "a" root')).start().forced(limit=5) == "aaaaa"


def test_neither_nul_nor_surrogates_match() -> None:
    anything = Matcher(parse_gbnf("root ::= .*"))
    assert anything.match("\U0010ffff\n").complete
    assert not anything.match("\0").accepted
    assert not anything.match("\ud800").accepted


@pytest.mark.parametrize(
    ("gbnf", "text"),
    [
        ("root ::= " + '"x"? ' * 40, "x" * 40),
        ('root ::= ("x"?){0,1000}', "x" * 1000),
        ('root ::= (("x"+)+)+', "x" * 2000),
        ('root ::= ("x"* "x"*)*', "x" * 2000),
        ("root ::= ([a-z]*){0,100}", "x" * 500),
        ('root ::= "a" root "b" | "a" root "c" | "x"', "a" * 300 + "x" + "bc" * 150),
        ('root ::= "x" root root | "x"', "x" * 101),
        ('root ::= "0" root? ("0" root?){3,4}', "0" * 88),
        ('root ::= "{" root? "}" root?', "{" * 3000 + "}" * 3000),
    ],
)
def test_ambiguity_and_depth_cost_no_more_than_text(gbnf: str, text: str) -> None:
    assert Matcher(parse_gbnf(gbnf)).match(text).complete


def test_matching_continues_after_the_caches_are_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gbnf.grammar.match._MAX_CACHED", 10)
    assert Matcher(parse_gbnf('root ::= "(" root{0,3} ")"')).match("(()(()())())").complete


@given(st.lists(st.text(st.characters(exclude_characters='"\0', exclude_categories=["Cs"])), max_size=8))
def test_no_text_makes_the_caches_grow_beyond_their_bound(texts: list[str]) -> None:
    matcher = Matcher(parse_gbnf('root ::= ("\\"" [^"]* "\\"")*'))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gbnf.grammar.match._MAX_CACHED", 50)
        kept = [matcher.start()]  # as of answers that are not complete
        for text in texts:
            state = kept[-1].advance(f'"{text}"')
            assert state is not None
            kept.append(state)
        for state in kept:  # each with steps of its own
            state.advance(f'"{"".join(texts)}')
        reached = {id(one): one for one in kept}
        pending = list(reached.values())
        while pending:
            for following in pending.pop().steps.values():
                if following is not None and id(following) not in reached:
                    reached[id(following)] = following
                    pending.append(following)
        assert sum(len(state.steps) for state in reached.values()) <= 60


@pytest.mark.parametrize("piece", [4, 20_000])
def test_what_is_counted_bounds_the_memory_of_long_literals(piece: int) -> None:
    text = "ab c" * 5000
    matcher = Matcher(parse_gbnf(f'root ::= "{text}"'))
    tracemalloc.start()
    try:
        for end in range(0, len(text), 10):  # as of several answers, each cut elsewhere
            matcher.start().advance(text[:end])
        state: MatchState | None = matcher.start()
        for begin in range(0, len(text), piece):
            assert state is not None
            state = state.advance(text[begin : begin + piece])
        assert state is not None
        assert state.must_end
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1000 * matcher._cached


@pytest.mark.parametrize(
    "productions",
    [{"root": Ref("missing")}, {"other": Literal("a")}, {"root": Seq((Ref("root"), Literal("a")))}],
)
def test_rules_that_cannot_be_followed(productions: dict[str, Literal | Ref | Seq]) -> None:
    with pytest.raises(ValueError, match=r"define it|add it|turn it round"):
        Matcher(Rules(productions))
