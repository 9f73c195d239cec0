"""Spans of a text that can be read as a date, a time, a duration or a number, and their normal form.

A small model begins to write what stands in a text, and a grammar completes it to another value: 3 March 2026
to 3303-01-17. So the values that a text has are found without a model, which chooses among them. The names of
months and units in the languages below are those of CLDR, from Babel; number words are read by text2num.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import chain, islice, product
from typing import Any, Final, Literal, TypeAlias

from babel import Locale
from babel.numbers import get_currency_name, get_currency_symbol
from babel.units import format_unit
from text_to_num import find_numbers

from gbnf.tools.request_values import named_dates

Order: TypeAlias = Literal["day", "month"]
"""What comes first in 03/04/2026."""

LANGUAGES: Final = ("en", "en_GB", "it", "de", "fr", "es", "pt", "nl", "pl", "sv", "cs")
LONGEST: Final = 20_000
"""Characters of a text that are searched."""
MOST: Final = 500
"""Spans of a kind."""
_FUNCTION_WORDS: Final[Mapping[str, str]] = {
    "en": "the of and to in is on at for with you we by from your please this that",
    "it": "il la di e per un una con che del della alle le dal nel ore ti questo sono",
    "de": "der die das und ist ein eine mit für von am zu den im um uhr wir sie nicht",
    "fr": "le la les de et un une du des pour avec est à au en vous nous je",
    "es": "el la los de y un una del para con es en por las al usted que a",
    "pt": "o a os de e um uma do da para com é em por no na às que",
    "nl": "de het een en van is op met voor te om uur wij niet aan in we u",
}
"""Of the languages whose number words are read: "due" is two in Italian only."""


FUNCTION_WORDS: Final = frozenset(word for words in _FUNCTION_WORDS.values() for word in words.split()) | {
    "per", "each", "how", "many", "all", "one", "it",
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A part of a text, `text[start:end]`, and the JSON value that it can be read as."""

    start: int
    end: int
    value: Any


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


_UNITS: Final = {"minute": 60, "hour": 3600, "day": 86_400, "second": 1, "week": 604_800}


@cache
def _units() -> Mapping[str, int]:
    """Return the names of units of time, in seconds."""
    names: dict[str, int] = {}
    lengths: tuple[Literal["long", "short", "narrow"], ...] = ("long", "short", "narrow")
    for unit, seconds in _UNITS.items():
        for language, length, count in product(LANGUAGES, lengths, (1, 2, 5)):
            written = format_unit(count, f"duration-{unit}", length, locale=language)
            name = written.strip("0123456789 \u00a0\u202f.").casefold()
            if name.isalpha() and (len(name) > 1 or name == "h"):  # 5 m are meters
                names.setdefault(name, seconds)
    return names


def _either(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))


@cache
def _dates() -> tuple[re.Pattern[str], ...]:
    day = r"(?P<day>\d{1,2})(?:\s?(?:st|nd|rd|th|er|ère)\b|\s?[º°ª]|\.)?"
    month = rf"(?P<month>{_either(_months())})\b\.?"
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
    found = []
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
        for at, day_of_month in days:
            with suppress(ValueError):
                given = _year(match["year"]) if match["year"] else None
                year = given or _nearest_year(today, month, day_of_month, shared)
                found.append(Span(at, end if at == start else start, str(date(year, month, day_of_month))))
    return sorted([*found, *_relative_dates(text, today, found)])


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
    return min(days, key=lambda each: abs(each - today)).year


def _relative_dates(text: str, today: date, found: Sequence[Span]) -> Iterator[Span]:
    """Yield the days that words name, but for a day of the week beside its date."""
    for word, day in named_dates(text, today).items():
        if any(digit.isdigit() for digit in word):
            continue
        start = text.find(word)
        around = (span for span in found if _WEEKDAY.fullmatch(text, start + len(word), span.start))
        if next(around, None) is None and not _is_inside((start, start + len(word)), found):
            yield Span(start, start + len(word), str(day))


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
            words = [span.value for span in _word_numbers(name, (language,))]
            hour = int(name) if name.isdecimal() else next(iter(words), 0)
            counted = match.groupdict().get("minutes")
            minutes = from_hour * (next(_word_numbers(counted, ("en",))).value if counted else 1)
            if 0 < hour <= 12:
                is_later = _LATER.match(text, match.end()) is not None
                at = (hour % 12 * 60 + 720 * is_later + minutes) if is_later else hour * 60 + minutes
                yield Span(match.start(), match.end(), f"{at // 60:02}:{at % 60:02}")


