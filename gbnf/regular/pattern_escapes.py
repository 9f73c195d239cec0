"""Character classes and escapes of ECMA-262 patterns, and a cursor over a pattern.

It is as lenient as Annex B: `[\\w-.]` contains a hyphen, `\\q` is a q, and `\\c` without a letter
after it is a backslash and a c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gbnf.regular.charset import CharSet
from gbnf.regular.errors import MalformedPatternError, UnsupportedPatternError
from gbnf.regular.unicode_properties import ESCAPED, ignoring_case, unicode_property

_CONTROLS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}
_CONTROL_LETTER = re.compile("[A-Za-z]")
_HEX2 = re.compile(r"[0-9A-Fa-f]{2}")
_HEX4 = re.compile(r"[0-9A-Fa-f]{4}")
_BRACED_HEX = re.compile(r"\{([0-9A-Fa-f]+)\}")
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_OCTAL = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")
_PROPERTY = re.compile(r"\{(\^?)([A-Za-z_0-9=]+)\}|([LMNPSZC])")


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of a pattern that change its language."""

    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False


class Cursor:
    """A position in a pattern, and the flags in effect there."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.index = 0
        self.flags = Flags()

    def malformed(self, problem: str, position: int | None = None) -> MalformedPatternError:
        """Return the error for a problem at `position`, by default the cursor's."""
        return MalformedPatternError(self.pattern, self.index if position is None else position, problem)

    def unsupported(self, problem: str, position: int) -> UnsupportedPatternError:
        """Return the error for what has no automaton."""
        return UnsupportedPatternError(self.pattern, position, problem)

    def looking_at(self, text: str) -> bool:
        """Return whether `text` comes next."""
        return self.pattern.startswith(text, self.index)

    def take(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """Consume a match of `expression`, if it comes next."""
        found = expression.match(self.pattern, self.index)
        if found:
            self.index = found.end()
        return found

    def read_class(self, position: int) -> CharSet:
        """Read a class after its opening bracket."""
        negated = self.looking_at("^")
        self.index += negated
        parts: list[str | tuple[int, int] | CharSet] = []
        while not self.looking_at("]"):
            start = self.index
            low = self._class_atom(position)
            if not (self.looking_at("-") and self.index + 1 < len(self.pattern)) or self.looking_at("-]"):
                parts.append(low)
                continue
            self.index += 1
            high = self._class_atom(position)
            if isinstance(low, CharSet) or isinstance(high, CharSet):
                parts += [low, "-", high]  # [\w-.] names a hyphen
            elif low > high:
                raise self.malformed(f"the range {low}-{high} is out of order", start)
            else:
                parts.append((ord(low), ord(high)))
        self.index += 1
        chars = CharSet.of(*parts)
        if self.flags.ignore_case:
            chars = ignoring_case(chars)
        return ~chars if negated else chars

    def _class_atom(self, position: int) -> str | CharSet:
        if self.index >= len(self.pattern):
            raise self.malformed("the class is not closed", position)
        char = self.pattern[self.index]
        self.index += 1
        if char != "\\":
            return char
        if self.looking_at("b"):
            self.index += 1
            return "\b"
        return self.read_escape(self.index - 1)

    def read_escape(self, position: int) -> str | CharSet:
        """Read an escape after its backslash: a character, or a set of them."""
        if self.index >= len(self.pattern):
            raise self.malformed("a backslash at the end", position)
        char = self.pattern[self.index]
        self.index += 1
        if char in ESCAPED:
            return ESCAPED[char]
        if char in _CONTROLS:
            return _CONTROLS[char]
        match char:
            case "p" | "P" if found := self.take(_PROPERTY):
                chars = unicode_property(found[2] or found[3])
                if chars is None:
                    raise self.unsupported(f"the property {found[0]} is not known", position)
                return ~chars if (char == "P") != bool(found[1]) else chars
            case "x" if found := self.take(_HEX2):
                return chr(int(found[0], 16))
            case "u":
                return self._unicode_escape(position)
            case "c" if self.take(_CONTROL_LETTER):
                return chr(ord(self.pattern[self.index - 1]) % 32)
            case "c":
                self.index -= 1
                return "\\"
        if char in "01234567":
            self.index -= 1
            octal = self.take(_OCTAL)
            assert octal, "an octal digit comes next"
            return chr(int(octal[0], 8))
        return char

    def _unicode_escape(self, position: int) -> str:
        if found := self.take(_BRACED_HEX):
            if int(found[1], 16) > 0x10FFFF:
                raise self.malformed("there is no such code point", position)
            return chr(int(found[1], 16))
        found = self.take(_HEX4)
        if not found:
            return "u"
        code = int(found[0], 16)
        if 0xD800 <= code <= 0xDBFF and (low := self.take(_LOW_SURROGATE)):
            return chr(0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00)
        return chr(code)
