"""A lenient reader for JSON in models' texts: the end of a value, and the value of invalid JSON.

A text that is strict JSON is never repaired. Other texts are repaired by json-repair, and the repairs are
taken from its log. Nothing but InvalidJsonError is raised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from gbnf.calls.parsing.results import Repair
from gbnf.strict_json import InvalidJsonError, parse_json

#: Characters of invalid JSON that is repaired; a longer text is refused, since repairing is slow.
REPAIR_LIMIT = 32_000
_SHOWN = 4  # log entries of json-repair for one value
_NOT_REPAIRED = ("duplicate key", "surrogate")

_SPECIAL = re.compile(r'["\'{}\[\]()]|//|/\*|#')
_PAIRS = {"}": "{", "]": "[", ")": "("}
CLOSERS = {"{": "}", "[": "]", "(": ")"}
_STRING_END = {'"': re.compile(r'"|\\'), "'": re.compile(r"'|\\")}
_BEFORE_TEXT = "{[(,:="
_BARE_KEY = re.compile(r"(?:^|,)\s*([^\s,:]+)\s*:")
_COLON = re.compile(r"\s*:")
_LOG = re.compile(r"^While parsing (?:an? )?|, ignoring$|, stopping here$")


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


def load(text: str) -> Loaded:
    """Return the value of JSON text, repaired if it is an invalid object or array.

    Raises InvalidJsonError. In invalid JSON, a key that occurs twice in an object is an error, since its two
    values can't be compared.
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
        return _repaired(text)
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


def _repaired(text: str) -> Loaded:
    if text.lstrip()[:1] not in ("{", "["):
        raise InvalidJsonError("it is invalid JSON, and only objects and arrays are repaired")
    if len(text) > REPAIR_LIMIT:
        raise InvalidJsonError(f"it is invalid JSON of more than {REPAIR_LIMIT} characters")
    if key := _repeated_key(text):
        raise InvalidJsonError(f"the key {key[:80]!r} occurs twice in one object", "duplicate key")
    from json_repair import repair_json  # noqa: PLC0415 - most JSON needs no repair

    try:
        found: Any = repair_json(text, return_objects=True, skip_json_loads=True, logging=True)
    except (ValueError, RecursionError) as error:
        raise InvalidJsonError(f"it is invalid JSON that cannot be repaired ({error})"[:200]) from None
    if not isinstance(found, tuple):
        raise InvalidJsonError("it is not JSON")
    repaired, log = found
    try:
        value = parse_json(json.dumps(repaired, allow_nan=False))
    except InvalidJsonError:
        raise
    except (ValueError, RecursionError):
        raise InvalidJsonError(
            "it is invalid JSON that is nested too deeply, or has a number that JSON does not have"
        ) from None
    remarks = list(dict.fromkeys(_LOG.sub("", entry["text"]) for entry in log)) or ["repaired it"]
    more = [f"and {len(remarks) - _SHOWN} more"] if len(remarks) > _SHOWN else []
    detail = "; ".join([*remarks[:_SHOWN], *more])
    return Loaded(value, (Repair("json", " ".join(detail.split())),))


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


def _repeated_key(text: str) -> str | None:
    """Return a key that occurs twice in one object of invalid JSON, None if there is none."""
    stack: list[str] = []
    keys: list[set[str]] = []  # one for each open bracket
    end = 0
    for token in _tokens(text, 0, stack):
        found: list[str] = _BARE_KEY.findall(text[end : token.start])
        if token.sign in ("'", '"') and _COLON.match(text, token.end):
            found.append(text[token.start + 1 : token.end - 1])
        for key in found if keys else ():
            if key in keys[-1]:
                return key
            keys[-1].add(key)
        end = token.end
        del keys[len(stack) :]
        if token.sign in CLOSERS:
            keys.append(set())
    return None


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
