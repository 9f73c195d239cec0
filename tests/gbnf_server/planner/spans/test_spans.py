"""Spans: what CLDR writes in ten languages is read back, and texts without such values have none."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Literal

import pytest
from babel.dates import format_date, format_time
from babel.numbers import format_currency, format_decimal
from babel.units import format_unit
from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf_server.planner.spans.dates import date_spans, time_spans
from gbnf_server.planner.spans.numbers import Span, duration_spans, is_money, iso_duration, number_spans

TODAY = dt.date(2026, 11, 21)
SENTENCES = {
    "en": "The meeting with Ann on {} is in room 12.",
    "it": "La riunione con Anna del {} è in aula 12.",
    "de": "Das Treffen mit Anna am {} ist in Raum 12.",
    "fr": "La réunion avec Anne du {} est en salle 12.",
    "es": "La reunión con Ana del {} es en la sala 12.",
    "pt": "A reunião com Ana de {} é na sala 12.",
    "nl": "De vergadering met Anna van {} is in zaal 12.",
    "pl": "Spotkanie z Anną {} jest w sali 12.",
    "sv": "Mötet med Anna den {} är i rum 12.",
    "cs": "Schůzka s Annou {} je v místnosti 12.",
}
languages = st.sampled_from(sorted(SENTENCES))
amounts = st.one_of(
    st.integers(0, 9_999_999), st.decimals(0, 999_999, places=2, allow_nan=False, allow_infinity=False)
)


def read(spans: list[Span], text: str) -> list[tuple[str, Any]]:
    return [(text[span.start : span.end], span.value) for span in spans]


@given(languages, st.dates(dt.date(1970, 1, 1), dt.date(2069, 12, 31)), st.data())
def test_a_date_is_read_as_it_was_written(language: str, day: dt.date, data: st.DataObject) -> None:
    length: Literal["short", "medium", "long", "full"] = data.draw(
        st.sampled_from(("short", "medium", "long", "full"))
    )
    written = format_date(day, length, locale=language)
    text = SENTENCES[language].format(written)
    is_month_first = (language, length) == ("en", "short")  # of the United States
    ((span, value),) = read(date_spans(text, TODAY, "month" if is_month_first else None), text)
    assert value == str(day)
    assert span.strip(".,") in f"{written} "


@given(languages, st.times())
def test_a_time_is_read_as_it_was_written(language: str, time: dt.time) -> None:
    text = SENTENCES[language].format(format_time(time, "short", locale=language))
    assert [span.value for span in time_spans(text)] == [f"{time:%H:%M}"]


@given(languages, amounts)
def test_a_number_is_read_as_it_was_written(language: str, number: Any) -> None:
    text = SENTENCES[language].format(format_decimal(number, locale=language))
    assert float(number) in [float(span.value) for span in number_spans(text)]


@given(languages, amounts, st.sampled_from(("EUR", "USD", "GBP")))
def test_an_amount_is_read_as_it_was_written(language: str, number: Any, currency: str) -> None:
    text = SENTENCES[language].format(format_currency(number, currency, locale=language))
    money = [float(span.value) for span in number_spans(text) if is_money(span, text)]
    assert float(number) in money
    assert 12.0 not in money or float(number) == 12


@given(
    languages,
    st.integers(2, 90),
    st.sampled_from(("minute", "hour", "day")),
    st.sampled_from(("long", "short")),
)
def test_a_duration_is_read_as_it_was_written(language: str, count: int, unit: str, length: Any) -> None:
    written = format_unit(count, f"duration-{unit}", length, locale=language)
    assume(len(re.sub(r"[^\W\d]", "", written)) < len(written) - 1 or "h" in written)  # 5 m are meters
    text = SENTENCES[language].format(written)
    seconds = {"minute": 60, "hour": 3600, "day": 86_400}[unit]
    assert [span.value for span in duration_spans(text)] == [count * seconds]


@pytest.mark.parametrize("text", SENTENCES.values())
def test_a_sentence_without_such_a_value_has_none(text: str) -> None:
    text = text.replace("{} ", "")
    assert (date_spans(text, TODAY), time_spans(text), duration_spans(text)) == ([], [], [])
    assert [span.value for span in number_spans(text)] == [12]


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("3rd of March, 2026", ["2026-03-03"]),
        ("Dec 9th, 2025 and 03/04/2026", ["2025-12-09", "2026-04-03"]),
        ("12/25/2026 or 03/04/2026", ["2026-12-25", "2026-03-04"]),  # the first has the month first
        ("le 1er mars 2026, dal 1° luglio 2026", ["2026-03-01", "2026-07-01"]),
        ("2026年3月3日", ["2026-03-03"]),
        ("on 2 May, until 4 May 2025", ["2025-05-02", "2025-05-04"]),  # in the year of the other
        ("on 2 May", ["2027-05-02"]),  # the next one
        ("31/02/2026, 2026-13-01, 5 Aprıl 2026", []),
        ("created 2026-03-05T09:30:00Z, log 2026-03-06_final.txt", ["2026-03-05", "2026-03-06"]),
        ("from 5 to 8 March 2026", ["2026-03-05", "2026-03-08"]),
        ("12-14 May 2026; invoice of 3 March 2026", ["2026-05-12", "2026-05-14", "2026-03-03"]),
        ("dal 5 all'8 marzo 2026", ["2026-03-05", "2026-03-08"]),
        ("tomorrow at 9, or on Friday", ["2026-11-22", "2026-11-27"]),
        ("on Friday 4 September 2026", ["2026-09-04"]),
        ("Due 03/04/2026, total $50", ["2026-03-04"]),  # dollars
        ("25/12/2026 and 03/04/2026, $50", ["2026-12-25", "2026-04-03"]),
        ("on 29 February, or 30 February", ["2028-02-29"]),
        ("born 5 March 1980, seen on 12 May", ["1980-03-05", "2027-05-12"]),
        ("we may march for 12 miles in 4 sec", []),
        ("version 1.2.2026.4, 10.0.0.1, room 12/4/1b", []),
    ],
)
def test_dates(text: str, dates: list[str]) -> None:
    assert [span.value for span in date_spans(text, TODAY)] == dates


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("at half past nine", ["09:30"]),
        ("a quarter to 5, ten past four", ["04:45", "04:10"]),
        ("alle nove e mezza di sera, um halb zehn", ["21:30", "09:30"]),
        ("a las seis y media de la tarde, kwart voor elf", ["18:30", "10:45"]),
        ("12.15 am, 4 pm, 15h30", ["00:15", "16:00", "15:30"]),
        ("alle 9, um 21 Uhr", ["09:00", "21:00"]),
        ("at 22 Elm Road, at 20 euros each, at 5 people", []),
        ("Open 9:00-17:00, 14 Uhr 30", ["09:00", "17:00", "14:30"]),
        ("dinner at 8 in the evening, um 9 Uhr abends", ["20:00", "21:00"]),
        ("alle 3 del pomeriggio, quarter past 5 pm", ["15:00", "17:15"]),
        ("25:00, 4.30 euro, score 3:75", []),
    ],
)
def test_times(text: str, times: list[str]) -> None:
    assert sorted(span.value for span in time_spans(text)) == sorted(times)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("4,20 euro", [4.2]),
        ("1.284,90 € and 1.284 €", [1284.9, 1284]),
        ("1,140 pieces", [1140, 1.14]),  # it may be either, if the text has no other number
        ("$1,140", [1140]),
        ("call 900 555 013 or +39 02 7601 2233", []),
        ("£76.50 and 1,140", [76.5, 1140]),
        ("twelve of the twenty-one boxes", [12, 21]),
        ("due persone alle dodici di sera", [2, 12]),
        ("due in two days for the rent", [2]),  # in Italian it is a number
        ("une table pour six", [6]),
        ("-3 or −4.5", [-3, -4.5]),
        ("$120/night, a 3-bedroom flat", [120, 3]),
        ("Total:120.50 EUR, Qty:2, paid EUR99", [120.5, 2, 99]),
        ("$5 million, 3 mila euro, 2,5 Mio. Euro, €5k", [5_000_000, 3000, 2_500_000, 5000]),
        ("3 m\u0131la euro", [3]),  # a dotless i, which is no i without case
        ("0102, A-17, 12-14, 3.txt", []),
    ],
)
def test_numbers(text: str, numbers: list[float]) -> None:
    assert sorted(span.value for span in number_spans(text)) == sorted(numbers)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("1 hour 30 minutes", [90]),
        ("un'ora e mezza", [90]),
        ("half an hour", [30]),
        ("45 min. of 2 hrs", [45, 120]),
        ("un'ora", [60]),
        ("a 30-minute call, 5 m of rope, 99999999999999 hours", [30]),
        ("une heure et quart, 2 hours and a half", [75, 150]),
        ("6 hours 45 minutes", [405]),
    ],
)
def test_durations(text: str, minutes: list[int]) -> None:
    assert [span.value / 60 for span in duration_spans(text)] == minutes


@given(st.integers(0, 400_000))
def test_a_duration_in_iso_8601_has_all_of_its_seconds(seconds: int) -> None:
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", iso_duration(seconds))
    assert found is not None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    assert ((days * 24 + hours) * 60 + minutes) * 60 + rest == seconds


@given(st.text(max_size=60))
def test_any_text_can_be_searched(text: str) -> None:
    for spans in (date_spans(text, TODAY), time_spans(text), number_spans(text), duration_spans(text)):
        assert all(0 <= span.start < span.end <= len(text) for span in spans)
