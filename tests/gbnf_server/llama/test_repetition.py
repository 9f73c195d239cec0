"""Texts that repeat without an end, and texts with real repetition, which do not count."""

from __future__ import annotations

import base64
import json
import random
import re
from itertools import count, islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.llama.repetition import RepetitionDetector
from support.effort import scaled
from support.oracle import SHARED


def fires_at(text: str) -> int | None:
    """Return the number of characters after which the text counts as repeated, None if it never does."""
    detector = RepetitionDetector()
    for index, char in enumerate(text, 1):
        detector.feed(char)
        if detector.repeated:
            return index
    return None


UNITS = st.text(st.sampled_from('ab0 ,."\n'), min_size=1, max_size=12)
ROWS = st.builds(
    "{}{}#{}".format,
    st.sampled_from(["step ", '{"temp": 21, "city": "', "abs(-#) == ", "- 第一步 "]),
    st.text(st.sampled_from('ab ,."\n-'), max_size=120),
    st.sampled_from([", ", "\n", '"}, ', "\\n"]),
)
"""Lines and entries with words and numbers, # being one."""
SEEDED = st.builds(random.Random, st.integers(0, 2**32))


def numbered(row: str, numbers: list[int]) -> str:
    """Return a row for each number."""
    return "".join(row.replace("#", str(number)) for number in numbers)


@given(
    st.text(max_size=40),
    UNITS | ROWS,
    st.integers(40, 5000),
    st.text(max_size=20),
    st.integers(0, 1200),
    st.randoms(),
)
def test_it_is_a_function_of_the_text(
    before: str, unit: str, length: int, after: str, first: int, chance: random.Random
) -> None:
    text = before + numbered(unit, list(range(first, first + length)))[:length] + after
    whole, pieces = RepetitionDetector(), RepetitionDetector()
    whole.feed(text)
    while text:
        size = chance.choice([1, 3, 16, 200])
        pieces.feed(text[:size])
        text = text[size:]
    assert pieces.repeated == whole.repeated


