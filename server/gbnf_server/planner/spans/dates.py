"""Dates and times of day of a text, in digits and in words, and their normal form.

The names of months in the languages of `numbers` are those of CLDR, from Babel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cache
from itertools import chain, islice
from typing import Final, Literal, TypeAlias

from babel import Locale

from gbnf.requests.values import named_dates
from gbnf_server.planner.spans.numbers import LANGUAGES, LONGEST, MOST, Span, either, overlaps, word_numbers

Order: TypeAlias = Literal["day", "month"]
"""What comes first in 03/04/2026."""


@cache
def _months() -> Mapping[str, int]:
    names: dict[str, int] = {}
    for language in LANGUAGES:
        months = Locale.parse(language).months
        for use, width in (("format", "wide"), ("stand-alone", "wide"), ("format", "abbreviated")):
            for number, name in months[use][width].items():
                if len(stem := name.casefold().rstrip(".")) > 2 and stem.isalpha():
                    names.setdefault(stem, number)
    return names


@cache
def _dates() -> tuple[re.Pattern[str], ...]:
    day = r"(?P<day>\d{1,2})(?:\s?(?:st|nd|rd|th|er|ère)\b|\s?[º°ª]|\.)?"
    month = rf"(?P<month>{either(_months())})\b\.?"
    of = r"[\s\u00a0]{0,3}(?:(?:of|de|di|del)[\s\u00a0]{1,3}|d['’])?"
    year = r"(?P<year>\d{4})\b(?![.,]\d)"
    texts = (
        r"(?<![\w.,/-])(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})(?:(?![\w-])|(?=T\d|_))",
        r"(?P<year>\d{4})年(?P<month>\d{1,2})月(?P<day>\d{1,2})日",
        (
            r"(?<![\w.,/-])(?P<first>\d{1,2})(?P<mark>[-/.]) ?(?P<second>\d{1,2})(?P=mark) ?"
            r"(?P<year>\d{4}|\d\d)(?![\w-]|[./]\d)"
        ),
        rf"(?<![\w.,/])(?<!\D-){day}[-\s\u00a0]{{0,3}}{of}{month}(?:[-,\s\u00a0]{{0,3}}{of}{year})?",
        rf"\b{month}[\s\u00a0]{{0,3}}{day}(?:,?[\s\u00a0]{{0,3}}(?:of |de )?{year})?(?!\w)",
    )
    return tuple(re.compile(text, re.IGNORECASE) for text in texts)


DAY_WORD: Final = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:luned|marted|mercoled|gioved|venerd)[iì]|sabato|domenica"
    r"|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
    r"|tomorrow|yesterday|domani|ieri|morgen|gestern|demain|hier|mañana|ayer|next (?:week|month|year))\b",
    re.IGNORECASE,
)
"""Words for days, which may be in no date that is read."""


def date_spans(text: str, today: date, order: Order | None = None) -> list[Span]:
    """Return the dates of a text, as 2026-03-05.

    The order of day and month in numbers is that of a date of the text that has only one, else the day is
    first, except beside dollars, if `order` is None. A date without a year is in the year of the others, if
    they have the same one, which is near, else it is the nearest one. Of "5 to 8 March", the first is one,
    too. Days of the week, and words such as tomorrow, count from today.
    """
    text = text[:LONGEST]
    matches: dict[tuple[int, int], re.Match[str]] = {}
    matching = chain.from_iterable(pattern.finditer(text) for pattern in _dates())
    for match in islice(matching, MOST):
        if not any(start < match.end() and match.start() < end for start, end in matches):
            matches[match.span()] = match
    numeric = [match for match in matches.values() if "first" in match.groupdict()]
    first = order or _order(numeric, text)
    years = {_year(match["year"]) for match in matches.values() if match["year"]}
    shared = years.pop() if len(years) == 1 else None
    spans = []
    for (start, end), match in matches.items():
        if "first" in match.groupdict():
            day, month = (int(match[part]) for part in ("first", "second")[:: 1 if first == "day" else -1])
            if month > 12 >= day:
                day, month = month, day
        else:
            day, name = int(match["day"]), match["month"].casefold()
            month = int(name) if name.isdigit() else _months().get(name, 0)
        begun = _RANGE.search(text[max(start - 20, 0) : start])  # 5 to 8 March
        days = [(start, day), *([(start - len(begun[0]), int(begun["day"]))] if begun else [])]
        for begin, day in days:
            with suppress(ValueError):
                written_year = _year(match["year"]) if match["year"] else None
                year = written_year or _nearest_year(today, month, day, shared)
                spans.append(
                    Span(
                        begin,
                        end if begin == start else start,
                        str(date(year, month, day)),
                    )
                )
    return sorted([*spans, *_relative_dates(text, today, spans)])


_RANGE: Final = re.compile(
    r"(?<![\w.,/:-])(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?\s?"
    r"(?:-|–|to|until|and|al|all['’]|e|bis|und|au|et|a|y|tot|en)\s?$"
)
_WEEKDAY: Final = re.compile(r"[\s,(]{0,3}")


def _nearest_year(today: date, month: int, day: int, shared: int | None) -> int:
    """Return the year of a date: that of other dates, if it is near, else that of the nearest one.

    Raises ValueError if no year has it.
    """
    if shared is not None and abs(shared - today.year) <= 1:
        return shared
    days = []
    for year in range(max(today.year - 4, 1), min(today.year + 5, 10_000)):
        with suppress(ValueError):  # 29 February
            days.append(date(year, month, day))
    return min(days, key=lambda candidate: abs(candidate - today)).year


def _relative_dates(text: str, today: date, dates: Sequence[Span]) -> Iterator[Span]:
    """Yield the days that words name, but for a day of the week beside its date."""
    for word, day in named_dates(text, today).items():
        if any(digit.isdigit() for digit in word):
            continue
        start = text.find(word)
        named = Span(start, start + len(word), str(day))
        around = (span for span in dates if _WEEKDAY.fullmatch(text, named.end, span.start))
        if next(around, None) is None and not overlaps(named, dates):
            yield named


def _year(digits: str) -> int:
    return int(digits) if len(digits) > 2 else 2000 + int(digits) - 100 * (int(digits) > 69)


def _order(numeric: Sequence[re.Match[str]], text: str) -> Order:
    """Return what comes first in numeric dates, by those that can be read in one way, or by dollars."""
    for match in numeric:
        first, second = int(match["first"]), int(match["second"])
        if (first > 12) != (second > 12):
            return "day" if first > 12 else "month"
    return "month" if "$" in text else "day"


_AT: Final = r"(?:at|alle|ore|um|à|a las|às|om|kl\.?|klockan)"
_CLOCK: Final = r"(?:Uhr|uur|o['’]clock)\b"
_HOUR: Final = r"(?<![\d.,:/])(?<!\D-)(?P<hour>[01]?\d|2[0-3])"
_MINUTE: Final = r"(?P<minute>[0-5]\d)"
_SECOND: Final = r"(?::(?P<second>[0-5]\d))?"
_HALF: Final = r"\s?(?P<half>[ap])\.?\s?m\b"
_ALONE: Final = (
    r"(?=\s*(?:$|[;!?)\n]|[.,](?!\d)|(?:and|on|in|tomorrow|today|tonight|for|with|e|il|di|del|domani|per|con"
    r"|und|am|mit|et|le|du|pour|avec|y|el|de|para|op|met)\b))"
)
"""What follows an hour that counts nothing: "at 20 euros" is none."""
_TIMES: Final = tuple(
    re.compile(text, re.IGNORECASE)
    for text in (
        rf"{_HOUR}[:.]{_MINUTE}{_SECOND}{_HALF}",
        rf"{_HOUR}:{_MINUTE}{_SECOND}(?![\d:])",
        rf"{_HOUR}\s?h(?:\s?{_MINUTE})?(?!\w)",
        rf"(?<![\d.,:/-])(?P<hour>1[0-2]|[1-9]){_HALF}",
        rf"\b(?P<at>{_AT}) (?P<hour>[01]?\d|2[0-3])(?:\.{_MINUTE})?(?:\s?{_CLOCK}|{_ALONE})",
        rf"{_HOUR}(?:\.(?P<before>[0-5]\d))?\s?{_CLOCK}(?:\s{_MINUTE}(?!\d))?",
        r"\b(?P<noon>noon|midday|midnight|mezzogiorno|mezzanotte)\b",
    )
)
_NOONS: Final = {"midnight": "00:00", "mezzanotte": "00:00"}
_SPOKEN: Final[tuple[tuple[str, str, int], ...]] = (
    ("en", r"half past (?P<name>\w+)", 30),
    ("en", r"quarter past (?P<name>\w+)", 15),
    ("en", r"quarter to (?P<name>\w+)", -15),
    ("en", r"(?P<minutes>five|ten|twenty) past (?P<name>\w+)", 1),
    ("en", r"(?P<name>\w+) o['’]clock", 0),
    ("it", r"(?:alle|ore|le) (?P<name>\w+) e mezz[ao]", 30),
    ("it", r"(?:alle|ore|le) (?P<name>\w+) e un quarto", 15),
    ("it", r"(?:alle|ore|le) (?P<name>\w+) meno un quarto", -15),
    ("de", r"halb (?P<name>\w+)", -30),
    ("de", r"viertel nach (?P<name>\w+)", 15),
    ("de", r"viertel vor (?P<name>\w+)", -15),
    ("fr", r"(?P<name>\w+) heures? et demie", 30),
    ("fr", r"(?P<name>\w+) heures? et quart", 15),
    ("fr", r"(?P<name>\w+) heures? moins le quart", -15),
    ("es", r"las? (?P<name>\w+) y media", 30),
    ("es", r"las? (?P<name>\w+) y cuarto", 15),
    ("es", r"las? (?P<name>\w+) menos cuarto", -15),
    ("pt", r"às? (?P<name>\w+) e meia", 30),
    ("nl", r"half (?P<name>\w+)", -30),
    ("nl", r"kwart over (?P<name>\w+)", 15),
    ("nl", r"kwart voor (?P<name>\w+)", -15),
)
"""Times as they are spoken, by language: the minutes from the hour that is named."""
_LATER: Final = re.compile(
    r"[\s,]{1,2}(?:p\.?m\b|tonight|(?:in the|this) (?:afternoon|evening)|at night|stasera|del pomeriggio"
    r"|di sera|nachmittags|abends|am abend|de l['’]après-midi|du soir|de la (?:tarde|noche)"
    r"|da (?:tarde|noite)|['’]s (?:middags|avonds))\b",
    re.IGNORECASE,
)


def spoken_times(text: str) -> Iterator[Span]:
    """Yield the times of day that a text has in words: half past nine."""
    for language, pattern, from_hour in _SPOKEN:
        for match in islice(re.finditer(rf"\b{pattern}\b", text, re.IGNORECASE), MOST):
            name = match["name"]
            words = [span.value for span in word_numbers(name, (language,))]
            hour = int(name) if name.isdecimal() else next(iter(words), 0)
            counted = match.groupdict().get("minutes")
            minutes = from_hour * (next(word_numbers(counted, ("en",))).value if counted else 1)
            if 0 < hour <= 12:
                is_later = _LATER.match(text, match.end()) is not None
                minute = (hour % 12 * 60 + 720 * is_later + minutes) if is_later else hour * 60 + minutes
                yield Span(match.start(), match.end(), f"{minute // 60:02}:{minute % 60:02}")


def time_spans(text: str) -> list[Span]:
    """Return the times of day of a text, as 09:30."""
    text = text[:LONGEST]
    spans = {(span.start, span.end): span for span in spoken_times(text)}
    matching = chain.from_iterable(pattern.finditer(text) for pattern in _TIMES)
    for match in islice(matching, MOST):
        groups = match.groupdict()
        start = match.start("hour") if groups.get("hour") else match.start()
        if groups.get("at") and re.match(r"\s+[A-Z]", text[match.end() :]):
            continue  # at 22 Elm Road
        if any(first < match.end() and start < last for first, last in spans):
            continue
        if groups.get("noon"):
            value = _NOONS.get(match["noon"].casefold(), "12:00")
        else:
            hour, half = int(match["hour"]), (groups.get("half") or "").casefold()
            hour = hour % 12 + 12 * (half == "p") if half and hour <= 12 else hour
            hour += 12 * (not half and 0 < hour < 12 and _LATER.match(text, match.end()) is not None)
            value = f"{hour:02}:{int(groups.get('minute') or groups.get('before') or 0):02}"
            value += f":{groups['second']}" if groups.get("second") else ""
        spans[start, match.end()] = Span(start, match.end(), value)
    return sorted(spans.values())
