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
from gbnf.strict_json import InvalidJsonError, parse_json

#: Characters of invalid JSON that is repaired; a longer text is refused, since repairing is slow.
REPAIR_LIMIT = 32_000
_NOT_REPAIRED = ("duplicate key", "surrogate")

_SPECIAL = re.compile(r'["\'{}\[\]()]|//|/\*|#')
_PAIRS = {"}": "{", "]": "[", ")": "("}
CLOSERS = {"{": "}", "[": "]", "(": ")"}
_STRING_END = {'"': re.compile(r'"|\\'), "'": re.compile(r"'|\\")}
_BEFORE_TEXT = "{[(,:="
_PUNCTUATION = re.compile(r"([,:])")
_AROUND_WORD = " \t\r\n“”"
_ADJACENT = {(before, after) for before in '"}]' for after in '"{['}  # between them, a comma may be missing
_CONSTANTS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_PYTHON_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\[xUNa])")
_ESCAPE = re.compile(r"""(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|\\(')|\\|(?=")""")


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
        if token.sign in _PAIRS and not stack:
            return Extent(token.end, "")
    return Extent(len(text), "".join(stack))


def load(text: str, *, truncated: bool = False) -> Loaded:
    """Return the value of JSON text, repaired if it is an invalid object or array.

    `truncated`: the text may end anywhere; what it ends inside is left out, except for a string. Raises
    InvalidJsonError.
    """
    try:
        return Loaded(parse_json(text))
    except InvalidJsonError as error:
        if error.kind in _NOT_REPAIRED:
            raise
    try:
        value = parse_json(text, control_characters=True)
    except InvalidJsonError as error:
        if error.kind in _NOT_REPAIRED:
            raise
        return _repaired(text, truncated)
    return Loaded(value, (Repair("json", "allowed control characters inside a string"),))


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
    return "".join(CLOSERS.get(sign, sign) for sign in reversed(opened))


def _repaired(text: str, truncated: bool) -> Loaded:
    if text.lstrip()[:1] not in ("{", "["):
        raise InvalidJsonError("it is invalid JSON, and only objects and arrays are repaired")
    if len(text) > REPAIR_LIMIT:
        raise InvalidJsonError(f"it is invalid JSON of more than {REPAIR_LIMIT} characters")
    parts = list(_parts(text))
    repairs = (Repair("json", "read it in spite of its punctuation"),)
    try:
        return Loaded(parse_json(_punctuated(parts), control_characters=True), repairs)
    except InvalidJsonError:
        if not truncated or "," not in parts:
            raise
    complete = parts[: len(parts) - 1 - parts[::-1].index(",")]
    return Loaded(parse_json(_punctuated(complete), control_characters=True), repairs)


def _parts(text: str) -> Iterator[str]:
    """Yield the brackets, commas, colons and, as JSON, the strings, numbers and words of a text."""
    end = 0
    stack: list[str] = []
    for token in _tokens(text, 0, stack):
        yield from _words(text[end : token.start])
        end = token.end
        if token.sign in _STRING_END:
            yield _string(text[token.start + 1 : end - 1])
        elif token.sign in _PAIRS or token.sign in CLOSERS:
            yield token.sign
    before, quote, rest = text[end:].partition(stack[-1] if stack and stack[-1] in _STRING_END else "\0")
    yield from _words(before)
    if quote:
        yield _string(rest)


def _words(text: str) -> Iterator[str]:
    for part in _PUNCTUATION.split(text):
        word = part.strip(_AROUND_WORD)
        if word in (",", ":"):
            yield word
        elif "//" in word:
            raise InvalidJsonError(f"{word[:80]!r} may be a text or have a comment")
        elif word:
            text = _CONSTANTS.get(word.casefold()) or _number(word) or json.dumps(word, ensure_ascii=False)
            yield f" {text} "  # with spaces, since no comma is missing beside a word


def _number(word: str) -> str | None:
    if not word[-1].isdigit() or "_" in word:
        return None
    try:
        return str(int(word)) if word.lstrip("+-").isdigit() else repr(float(word))
    except ValueError:
        return None


def _string(inside: str) -> str:
    """Return a string as JSON; an escape that JSON does not have stands for itself, unless Python has it."""
    if escape := _PYTHON_ESCAPE.search(inside):
        raise InvalidJsonError(f"the escape {escape[1]} is not JSON's")
    return '"' + _ESCAPE.sub(lambda escape: escape[1] or escape[2] or "\\" + escape[0], inside) + '"'


def _punctuated(parts: Sequence[str]) -> str:
    """Return the text of parts with the commas and the last brackets that JSON demands."""
    strict = ""
    opened: list[str] = []
    for part, following in zip(parts, [*parts[1:], "]"], strict=True):
        if part in CLOSERS:
            opened.append(part)
        elif part in _PAIRS and opened:
            opened.pop()
        if part != "," or following not in _PAIRS:
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
    at = start
    while found := _SPECIAL.search(text, at):
        sign, begin, at = found.group(), found.start(), found.end()
        match sign:
            case '"' | "'":
                if sign == "'" and not python and _before(text, begin) not in _BEFORE_TEXT:
                    continue
                end = _string_end(text, at, sign)
                if end is None:
                    stack.append(sign)
                    return
                at = end
            case "{" | "[" | "(":
                stack.append(sign)
                counts[sign] += 1
            case "}" | "]" | ")":
                opening = _PAIRS[sign]
                while counts[opening] and (top := stack.pop()):  # what is open inside ends with it
                    counts[top] -= 1
                    if top == opening:
                        break
            case "/*":
                end = text.find("*/", at)
                if end < 0:
                    return
                at = end + 2
            case _ if text[begin - 1] in " \t\n,{[(":
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            case _:
                continue
        yield _Token(sign, begin, at)


def _before(text: str, at: int) -> str:
    """Return the last character before `at` that is not a space; "{" at the start of the text."""
    while at and text[at - 1] in " \t\r\n":
        at -= 1
    return text[at - 1] if at else "{"


def _string_end(text: str, at: int, quote: str) -> int | None:
    while found := _STRING_END[quote].search(text, at):
        if found.group() == quote:
            return found.end()
        at = found.end() + 1
    return None
