"""What a request contains, found in its words without a model: names, numbers, dates, parts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import Final

from gbnf.requests import wording
from gbnf.requests.phrases import PATH, QUOTED

LONGEST_REQUEST: Final = 8000
"""Characters that are searched."""
FOLDER_ARGUMENT: Final = re.compile(
    r"(?:\w+_)?(?:dir|directory|folder)|(?:base|root|start|search)_?(?:path|dir|folder)|root", re.IGNORECASE
)
"""The name of an argument for a folder to search."""
TERM: Final = re.compile(r"\d+|[^\W\d_]{2,}")
"""A number or a word of two letters or more, in any text."""

_CAPITALIZED: Final = r"[^\W\d_a-zß-öø-ÿ][\w.'’&-]*"
_NAME: Final = re.compile(
    rf"(?<!\w)(?P<number>\d+ )?{_CAPITALIZED}(?:(?:,? | of (?:the )?){_CAPITALIZED})*"
    r"(?: \d{1,3}(?=[,.;:?!)]|$))?"
)
_CODE: Final = re.compile(r"(?<!\S)(?=\S{0,40}\d)(?=\S{0,40}[^\W\d_])\w\S*|(?<!\S)\d+[-/:]\d\S*")
PLAIN_NUMBER: Final = re.compile(r"\b\d{1,15}(?:\.\d{1,9})?\b")
"""A number of digits alone, as calculations have it."""
_NUMBER: Final = re.compile(
    r"""(?<![\w.])(?P<sign>[-−]?)[$€£¥]?(?P<whole>\d{1,3}(?:,\d{3})+|\d+)
    (?P<fraction>\.\d+|,\d{1,2}(?=\s?(?:[€$£%]|(?:euros?|eur|[kcm]?m|kg|l)\b)))?(?!\.?\d)
    (?P<power>e[+-]?\d{1,2}\b)?(?:\s*(?P<unit>%|(?:percent|k|thousand|million|M|billion|bn)\b))?""",
    re.VERBOSE | re.IGNORECASE,
)
_MONTH, _DAY, _YEAR = (
    rf"(?P<month>{'|'.join(wording.MONTHS)})\b\.?",
    r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b(?!:\d)",
    r"(?P<year>\d{4})\b",
)
_DATES: Final = tuple(
    re.compile(rf"\b{text}", re.IGNORECASE)
    for text in (
        rf"{_MONTH}\s*{_DAY}(?:,?\s*{_YEAR})?",
        rf"{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s*{_YEAR})?",
        rf"{_YEAR},?\s+{_MONTH}\s*{_DAY}",
        r"(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b",
    )
)
_NEXT_SENTENCE: Final = re.compile(r"(?<=[^\W\d_]{5}\.) ")  # after a word that is longer than Corp. or Prof.
_LIST_END: Final = re.compile(
    rf",? (?:{wording.OR}) {_CAPITALIZED}(?: {_CAPITALIZED})*(?!\w|,? {_CAPITALIZED})"
)
_ORDINAL: Final = re.compile(r"\d+(?:st|nd|rd|th)")

_MOST: Final = 200
"""Names, and numbers, of a request. Each is compared with a value at each of its tokens."""
_MOST_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class RequestNumber:
    """A number of a request, as JSON. `share`: of a percentage, as a part of one, such as 0.05; else ""."""

    text: str
    share: str = ""


def paths_in(request: str) -> dict[int, str]:
    """Return the paths of a request by the indices at which they begin, without the marks after them."""
    return {match.start(): match[0].rstrip(".,;?!)") for match in PATH.finditer(request)}


def names_in(request: str) -> tuple[str, ...]:
    """Return what a person would not word otherwise, each once: at most 200.

    Quoted text; words with a capital letter, except at the start of a sentence, with a number; codes,
    paths and addresses. Of a name with a comma, and of a path with one slash, also the parts; of a list with
    "and" only these.
    """
    return tuple(islice(dict.fromkeys(_names(request)), _MOST))


def _names(request: str) -> Iterator[str]:
    yield from (quoted[0][1:-1] for quoted in QUOTED.finditer(request))
    unquoted = QUOTED.sub(" ", request)
    for name in _NAME.finditer(unquoted):
        before = unquoted[max(name.start() - 8, 0) : name.start()].rstrip(" ")
        for index, part in enumerate(_NEXT_SENTENCE.split(name[0])):
            number = "" if index else name["number"] or ""
            begins = bool(index) or (before[-1:] in {"", ".", "?", "!", ":", "\n"} and not number)
            text = part.rstrip(".,'’")
            first, _, others = text.partition(" ")
            if begins and first[1:] == first[1:].lower():
                text = others.removeprefix("of ").removeprefix("the ")  # its capital letter begins a sentence
            if "," in text and _LIST_END.match(unquoted, name.end()):
                yield from (part_of_list.strip() for part_of_list in text.removeprefix(number).split(","))
                continue
            words = text.removeprefix(number).split()
            if words and words[0].casefold().rstrip(",") not in wording.NO_NAMES:
                if len(words) > 1 or not number:
                    yield text
                yield " ".join(words)
                yield from (text[: comma.start()] for comma in re.finditer(",", text))
    for path in chain(_CODE.finditer(unquoted), PATH.finditer(unquoted)):
        text = path[0].rstrip(".,;?!)")
        if text not in {"e.g", "i.e"} and not _ORDINAL.fullmatch(text):
            yield text
            owner, slash, name_there = text.partition("/")
            if slash and owner.isidentifier() and name_there and "/" not in name_there:
                yield from (owner, name_there)


def numbers_in(request: str) -> tuple[RequestNumber, ...]:
    """Return the numbers of a request in its order: $10,000, 8.5 million, -3, 5 %, two; at most 200."""
    return tuple(islice(_numbers(request), _MOST))


def _numbers(request: str) -> Iterator[RequestNumber]:
    for match in _NUMBER.finditer(request):
        if len(match["whole"]) > _MOST_DIGITS or len(match["fraction"] or "") > _MOST_DIGITS:
            continue
        unit = (match["unit"] or "").casefold()
        digits = match["whole"].replace(",", "") + (match["fraction"] or "").replace(",", ".")
        if match["power"]:
            yield RequestNumber(str(float(f"{match['sign']}{digits}{match['power']}".replace("−", "-"))))
            continue
        value = Decimal(digits)
        value = (-value if match["sign"] else value).scaleb(wording.POWERS_OF_TEN.get(unit, 0))
        yield RequestNumber(
            _decimal_text(value), _decimal_text(value / 100) if unit in {"%", "percent"} else ""
        )
    for word in re.findall(r"\w+", wording.ONE_THING.sub("", request)):
        if word.casefold() in wording.NUMBER_WORDS:
            yield RequestNumber(wording.NUMBER_WORDS[word.casefold()])


def dates_in(request: str) -> tuple[date, ...]:
    """Return the dates of a request that have a year, in its order: March 5th, 2026; 2026/3/5."""
    return tuple(day for _, day in _dates(request, None))


def whole_date(text: str) -> date | None:
    """Return the date with a year that a text is, in digits or words; None if it is none, or says more."""
    dates = _dates(text[:LONGEST_REQUEST], None)
    return dates[0][1] if len(dates) == 1 and dates[0][0] == text.strip() else None


def named_dates(request: str, today: date) -> dict[str, date]:
    """Return the dates of a request by the words that name them, in its order, those without a year, too.

    Days of the week, and dates without a year, are the next ones after `today`.
    """
    return dict(_dates(request, today))


def names_month(request: str) -> bool:
    """Return whether a request has the name of a month: "may" is none."""
    words = re.findall(r"[^\W\d_]+", request[:LONGEST_REQUEST])
    months = (word for word in words if word.casefold() in wording.MONTHS)
    return any(word not in {"may", "mar", "sep", "dec"} for word in months)


def _dates(request: str, today: date | None) -> list[tuple[str, date]]:
    dates: dict[int, tuple[str, date]] = {}
    for match in chain.from_iterable(islice(pattern.finditer(request), _MOST) for pattern in _DATES):
        name, day = match["month"].casefold(), int(match["day"])
        month = int(name) if name.isdecimal() else wording.MONTHS.get(name, 0)  # 0: "aprıl" with a dotless i
        years = [int(match["year"])] if match["year"] else []
        if today and not years and match.start() not in dates:
            years = [today.year + ((month, day) < (today.month, today.day))]
        for year in years:
            with suppress(ValueError):  # no such day
                dates[match.start()] = match[0], date(year, month, day)
    for match in islice(wording.RELATIVE_DAY.finditer(request), _MOST) if today else ():
        assert today is not None
        word = match[0].casefold()
        if (ahead := wording.DAYS_AWAY.get(word)) is None:
            ahead = (wording.WEEKDAY_NUMBERS[word] - today.weekday() - 1) % 7 + 1
        with suppress(OverflowError):
            dates[match.start()] = match[0], today + timedelta(days=ahead)
    return [dates[start] for start in sorted(dates)]


def _decimal_text(value: Decimal) -> str:
    """Write a number as JSON does, without zeros at its end."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def times_in(request: str) -> int:
    """Return how many times of day, dates or days of the week a request names, the most of these."""
    text = request[:LONGEST_REQUEST]
    return max(len({*pattern.findall(text.casefold())}) for pattern in _TIMES)


