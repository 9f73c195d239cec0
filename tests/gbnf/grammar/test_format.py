"""Formatting keeps grammar and comments, and is done after one time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.errors import GrammarSyntaxError
from gbnf.grammar.emit import emit
from gbnf.grammar.format import WIDTH, format_grammar
from gbnf.grammar.parse import parse_gbnf, read_gbnf, tokens_of
from support.effort import scaled
from support.grammars import grammars
from support.hostile_grammars import HOSTILE, hostile_grammar
from support.oracle import parses

# (before, after)
TABLE = [
    ('root::="a"', 'root ::= "a"\n'),
    ('\n\n# c\n\n\n\nroot  ::=\t"a"   # d  \n\n\nx ::= "b"', '# c\n\nroot ::= "a" # d\n\nx ::= "b"\n'),
    ('root ::= ( "a"|\n\n"b" ) *\r\n', 'root ::= ("a" | "b")*\n'),
    ('root ::= "a" { 1 , 2 } "b"{0,} "c"{1,} "d"{0,1}', 'root ::= "a"{1,2} "b"* "c"+ "d"?\n'),
    ('root ::= ("a"{1, # two\n 2})', 'root ::= (\n  "a"{1,2} # two\n)\n'),
    ('root ::= "a" | # one\n "b"', 'root ::=\n  "a" | # one\n  "b"\n'),
    ('root ::= # one\n # two\n "a"', 'root ::= # one\n  # two\n  "a"\n'),
    ('root ::= ("a" # one\n | "b"\n # two\n)?', 'root ::= (\n  "a" # one\n  | "b"\n  # two\n)?\n'),
    ("root ::=", "root ::=\n"),
    ('root ::= | "a" |', 'root ::= | "a" |\n'),
    ("root ::= () x\nx ::= [ a ]", "root ::= () x\nx ::= [ a ]\n"),
    ('root ::= "a\n  b"', 'root ::= "a\n  b"\n'),
    ('root ::= a{1 2} undefined "\\d" [z-a]', 'root ::= a{1 2} undefined "\\d" [z-a]\n'),
    ('root ::= "a"{#9}', 'root ::= "a"{#9}\n'),
    ("# only this", "# only this\n"),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), TABLE)
def test_layout(before: str, after: str) -> None:
    assert format_grammar(before) == after
    assert format_grammar(after) == after


def test_a_long_rule_has_its_alternatives_and_groups_on_lines_of_their_own() -> None:
    long = " ".join(f"item{i}" for i in range(12))
    assert format_grammar(f"root ::= a | {long} ({long} | b)? c") == (
        f"root ::=\n  a |\n  {long} (\n    {long} |\n    b\n  )? c\n"
    )
    assert format_grammar(f'root ::= "x" ({long} ("," {long})*) "y"') == (
        f'root ::= "x" (\n  {long}\n  ("," {long})*\n) "y"\n'
    )


@pytest.mark.parametrize("text", ['root ::= "a', 'root := "a"', 'root ::= ("a"', 'root ::= "a"\0'])
def test_a_syntax_error_is_refused(text: str) -> None:
    with pytest.raises(GrammarSyntaxError):
        format_grammar(text)


@st.composite
def untidy(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A grammar in a layout that llama.cpp reads, and its comments."""
    comments: list[str] = []

    def space(*, breaks: bool, apart: bool = False) -> str:
        blank = st.text(" \t\n\r" if breaks else " \t", max_size=3)
        written = draw(blank)
        if breaks and draw(st.integers(0, 3)) == 0:
            comments.append(f"# c{len(comments)}")
            written += f"{comments[-1]}{draw(st.sampled_from([' ', '']))}\n{draw(blank)}"
        return written or " " * apart

    written, depth = space(breaks=True), 0
    before = ""
    for token in tokens_of(emit(draw(grammars()))):
        if token.type == "_NEWLINE":
            written += f"{space(breaks=False)}\n{space(breaks=True)}"
        else:
            may_break = before != "_NEWLINE" and (before in {"_DEFINES", "_PIPE"} or depth > 0)
            is_first = before in {"", "_NEWLINE"}
            written += "" if is_first else space(breaks=may_break, apart=True)
            written += token.replace(",", " , ") if token.type == "SUFFIX" else token
            depth += (token.type == "LPAR") - (token.type == "_RPAR")
        before = token.type
    return written, comments


@settings(max_examples=scaled(150))
@given(untidy())
def test_grammar_and_comments_stay(given_: tuple[str, list[str]]) -> None:
    text, comments = given_
    formatted = format_grammar(text)
    assert list(parse_gbnf(formatted).productions.items()) == list(parse_gbnf(text).productions.items())
    assert format_grammar(formatted) == formatted
    assert re.findall(r"# c\d+", formatted) == comments
    outside = re.sub(r'"(\\.|[^"\\])*"|\[(\\.|[^\]\\])*\]', "x", formatted)
    assert not re.search(r"[ \t]$|\n\n\n", outside, re.MULTILINE)
    assert parses(formatted)


@settings(max_examples=scaled(200))
@given(st.randoms(use_true_random=False).map(lambda random: hostile_grammar(random, largest=60)) | st.text())
def test_any_text_is_formatted_or_refused(text: str) -> None:
    try:
        formatted = format_grammar(text)
    except GrammarSyntaxError:
        return
    assert format_grammar(formatted) == formatted
    before, after = read_gbnf(text), read_gbnf(formatted)
    assert list(after.rules.productions.items()) == list(before.rules.productions.items())
    assert [error.code for error in after.errors] == [error.code for error in before.errors]


@pytest.mark.parametrize("size", [12, *(pytest.param(size, marks=pytest.mark.slow) for size in (60, 1_200))])
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_nesting_and_width(name: str, size: int) -> None:
    try:
        formatted = format_grammar(HOSTILE[name](size))
    except GrammarSyntaxError:
        return
    assert format_grammar(formatted) == formatted
    if "nested" in name and size <= 12:
        assert max(map(len, formatted.splitlines())) <= WIDTH
