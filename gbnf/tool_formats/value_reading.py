"""Reading of values in the text of a call from a cursor, piece by piece."""

from __future__ import annotations

from typing import Final

from gbnf.calls.parsing.lenient_json import PAIRS
from gbnf.errors import GbnfError
from gbnf.schema_caches import schema_cache
from gbnf.tool_formats.cursor import AnswerCursor, Delimiters, Steps, Take

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
    while (match := (yield from cursor.until(_IN_STRING[quote], take))) is not None:
        cursor.position = match.end()
        take(match.group())
        if match.group() == quote:
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


@schema_cache(maxsize=256)
def _with_ends(end: Delimiters) -> Delimiters:
    return Delimiters([*end.patterns, *_LITERAL.patterns])


def _balanced(cursor: AnswerCursor, take: Take, special: Delimiters, stack: list[str]) -> Steps[None]:
    """Take a text until no bracket is open, or up to a delimiter; strings in it are read as a whole."""
    while (match := (yield from cursor.until(special, take))) is not None:
        sign = match.group()
        if len(sign) > 1:
            return
        cursor.position = match.end()
        take(sign)
        if sign in "\"'":
            yield from read_string(cursor, take, sign)
        elif sign in "{[(":
            stack.append(sign)
        else:
            while PAIRS[sign] in stack and stack.pop() != PAIRS[sign]:
                pass  # what is open inside ends with it
        if not stack:
            return
    raise EndOfTextError
