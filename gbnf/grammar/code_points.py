"""The characters in GBNF's quotes and brackets, and the code points that a class can match in a text.

They are read as llama.cpp's `parse_char` and `parse_hex` do.

llama.cpp matches classes against decoded UTF-8 that ends at a NUL: no class ever matches NUL or a surrogate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from gbnf.errors import GbnfError
from gbnf.grammar.ir import CharClass, char_class
from gbnf.schema_caches import schema_cache

Ranges = tuple[tuple[int, int], ...]

SURROGATES = (0xD800, 0xDFFF)
_UNMATCHABLE = ((0, 0), SURROGATES)


@schema_cache(maxsize=4096)
def matchable(chars: CharClass) -> Ranges:
    """Return the class's code points that can occur in a text, as sorted, disjoint, inclusive ranges."""
    excluded = chars.ranges if chars.negated else complement(chars.ranges)
    return complement((*excluded, *_UNMATCHABLE))


def complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the code points that are in none of the ranges."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted(ranges):
        if start < low:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    if start <= sys.maxunicode:
        gaps.append((start, sys.maxunicode))
    return tuple(gaps)


@schema_cache(maxsize=4096)
def first_bytes(chars: CharClass) -> frozenset[int]:
    """Return the first bytes of the UTF-8 of the class's characters (they increase with the code point)."""
    return frozenset(
        byte
        for low, high in matchable(chars)
        for byte in range(chr(low).encode()[0], chr(high).encode()[0] + 1)
    )


_HEX_LENGTH = {"x": 2, "u": 4, "U": 8}
_SIMPLE = {"t": 0x09, "r": 0x0D, "n": 0x0A} | {char: ord(char) for char in '\\"[]-'}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_KNOWN = r"GBNF has \xHH \uHHHH \UHHHHHHHH \t \r \n \\ \" \[ \] \- only."


class EscapeError(GbnfError):
    """What cannot be read of a token: from `offset` to `end`. `code` is a rule of `gbnf lint`."""

    def __init__(self, offset: int, end: int, problem: str, hint: str, code: str = "G008") -> None:
        self.offset, self.end, self.problem, self.hint, self.code = offset, end, problem, hint, code
        super().__init__(problem)


def parse_literal(token: str) -> str:
    """Return the text of a literal, given with its quotes. Raises EscapeError."""
    if "\\" not in token:
        return token[1:-1]
    chars: list[str] = []
    position = 1
    while position < len(token) - 1:
        code_point, after = _read(token, position)
        if code_point == 0:
            raise EscapeError(position, after, "llama.cpp cannot match NUL", "Remove the escape.", "G014")
        if SURROGATES[0] <= code_point <= SURROGATES[1]:
            problem = f"{token[position:after]} is a lone surrogate, which is not a character"
            hint = r"Write the whole character, as itself or as \UHHHHHHHH."
            raise EscapeError(position, after, problem, hint, "G014")
        chars.append(chr(code_point))
        position = after
    return "".join(chars)


def class_members(token: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield where each member of a class begins and ends, and its first and last code point.

    Raises EscapeError for one that cannot be read.
    """
    position = 2 if token.startswith("[^") else 1
    while token[position] != "]":
        start = position
        low, position = _read(token, position)
        high = low
        if token[position] == "-" and token[position + 1] != "]":
            high, position = _read(token, position + 1)
        yield start, position, low, high


def parse_class(token: str) -> CharClass:
    """Return a class, given with its brackets. Raises EscapeError."""
    pairs: list[tuple[int, int]] = []
    for start, end, low, high in class_members(token):
        if high < low:
            problem = f"the range {token[start:end]} is reversed: llama.cpp matches nothing with it"
            raise EscapeError(start, end, problem, r"Swap its ends; escape a literal hyphen as \-.", "G013")
        pairs.append((low, high))
    if not pairs:
        problem = f"llama.cpp reads the empty class {token} as the empty string"
        hint = 'Write . for any character, or "" for the empty string.'
        raise EscapeError(0, len(token), problem, hint, "G012")
    parsed = char_class(*pairs, negated=token.startswith("[^"))
    if not matchable(parsed):
        problem = f"{token} matches no character: no text contains NUL or surrogates"
        raise EscapeError(0, len(token), problem, "Write the characters that are meant.", "G012")
    return parsed


def _read(token: str, position: int) -> tuple[int, int]:
    """Return the code point at `position`, and the position of the next one."""
    if token[position] != "\\":
        return ord(token[position]), position + 1
    kind = token[position + 1]
    if kind in _SIMPLE:
        return _SIMPLE[kind], position + 2
    if kind not in _HEX_LENGTH:
        hint = f"{_KNOWN} Write others by code point."
        raise EscapeError(position, position + 2, f"unknown escape \\{kind}", hint)
    end = position + 2 + _HEX_LENGTH[kind]
    digits = token[position + 2 : end]
    if len(digits) < _HEX_LENGTH[kind] or not _HEX_DIGITS.issuperset(digits):
        problem = f"\\{kind} needs {_HEX_LENGTH[kind]} hexadecimal digits"
        raise EscapeError(position, position + 2, problem, "Pad the number with zeros on the left.")
    code_point = int(digits, 16)
    if code_point > sys.maxunicode:
        problem = f"{token[position:end]} is beyond the last code point"
        raise EscapeError(position, end, problem, r"The last is \U0010FFFF.")
    return code_point, end