def time_spans(text: str) -> list[Span]:
    """Return the times of day of a text, as 09:30."""
    text = text[:LONGEST]
    found = {(span.start, span.end): span for span in spoken_times(text)}
    matching = chain.from_iterable(pattern.finditer(text) for pattern in _TIMES)
    for match in islice(matching, MOST):
        groups = match.groupdict()
        start = match.start("hour") if groups.get("hour") else match.start()
        if groups.get("at") and re.match(r"\s+[A-Z]", text[match.end() :]):
            continue  # at 22 Elm Road
        if any(first < match.end() and start < last for first, last in found):
            continue
        if groups.get("noon"):
            value = _NOONS.get(match["noon"].casefold(), "12:00")
        else:
            hour, half = int(match["hour"]), (groups.get("half") or "").casefold()
            hour = hour % 12 + 12 * (half == "p") if half and hour <= 12 else hour
            hour += 12 * (not half and 0 < hour < 12 and _LATER.match(text, match.end()) is not None)
            value = f"{hour:02}:{int(groups.get('minute') or groups.get('before') or 0):02}"
            value += f":{groups['second']}" if groups.get("second") else ""
        found[start, match.end()] = Span(start, match.end(), value)
    return sorted(found.values())


_NUMBER: Final = re.compile(
    r"(?<![\w.,/-])(?<!\d:)(?P<sign>[-−](?=[\d$€£]))?(?:[$€£¥]\s?|(?:EUR|USD|GBP|CHF))?"
    r"(?P<digits>\d{1,3}(?:(?P<mark>[.,'’\u00a0\u202f ])\d{3})(?:(?P=mark)\d{3})*(?:[.,]\d{1,4})?(?!\d)"
    r"|\d+(?:[.,]\d+)?)(?![.,:/-]?\d|\.[^\W\d])"
)


_PHONE: Final = re.compile(
    r"(?<![\w.,])(?:\+|00?)[1-9][\d /()-]{5,16}\d"
    r"|\b(?:tel|phone|fax|call|mobile?|cell)\b\D{0,9}[\d (][\d /().-]{5,}\d",
    re.IGNORECASE,
)
_SCALES: Final = (
    (3, ("k", "thousand", "mila", "mille", "tausend", "tsd", "mil", "duizend")),
    (6, ("million", "millions", "mio", "mln", "milioni", "milione", "millionen", "millones", "miljoen")),
    (9, ("billion", "billions", "bn", "mrd", "miliardi", "milliarden", "milliards", "miljard")),
)
_SCALED: Final = re.compile(
    rf"\s?({'|'.join(word for _, words in _SCALES for word in words)})\b\.?", re.IGNORECASE
)
_MOST_DIGITS: Final = 15
_LONGEST_GROUPED: Final = len("10 000 000")


def number_spans(text: str, others: Sequence[Span] = ()) -> list[Span]:
    """Return the numbers of a text, those in words, too, but for those inside `others`, such as dates."""
    text = text[:LONGEST]
    matching = islice(_NUMBER.finditer(text), MOST)
    phones = [Span(*match.span(), None) for match in islice(_PHONE.finditer(text), MOST)]
    others = [*others, *phones]
    matches = [match for match in matching if not _is_inside(match.span("digits"), others)]
    comma = any(re.search(r",\d{1,2}$", match["digits"]) for match in matches)
    point = any(re.search(r"\.\d{1,2}$", match["digits"]) for match in matches)
    found = []
    for match in matches:
        digits = match["digits"]
        start, end = match.span("digits")
        is_price = is_money(Span(start, end, None), text)  # which has no third decimal
        if len(digits) > _MOST_DIGITS or (digits[0] == "0" and digits[1:2].isdigit()):
            continue  # of a telephone number, for one
        if not is_price and len(digits) > _LONGEST_GROUPED and (match["mark"] or "").isspace():
            continue
        sign = -1 if match["sign"] else 1
        values = _readings(digits, comma=comma or is_price, point=point or is_price)
        scaled = _SCALED.match(text, end)
        word = scaled[1].casefold() if scaled else ""
        power = next((power for power, known in _SCALES if word in known), 0)
        end = scaled.end() if scaled and power else end
        found += [Span(start, end, _number(float(sign * value * 10**power))) for value in values]
    words = (span for span in _word_numbers(text, _languages(text)))
    return sorted([*found, *(span for span in words if not _is_inside((span.start, span.end), others))])


