"""Reading of values in the text of a call: from a cursor, piece by piece, and by the types of a schema.

A text without quotes stands for a value by its schema. Where strings are not the only type, a text that is
JSON, or else a Python literal, of another type that the schema allows is that value. Any other text is a
string if strings are allowed. So the text `5` is a number where both are allowed, and `1.2.3` a string. The
types of a schema are those of its grammar: rather too many than too few, and never an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, Final

from gbnf.calls.parsing.lenient_json import REPAIR_LIMIT, load
from gbnf.calls.parsing.readers import read_literal as read_python
from gbnf.errors import GbnfError
from gbnf.strict_json import InvalidJsonError, has_type, parse_json
from gbnf.tool_formats.cursor import AnswerCursor, Delimiters, Steps, Take

_PAIRS: Final = {"}": "{", "]": "[", ")": "("}
_BRACKETS: Final = (r"\{", r"\}", r"\[", r"\]")
_OUTSIDE = Delimiters(['"', *_BRACKETS])
_IN_STRING: Final = {quote: Delimiters([quote, r"\\."]) for quote in "\"'"}


class EndOfTextError(GbnfError):
    """The text ends inside a value."""


class UnreadableError(GbnfError):
    """The text is not in the format. The message is for the model."""


def read_json(cursor: AnswerCursor, take: Take, opened: str = "") -> Steps[None]:
    """Read the JSON value that starts here, up to its last bracket or quote. Raises EndOfTextError.

    `opened`: the brackets around it that are read already, which it closes.
    """
    yield from _balanced(cursor, take, _OUTSIDE, list(opened))


def read_string(cursor: AnswerCursor, take: Take, quote: str = '"') -> Steps[None]:
    """Read a string after its first quote. Raises EndOfTextError."""
    while (found := (yield from cursor.until(_IN_STRING[quote], take))) is not None:
        cursor.at = found.end()
        take(found.group())
        if found.group() == quote:
            return
    raise EndOfTextError


def read_literal(cursor: AnswerCursor, take: Take, end: Delimiters, *, inside: bool) -> Steps[None]:
    """Read a JSON value or a Python literal up to `end`, which is not read. Raises EndOfTextError.

    `inside`: an `end` inside brackets counts, too; never one inside a string.
    """
    first = yield from cursor.peek()
    if first and first in "{[(\"'":
        yield from _balanced(cursor, take, _with_ends(end) if inside else _LITERAL, [])
    if (yield from cursor.until(end, take)) is None:
        raise EndOfTextError


_LITERAL = Delimiters(['"', "'", *_BRACKETS, r"\(", r"\)"])


@lru_cache(maxsize=256)
def _with_ends(end: Delimiters) -> Delimiters:
    return Delimiters([*end.patterns, *_LITERAL.patterns])


def _balanced(cursor: AnswerCursor, take: Take, special: Delimiters, stack: list[str]) -> Steps[None]:
    while (found := (yield from cursor.until(special, take))) is not None:
        sign = found.group()
        if len(sign) > 1:
            return
        cursor.at = found.end()
        take(sign)
        if sign in "\"'":
            yield from read_string(cursor, take, sign)
        elif sign in "{[(":
            stack.append(sign)
        else:
            while _PAIRS[sign] in stack and stack.pop() != _PAIRS[sign]:
                pass  # what is open inside ends with it
        if not stack:
            return
    raise EndOfTextError


_EMPTY = (("array", "[]"), ("object", "{}"), ("null", "null"))


def json_of_raw(text: str, types: Collection[str], *, quoted: bool = False) -> str:
    """Return the JSON text of the value that `text` stands for, where a schema allows `types`.

    `quoted`: the format writes strings in quotes here.
    """
    given = text.strip()
    allowed = {*types} if quoted else {*types} - {"string"}
    written = _value(parse_json, given)
    if written is not None and has_type(written[0], allowed):
        return given
    literal = _value(read_python, given) if written is None and len(given) <= REPAIR_LIMIT else None
    if literal is not None and has_type(literal[0], allowed):
        return literal[1]
    if "string" in types:
        return json.dumps(text, ensure_ascii=False)
    if not given:
        return next((empty for kind, empty in _EMPTY if kind in types), '""')
    if written is not None:
        return given
    found = literal or _value(lambda text: load(text).value, given)
    return json.dumps(text, ensure_ascii=False) if found is None else found[1]


def _value(read: Callable[[str], Any], text: str) -> tuple[Any, str] | None:
    """Return the value that a reader finds in a text, and its JSON text."""
    try:
        value = read(text)
    except InvalidJsonError:
        return None
    return value, json.dumps(value, ensure_ascii=False)
