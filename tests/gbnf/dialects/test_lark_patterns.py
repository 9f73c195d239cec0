"""A Lark grammar without recursion as a pattern: its texts are those that Lark's own rules describe."""

from __future__ import annotations

import itertools
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.dialects.lark_patterns import lark_pattern, whole_pattern
from gbnf.errors import GrammarError
from gbnf.regular.ecma262 import search
from gbnf.schema.validators import violation

PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
DOUBLED = "".join(f"{each}: {last} {last}\n" for last, each in itertools.pairwise("abcdefghijklmno"))
DOUBLED += "a: /x{9}/\nstart: o"
BEGIN, END = "*** Begin Patch\n", "*** End Patch"


def accepts(pattern: str, text: str) -> bool:
    return not violation({"pattern": pattern}, text)


@pytest.mark.parametrize(
    ("body", "valid"),
    [
        ('*** Add File: a.py\n+x = "1"\r\n+\n', True),
        ("*** Update File: a.py\n*** Move to: b.py\n@@ def f\n-a\n+b\n c\n*** End of File\n", True),
        ("*** Delete File: è/\u2028.py\n", True),
        ("*** Delete File: \n", False),
        ("*** Add File: a.py\n", False),
        ("*** Add File: a.py\nx\n", False),
        ("", False),
    ],
)
def test_patches_are_those_of_the_grammar(body: str, valid: bool) -> None:
    pattern = lark_pattern(PATCH)
    assert accepts(pattern, f"{BEGIN}{body}{END}") is valid
    assert accepts(pattern, f"{BEGIN}{body}{END}\n") is valid
    assert not accepts(pattern, f"{body}{END}")


@pytest.mark.parametrize(
    ("grammar", "texts", "others"),
    [
        ("start: /.+/", ["a", "a\r", "\u2028"], ["", "\n", "a\nb"]),
        ("start: /.+/s", ["a\nb"], [""]),
        ('?start: "a"i "B"?c\nc: "c".."e"', ["ABc", "ae", "Ad"], ["Abc", "af", "aB"]),
        ('start: ["-"] INT ~ 1..2 // a number\n%import common.INT', ["5", "-12"], ["-", "+1"]),
        ('start.2: A\n  | B -> other\nA: "[x]"\nB: /[.]/', ["[x]", "."], ["x", "y"]),
        ('%import common.WS_INLINE -> _WS\nstart: "a" _WS "b"', ["a  b"], ["ab"]),
        (r'start: "\"\\/\n-"', ['"\\/\n-'], ['"']),
    ],
)
def test_texts_of_a_grammar(grammar: str, texts: list[str], others: list[str]) -> None:
    pattern = lark_pattern(grammar)
    assert [text for text in texts if not accepts(pattern, text)] == []
    assert [text for text in others if accepts(pattern, text)] == []


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ('start: "(" start ")" | "x"', "recursive"),
        ('start: "x"\n%ignore " "', "line 2"),
        ("start: other", "'other'"),
        ('other: "x"', "'start'"),
        ("%import common.NUMBER\nstart: NUMBER", "NUMBER"),
        (DOUBLED, "larger"),
    ],
)
def test_what_no_pattern_expresses_is_named(grammar: str, words: str) -> None:
    with pytest.raises(GrammarError, match=words):
        lark_pattern(grammar)


@pytest.mark.parametrize("expression", ["a)|(b", "(a", "[a", "[", "a" * 30_000])
def test_an_expression_that_is_no_group_is_refused(expression: str) -> None:
    with pytest.raises(GrammarError):
        whole_pattern(expression)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["[", "(", "[^", "\\", "a|", "[]"])
def test_hostile_expressions_take_linear_work(unit: str) -> None:
    for grammar in (f"start: /{unit * 100_000}/", f"start: {'a ' * 50_000}\na: /{unit * 5000}/"):
        with suppress(GrammarError):
            lark_pattern(grammar)


def test_rules_inside_each_other_are_limited() -> None:
    rules = "".join(f'r{number}: "a" r{number + 1}\n' for number in range(2000))
    with pytest.raises(GrammarError, match="inside each other"):
        lark_pattern(f'start: r0\n{rules}r2000: "b"')


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(grammar: str) -> None:
    for text in (grammar, f"start: {grammar}"):
        try:
            lark_pattern(text)
        except GrammarError:
            continue


@given(st.text("ab.\\n[]^-", max_size=8), st.text("ab.\r\n", max_size=3))
def test_a_regular_expression_matches_the_whole_text(expression: str, text: str) -> None:
    try:
        matches = re.fullmatch(expression, text) is not None
    except re.error:
        return
    if "[]" not in expression and "[^]" not in expression:  # Python reads them in another way
        assert accepts(whole_pattern(expression), text) is matches
        search(whole_pattern(expression))