def _readings(digits: str, *, comma: bool, point: bool) -> tuple[int | float, ...]:
    """Return the numbers that digits with marks can be: two for 1.284 if the text has no other numbers."""
    marks = re.findall(r"[^\d]", digits)
    plain = re.sub(r"[^\d]", "", digits)
    last = marks[-1] if marks else ""
    whole = int(plain)
    if not marks or last not in ".," or (marks.count(last) > 1):
        return (whole,)
    places = len(digits) - digits.rindex(last) - 1
    value = float(f"{plain[:-places]}.{plain[-places:]}")
    fraction = _number(value)
    if len(set(marks)) > 1 or places != 3:
        return (fraction,)
    is_group = (last == "." and comma) or (last == "," and point)
    return (whole,) if is_group else (whole, fraction) if last == "," else (fraction, whole)


_ARTICLES: Final = frozenset(["1", "un", "une", "uno", "una", "ein", "eine", "een", "um", "uma"])


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


class _Word:
    """A word of a text, as text2num reads it."""

    def __init__(self, match: re.Match[str]) -> None:
        self.match = match

    def text(self) -> str:
        return self.match[0]

    def nt_separated(self, previous: _Word) -> bool:
        between = self.match.string[previous.match.end() : self.match.start()]
        return between.strip(" -") != ""

    def not_a_number_part(self) -> bool:
        return False


def _word_numbers(text: str, languages: Sequence[str]) -> Iterator[Span]:
    """Yield the numbers that a text has in words."""
    words = [_Word(match) for match in re.finditer(r"[^\W\d_]+", text)]
    for language in languages:
        for number in find_numbers(words, language, threshold=0) if words else ():
            is_counted = not number.is_ordinal and number.text.casefold() not in _ARTICLES
            if is_counted and abs(number.value) < 10**_MOST_DIGITS:
                start, end = words[number.start].match.start(), words[number.end - 1].match.end()
                yield Span(start, end, _number(float(number.value)))


def _languages(text: str) -> tuple[str, ...]:
    """Return the language of a text, of those whose number words are read; () if it has no word of them."""
    words = re.findall(r"[^\W\d_]+", text.casefold())
    counts = {language: sum(map(words.count, known.split())) for language, known in _FUNCTION_WORDS.items()}
    best = max(counts, key=counts.__getitem__)
    return (best,) if counts[best] else ()


_SHARES: Final = (
    (r"(?:and a half|e mezz[ao]|et demie?|y media|e meia)", 1 / 2),
    (r"(?:and a quarter|e un quarto|et quart|y cuarto)", 1 / 4),
)
"""What comes after a number of hours."""
_PARTS: Final = (
    (r"half an hour|mezz['’ ]?ora|une demi-heure|eine halbe Stunde|een half uur|media hora|meia hora", 1800),
    (r"(?:a )?quarter of an hour|un quarto d['’]ora|un quart d['’]heure|eine Viertelstunde", 900),
    (r"(?:an )?hour and a half|un['’ ]ora e mezz[ao]|anderthalb Stunden|anderhalf uur", 5400),
)
_LONGEST_COUNT: Final = 100_000
_ONE: Final = re.compile(r"\b(?:an|una?|une|eine[rn]?|een|uma)\b|\bun(?=['’])", re.IGNORECASE)
_JOINED: Final = re.compile(r"[\s,]*(?:and |e |und |et |y |en )?")


