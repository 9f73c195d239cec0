"""Sets of characters as expressions, raw and in JSON strings.

The spelling is canonical, that of `json.dumps(text, ensure_ascii=False)`: only characters that JSON requires
to be escaped are escaped. So each word has one spelling.
"""

from __future__ import annotations

from functools import lru_cache

from gbnf.grammar.ir import CharClass, Expr, Literal, Ref, alt, char_class, seq
from gbnf.regular.charset import ANY_CHAR, CharSet

#: One unescaped character of a JSON string.
PLAIN_CHAR = char_class('"\\', (0x00, 0x1F), negated=True)

_FORCED = CharSet.of((0x00, 0x1F), '"\\')
_LETTERS = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


@lru_cache(maxsize=1024)
def raw_char(chars: CharSet) -> Expr:
    """Return one character of a non-empty set, raw."""
    if len(chars) == 1:
        return Literal(chr(chars.ranges[0][0]))
    others = ~chars
    if len(others.ranges) < len(chars.ranges):
        return CharClass(others.ranges, negated=True)
    return CharClass(chars.ranges)


@lru_cache(maxsize=1024)
def json_char(chars: CharSet) -> Expr:
    """Return one character of a non-empty set, as spelled in a JSON string."""
    if chars == ANY_CHAR:
        return Ref("keyChar")
    plain, forced = chars - _FORCED, chars & _FORCED
    spelled = [raw_char(plain)] if plain else []
    if forced == _FORCED:
        spelled.append(Ref("keyEscape"))
    elif forced:
        spelled.append(_escape(forced))
    return alt(*spelled)


def _escape(forced: CharSet) -> Expr:
    letters = "".join(letter for char, letter in _LETTERS.items() if char in forced)
    spelled = [raw_char(CharSet.of(letters))] if letters else []
    codes = [f"{ord(char):02x}" for char in forced if char not in _LETTERS]
    for high in "01":
        digits = [code[1] for code in codes if code[0] == high]
        if digits:
            spelled.append(seq(Literal(f"u00{high}"), raw_char(CharSet.of(*digits))))
    return seq(Literal("\\"), alt(*spelled))
