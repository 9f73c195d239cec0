"""The names, quotes, codes, numbers and dates of a request, and how many calls it may take."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.requests.coverage import is_covered
from gbnf.requests.evidence import gather_evidence
from gbnf.requests.values import (
    RequestNumber,
    asks_for_several,
    dates_in,
    most_calls,
    named_dates,
    names_in,
    numbers_in,
    times_in,
)
from gbnf.tools import Tool


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("Weather in Tel Aviv, please", ["Tel Aviv"]),
        ("from Boston, MA to New York", ["Boston, MA", "Boston", "New York"]),
        ("what about gate A12? Thanks.", ["A12"]),
        ("who said 'to be or not'", ["to be or not"]),
        ('open "notes/a b.txt" now', ["notes/a b.txt"]),
        ('open "Budget 2026.ods" in Reports', ["Budget 2026.ods", "Reports"]),
        ("Find it. Then stop: Now!", []),
        ("A ticket to Rome", ["Rome"]),
        ("IBM rose by 5.5 on 2024-05-01, not on May 2", ["IBM", "2024-05-01"]),
        ("Find Michelangelo's David", ["Michelangelo's David"]),
        ("che tempo fa a Città di Castello", ["Città", "Castello"]),
        ("when was the Treaty of Lisbon signed", ["Treaty of Lisbon"]),
        ("a car at 14 Harbor Lane", ["14 Harbor Lane", "Harbor Lane"]),
        ("for 5 Italian guests", ["Italian"]),
        ("Play Waterloo\nPlay Rhapsody", ["Waterloo", "Rhapsody"]),
        ("play Maroon 5, not Sum 41 for 3 days", ["Maroon 5", "Sum"]),
        ("read ~/data/my.nii and /etc/hosts", ["~/data/my.nii", "/etc/hosts"]),
        ("mail a@b.com the file my_data (e.g. all of it)", ["a@b.com", "my_data"]),
        ("open an issue in acme/billing-api", ["acme/billing-api", "acme", "billing-api"]),
        ("see foodnetwork.com. or not", ["foodnetwork.com"]),
        ("the shows in the British Museum. Plus prices", ["British Museum"]),
        ("shares of Apple Inc. Also gold", ["Apple Inc. Also"]),
        ("cases of 2019, Also cases of 2018", []),
        ("from Tokyo on May 3rd", ["Tokyo"]),
        ("tea in Rome, Oslo and New York.", ["Rome", "Oslo", "New York"]),
        (
            "jazz in San Francisco, California and New York, New York?",
            ["San Francisco, California", "San Francisco", "New York, New York", "New York"],
        ),
    ],
)
def test_names_quotes_codes_and_paths(request_: str, names: list[str]) -> None:
    assert list(names_in(request_)) == names


@pytest.mark.parametrize(
    ("request_", "numbers"),
    [
        (
            "$10,000 at 5% for 3 years",
            [RequestNumber("10000"), RequestNumber("5", "0.05"), RequestNumber("3")],
        ),
        (
            "8.5 million, then 1.2M and 3k",
            [RequestNumber("8500000"), RequestNumber("1200000"), RequestNumber("3000")],
        ),
        ("a = 3, b = -11 and 4.50", [RequestNumber("3"), RequestNumber("-11"), RequestNumber("4.5")]),
        ("12.5 percent", [RequestNumber("12.5", "0.125")]),
        ("another one, this one, and one more", [RequestNumber("1")]),
        ("1e-9 and -2.5E-8 C", [RequestNumber("1e-09"), RequestNumber("-2.5e-08")]),
        ("from 2019-2020", [RequestNumber("2019"), RequestNumber("2020")]),
        ("two dice, twice 6", [RequestNumber("6"), RequestNumber("2")]),
        ("A12 and 3.4.5", []),
        ("4,20 euro and 3,5 kg", [RequestNumber("4.2"), RequestNumber("3.5")]),
        ("of 5,10 and 15", [RequestNumber("5"), RequestNumber("10"), RequestNumber("15")]),
        ("100 meters, 0.50", [RequestNumber("100"), RequestNumber("0.5")]),
    ],
)
def test_numbers_as_json(request_: str, numbers: list[RequestNumber]) -> None:
    assert list(numbers_in(request_)) == numbers


@pytest.mark.parametrize(
    ("request_", "dates"),
    [
        ("from 2023 April 4th to Jun.20,2023", ["2023-04-04", "2023-06-20"]),
        ("15th October,2023 or March 17, 1915", ["2023-10-15", "1915-03-17"]),
        ("on 5 of May 2021, il 3 marzo 2026", ["2021-05-05", "2026-03-03"]),
        ("2022/08/16 and 2026-1-5", ["2022-08-16", "2026-01-05"]),
        ("May 5, 31 February 2020, may 2021 be good", []),
    ],
)
def test_dates_with_a_year(request_: str, dates: list[str]) -> None:
    assert [str(each) for each in dates_in(request_)] == dates


TODAY = date(2026, 11, 21)  # a Saturday
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


@given(
    st.dates(date(2026, 11, 21), date(2027, 11, 20)),
    st.sampled_from(["{d} {m}", "{m} {d}", "the {d}th of {m}"]),
)
def test_a_date_without_a_year_is_the_next_one(day: date, form: str) -> None:
    text = form.format(d=day.day, m=MONTHS[day.month - 1])
    is_next = (day.month, day.day) != (2, 29)
    assert list(named_dates(f"dinner on {text} at 20:00", TODAY).values()) == [day] * is_next
    assert not dates_in(text)


@given(st.dates(), st.integers(0, 6), st.sampled_from(["en", "it"]))
def test_a_day_of_the_week_is_the_next_one(today: date, weekday: int, language: str) -> None:
    name = {
        "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
        "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    }[language].split()[weekday]
    for day in named_dates(f"gym {name} at 7", today).values():  # none at the end of time
        assert day.weekday() == weekday
        assert timedelta() < day - today <= timedelta(days=7)


@pytest.mark.parametrize(
    ("request_", "days"),
    [
        (
            "lunch tomorrow, dinner the day after tomorrow",
            {"tomorrow": "11-22", "day after tomorrow": "11-23"},
        ),
        (
            "com'era ieri? e domani? e dopodomani?",
            {"ieri": "11-20", "domani": "11-22", "dopodomani": "11-23"},
        ),
        ("on 2026-11-30 or May 3rd, 2026", {"2026-11-30": "11-30", "May 3rd, 2026": "05-03"}),
        ("il 3 dicembre alle 15", {"3 dicembre": "12-03"}),
        ("December 20:00, 30 February, lunediano, Mondays", {}),
        ("you may go", {}),
    ],
)
def test_days_that_a_request_names(request_: str, days: dict[str, str]) -> None:
    named = named_dates(request_, TODAY)
    assert {word: f"{day:%m-%d}" for word, day in named.items()} == days
    assert {day.year for day in named.values()} <= {2026}


@given(st.text(max_size=80) | st.from_regex(r"([$-]?[0-9,]{1,9}(\.[0-9]{1,3})?(%|k| million)? ){1,4}"))
def test_numbers_are_json_numbers(request_: str) -> None:
    for number in numbers_in(request_):
        assert isinstance(json.loads(number.text), int | float)
        assert not number.share or json.loads(number.share) == pytest.approx(json.loads(number.text) / 100)


@given(st.text(alphabet="AbZ .,'\"/@_-5éÀ中\n", max_size=80))
def test_names_are_texts_of_the_request(request_: str) -> None:
    for name in names_in(request_):
        assert name
        assert name in request_


def test_a_long_request_has_a_limit() -> None:
    assert len(names_in(" and ".join(f"A{number}b" for number in range(1000)))) == 200
    assert len(numbers_in("7 " * 1000)) == 200


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["x", "Ab, ", "9", "a-", "_", "a/", "1,", "'", "A of ", "5 "])
def test_hostile_requests_take_linear_work(unit: str) -> None:
    request = unit * (200_000 // len(unit))
    args = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "string"}}}
    tool = Tool.from_mapping({"name": "t", "description": "Do it.", "args": args})
    evidence = gather_evidence(request, [tool])
    assert evidence is not None
    assert len(evidence.phrases) <= 200
    assert is_covered(request, [{"name": "t", "arguments": {"y": request}}])


def test_a_month_in_other_letters_is_none() -> None:
    assert named_dates("on 5 Apr\u0131l 2026", TODAY) == {}  # a dotless i, which is no i without case


@pytest.mark.parametrize(
    ("request_", "several"),
    [
        ("", False),
        ("what time is it?", False),
        ("Hello! What time is it?", False),
        ("please, find the notes of 3.5 MB", False),
        ("e.g. the andes", False),
        ("the weather in Rome and Oslo", True),
        ("Rome, Oslo, Bergen", True),
        ("che tempo fa a Roma e a Oslo", True),
        ("das Wetter in Rom und in Oslo", True),
        ("罗马、奥斯陆", True),
        ("Make the folder trips.\nWrite the file notes there", True),
        ("Make the folder trips. Write the file notes there.", True),
        ("what is 10 plus 4975 times 4?", False),
        ("add tea plus coffee to the list", True),
        ("tell bob@example.com to delete a.txt and write b.txt", False),
        ("tell bob@example.com to delete a.txt. Then write b.txt", True),
    ],
)
def test_which_requests_may_take_several_calls(request_: str, several: bool) -> None:
    assert asks_for_several(request_) == several


@given(st.text(max_size=200), st.text(max_size=200))
def test_two_requests_in_one_may_take_several_calls(one: str, other: str) -> None:
    assert asks_for_several(f"find my notes {one} and then {other}")


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        ("hello", 0),
        ("at 18:00", 1),
        ("at 9 am and 17:30", 2),
        ("2026-11-23 at 07:00 and 2026-11-24 at 07:00", 2),
        ("Monday, Tuesday and Friday at 8:00", 3),
        ("domani alle 8:30", 1),
    ],
)
def test_how_many_times_a_request_names(request_: str, count: int) -> None:
    assert times_in(request_) == count


@given(st.lists(st.sampled_from(["find a", "and read b", ", then c", ". Make a new one"]), min_size=1))
def test_a_longer_request_has_no_fewer_calls(parts: list[str]) -> None:
    counts = [most_calls("".join(parts[:count])) for count in range(1, len(parts) + 1)]
    assert counts == sorted(counts)
    assert counts[0] >= 1
