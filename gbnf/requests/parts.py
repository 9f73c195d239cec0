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

_MOST_PARTS: Final = 5
"""Each takes two steps or more of a run."""
_MAIL: Final = rf"(?<![\w.+-]){ADDRESS}"  # in linear time
_VALUE: Final = re.compile(rf"\d|{QUOTED.pattern}|{_MAIL}|{PATH.pattern}")
"""What a part has of its own: a name alone may be that of somebody in another part."""
_OTHER_QUOTES: Final = re.compile(r"[\"“”„«»‘`<>(){}\[\]=?\n]|(?<!\w)['’]|['’](?!\w)")
"""What may have parts of a text inside; a question is answered as a whole."""
_ENDS_WITH_VALUE: Final = re.compile(rf"(?:{_MAIL}|{PATH.pattern})[\s.]*\Z")


def parts_of(request: str, tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return the parts of a request, in its order; the request alone if it cannot be divided for sure.

    Each part is an order for one of `tools`, by its words, and each after the first has a value of its own
    and does not refer to another: "create the folder a/b", "write 'hi' to c.txt". A text without quotes has
    no parts, whatever it says: "tell bob@example.com to delete a.txt and write b.txt".
    """
    unquoted = _unquoted(request[:LONGEST_REQUEST])
    if len(request) > LONGEST_REQUEST or _OTHER_QUOTES.search(unquoted) or wording.DEPENDS.search(unquoted):
        return (request,)
    ends, begins = [0], [0]  # of clauses: the joint before them, and where they begin
    for end, begin, after in _pieces(request):
        if _is_order(request[begin:after], tools):
            ends.append(end)
            begins.append(begin)
    if not _is_order(request, tools):
        return (request,)
    parts = [0]  # indices of the clauses that begin them
    for index, begin in enumerate(begins[1:], 1):
        before = request[begins[parts[-1]] : ends[index]]
        clause = request[begin : (*ends, len(request))[index + 1]]
        if _has_unquoted_text(before):
            break
        if _stands_alone(clause) and _asks(before, tools):
            parts.append(index)
    if not 1 < len(parts) <= _MOST_PARTS:
        return (request,)
    starts = [begins[index] for index in parts]
    stops = [*(ends[index] for index in parts[1:]), len(request)]
    return tuple(request[start:stop] for start, stop in zip(starts, stops, strict=True))


def _pieces(request: str) -> Iterator[tuple[int, int, int]]:
    """Yield where the pieces between commas, conjunctions and sentences are, outside of quotes.

    The end of the piece before, and the beginning and the end of each.
    """
    quotes = [match.span() for match in QUOTED.finditer(request)]
    joints = [
        match.span()
        for match in wording.PART_JOINT.finditer(request)
        if not any(start < match.end() < end for start, end in quotes)
    ]
    for (end, begin), (after, _) in pairwise([*joints, (len(request), len(request))]):
        yield end, begin, after


def _is_order(clause: str, tools: Sequence[Tool]) -> bool:
    """Return whether a clause begins with the verb of an order, and asks for a tool."""
    beginning = wording.ORDER_BEGINNING.match(clause)
    return beginning is not None and beginning["verb"].lower() in wording.ORDER_VERBS and _asks(clause, tools)


def _has_unquoted_text(clauses: str) -> bool:
    """Return whether clauses have, or may have, a text without quotes, whose words ask for nothing."""
    if wording.TELLS.search(_unquoted(clauses)):
        return True
    writes = wording.WRITES.search(_unquoted(clauses)) is not None
    return writes and not (QUOTED.search(clauses) or _ENDS_WITH_VALUE.search(clauses))


def _stands_alone(clause: str) -> bool:
    """Return whether a clause has a value of its own, and refers to nothing before it."""
    unquoted = _unquoted(clause)
    if not _VALUE.search(clause) or wording.REFERS_TO_PART.search(unquoted):
        return False
    if wording.SENDS.search(unquoted) and not (
        re.search(_MAIL, unquoted) or wording.ONESELF.search(unquoted)
    ):
        return False
    return unquoted != clause or not (wording.WRITES.search(clause) or wording.NAMES_RESULT.search(clause))


def _asks(text: str, tools: Sequence[Tool]) -> bool:
    """Return whether a text asks for a tool."""
    is_mail = re.search(_MAIL, text) is not None
    return any(asking_words(text, tools).values()) or any(
        is_mail and "@" in tool.offer.markers for tool in tools
    )


def _unquoted(text: str) -> str:
    return QUOTED.sub(" ", text)
