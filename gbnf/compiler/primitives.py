"""The productions that every grammar shares: JSON's own nonterminals. Source: RFC 8259.

A surrogate pair is one character, and a lone surrogate is not allowed, so lengths count code points as the
validator does.
"""

from __future__ import annotations

from functools import cache

from gbnf.compiler.decimals import BOUNDED_DIGITS, DigitLimits, number_rules
from gbnf.compiler.layout import LAYOUTS, Whitespace
from gbnf.compiler.literals import INSTEAD_RULES, PLAIN_CHAR, factor_prefixes, forced_escapes
from gbnf.grammar.ir import Expr, Literal, Ref, alt, char_class, repeat, seq

_HEX = char_class((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))

_BASIC_PLANE_ESCAPE = seq(
    Literal("u"),
    alt(
        seq(char_class((0x30, 0x39), "abcefABCEF"), repeat(_HEX, 3, 3)),
        seq(char_class("dD"), char_class((0x30, 0x37)), repeat(_HEX, 2, 2)),
    ),
)
_SURROGATE_PAIR_ESCAPE = seq(
    Literal("u"),
    char_class("dD"),
    char_class("89abAB"),
    repeat(_HEX, 2, 2),
    Literal("\\u"),
    char_class("dD"),
    char_class("cdefCDEF"),
    repeat(_HEX, 2, 2),
)


@cache
def primitives(whitespace: Whitespace, digits: DigitLimits = BOUNDED_DIGITS) -> dict[str, Expr]:
    """Return every shared production by name, for a layout."""
    layout = LAYOUTS[whitespace]
    string = Ref("string")
    value = Ref("jsonValue")
    pair = seq(string, layout.colon, value)
    table: dict[str, Expr] = {
        "jsonValue": alt(
            Ref("jsonObject"), Ref("jsonArray"), string, Ref("number"), Ref("boolean"), Ref("null")
        ),
        "jsonObject": alt(
            seq(layout.begin_object, pair, repeat(seq(layout.comma, pair)), layout.end_object),
            layout.empty_object,
        ),
        "jsonArray": alt(
            seq(layout.begin_array, value, repeat(seq(layout.comma, value)), layout.end_array),
            layout.empty_array,
        ),
        "string": seq(Literal('"'), repeat(Ref("char")), Literal('"')),
        "char": alt(PLAIN_CHAR, seq(Literal("\\"), Ref("escape"))),
        "escape": alt(char_class('"\\/bfnrt'), _BASIC_PLANE_ESCAPE, _SURROGATE_PAIR_ESCAPE),
        "keyMore": seq(Ref("keyChar"), Ref("keyRest")),
        "keyRest": seq(repeat(Ref("keyChar")), Literal('"')),
        "keyEnd": alt(Literal('"'), seq(Ref("keyEscape"), Ref("keyRest"))),
        **INSTEAD_RULES,
        "keyChar": alt(PLAIN_CHAR, Ref("keyEscape")),
        "keyEscape": seq(
            Literal("\\"), factor_prefixes(forced_escapes())
        ),  # canonical spelling has no others
        **number_rules(digits),
        "boolean": alt(Literal("true"), Literal("false")),
        "null": Literal("null"),
    }
    if layout.space is not None:
        table["ws"] = layout.space
    return table


#: Names that no compiled rule may have, in any layout.
RESERVED = frozenset({"root", "fromStep", *primitives("free")})