@given(st.text(max_size=600), st.text(min_size=1, max_size=256), st.integers(0, 300))
def test_what_is_repeated_is_at_the_end_and_follows_next(before: str, unit: str, part: int) -> None:
    text = before + unit * (5000 // len(unit)) + unit[:part]
    detector = RepetitionDetector()
    detector.feed(text)
    repeated = detector.repeated
    assert repeated
    assert text.endswith(repeated * 16)
    assert len(repeated) <= len(unit)
    detector.feed(repeated)
    assert detector.repeated == repeated
    detector.feed("b" if repeated.startswith("a") else "a")
    assert not detector.repeated


@settings(max_examples=scaled(100))
@given(st.text(max_size=40), ROWS, st.integers(0, 1200), st.integers(1, 12), SEEDED)
def test_rows_whose_numbers_differ_repeat_after_a_bounded_text(
    before: str, row: str, first: int, step: int, chance: random.Random
) -> None:
    """In any division into pieces. 160 rows of 16 characters are required, a number being one character."""
    size = len(row)
    numbers = [first + step * each for each in range(max(160, 2560 // size + 1) + 512 // size + 2)]
    text, detector = before + numbered(row, numbers), RepetitionDetector()
    while text and not detector.repeated:
        length = chance.choice([1, 3, 16, 200])
        detector.feed(text[:length])
        text = text[length:]
    assert detector.repeated
    shape = re.sub(r"\d+", "#", detector.repeated)
    assert len(shape) <= size
    assert shape in re.sub(r"\d+", "#", row) * 3


@settings(max_examples=scaled(100))
@given(ROWS, st.lists(st.integers(0, 10**6), min_size=1, max_size=4, unique=True), SEEDED)
def test_rows_with_few_numbers_repeat_sooner(row: str, forms: list[int], chance: random.Random) -> None:
    """The end of the text may have a part of a number, which is one more."""
    required = 16 + 6 * (row.count("#") * (len(forms) - 1) + 1)
    rows = max(required, max(512, 16 * required) // len(row) + 1) + 512 // len(row) + 2
    text = numbered(row, [chance.choice(forms) for _ in range(rows)])
    assert fires_at(text) is not None


@given(ROWS, st.lists(st.integers(0, 10**9), min_size=60, max_size=100, unique=True), st.booleans())
def test_lists_of_100_numbered_rows_do_not_count(row: str, numbers: list[int], counts: bool) -> None:
    text = numbered(row, sorted(numbers) if counts else numbers)
    assert fires_at(text) is None
    assert fires_at(json.dumps(text)) is None


@given(st.text(max_size=5), st.integers(1, 300), st.lists(st.integers(0, 1200), min_size=1, max_size=3))
def test_what_counts_goes_on_with_any_number(unit: str, later: int, widths: list[int]) -> None:
    row = "row " + re.sub(r"[\d#]", "", unit) + " #; "
    detector = RepetitionDetector()
    numbers = islice(count(1), 2600)
    while not detector.repeated:
        detector.feed(numbered(row, [next(numbers)]))
    assert detector.counts
    rest = numbered(row, [later, *widths])
    detector.feed(rest)
    assert re.sub(r"\d+", "#", detector.repeated) == row
    detector.feed("other")
    assert not detector.repeated


RUNAWAY = {
    "a word": "state ",
    "a quoted name": '"budget.txt", ',
    "a line": '{"temp_c": 21, "city": "Rome"}\n',
    "an abbreviation": "Abbr. (abbr), ",
    "a cycle of entries": '"today", "tomorrow", ',
    "an object": '{"name": "lunch", "day": 3}, ',
    "words without spaces": "今天天气很好，",
    "escaped lines": "\\n",
    "spaces": " ",
}


@pytest.mark.parametrize("unit", RUNAWAY.values(), ids=RUNAWAY)
def test_runaway_text_ends_early(unit: str) -> None:
    at = fires_at('{"text": "' + unit * 1000)
    assert at is not None
    assert at <= max(512, 16 * len(unit)) + 32


COUNTING = {
    "assertions": "abs(-#) == #, ",
    "files": '"file#.txt", ',
    "objects": '{"id": #, "name": "user#"}, ',
    "lines": '{"temp_c": #, "city": "Rome"}\n',
    "escaped lines": "row # of the table\\n",
    "a numbered list": "#. item\n",
}


@pytest.mark.parametrize("row", COUNTING.values(), ids=COUNTING)
def test_a_counter_without_an_end_is_seen(row: str) -> None:
    at = fires_at('{"text": "' + numbered(row, list(range(1, 1000))))
    assert at is not None
    assert len(numbered(row, list(range(100)))) < at < 4096 + 160 * len(row)


def test_a_line_in_which_a_number_changes_now_and_then_is_seen() -> None:
    numbers = [22 if row % 9 == 5 else 21 for row in range(40)]
    at = fires_at(numbered('{"temp_c": #, "city": "Rome"}\n', numbers))
    assert at is not None
    assert at <= 1024


def test_a_repeated_paragraph_is_seen() -> None:
    unit = " ".join(f"word{'abcdefghij'[each % 10]}{each * each}" for each in range(100)) + "\n"
    assert 512 < len(unit) < 1024
    at = fires_at(unit * 20)
    assert at is not None
    assert at <= 16 * len(unit) + 16


REAL = {
    "matrix of zeros": json.dumps([[0] * 28] * 28),
    "compact zeros": json.dumps([0] * 1000, separators=(",", ":")),
    "values": json.dumps([None, True, False] * 200),
    "one word per light": json.dumps(["green"] * 44),
    "base64 of one colour": base64.b64encode(b"\x10\x20\x30\xff" * 700).decode(),
    "lines of base64": base64.encodebytes(b"\x10\x20\x30" * 900).decode(),
    "bytes in Python": "\\xff\\x00" * 400,
    "rule": "-" * 3000,
    "ASCII art": ("/\\" * 40 + "\n" + "\\/" * 40 + "\n") * 15,
    "table": "| a | b |\n|---|---|\n" + "| 0 | 1 |\n" * 300,
    "CSV with words": "id,name\n" + "1,unknown\n" * 40,
    "lines of DNA": ("ATATGC" * 10 + "\n") * 60,
    "refrain": "na na na na, hey hey hey, goodbye\n" * 12,
    "log": "12:00:00 connection refused by example.org, retrying in 5 s\n" * 12,
    "stack": "    at ??? (in /home/user/node/out/Release/node)\n" * 10,
    "numbers": json.dumps(list(range(1, 5001))),
    "a number a line": "\n".join(map(str, range(3000))),
    "decimals": json.dumps([each * each / 1000 for each in range(2000)]),
    "points": json.dumps([{"x": each, "y": each * each} for each in range(1000)]),
    "numbered lines": "".join(f"{each}. item\n" for each in range(1, 101)),
    "files": json.dumps([f"file{each}.txt" for each in range(1, 121)]),
    "users": json.dumps([{"id": each, "email": f"user{each}@example.com"} for each in range(1, 121)]),
    "numbered list": "".join(f"{each}. {'abcdefgh'[each % 8 :]} done\n" for each in range(1, 500)),
    "multiplication table": "".join(
        f"{a} multiplied by {b} equals {a * b}\n" for a, b in product(range(1, 13), repeat=2)
    ),
    "rows of a table": numbered("| 2024-01-# | Rome, # | 21 °C |\n", list(range(1, 61))),
    "rows without a key": "".join(f"| Rome | sunny | {each * each % 11} |\n" for each in range(40)),
    "measurements": "time,sensor,value\n" + "".join(f"{each},north,{each % 3}\n" for each in range(140)),
    "days of a year": "".join(
        f"{day // 30 + 1:02}-{day % 30 + 1:02} {('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[day % 7]}\n"
        for day in range(360)
    ),
    "requests": numbered("12:00:# GET /index.html 200 in # ms\n", list(range(1, 121))),
}


@pytest.mark.parametrize("text", REAL.values(), ids=REAL)
def test_real_repetition_does_not_count(text: str) -> None:
    for each in (text, json.dumps(text)):
        assert fires_at(each) is None


def test_right_answers_do_not_count() -> None:
    folder = SHARED / "bfcl" / "possible_answer"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    for path in folder.glob("*.json"):
        for line in path.read_text().splitlines():
            assert fires_at(json.dumps(json.loads(line)["ground_truth"])) is None


@pytest.mark.parametrize("unit", ["}", "}}]", ")]", '"}', "\\\\"])
def test_closing_brackets_end_sooner_than_other_text(unit: str) -> None:
    at = fires_at('{"pattern": "*.txt' + unit * 300)
    assert at is not None
    assert 128 <= at < 256
    assert fires_at('{"a": ' + "[" * 60 + unit * 40) is None
