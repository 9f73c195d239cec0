"""A lenient reader for JSON in models' texts: the end of a value, and the value of invalid JSON.

A text that is strict JSON is never repaired. In other texts only the punctuation is: commas, quotes, comments
and the last brackets. Every string, number and word is kept, so that a text is read whole or refused. Nothing
but InvalidJsonError is raised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gbnf.calls.parsing.results import Repair
from gbnf.strict_json import InvalidJsonError, json_of, parse_json

REPAIR_LIMIT = 32_000
"""Characters of invalid JSON that is repaired; a longer text is refused, since repairing is slow."""
_NOT_REPAIRED = ("duplicate key", "surrogate")

_SPECIAL = re.compile(r'\\"|["“\'‘{}\[\]()]|//|/\*|#')
PAIRS = {"}": "{", "]": "[", ")": "("}
CLOSERS = {"{": "}", "[": "]", "(": ")"}
_CLOSING = CLOSERS | {"“": "”", "‘": "’", "\\": '\\"'}
_STRING_END = {sign: re.compile(rf"({end})|\\.", re.DOTALL) for sign, end in ('""', "''", "“”", "‘’")}
_STRING_END['\\"'] = re.compile(r'(\\")|\\\\(?:\\.|.)', re.DOTALL)  # each quote of the object is escaped
_QUOTES = "\"'”’"
_BEFORE_TEXT = "{[(,:="
_PUNCTUATION = re.compile(r"([,:])")
_ADJACENT = {(before, after) for before in '"}]el0123456789' for after in '"{['}  # a comma may be missing
_UNCLEAR = re.compile(r"""[“”‘„«»`]|['’]$|//|(?m:^[ \t]*<[/|])|(?<!\S)(?:\.\.\.|…)(?!\S)""")
_END_TAG = re.compile(r"<[/|]")
_LETTERS = {r"\b", r"\f", r"\n", r"\r", r"\t", r"\u"}
_ESCAPED = re.compile(r'\\(["\\])')
_CONSTANTS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_PYTHON_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|N\{|a(?![a-zA-Z])))")
_ESCAPE = re.compile(r"""(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|\\(['’”])|\\|(?=")""")
_WINDOWS_PATH = re.compile(r"(?<![A-Za-z])[A-Za-z]:\\[^\\]\S*")
_EDN = re.compile(r"[\s\[]*\{\s*:[A-Za-z]")  # a map whose first key is a keyword
_EDN_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|;[^\n]*|#?\{|[}\[\]()]|[^\s,{}\[\]()";]+', re.DOTALL)
_EDN_NAME = re.compile(r":?([A-Za-z_][\w.*+!?<>=/-]*)")
_EDN_CONSTANTS = {"true", "false", "nil", "null", "none", "nan", "infinity"}
_EDN_BRACKETS = {"{": "{}}", "[": "[]]", "(": "[])", "#{": "[]}"}
"""Of each bracket, JSON's pair, and what closes it in EDN."""


class Extent(NamedTuple):
    """The end of a value (an index), and what is open there: brackets, and then perhaps a quote."""

    end: int
    open: str

    @property
    def closed(self) -> bool:
        """Whether the value is complete."""
        return not self.open


class Loaded(NamedTuple):
    """A JSON value and the repairs."""

    value: Any
    repairs: tuple[Repair, ...] = ()


def extent(text: str, start: int, *, python: bool = False) -> Extent:
    """Return the extent of the value that starts with the bracket at `start`. Takes linear time.

    Brackets inside strings and comments do not count. A single quote opens a string where a value or a key
    may start; in Python, everywhere.
    """
    stack: list[str] = []
    for token in _tokens(text, start, stack, python=python):
        if token.sign in PAIRS and not stack:
            return Extent(token.end, "")
    return Extent(len(text), "".join(stack))


def load(text: str, *, truncated: bool = False) -> Loaded:
    """Return the value of JSON text, repaired if it is an invalid object or array.

    `truncated`: the text may end anywhere; what it ends inside is left out, except for a string. Raises
    InvalidJsonError.
    """
    if _EDN.match(text) and len(text) <= REPAIR_LIMIT:  # JSON never begins so
        value = parse_json(_edn_as_json(text), control_characters=True)
        return Loaded(value, (Repair("json", "read it as EDN"),))
    repairs: tuple[Repair, ...] = ()
    for control_characters in (False, True):
        try:
            return Loaded(parse_json(text, control_characters=control_characters), repairs)
        except InvalidJsonError as error:
            if error.kind in _NOT_REPAIRED:
                raise
        repairs = (Repair("json", "allowed control characters inside a string"),)
    return _repaired(text, truncated)


def _edn_as_json(text: str) -> str:
    """Return EDN as JSON: maps, vectors, lists, sets, keywords and symbols (as names), strings, numbers, nil.

    Other values, such as characters and ratios, stay as they are, and are invalid JSON.
    """
    parts: list[str] = []
    opened = [("", 0)]  # the brackets that are open, and the number of values in each
    for word in _EDN_TOKEN.findall(text):
        if word in PAIRS:
            bracket, _ = opened.pop() if len(opened) > 1 else opened[0]
            pair = _EDN_BRACKETS.get(bracket, "  ")
            parts.append(pair[1] if word == pair[2:] else "?")  # no JSON
        elif word[0] != ";":
            bracket, count = opened.pop()
            parts.append((":" if bracket == "{" and count % 2 else ",") if count else "")
            opened += [(bracket, count + 1), *([(word, 0)] if word in _EDN_BRACKETS else [])]
            name = _EDN_NAME.fullmatch(word)
            is_symbol = word[0] != ":"
            is_clear = not is_symbol or (count % 2 if bracket == "{" else bracket != "(")
            is_name = name is not None and is_clear and word.casefold() not in _EDN_CONSTANTS
            number = word[:-1] if word[0].isdecimal() and word[-1] in "NM" else word
            other = _EDN_BRACKETS[word][0] if word in _EDN_BRACKETS else number
            parts.append("null" if word == "nil" else json.dumps(name[1]) if name and is_name else other)
    return "".join(parts)


def load_complete(text: str) -> Any:
    """Return the array or object that a text consists of, repaired if need be, else None."""
    text = text.strip()
    if text[:1] not in ("{", "[") or extent(text, 0) != (len(text), ""):
        return None
    try:
        return load(text).value
    except InvalidJsonError:
        return None


def closing(opened: str) -> str:
    """Return the text that closes the brackets and the quote in `opened`."""
    return "".join(_CLOSING.get(sign, sign) for sign in reversed(opened))


def _repaired(text: str, truncated: bool) -> Loaded:
    if text.lstrip()[:1] not in ("{", "["):
        raise InvalidJsonError("it is invalid JSON, and only objects and arrays are repaired")
    if len(text) > REPAIR_LIMIT:
        raise InvalidJsonError(f"it is invalid JSON of more than {REPAIR_LIMIT} characters")
    parts = list(_parts(text, truncated))
    repairs = (Repair("json", "read it in spite of its punctuation"),)
    try:
        return Loaded(parse_json(_punctuated(parts), control_characters=True), repairs)
    except InvalidJsonError:
        begun = [index for index, part in enumerate(parts) if part == "," or part in CLOSERS]
        if not truncated or not begun:
            raise
    complete = parts[: begun[-1] + (parts[begun[-1]] != ",")]
    return Loaded(parse_json(_punctuated(complete), control_characters=True), repairs)


def _parts(text: str, truncated: bool) -> Iterator[str]:
    """Yield the brackets, commas, colons and, as JSON, the strings, numbers and words of a text.

    If `truncated`, an end tag ends it.
    """
    end = 0
    stack: list[str] = []
    for token in _tokens(text, 0, stack):
        before = text[end : token.start]
        if truncated and (tag := _END_TAG.search(before)):
            yield from _words(before[: tag.start()])
            return
        yield from _words(before)
        if token.sign in _STRING_END and token.start == end and text[end - 1] in _QUOTES:
            raise InvalidJsonError("two strings without a space between them may be one")
        end = token.end
        if token.sign in _STRING_END:
            inside = text[token.start + len(token.sign) : end - len(token.sign)]
            if token.sign == '\\"' and '"' in _ESCAPED.sub("", inside):
                raise InvalidJsonError("not every quote is escaped")
            yield _string(inside, token.sign)
        elif token.sign in PAIRS or token.sign in CLOSERS:
            yield token.sign
    opened = stack[-1] if stack and stack[-1] not in CLOSERS else "\0"
    if opened != "\0" and not truncated:
        raise InvalidJsonError(f"the quote {opened} is not closed")
    before, quote, rest = text[end:].partition('\\"' if opened == "\\" else opened)
    if truncated and (tag := _END_TAG.search(before)):
        before, quote = before[: tag.start()], ""
    yield from _words(before)
    if quote:
        yield _string(rest, quote)


def _words(text: str) -> Iterator[str]:
    for part in _PUNCTUATION.split(text):
        word = part.strip()
        if word in (",", ":"):
            yield word
        elif _UNCLEAR.search(word) or (len(word.split()) > 1 and all(map(_scalar, word.split()))):
            raise InvalidJsonError(f"{word[:80]!r} has more than one reading")
        elif word:  # with spaces, since no comma is missing beside it, except after a scalar
            yield f" {_scalar(word) or json_of(word) + ' '}"


def _scalar(word: str) -> str | None:
    return _CONSTANTS.get(word.casefold()) or _number(word)


def _number(word: str) -> str | None:
    if not word[-1].isdigit() or "_" in word:
        return None
    try:
        return str(int(word)) if word.lstrip("+-").isdigit() else repr(float(word))
    except ValueError:
        return None


def _string(inside: str, quote: str) -> str:
    """Return a string as JSON; an escape that JSON does not have stands for itself, unless Python has it.

    In a path of Windows with such an escape, no other one can be JSON's. After the quote `\\"`, quotes and
    backslashes are escaped once more.
    """
    if quote == '\\"':
        inside = _ESCAPED.sub(r"\1", inside)
    if escape := _PYTHON_ESCAPE.search(inside):
        raise InvalidJsonError(f"the escape {escape[1]} is not JSON's")
    for path in _WINDOWS_PATH.findall(inside):
        escapes = {escape[0][:2] for escape in _ESCAPE.finditer(path)}
        if "\\" in escapes and escapes & _LETTERS:
            raise InvalidJsonError(f"the backslashes of {path[:80]!r} have more than one reading")
    return '"' + _ESCAPE.sub(lambda escape: escape[1] or escape[2] or "\\" + escape[0], inside) + '"'


def _punctuated(parts: Sequence[str]) -> str:
    """Return the text of parts with the commas and the last brackets that JSON demands."""
    strict = ""
    opened: list[str] = []
    for part, following in zip(parts, [*parts[1:], "]"], strict=True):
        if part in CLOSERS:
            opened.append(part)
        elif part in PAIRS and opened:
            opened.pop()
        if part != "," or following not in PAIRS:
            strict += json.dumps(part.strip()) if following == ":" and '"' not in part else part
        if (part[-1], following[0]) in _ADJACENT:
            strict += ","
    return strict + closing("".join(opened))


class _Token(NamedTuple):
    """A bracket, a complete string (its quote as `sign`) or a comment, from `start` to before `end`."""

    sign: str
    start: int
    end: int


def _tokens(text: str, start: int, stack: list[str], *, python: bool = False) -> Iterator[_Token]:
    """Yield the tokens from `start`, and keep in `stack` what is open after each of them."""
    counts = dict.fromkeys(CLOSERS, 0)
    position = start
    while special := _SPECIAL.search(text, position):
        sign, begin, position = special.group(), special.start(), special.end()
        match sign:
            case "“" | "‘" if python:
                continue
            case '"' | "'" | "“" | "‘" | '\\"':
                if sign in "'‘" and not python and _before(text, begin) not in _BEFORE_TEXT:
                    continue
                sign = '"' if python and sign != "'" else sign
                ends = (string.end() for string in _STRING_END[sign].finditer(text, position) if string[1])
                end = next(ends, None)
                if end is None:
                    stack.append(sign[0])
                    return
                position = end
            case "{" | "[" | "(":
                stack.append(sign)
                counts[sign] += 1
            case "}" | "]" | ")":
                opening = PAIRS[sign]
                while counts[opening] and (top := stack.pop()):  # what is open inside ends with it
                    counts[top] -= 1
                    if top == opening:
                        break
            case "/*":
                end = text.find("*/", position)
                if end < 0:
                    return
                position = end + 2
            case _ if text[begin - 1] in " \t\n,{[(":
                end = text.find("\n", position)
                position = len(text) if end < 0 else end
            case _:
                continue
        yield _Token(sign, begin, position)


def _before(text: str, position: int) -> str:
    """Return the last character before `position` that is not a space; "{" at the start of the text."""
    while position and text[position - 1] in " \t\r\n":
        position -= 1
    return text[position - 1] if position else "{"
