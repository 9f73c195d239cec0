"""Numbers, durations and amounts of money of a text, in digits and in words.

The names of units and currencies in the languages below are those of CLDR, from Babel; number words are read
by text2num.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import islice, product
from typing import Any, Final, Literal

from babel.numbers import get_currency_name, get_currency_symbol
from babel.units import format_unit
from text_to_num import find_numbers

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


def either(names: Iterable[str]) -> str:
    """Return the pattern of one of several names, the longest first."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))


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
    matches = [match for match in matching if not overlaps(Span(*match.span("digits"), None), others)]
    comma = any(re.search(r",\d{1,2}$", match["digits"]) for match in matches)
    point = any(re.search(r"\.\d{1,2}$", match["digits"]) for match in matches)
    spans = []
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
        power = next((power for power, names in _SCALES if word in names), 0)
        end = scaled.end() if scaled and power else end
        spans += [Span(start, end, _number(float(sign * value * 10**power))) for value in values]
    words = (span for span in word_numbers(text, _languages(text)))
    return sorted([*spans, *(span for span in words if not overlaps(span, others))])


def _readings(digits: str, *, comma: bool, point: bool) -> tuple[int | float, ...]:
    """Return the numbers that digits with marks can be: two for 1.284 if the text has no other numbers."""
    marks = re.findall(r"[^\d]", digits)
    plain = re.sub(r"[^\d]", "", digits)
    last = marks[-1] if marks else ""
    whole = int(plain)
    if not marks or last not in ".," or (marks.count(last) > 1):
        return (whole,)
    places = len(digits) - digits.rindex(last) - 1
    fraction = _number(float(f"{plain[:-places]}.{plain[-places:]}"))
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


def word_numbers(text: str, languages: Sequence[str]) -> Iterator[Span]:
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
    counts = {language: sum(map(words.count, usual.split())) for language, usual in _FUNCTION_WORDS.items()}
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
    spans = [
        Span(*match.span(), seconds)
        for parts, seconds in _PARTS
        for match in re.finditer(rf"\b(?:{parts})\b", text, re.IGNORECASE)
    ]
    counts = {match.end(): Span(*match.span(), 1) for match in islice(_ONE.finditer(text), MOST)}
    counts |= {span.end: span for span in number_spans(text)}
    unit = re.compile(rf"[\s\u00a0'’-]?(?P<unit>{either(_units())})\b\.?", re.IGNORECASE)
    last: Span | None = None
    smallest = 0
    for end in sorted(counts):
        match = unit.match(text, end)
        if match is None or overlaps(Span(counts[end].start, match.end(), None), spans):
            continue
        if abs(counts[end].value) > _LONGEST_COUNT:
            continue
        start, stop, size = counts[end].start, match.end(), _units().get(match["unit"].casefold(), 0)
        seconds = counts[end].value * size
        for share, part in _SHARES:
            if after := re.compile(rf" {share}\b", re.IGNORECASE).match(text, stop):
                seconds, stop = seconds + size * part, after.end()
        if last is not None and size < smallest and _JOINED.fullmatch(text, last.end, start):
            spans.remove(last)  # 1 hour 30 minutes
            start, seconds = last.start, last.value + seconds
        smallest = size
        last = Span(start, stop, _number(float(seconds)))
        spans.append(last)
    return sorted(spans)


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
    sign = rf"(?P<name>{either(names)})"
    after = re.compile(rf"[\s\u00a0]?{sign}(?!\w)", re.IGNORECASE)
    return re.compile(rf"(?:(?<!\w){sign})[\s\u00a0]?$", re.IGNORECASE), after


def currency_spans(text: str) -> list[Span]:
    """Return the currencies of a text's amounts, by their codes of ISO 4217."""
    codes = {name.casefold(): code for code in CURRENCIES for name in _names(code)}
    before, after = _money()
    spans = []
    for span in number_spans(text):
        start = max(span.start - 20, 0)
        match = before.search(text[start : span.start])
        shift = start if match else 0
        match = match or after.match(text, span.end)
        if match and (code := codes.get(match["name"].casefold())):
            spans.append(Span(match.start("name") + shift, match.end("name") + shift, code))
    return sorted(spans)


def is_money(span: Span, text: str) -> bool:
    """Return whether a number is an amount: a currency is before or after it."""
    before, after = _money()
    start = max(span.start - 20, 0)
    return bool(before.search(text[start : span.start]) or after.match(text, span.end))


def overlaps(span: Span, others: Sequence[Span]) -> bool:
    """Return whether a part of a text overlaps with one of several spans."""
    return any(other.start < span.end and span.start < other.end for other in others)


def iso_duration(seconds: float) -> str:
    """Return a duration as ISO 8601 has it: PT1H30M."""
    whole = timedelta(seconds=round(seconds))
    hours, rest = divmod(whole.seconds, 3600)
    clock = "".join(
        f"{count}{sign}" for count, sign in ((hours, "H"), (rest // 60, "M"), (rest % 60, "S")) if count
    )
    days = f"{whole.days}D" if whole.days else ""
    return f"P{days}T{clock}" if clock else f"P{days or 'T0S'}"
