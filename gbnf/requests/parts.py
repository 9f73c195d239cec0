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

from gbnf.requests.ranking import asking_words
from gbnf.requests.values import ADDRESS, LONGEST_REQUEST, PATH, QUOTED
from gbnf.tools.tool import Tool

_MOST_PARTS: Final = 8
_FEWEST_WORDS: Final = 2  # of a part after the first
_AND: Final = r"(?:and|then|also|e|ed|poi|anche)"
_BOUNDARY: Final = re.compile(
    rf"(?:(?<=[.?!;])\s+|,\s*|(?=\s{_AND}\s))(?:\s?{_AND}\s+){{0,3}}(?=\S)", re.IGNORECASE
)
_ENDING: Final = re.compile(rf"(?:[\s,;]|\b{_AND}\b)+\Z", re.IGNORECASE)
_VALUE: Final = re.compile(rf"{QUOTED.pattern}|{ADDRESS}|{PATH.pattern}|\d")
"""What a part has of its own: a name alone may be that of somebody in another part."""
_REFERS: Final = re.compile(
    r"\b(?:it|its|them|they|their|these|those|there|one|ones|inside|same|results?|answer|sum|total|both|each"
    r"|(?:this|that)(?![^,;]{0,60}:)"  # save this: …
    r"|lo|la|li|le|ne|ci|vi|quest[aoei]|quell[aoei]|dentro|rispost[ae]|stess[aoei]|risultat[oi]|somma|totale|entramb[ie]"
    r"|\w{2,}(?:[ae]l[aoei]|i[lc][aoei]|r[lc][aoei]|[aei]ci|[mtc]e(?:l[aoei]|ne)))\b(?!\s*[@/])",
    re.IGNORECASE,
)
"""What stands for something of another part."""
_REFERS_WITHOUT_QUOTE: Final = re.compile(
    r"\b(?:(?:the|my|il|lo|la|i|le|gli|mi[ao])\s+|l['’])(?:texts?|contents?|lists?|numbers?|options?|pick|choice|decision"
    r"|names?|dates?|slots?|times?|lines?|files|test[oi]|contenut[oi]|elenc[ohi]+|list[ae]|numer[oi]|opzion[ei]"
    r"|scelt[ae]|decision[ei]|nom[ei]|dat[ae]|orar[io]+|righ?[ae])\b",
    re.IGNORECASE,
)
"""The same, unless the part has a text in quotes: write the text "call mom"."""
_CONDITION: Final = re.compile(
    r"\b(?:if|unless|otherwise|instead|except|but|whether|as soon as|once|until|depending|not|never|n['’]t"
    r"|se|altrimenti|invece|tranne|ma|appena|finch[eé]|a seconda|non|mai)\b|n['’]t\b",
    re.IGNORECASE,
)
"""What makes one part depend on another, or forbids something."""
_CONTINUES: Final = re.compile(
    rf"(?:{ADDRESS}|to|for|with|without|in|into|on|at|from|of|by|as|about|than|that|which|who|whose|where|starting"
    r"|(?:the )?(?:subject|title|text|body|message|content|name|path|duration)s?"
    r"|a|ad|al|alla|ai|per|con|senza|su|da|di|che|cui|(?:ne|su|da|de)(?:l(?:l[oae]?)?|i|gli)"
    r"|(?:l['’]|il )?(?:oggetto|titolo|testo|corpo|messaggio|contenuto|nome|percorso|durata)"
    r"|\w{3,}ing|\w{3,}ndo|\W?\d)\b",
    re.IGNORECASE,
)
"""How a piece begins that goes on with the one before it."""


def parts_of(request: str, tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return the parts of a request, in its order; the request alone if it cannot be divided for sure.

    Each part asks for one of `tools`, by its words, and each after the first has a value of its own and does
    not refer to another: "create the folder a/b", "write 'hi' to c.txt". None depends on a condition.
    """
    if len(request) > LONGEST_REQUEST or _CONDITION.search(_unquoted(request)):
        return (request,)
    clauses = [0]  # where they begin
    for start, end in pairwise([*_pieces(request), len(request)]):
        if start and not _CONTINUES.match(request, start) and _asks(request[start:end], tools):
            clauses.append(start)
    begins = [0]
    for start, end in pairwise([*clauses, len(request)]):
        if start and _stands_alone(request[start:end]) and _asks(request[begins[-1] : start], tools):
            begins.append(start)
    parts = tuple(_ENDING.sub("", request[start:end]) for start, end in pairwise([*begins, len(request)]))
    return parts if 1 < len(parts) <= _MOST_PARTS else (request,)


def _pieces(request: str) -> Iterator[int]:
    """Yield where the pieces between commas, conjunctions and sentences begin, outside of quotes."""
    quotes = [match.span() for match in QUOTED.finditer(request)]
    yield 0
    for match in _BOUNDARY.finditer(request):
        if match.end() > match.start() and not any(start < match.end() < end for start, end in quotes):
            yield match.end()


def _stands_alone(clause: str) -> bool:
    """Return whether a clause has a value of its own, and refers to nothing before it."""
    unquoted = _unquoted(clause)
    if len(clause.split()) < _FEWEST_WORDS or not _VALUE.search(clause) or _REFERS.search(unquoted):
        return False
    return unquoted != clause or not _REFERS_WITHOUT_QUOTE.search(clause)


def _asks(text: str, tools: Sequence[Tool]) -> bool:
    """Return whether a text asks for a tool."""
    is_mail = re.search(ADDRESS, text) is not None
    return any(asking_words(text, tools).values()) or any(
        is_mail and "@" in tool.offer.markers for tool in tools
    )


def _unquoted(text: str) -> str:
    return QUOTED.sub(" ", text)
