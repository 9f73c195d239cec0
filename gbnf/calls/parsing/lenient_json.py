"""JSON as models write it: where a value ends, and what it was meant to be.

Strict JSON is read strictly, and then nothing is repaired. What is broken goes through json-repair, whose own
log says what it did. No text raises anything but `Unreadable`.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from json_repair import repair_json

from gbnf.calls.parsing.results import Repair
from gbnf.strict_json import InvalidJsonError, parse_json

#: Characters of broken JSON that are repaired; more is left unread. Repairing is slow beside reading.
REPAIR_LIMIT = 32_000
_SHOWN = 4  # of json-repair's remarks on one value
_NOT_REPAIRED = ("duplicate key", "surrogate")

_SPECIAL = re.compile(r'["\'{}\[\]()]|//|/\*|#')
_PAIRS = {"}": "{", "]": "[", ")": "("}
CLOSERS = {"{": "}", "[": "]", "(": ")"}
_STRING_END = {'"': re.compile(r'"|\\'), "'": re.compile(r"'|\\")}
_BEFORE_TEXT = "{[(,:="
_LOG = re.compile(r"^While parsing (?:an? )?|, ignoring$|, stopping here$")


class Extent(NamedTuple):
    """Where a value ends (an index), and what is still open there: brackets, and a quote at the end."""

    end: int
    open: str

    @property
    def closed(self) -> bool:
        return not self.open


class Loaded(NamedTuple):
    """A JSON value and what was done to read it."""

    value: Any
    repairs: tuple[Repair, ...] = ()


def extent(text: str, start: int, *, python: bool = False) -> Extent:
    """How far the value reaches that opens with the bracket at `start`. Linear in the text's length.

    Brackets inside strings and comments don't count. A single quote opens a string where a value or a key
    may begin, in Python everywhere.
    """
    stack: list[str] = []
    counts = dict.fromkeys(CLOSERS, 0)
    at = start
    while found := _SPECIAL.search(text, at):
        sign, at = found.group(), found.end()
        match sign:
            case '"' | "'":
                if sign == "'" and not python and _before(text, found.start()) not in _BEFORE_TEXT:
                    continue
                closing = _string_end(text, at, sign)
                if closing is None:
                    return Extent(len(text), "".join([*stack, sign]))
                at = closing
            case "{" | "[" | "(":
                stack.append(sign)
                counts[sign] += 1
            case "}" | "]" | ")":
                opening = _PAIRS[sign]
                while counts[opening] and (top := stack.pop()):  # what else is open inside ends with it
                    counts[top] -= 1
                    if top == opening:
                        break
                if not stack:
                    return Extent(at, "")
            case "/*":
                closing = text.find("*/", at)
                if closing < 0:
                    return Extent(len(text), "".join(stack))
                at = closing + 2
            case _ if text[found.start() - 1] in " \t\n,{[(":
                closing = text.find("\n", at)
                at = len(text) if closing < 0 else closing
    return Extent(len(text), "".join(stack))


def load(text: str) -> Loaded:
    """Return the JSON value that a text is, or was meant to be. Raises InvalidJsonError."""
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
    return Loaded(value, (Repair("json", "took line breaks inside a text as they are"),))


def closing(opened: str) -> str:
    """What closes the brackets and the quote in `opened`."""
    return "".join(CLOSERS.get(sign, sign) for sign in reversed(opened))


def _repaired(text: str) -> Loaded:
    if len(text) > REPAIR_LIMIT:
        raise InvalidJsonError(f"it is broken JSON of more than {REPAIR_LIMIT} characters")
    try:
        found: Any = repair_json(text, return_objects=True, skip_json_loads=True, logging=True)
    except (ValueError, RecursionError) as error:
        raise InvalidJsonError(f"it is broken JSON that can't be repaired ({error})"[:200]) from None
    if not isinstance(found, tuple):
        raise InvalidJsonError("it is not JSON")
    repaired, log = found
    try:
        value = parse_json(json.dumps(repaired, allow_nan=False))
    except InvalidJsonError:
        raise
    except (ValueError, RecursionError):
        raise InvalidJsonError(
            "it is broken JSON that is nested too deeply, or contains a number that JSON does not have"
        ) from None
    remarks = list(dict.fromkeys(_LOG.sub("", entry["text"]) for entry in log)) or ["read it leniently"]
    more = [f"and {len(remarks) - _SHOWN} more"] if len(remarks) > _SHOWN else []
    detail = "; ".join([*remarks[:_SHOWN], *more])
    return Loaded(value, (Repair("json", " ".join(detail.split())),))


def _before(text: str, at: int) -> str:
    """The last sign before `at` that is no space; a bracket at the beginning of the text."""
    while at and text[at - 1] in " \t\r\n":
        at -= 1
    return text[at - 1] if at else "{"


def _string_end(text: str, at: int, quote: str) -> int | None:
    while found := _STRING_END[quote].search(text, at):
        if found.group() == quote:
            return found.end()
        at = found.end() + 1
    return None
