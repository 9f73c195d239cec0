"""The parser of ECMA-262 patterns. `gbnf.regular.ecma262` says which syntax it accepts.

It is as lenient as Annex B: `[\\w-.]` contains a hyphen, `\\q` is a q, and `\\c` without a letter after it
is a backslash and a c.
"""

from __future__ import annotations

import re

from gbnf.regular.charset import ANY_CHAR, CharSet
from gbnf.regular.pattern_syntax import (
    EMPTY_PATTERN,
    Alternation,
    Boundary,
    Chars,
    Concatenation,
    End,
    Lookaround,
    MalformedPatternError,
    PatternNode,
    Repetition,
    Start,
    UnsupportedPatternError,
)
from gbnf.regular.unicode_properties import ESCAPED, LINE_END, ignoring_case, unicode_property

_CONTROLS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}
_CONTROL_LETTER = re.compile("[A-Za-z]")
_HEX2 = re.compile(r"[0-9A-Fa-f]{2}")
_HEX4 = re.compile(r"[0-9A-Fa-f]{4}")
_BRACED_HEX = re.compile(r"\{([0-9A-Fa-f]+)\}")
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_OCTAL = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")
_PROPERTY = re.compile(r"\{(\^?)([A-Za-z_0-9=]+)\}|([LMNPSZC])")


#: The deepest nesting of groups.
MAX_DEPTH = 100

