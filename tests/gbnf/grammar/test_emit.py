"""Emitted text, where the exact text is the contract."""

from __future__ import annotations

import pytest

from gbnf.grammar.emit import emit, emit_expr
from gbnf.grammar.ir import (
    EMPTY_LANGUAGE,
    EPSILON,
    CharClass,
    Expr,
    Literal,
    Ref,
    Repeat,
    Rules,
    Seq,
    alt,
    char_class,
)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Literal('say "\\"\n\t\r\x01é日\u200b\U000e0001'), r'"say \"\\\"\n\t\r\x01é日\u200B\U000E0001"'),
        (char_class("^-][\\a"), r"[\-\[-\x5Ea]"),
        (char_class((0, 31), '"', negated=True), r'[^\x00-\x1F"]'),
        (CharClass((), negated=True), "."),
        (EPSILON, '""'),
        (alt(Literal("a"), EPSILON), '"a" | ""'),
        (Seq((Ref("x"), alt(Ref("y"), Ref("z")))), "x (y | z)"),
        (Repeat(Ref("x"), 0, 1), "x?"),
        (Repeat(char_class("a"), 0, None), "[a]*"),
        (Repeat(Literal("ab"), 1, None), '"ab"+'),
        (Repeat(Repeat(Ref("x"), 2, None), 3, 3), "(x{2,}){3}"),
        (Repeat(Seq((Ref("x"), Ref("y"))), 0, 5), "(x y){0,5}"),
    ],
)
def test_expressions(expr: Expr, text: str) -> None:
    assert emit_expr(expr) == text


def test_the_start_symbol_comes_first() -> None:
    rules = Rules({"a": Literal("x"), "start": Ref("a")}, "start")
    assert emit(rules) == 'start ::= a\na ::= "x"\n'


@pytest.mark.parametrize("expr", [EMPTY_LANGUAGE, CharClass(()), Literal("\0"), Literal("\ud800")])
def test_what_has_no_text(expr: Expr) -> None:
    with pytest.raises(ValueError, match="rule root"):
        emit(Rules({"root": expr}))
