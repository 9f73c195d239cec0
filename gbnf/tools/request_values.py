"""The values that a request contains, found in its words: names, quotes, codes, numbers and dates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import chain, islice
from typing import Final

from gbnf.tools.ranking import QUOTED

_CAPITALIZED: Final = r"[^\W\d_a-zß-öø-ÿ][\w.'’&-]*"
_NAME: Final = re.compile(
    rf"(?<!\w)(?P<number>\d+ )?{_CAPITALIZED}(?:(?:,? | of (?:the )?){_CAPITALIZED})*"
    r"(?: \d{1,3}(?=[,.;:?!)]|$))?"
)
_CODE: Final = re.compile(r"(?<!\S)(?=\S{0,40}\d)(?=\S{0,40}[^\W\d_])\w\S*|(?<!\S)\d+[-/:]\d\S*")
_PATH: Final = re.compile(
    r"(?<![^\s('\"])[~./]?(?=[\w-]{0,80}[^\W\d])[\w-]{1,80}[/@_.\\][\w/@_.\\-]*\w|(?<!\S)[~.]?/[\w/@_.-]*\w"
)
_NUMBER: Final = re.compile(
    r"""(?<![\w.,])(?P<sign>[-−]?)[$€£¥]?(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?P<fraction>\.\d+)?(?!\.?\d)
    (?P<power>e[+-]?\d{1,2}\b)?(?:\s*(?P<unit>%|(?:percent|k|thousand|million|M|billion|bn)\b))?""",
    re.VERBOSE | re.IGNORECASE,
)
_POWERS_OF_TEN: Final = {"k": 3, "thousand": 3, "million": 6, "m": 6, "billion": 9, "bn": 9}
_NUMBER_WORDS: Final = {
    word: str(number)
    for number, word in enumerate(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], 1
    )
}
_MONTHS: Final = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    )
    for number, name in enumerate(names.split(), 1)
}
_MONTH, _DAY, _YEAR = (
    rf"(?P<month>{'|'.join(_MONTHS)})\b\.?",
    r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b",
    r"(?P<year>\d{4})\b",
)
_DATES: Final = tuple(
    re.compile(rf"\b{text}", re.IGNORECASE)
    for text in (
        rf"{_MONTH}\s*{_DAY},?\s*{_YEAR}",
        rf"{_DAY}\s+(?:of\s+)?{_MONTH},?\s*{_YEAR}",
        rf"{_YEAR},?\s+{_MONTH}\s*{_DAY}",
        r"(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b",
    )
)
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NO_NAMES: Final = frozenset(("i", "may", *_WEEKDAYS, *(name for name in _MONTHS if len(name) > 3)))
"""Dates are written as a tool wants them."""

_MOST: Final = 200
"""Names, and numbers, of a request. Each is compared with a value at each of its tokens."""
_MOST_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class RequestNumber:
    """A number of a request, as JSON. `share`: of a percentage, as a part of one, such as 0.05; else ""."""

    text: str
    share: str = ""


def names_in(request: str) -> tuple[str, ...]:
    """Return what a person would not word otherwise, each once: at most 200.

    Quoted text; words with a capital letter, except at the start of a sentence, with a number; codes,
    paths and addresses. Of a name with a comma, and of a path with one slash, also the parts.
    """
    return tuple(islice(dict.fromkeys(_names(request)), _MOST))


def _names(request: str) -> Iterator[str]:
    yield from (quoted[0][1:-1] for quoted in QUOTED.finditer(request))
    unquoted = QUOTED.sub(" ", request)
    for name in _NAME.finditer(unquoted):
        text = name[0].rstrip(".,'’")
        first, _, others = text.partition(" ")
        before = unquoted[max(name.start() - 8, 0) : name.start()].rstrip(" ")
        begins = before[-1:] in {"", ".", "?", "!", ":", "\n"} and not name["number"]
        if begins and first[1:] == first[1:].lower():
            text = others.removeprefix("of ").removeprefix("the ")  # its capital letter begins a sentence
        words = text.removeprefix(name["number"] or "").split()
        if words and words[0].casefold().rstrip(",") not in _NO_NAMES:
            if len(words) > 1 or not name["number"]:
                yield text
            yield " ".join(words)
            yield from (text[: comma.start()] for comma in re.finditer(",", text))
    for path in chain(_CODE.finditer(unquoted), _PATH.finditer(unquoted)):
        text = path[0].rstrip(".,;?!)")
        if text not in {"e.g", "i.e"}:
            yield text
            owner, slash, name_there = text.partition("/")
            if slash and owner.isidentifier() and name_there and "/" not in name_there:
                yield from (owner, name_there)


def numbers_in(request: str) -> tuple[RequestNumber, ...]:
    """Return the numbers of a request in its order: $10,000, 8.5 million, -3, 5 %, two; at most 200."""
    return tuple(islice(_numbers(request), _MOST))


def _numbers(request: str) -> Iterator[RequestNumber]:
    for found in _NUMBER.finditer(request):
        if len(found["whole"]) > _MOST_DIGITS or len(found["fraction"] or "") > _MOST_DIGITS:
            continue
        unit = (found["unit"] or "").casefold()
        digits = found["whole"].replace(",", "") + (found["fraction"] or "")
        if found["power"]:
            yield RequestNumber(str(float(f"{found['sign']}{digits}{found['power']}".replace("−", "-"))))
            continue
        value = Decimal(digits)
        value = (-value if found["sign"] else value).scaleb(_POWERS_OF_TEN.get(unit, 0))
        yield RequestNumber(_written(value), _written(value / 100) if unit in {"%", "percent"} else "")
    for word in re.findall(r"\w+", request):
        if word.casefold() in _NUMBER_WORDS:
            yield RequestNumber(_NUMBER_WORDS[word.casefold()])


def dates_in(request: str) -> tuple[date, ...]:
    """Return the dates of a request that have a year, in its order: March 5th, 2026; 2026/3/5."""
    found = {}
    for pattern in _DATES:
        for match in islice(pattern.finditer(request), _MOST):
            month = match["month"].casefold()
            with suppress(ValueError):  # no such day
                found[match.start()] = date(
                    int(match["year"]), _MONTHS.get(month) or int(month), int(match["day"])
                )
    return tuple(found[start] for start in sorted(found))


def _written(value: Decimal) -> str:
    """Write a number as JSON does, without zeros at its end."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