_BRACES = re.compile(r"\{(\d+)(,(\d*))?\}")
_CAPTURE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(\((?!\?)|\(\?P?<(?![=!]))", re.DOTALL)
_FLAGS = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_KNOWN_FLAGS = "ims"  # those that change the language: ignore case, multiline, dot matches all
_GROUP_NAME = re.compile(r"\?P?<([^>=!][^>]*)>")
_PLAIN = re.compile(r"[^\\^$.*+?()\[\]{}|]+")
_LOOKAROUNDS = {"?=": (False, False), "?!": (False, True), "?<=": (True, False), "?<!": (True, True)}


def parse_pattern(pattern: str) -> PatternNode:
    """Parse a pattern. Raises MalformedPatternError and UnsupportedPatternError."""
    parser = _PatternParser(pattern)
    node = parser.disjunction(0)
    if parser.index < len(pattern):
        raise parser.malformed("a closing parenthesis without an opening one")
    return node


class _PatternParser:
    """Parses a pattern from a position, with the flags in effect there."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.index = 0
        self.flags = frozenset[str]()

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
        match = expression.match(self.pattern, self.index)
        if match:
            self.index = match.end()
        return match

    def take_char(self, problem: str, position: int) -> str:
        """Consume a character. Raises MalformedPatternError for `problem` at the end of the pattern."""
        if self.index >= len(self.pattern):
            raise self.malformed(problem, position)
        self.index += 1
        return self.pattern[self.index - 1]

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
        if "i" in self.flags:
            chars = ignoring_case(chars)
        return ~chars if negated else chars

    def _class_atom(self, position: int) -> str | CharSet:
        char = self.take_char("the class is not closed", position)
        if char != "\\":
            return char
        if self.looking_at("b"):
            self.index += 1
            return "\b"
        return self.read_escape(self.index - 1)

    def read_escape(self, position: int) -> str | CharSet:
        """Read an escape after its backslash: a character, or a set of them."""
        char = self.take_char("a backslash at the end", position)
        if char in ESCAPED:
            return ESCAPED[char]
        if char in _CONTROLS:
            return _CONTROLS[char]
        match char:
            case "p" | "P" if escape := self.take(_PROPERTY):
                chars = unicode_property(escape[2] or escape[3])
                if chars is None:
                    raise self.unsupported(f"the property {escape[0]} is not known", position)
                return ~chars if (char == "P") != bool(escape[1]) else chars
            case "x" if escape := self.take(_HEX2):
                return chr(int(escape[0], 16))
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
        if digits := self.take(_BRACED_HEX):
            if int(digits[1], 16) > 0x10FFFF:
                raise self.malformed("the code point does not exist", position)
            return chr(int(digits[1], 16))
        digits = self.take(_HEX4)
        if not digits:
            return "u"
        code = int(digits[0], 16)
        if 0xD800 <= code <= 0xDBFF and (low := self.take(_LOW_SURROGATE)):
            return chr(0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00)
        return chr(code)

    def disjunction(self, depth: int) -> PatternNode:
        """Parse alternatives up to a closing parenthesis or the end, which are not consumed."""
        if depth > MAX_DEPTH:
            raise self.unsupported(f"groups nest deeper than {MAX_DEPTH}", self.index)
        alternatives = [self._alternative(depth)]
        while self.looking_at("|"):
            self.index += 1
            alternatives.append(self._alternative(depth))
        return alternatives[0] if len(alternatives) == 1 else Alternation(tuple(alternatives))

    def _alternative(self, depth: int) -> PatternNode:
        items: list[PatternNode] = []
        while self.index < len(self.pattern):
            char = self.pattern[self.index]
            if char in "|)":
                break
            position = self.index
            plain = self.take(_PLAIN)
            if plain:
                items += [self._char(code) for code in map(ord, plain[0])]
            else:
                items.append(self._term(char, depth))
            quantifier = self._quantifier()
            if quantifier:
                item = items.pop()
                if isinstance(item, Start | End | Boundary) and char != "(":
                    raise self.malformed("an anchor can't be repeated", position)
                items.append(Repetition(item, *quantifier))
        return items[0] if len(items) == 1 else Concatenation(tuple(items))

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self.index >= len(self.pattern):
            return None
        position, char = self.index, self.pattern[self.index]
        bounds: tuple[int, int | None]
        if char in "*+?":
            self.index += 1
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif char == "{" and (braces := self.take(_BRACES)):
            low = int(braces[1])
            high = low if braces[2] is None else int(braces[3]) if braces[3] else None
            if high is not None and high < low:
                raise self.malformed(f"the bounds {braces[0]} are out of order", position)
            bounds = low, high
        else:
            return None
        self.index += self.looking_at("?")
        return bounds

    def _char(self, code_point: int) -> PatternNode:
        chars = CharSet.single(code_point)
        return Chars(ignoring_case(chars) if "i" in self.flags else chars)

    def _term(self, char: str, depth: int) -> PatternNode:
        position = self.index
        self.index += 1
        match char:
            case "^":
                return self._line_edge(Start(), behind=True) if "m" in self.flags else Start()
            case "$":
                return self._line_edge(End(), behind=False) if "m" in self.flags else End()
            case ".":
                return Chars(ANY_CHAR if "s" in self.flags else ~LINE_END)
            case "(":
                return self._group(position, depth)
            case "[":
                return Chars(self.read_class(position))
            case "\\":
                return self._escape(position)
            case "*" | "+" | "?":
                raise self.malformed(f"there is nothing before {char!r} to repeat", position)
            case "{" if _BRACES.match(self.pattern, position):
                raise self.malformed("there is nothing before the braces to repeat", position)
        return self._char(ord(char))

    def _line_edge(self, edge: PatternNode, *, behind: bool) -> PatternNode:
        line_end = Lookaround(Chars(LINE_END), behind=behind, negated=False, position=self.index)
        return Alternation((edge, line_end))

    def _group(self, position: int, depth: int) -> PatternNode:
        flags = self.flags
        kind = next((sign for sign in ("?<=", "?<!", "?=", "?!") if self.looking_at(sign)), None)
        if kind:
            self.index += len(kind)
        elif self.looking_at("?#"):
            end = self.pattern.find(")", self.index)
            if end < 0:
                raise self.malformed("the comment is not closed", position)
            self.index = end + 1
            return EMPTY_PATTERN
        elif self.looking_at("?") and not self.take(_GROUP_NAME):
            flag_match = self.take(_FLAGS)
            if not flag_match:
                if self.looking_at("?P=") or self.looking_at("?>"):
                    raise self.unsupported("backreferences and atomic groups are not regular here", position)
                raise self.malformed("an unknown kind of group after '(?'", position)
            self._set_flags(flag_match, position)
            if flag_match[3] == ")":
                return EMPTY_PATTERN  # the flags are in effect up to the end of the enclosing group
        item = self.disjunction(depth + 1)
        if not self.looking_at(")"):
            raise self.malformed("the group is not closed", position)
        self.index += 1
        self.flags = flags
        if kind:
            behind, negated = _LOOKAROUNDS[kind]
            return Lookaround(item, behind, negated, position)
        return item

    def _set_flags(self, flag_match: re.Match[str], position: int) -> None:
        for letters, value in ((flag_match[1], True), (flag_match[2] or "", False)):
            for letter in letters:
                if letter in _KNOWN_FLAGS:
                    self.flags = self.flags | {letter} if value else self.flags - {letter}
                elif letter not in "ua":
                    raise self.unsupported(f"the flag {letter!r} is unknown", position)

    def _escape(self, position: int) -> PatternNode:
        """Parse an escape after its backslash, outside a class."""
        char = self.take_char("a backslash at the end", position)
        match char:
            case "b" | "B":
                return Boundary(negated=char == "B")
            case "A":
                return Start()
            case "Z" | "z":
                return End()
            case "k" if re.search(r"\(\?P?<[^=!]", self.pattern):
                raise self.unsupported("a backreference is not regular", position)
        self.index -= 1
        if char in "123456789":
            digits = re.compile(r"\d+").match(self.pattern, self.index)
            assert digits, "a digit comes next"
            if int(digits[0]) <= sum(capture[1] is not None for capture in _CAPTURE.finditer(self.pattern)):
                raise self.unsupported("a backreference is not regular", position)
        escaped = self.read_escape(position)
        return self._char(ord(escaped)) if isinstance(escaped, str) else Chars(escaped)
