"""JSON as models write it: where a value ends, and what it was meant to be.

Strict JSON is read strictly, and then nothing is repaired. What is broken goes through json-repair, whose own
log says what it did. No text raises anything but `Unreadable`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple, NoReturn

from json_repair import repair_json

from gbnf.calls.parsing.results import Repair
from gbnf.errors import GbnfError

#: Characters of broken JSON that are repaired; more is left unread. Repairing is slow beside reading.
REPAIR_LIMIT = 32_000
_SHOWN = 4  # of json-repair's remarks on one value

_SPECIAL = re.compile(r'["\'{}\[\]()]|//|/\*|#')
_PAIRS = {"}": "{", "]": "[", ")": "("}
CLOSERS = {"{": "}", "[": "]", "(": ")"}
_STRING_END = {'"': re.compile(r'"|\\'), "'": re.compile(r"'|\\")}
_BEFORE_TEXT = "{[(,:="
_LOG = re.compile(r"^While parsing (?:an? )?|, ignoring$|, stopping here$")


class Unreadable(GbnfError, ValueError):  # noqa: N818  # a finding about a text, caught where it is read
    """This is no JSON value, and can't be made one. The message says why."""


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
    """The JSON value that `text` is, or was meant to be. Raises Unreadable."""
    try:
        return Loaded(_strictly(text))
    except Unreadable:
        raise
    except (ValueError, RecursionError):
        pass
    try:
        return Loaded(
            _strictly(text, strict=False), (Repair("json", "took line breaks inside a text as they are"),)
        )
    except Unreadable:
        raise
    except (ValueError, RecursionError):
        return _repaired(text)


def strict(text: str) -> Any:
    """The value of strict JSON. Raises Unreadable."""
    try:
        return _strictly(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from None


def closing(opened: str) -> str:
    """What closes the brackets and the quote in `opened`."""
    return "".join(CLOSERS.get(sign, sign) for sign in reversed(opened))


def _strictly(text: str, *, strict: bool = True) -> Any:
    value = json.loads(
        text,
        strict=strict,
        object_pairs_hook=_object,
        parse_constant=_no_constant,
        parse_float=_finite,
    )
    return _characters_only(value)


def _repaired(text: str) -> Loaded:
    if len(text) > REPAIR_LIMIT:
        raise Unreadable(f"it is broken JSON of more than {REPAIR_LIMIT} characters")
    try:
        found: Any = repair_json(text, return_objects=True, skip_json_loads=True, logging=True)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is broken JSON that can't be repaired ({error})"[:200]) from None
    if not isinstance(found, tuple):
        raise Unreadable("it is no JSON")
    value, log = found
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise Unreadable("it is broken JSON that nests too deeply, or holds no number of JSON") from None
    remarks = list(dict.fromkeys(_LOG.sub("", entry["text"]) for entry in log)) or ["read it leniently"]
    more = [f"and {len(remarks) - _SHOWN} more"] if len(remarks) > _SHOWN else []
    detail = "; ".join([*remarks[:_SHOWN], *more])
    return Loaded(_characters_only(value), (Repair("json", " ".join(detail.split())),))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, member in pairs:
        if key in value and value[key] != member:
            raise Unreadable(f"the key {key[:80]!r} stands twice in one object, with two values")
        value[key] = member
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _characters_only(value: Any) -> Any:
    """`value`; raises Unreadable where a text in it holds half of a surrogate pair, which is no character."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Unreadable("a text holds half of a surrogate pair, which is no character") from None
    return value


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
