"""Strings and keys of Python literals.

A string is accepted as `repr` writes it: in single quotes, or in double ones. Characters beyond ASCII
that are not printable may be escaped, as `repr` does, or not: which ones `repr` escapes depends on Python's
version, and what a grammar accepts does not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import partial

from gbnf.compiler.automaton_rules import quoted_expr
from gbnf.compiler.decimals import DigitWords
from gbnf.compiler.layout import Layout, without
from gbnf.compiler.literals import factor_prefixes, raw_char
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Literal, alt, seq
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import CharSet
from gbnf.schema_caches import schema_cache

_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\\": "\\"}
_CONTROLS = CharSet.of((0x00, 0x1F), (0x7F, 0x7F))
_HIGH = CharSet.of((0x100, 0x10FFFF))
#: Assigned characters beyond ASCII that are not printable: controls, formats, separators, private use.
#: Source: `unicodedata.category` (Cc, Cf, Zs, Zl, Zp, Co) of Unicode 15.
_NOT_PRINTABLE = CharSet.of(
    (0x80, 0xA0), (0xAD, 0xAD), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F),
    (0x890, 0x891), (0x8E2, 0x8E2), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200F), (0x2028, 0x202F),
    (0x205F, 0x2064), (0x2066, 0x206F), (0x3000, 0x3000), (0xE000, 0xF8FF), (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0001, 0xE0001), (0xE0020, 0xE007F), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD),
)  # fmt: skip
#: The most ranges of characters that are escaped by their code points, whether printable or not.
_FEW_RANGES = 12


@dataclass(frozen=True, slots=True)
class PythonLayout(Layout):
    """The punctuation of Python's lists and dictionaries, which is JSON's, and keys as `repr` writes them."""

    @staticmethod
    def like(layout: Layout) -> PythonLayout:
        """Return the layout with the whitespace of JSON's."""
        return PythonLayout(**{field.name: getattr(layout, field.name) for field in fields(Layout)})

    def key(self, name: str) -> str:
        """Return a key as it is written."""
        quote = '"' if "'" in name and '"' not in name else "'"
        return quote + "".join([_spelled(char, quote) for char in name]) + quote

    def other_keys(self, keys: Dfa | None, names: Collection[str], scope: Scope) -> Expr:
        """Return the keys of a class (None: every key) but `names`; EMPTY_LANGUAGE if there is none."""
        return python_string_expr(without(Dfa.all_words() if keys is None else keys, names), scope)


def python_string_expr(language: Dfa, scope: Scope) -> Expr:
    """Return the Python strings, quotes included, whose content is a word; EMPTY_LANGUAGE if none is."""
    return alt(
        quoted_expr(language, single_quoted, "'", scope),
        quoted_expr(language, double_quoted, '"', scope),
    )


def python_string(text: str) -> Expr:
    """Return one Python string, in each spelling that `python_string_expr` has for it."""
    chars = [CharSet.single(ord(char)) for char in text]
    single = seq(Literal("'"), *map(single_quoted, chars), Literal("'"))
    return alt(single, seq(Literal('"'), *map(double_quoted, chars), Literal('"')))


def _spelled(char: str, quote: str) -> str:
    code = ord(char)
    if char in _LETTERS:
        return "\\" + _LETTERS[char]
    if char == quote:
        return "\\" + quote
    if char not in _CONTROLS and char not in _NOT_PRINTABLE:
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@schema_cache(maxsize=512)
def _char(chars: CharSet, quote: str) -> Expr:
    """Return one character of a non-empty set, as spelled between quotes."""
    plain = chars - _CONTROLS - CharSet.of(quote, "\\")
    letters = [letter for char, letter in _LETTERS.items() if char in chars]
    letters += [quote] if quote in chars else []
    codes = chars & (_CONTROLS | _NOT_PRINTABLE) & CharSet.of((0, 0xFF)) - CharSet.of(*_LETTERS)
    high = chars & _HIGH
    if len(high.ranges) > _FEW_RANGES:
        high = high & _NOT_PRINTABLE
    escapes = [
        raw_char(CharSet.of(*letters)) if letters else EMPTY_LANGUAGE,
        _coded("x", 2, codes),
        _coded("u", 4, high & CharSet.of((0, 0xFFFF))),
        _coded("U", 8, high & CharSet.of((0x10000, 0x10FFFF))),
    ]
    return alt(raw_char(plain) if plain else EMPTY_LANGUAGE, seq(Literal("\\"), alt(*escapes)))


def _coded(letter: str, width: int, chars: CharSet) -> Expr:
    """Return the code points of a set, each as hexadecimal digits after a letter."""
    ends = [(f"{low:0{width}x}", f"{high:0{width}x}") for low, high in chars.ranges]
    words = DigitWords(width, digits="0123456789abcdef")
    return seq(Literal(letter), factor_prefixes([words.between(low, high) for low, high in ends]))


single_quoted, double_quoted = (partial(_char, quote=quote) for quote in ("'", '"'))
