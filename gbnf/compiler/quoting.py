"""JSON inside a JSON string: the texts of rules as the content of a string."""

from __future__ import annotations

from functools import lru_cache

from gbnf.compiler.character_classes import json_char
from gbnf.compiler.literals import json_string
from gbnf.grammar.code_points import matchable
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Repeat, Seq, alt, repeat, seq
from gbnf.regular.charset import CharSet


@lru_cache(maxsize=8192)
def quoted(expr: Expr) -> Expr:
    """Return the expression of the same texts, each as the content of a JSON string without its quotes.

    Rules that it refers to must be quoted, too. Refers to no primitive.
    """
    match expr:
        case Literal(text):
            return Literal(json_string(text)[1:-1])
        case CharClass():
            return json_char(CharSet(matchable(expr)))
        case Seq(items):
            return seq(*map(quoted, items))
        case Alt(items):
            return alt(*map(quoted, items))
        case Repeat(item, minimum, maximum):
            return repeat(quoted(item), minimum, maximum)
    return expr
