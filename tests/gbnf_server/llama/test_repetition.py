"""Texts that repeat without an end, and texts with real repetition, which do not count."""

from __future__ import annotations

import base64
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.llama.repetition import RepetitionDetector
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


@given(st.text(max_size=40), UNITS, st.integers(40, 5000), st.text(max_size=20), st.randoms())
def test_it_is_a_function_of_the_text(
    before: str, unit: str, length: int, after: str, chance: random.Random
) -> None:
    text = before + (unit * length)[:length] + after
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


RUNAWAY = {
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
