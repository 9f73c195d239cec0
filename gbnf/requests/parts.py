"""The parts of a request that can be carried out one after the other. Pure.

A small model carries out a request for one thing, and of a request for three it does one, or mixes them. So
it is asked for each part alone. A part is only what stands for itself: a request that is not divided costs
less than one that is divided wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from gbnf.requests import wording
from gbnf.requests.phrases import ADDRESS, PATH, QUOTED
from gbnf.requests.ranking import asking_words
from gbnf.requests.values import LONGEST_REQUEST
from gbnf.tools.tool import Tool

_MOST_PARTS: Final = 8
_FEWEST_WORDS: Final = 2  # of a part after the first
_VALUE: Final = re.compile(rf"{QUOTED.pattern}|{ADDRESS}|{PATH.pattern}|\d")
"""What a part has of its own: a name alone may be that of somebody in another part."""


def parts_of(request: str, tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return the parts of a request, in its order; the request alone if it cannot be divided for sure.

    Each part asks for one of `tools`, by its words, and each after the first has a value of its own and does
    not refer to another: "create the folder a/b", "write 'hi' to c.txt". None depends on a condition.
    """
    if len(request) > LONGEST_REQUEST or wording.DEPENDS.search(_unquoted(request)):
        return (request,)
    clauses = [0]  # where they begin
    for start, end in pairwise([*_pieces(request), len(request)]):
        if start and not wording.GOES_ON.match(request, start) and _asks(request[start:end], tools):
            clauses.append(start)
    begins = [0]
    for start, end in pairwise([*clauses, len(request)]):
        if start and _stands_alone(request[start:end]) and _asks(request[begins[-1] : start], tools):
            begins.append(start)
    parts = tuple(
        wording.PART_JOINT_END.sub("", request[start:end]) for start, end in pairwise([*begins, len(request)])
    )
    return parts if 1 < len(parts) <= _MOST_PARTS else (request,)


def _pieces(request: str) -> Iterator[int]:
    """Yield where the pieces between commas, conjunctions and sentences begin, outside of quotes."""
    quotes = [match.span() for match in QUOTED.finditer(request)]
    yield 0
    for match in wording.PART_JOINT.finditer(request):
        if match.end() > match.start() and not any(start < match.end() < end for start, end in quotes):
            yield match.end()


def _stands_alone(clause: str) -> bool:
    """Return whether a clause has a value of its own, and refers to nothing before it."""
    unquoted = _unquoted(clause)
    if (
        len(clause.split()) < _FEWEST_WORDS
        or not _VALUE.search(clause)
        or wording.REFERS_TO_PART.search(unquoted)
    ):
        return False
    return unquoted != clause or not wording.NAMES_RESULT.search(clause)


def _asks(text: str, tools: Sequence[Tool]) -> bool:
    """Return whether a text asks for a tool."""
    is_mail = re.search(ADDRESS, text) is not None
    return any(asking_words(text, tools).values()) or any(
        is_mail and "@" in tool.offer.markers for tool in tools
    )


def _unquoted(text: str) -> str:
    return QUOTED.sub(" ", text)