def may_name_time(request: str) -> bool:
    """Return whether a request may say when something is: it has a number, or a word for a time."""
    text = request[:LONGEST_REQUEST]
    is_named = any(pattern.search(text) for pattern in (wording.RELATIVE_DAY, wording.TIME_WORD))
    return is_named or next(_numbers(text), None) is not None


_TIMES: Final = (
    re.compile(r"\b\d{1,2}[:.]\d\d\b|\b\d{1,2}\s?(?:am|pm)\b"),
    re.compile(r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}/\d{1,2}(?:/\d{2,4})?\b"),
    wording.RELATIVE_DAY,
)


def names_kind_of_file(request: str) -> bool:
    """Return whether a request is about files that it names by their kind: the log files, those in .part."""
    text = request[:LONGEST_REQUEST]
    is_kind = wording.SEVERAL_FILES.search(text) is not None
    return is_kind and not any("." in path for path in PATH.findall(text))


_SENTENCE_END: Final = re.compile(r"[.!?]\s+|\n")


def without_told(request: str) -> str:
    """Return a request without what somebody else is told to do: "tell a@b.org to delete the draft".

    A text without quotes is told as far as its sentence goes, and one after a colon as far as its line does.
    """
    return wording.TOLD_OTHERS.sub(lambda match: match["told"] or match["named"], request)


def most_calls(request: str) -> int:
    """Return how many calls a request may take: its parts, by conjunctions, lists and sentences."""
    text = without_told(request[:LONGEST_REQUEST])
    sentences = sum(len(part.split()) > 2 for part in _SENTENCE_END.split(text))
    commas = text.count(",")
    return max(sentences, 1) + len(wording.FURTHER.findall(text)) + (commas if commas > 1 else 0)


def asks_for_several(request: str) -> bool:
    """Return whether a request may take several calls."""
    return most_calls(request) > 1
