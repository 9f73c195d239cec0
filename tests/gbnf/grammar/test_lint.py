"""What is found in a grammar, and what its fixes leave as it was; llama.cpp's parser judges the errors."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gbnf.errors import GrammarSyntaxError
from gbnf.grammar.emit import emit
from gbnf.grammar.ir import Rules
from gbnf.grammar.lint import LINT_RULES, apply_fixes, lint
from gbnf.grammar.parse import parse_gbnf
from isolation import Confined, Finished
from support.effort import scaled
from support.grammars import grammars
from support.hostile_grammars import HOSTILE, hostile_grammar
from support.oracle import SHARED, engine, parses


@cache
def _confined() -> Confined[str]:
    engine()  # loaded once, for every process that is forked
    confined: Confined[str] = Confined(parses, limit_s=20, memory_mib=2048)
    atexit.register(confined.renew)
    return confined


def codes(text: str) -> list[str]:
    return [found.code for found in lint(text) if found.severity != "note"]


# (code, grammar, what is marked)
TABLE = [
    ("G001", 'root ::= "a"\n"b"', '"b"'),
    ("G001", "root ::= 'a'", "'"),
    ("G001", 'root ::= "a" item ::= "b"', "::="),
    ("G002", 'root := "a"', ":="),
    ("G002", 'root ::= "a"\nitem -> "b"', "->"),
    ("G002", 'root\n::= "a"', "\n"),
    ("G003", 'root ::= "a', '"'),
    ("G003", "root ::= [a", "["),
    ("G004", 'root ::= ("a"\nitem ::= "b"', "("),
    ("G004", 'root ::= "a")', ")"),
    ("G005", "root ::= * [a]", "*"),
    ("G005", 'root ::= "a"{,5}', "{,5}"),
    ("G006", 'root ::= "a" a_b\na_b ::= "b"', "_"),
    ("G007", 'root ::= "a"\n  | "b"', "|"),
    ("G008", r'root ::= "\d"', r"\d"),
    ("G009", "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, "("),
    ("G010", 'root ::= "a"{3,2}', "{3,2}"),
    ("G011", 'root ::= "a"{2001}', "{2001}"),
    ("G012", "root ::= []", "[]"),
    ("G013", "root ::= [b-a]", "b-a"),
    ("G014", r'root ::= "a\x00"', r"\x00"),
    ("G015", "root ::= <[99999999999]>", "<[99999999999]>"),
    ("G211", 'root ::= "a" ws ws "b"\nws ::= [ \\t]*', "ws"),
    ("G211", 'root ::= "a" [ ]* [ ]+ "b"', "[ ]+"),
    ("G015", "root ::= ! <think>", "!"),
    ("G101", 'start ::= "a"', "s"),
    ("G102", 'root ::= "a" | itm', "itm"),
    ("G103", 'root ::= "a"\nroot ::= "b"', "root"),
    ("G104", 'root ::= a\na ::= b "x" | "y"\nb ::= a', "a"),
    ("G104", 'root ::= pad root "x" | "x"\npad ::= " "?', "root"),
    ("G105", 'root ::= x* "b"\nx ::= "a" |', "*"),
    ("G106", 'root ::= "a" root', "root"),
    ("G106", 'root ::= "a" | x\nx ::= "b" x', "x"),
    ("G107", 'root ::= a\na ::= "x" a | "x" a "y" | "x"', "a"),
    ("G201", 'root ::= "a"\nitem ::= "b" item?', "item"),
    ("G202", 'root ::= "a"\nx ::= "b" y?\ny ::= "c" x?', "x"),
    ("G203", 'root ::= "a" x\nx ::= ""', "x"),
    ("G204", 'root ::= "a" | [x] | "a"', '"a"'),
    ("G204", 'root ::= ("ab" | "a" "b")', '"a" "b"'),
    ("G205", "root ::= [a-zA-Za-m]", "[a-zA-Za-m]"),
    ("G206", 'root ::= ("x"?)* "end"', "*"),
    ("G207", 'root ::= "a" ""', '""'),
    ("G208", 'root ::= "a\nb"', '"a\nb"'),
    ("G209", "root ::= [e\u0301]", "[e\u0301]"),
    ("G209", "root ::= [\U0001f44d\U0001f3fd]", "[\U0001f44d\U0001f3fd]"),
    ("G209", r'root ::= "\xC3\xA9"', r'"\xC3\xA9"'),
    ("G210", "root ::= [A-z]", "[A-z]"),
    ("G301", 'root ::= item+\nitem ::= "a"', "+"),
    ("G301", 'root ::= "id: " tail\ntail ::= [a-z]*', "*"),
    ("G301", 'root ::= "{}" ws\nws ::= ([ \\t\\n] ws)?', "ws"),
    ("G301", 'root ::= "{}" ws\nws ::= | " " ws', "ws"),
    ("G301", 'root ::= item\nitem ::= "a" item | "a"', "item"),
    ("G301", 'root ::= a\na ::= "x" b?\nb ::= "y" a?', "a"),
    ("G301", 'root ::= item\nitem ::= "a" [b] item | "c" | "a" [b] | "a"', "item"),
    ("G302", "root ::= [a-z]?", "root"),
    ("G303", 'root ::= [^é] "x"', "[^é]"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text", "marked"), TABLE, ids=lambda value: repr(value)[:40])
def test_each_rule_and_what_the_engine_does(code: str, text: str, marked: str) -> None:
    found = next(each for each in lint(text) if each.code == code)
    assert text[found.start : found.end] == marked
    assert text.split("\n")[found.line - 1][found.column - 1 :].startswith(marked.partition("\n")[0])
    assert found.message
    assert found.hint
    errors = [each.code for each in lint(text) if each.severity == "error"]
    if "hangs" in found.rule.engine or "9999" in text:
        return  # it does not come back, or versions differ, so it is not asked
    assert parses(text) != any(LINT_RULES[error].engine.startswith("refuses") for error in errors)


def test_the_table_has_every_rule() -> None:
    assert {code for code, _, _ in TABLE} == LINT_RULES.keys()


CLEAN = [
    'root ::= "[" item ("," item)* "]"\nitem ::= [a-z]{1,16}\n',
    'root ::= item\nitem ::= [0-9] item | [0-9] | ""',
    'root ::= "x" [ \\t]{0,16}\n',
    r"root ::= [a-zA-Z0-9_-] [^\x00-\x1F] [éèà] [\u0300-\u036F]",
    'root ::= (\n  # one\n  "a" |\n  "b"\n)\r\n',
]


@pytest.mark.parametrize("text", CLEAN)
def test_no_false_alarm(text: str) -> None:
    assert codes(text) == []


LLAMA_GRAMMARS = sorted((SHARED / "llama.cpp" / "grammars").glob("*.gbnf"))


@pytest.mark.skipif(not LLAMA_GRAMMARS, reason="the sources of llama.cpp are not in ../shared/llama.cpp")
@pytest.mark.parametrize("path", LLAMA_GRAMMARS, ids=lambda path: path.name)
def test_no_false_alarm_in_the_grammars_of_llama_cpp(path: Path) -> None:
    assert codes(path.read_text("utf-8")) == []


# The checks of gbnf-doctor 0.1.0, each with a grammar of ours, and what is found here
DOCTOR = {
    "P001 unexpected end": ('root ::= ("a"', "G004"),
    "P002 no ::=": ('root = "x"', "G002"),
    "P003 unterminated literal": ('root ::= "abc', "G003"),
    "P003 line break": ('root ::= "abc\n" "d"', "G208"),
    "P004 unterminated class": ("root ::= [abc\n", "G003"),
    "P005 escape": ('root ::= "\\q"', "G008"),
    "P006 repetition": ('root ::= "a"{,3}', "G005"),
    "P006 bounds": ('root ::= "a"{9999999999}', "G011"),
    "P007 character": ('root ::= "a" ; "b"', "G001"),
    "P008 leading pipe": ('root ::= "a"\n  | "b"', "G007"),
    "P009 name": ('my_rule ::= "x"\n', "G006"),
    "E001 root": ('start ::= "x"', "G101"),
    "E002 undefined": ("root ::= missing", "G102"),
    "E003 duplicate": ('root ::= "a"\nroot ::= "b"', "G103"),
    "E004 left recursion": ('root ::= e\ne ::= e "+" t | t\nt ::= [0-9]', "G104"),
    "E005 empty class": ('root ::= [] "x"', "G012"),
    "E006 reversed range": ("root ::= [z-a0-9]", "G013"),
    "E007 bounds": ('root ::= "a"{3,2}', "G010"),
    "E008 never ends": ('root ::= a\na ::= "x" b\nb ::= "y" a', "G106"),
    "W101 unreachable": ('root ::= "a"\nhelper ::= "b"', "G201"),
    "W102 empty text": ("root ::= [a-z]*", "G302"),
    "W103 duplicate alternative": ('root ::= "a" | [x] | "a"', "G204"),
    "W104 overlap": ("root ::= [0-90]", "G205"),
    "W105 nullable loop": ('root ::= ("x"?)* "end"', "G206"),
    "W106 empty literal": ('root ::= "" "x"', "G207"),
    "W107 unbounded end": ('root ::= line+\nline ::= [a-z]+ "\\n"', "G301"),
}


@pytest.mark.parametrize("check", DOCTOR)
def test_all_that_gbnf_doctor_finds_is_found(check: str) -> None:
    text, code = DOCTOR[check]
    assert code in [found.code for found in lint(text)]


def test_several_errors_are_found_at_once() -> None:
    text = 'root ::= ("a"\nx := "b"\ny ::= "c"{3,2} [z-a] zz\nz ::= "d"\n | "e"\nq ::= "f\n'
    assert codes(text) == ["G004", "G002", "G010", "G013", "G102", "G007", "G003"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('root ::= itm\nitem ::= "b"', "Did you mean 'item'?"),
        ("root ::= zzzzzz", "Define it: zzzzzz ::= …"),
        ('Root ::= "a"', "Did you mean 'Root'?"),
        ('root := "a"', "Write ::=."),
    ],
)
def test_the_hint(text: str, hint: str) -> None:
    assert hint in next(found.hint for found in lint(text) if found.severity == "error")


# (before, after); what has several meanings stays
FIXED = [
    ('root := "a"\nx -> "b"', 'root ::= "a"\nx ::= "b"'),
    ('root ::= "a"\n | "b"\n | "c"', 'root ::= "a" |\n  "b" |\n  "c"'),
    ('root ::= "a" # c\n | "b"', 'root ::= "a" # c\n | "b"'),
    ('root ::= a_b a_b\na_b ::= "a_b" # a_b', 'root ::= aB aB\naB ::= "a_b" # a_b'),
    ('root ::= a_b aB\na_b ::= "x"\naB ::= "y"', 'root ::= a_b aB\na_b ::= "x"\naB ::= "y"'),
    ('root ::= x""y ""\nx ::= "a"\ny ::= ""', 'root ::= x y  \nx ::= "a"\ny ::= ""'),
    ('root ::= "a" | "b" | "a" | "c"', 'root ::= "a" | "b" | "c"'),
    ('root ::= "a" | # one\n "a"', 'root ::= "a" | # one\n "a"'),
    ("root ::= [a-zb^]", "root ::= [\\x5Ea-z]"),
    ('root ::= "a\r\nb" [\n]', 'root ::= "a\\r\\nb" [\\n]'),
    ("root ::= [z-a] itm", "root ::= [z-a] itm"),
]


@pytest.mark.parametrize(("before", "after"), FIXED)
def test_fixes(before: str, after: str) -> None:
    assert apply_fixes(before) == after


def read(text: str) -> list[object] | None:
    try:
        return list(parse_gbnf(text).productions.items())
    except GrammarSyntaxError:
        return None


@st.composite
def careless_grammars(draw: st.DrawFn) -> str:
    """Valid text in which some items and alternatives come twice, or are empty."""
    lines = []
    for line in emit(draw(grammars())).splitlines():
        name, _, body = line.partition(" ::= ")
        extra = draw(
            st.sampled_from([f"{body} | {body}", f'"" {body}', f"({body})", f"[aab-a] {body}", body])
        )
        lines.append(f"{name} ::= {extra}".replace("\\n", draw(st.sampled_from(["\\n", "\n"]))))
    return "\n".join(lines).replace("[aab-a]", "[a-cb]")


@settings(max_examples=scaled(60))
@given(careless_grammars())
@example('root ::= "a" "" | "a"')
def test_fixes_keep_the_grammar(text: str) -> None:
    before = read(text)
    fixed = apply_fixes(text)
    assert not any(found.fix for found in lint(fixed))
    if before is not None:
        assert read(fixed) == before


@settings(max_examples=scaled(300))
@given(st.randoms(use_true_random=False).map(lambda random: hostile_grammar(random, largest=60)) | st.text())
def test_an_error_is_what_the_parser_refuses(text: str) -> None:
    found = lint(text)
    assert found == sorted(found, key=lambda each: (each.start, each.code))
    assert all(0 <= each.start <= each.end <= len(text) and each.message and each.hint for each in found)
    errors = {each.code for each in found if each.severity == "error"}
    is_read = read(text) is not None
    assert is_read == (errors <= {"G106", "G107"})
    if not errors and "\ud800" not in text and "<" not in text:  # tokens depend on the vocabulary
        assert _confined().attempt(text) == Finished(value=True)
    fixed = apply_fixes(text)
    assert apply_fixes(fixed) == fixed


@settings(max_examples=scaled(60))
@given(grammars())
def test_nothing_is_an_error_in_a_grammar_that_ends(rules: Rules) -> None:
    text = emit(rules)
    assert {found.code for found in lint(text) if found.severity == "error"} <= {"G106"}
    assert parses(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_large_texts_end(name: str) -> None:
    assert len(lint(HOSTILE[name](1_200))) <= 1_000