def duration_spans(text: str) -> list[Span]:
    """Return the durations of a text, in seconds: 45 minutes, 1 h 30 min, un'ora e mezza."""
    text = text[:LONGEST]
    found = [
        Span(*match.span(), seconds)
        for parts, seconds in _PARTS
        for match in re.finditer(rf"\b(?:{parts})\b", text, re.IGNORECASE)
    ]
    counts = {match.end(): Span(*match.span(), 1) for match in islice(_ONE.finditer(text), MOST)}
    counts |= {span.end: span for span in number_spans(text)}
    unit = re.compile(rf"[\s\u00a0'’-]?(?P<unit>{_either(_units())})\b\.?", re.IGNORECASE)
    last: Span | None = None
    smallest = 0
    for end in sorted(counts):
        match = unit.match(text, end)
        if match is None or _is_inside((counts[end].start, match.end()), found):
            continue
        if abs(counts[end].value) > _LONGEST_COUNT:
            continue
        start, stop, size = counts[end].start, match.end(), _units().get(match["unit"].casefold(), 0)
        seconds = counts[end].value * size
        for share, part in _SHARES:
            if after := re.compile(rf" {share}\b", re.IGNORECASE).match(text, stop):
                seconds, stop = seconds + size * part, after.end()
        if last is not None and size < smallest and _JOINED.fullmatch(text, last.end, start):
            found.remove(last)  # 1 hour 30 minutes
            start, seconds = last.start, last.value + seconds
        smallest = size
        last = Span(start, stop, _number(float(seconds)))
        found.append(last)
    return sorted(found)


CURRENCIES: Final = frozenset(
    ("EUR", "USD", "GBP", "CHF", "JPY", "CNY", "INR", "PLN", "SEK", "NOK", "DKK", "CZK", "BRL")
)


@cache
def _names(code: str) -> frozenset[str]:
    """Return what a currency is called."""
    names = {code}
    for language in LANGUAGES:
        names |= {get_currency_name(code, count, locale=language) for count in (1, 2, 5)}
        names.add(get_currency_symbol(code, locale=language))
    return frozenset(names)


@cache
def _money() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of what stands before an amount of money, and after it."""
    names = {name for code in CURRENCIES for name in _names(code)}
    sign = rf"(?P<name>{_either(names)})"
    after = re.compile(rf"[\s\u00a0]?{sign}(?!\w)", re.IGNORECASE)
    return re.compile(rf"(?:(?<!\w){sign})[\s\u00a0]?$", re.IGNORECASE), after


def currency_spans(text: str) -> list[Span]:
    """Return the currencies of a text's amounts, by their codes of ISO 4217."""
    codes = {name.casefold(): code for code in CURRENCIES for name in _names(code)}
    before, after = _money()
    found = []
    for span in number_spans(text):
        start = max(span.start - 20, 0)
        match = before.search(text[start : span.start])
        shift = start if match else 0
        match = match or after.match(text, span.end)
        if match and (code := codes.get(match["name"].casefold())):
            found.append(Span(match.start("name") + shift, match.end("name") + shift, code))
    return sorted(found)


def is_money(span: Span, text: str) -> bool:
    """Return whether a number is an amount: a currency is before or after it."""
    before, after = _money()
    start = max(span.start - 20, 0)
    return bool(before.search(text[start : span.start]) or after.match(text, span.end))


def _is_inside(span: tuple[int, int], others: Sequence[Span]) -> bool:
    return any(other.start < span[1] and span[0] < other.end for other in others)


def iso_duration(seconds: float) -> str:
    """Return a duration as ISO 8601 has it: PT1H30M."""
    whole = timedelta(seconds=round(seconds))
    hours, rest = divmod(whole.seconds, 3600)
    clock = "".join(
        f"{count}{sign}" for count, sign in ((hours, "H"), (rest // 60, "M"), (rest % 60, "S")) if count
    )
    days = f"{whole.days}D" if whole.days else ""
    return f"P{days}T{clock}" if clock else f"P{days or 'T0S'}"
