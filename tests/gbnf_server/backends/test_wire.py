"""Data over a connection arrives complete, however it is split, and only errors of the tree are raised."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gbnf.strict_json import map_texts
from gbnf_server.backends.wire import (
    LineDecoder,
    SurrogateJoiner,
    join_surrogates,
    message_text,
    parse_count,
    parse_json,
    parse_logprobs,
    parse_number,
    read,
    value_at,
)
from gbnf_server.system.errors import MalformedTextError
from support.wires import ANY_TEXT, BROKEN, JSON, NO_UTF8, SIZES, cut


@given(st.lists(ANY_TEXT), SIZES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_lines_come_whole(texts: list[str], sizes: list[int], end: str, marked: bool, ended: bool) -> None:
    expected = [text.replace("\n", "").rstrip("\r").lstrip("\ufeff") for text in texts] + ["the last"]
    stream = ("\ufeff" if marked else "") + end.join(expected) + (end if ended else "")
    found: list[str] = []
    lines = LineDecoder()
    for chunk in cut(stream.encode(), sizes):
        found += lines.feed(chunk)
    found += lines.end()
    assert found == expected


@pytest.mark.parametrize("line", NO_UTF8)
def test_bytes_that_are_no_utf8_are_refused(line: bytes) -> None:
    found: list[str] = []
    lines = LineDecoder()
    found += lines.feed(b"a\n")
    with pytest.raises(MalformedTextError, match=f"0x{line[1]:02x}"):
        found += lines.feed(line + b"\nc")
    assert found == ["a"]
    with pytest.raises(MalformedTextError):
        read(b'{"a": "' + line + b'"}')
    assert "\ufffd" in read(b'{"a": "' + line + b'"}', is_error=True)["a"]


@given(BROKEN, SIZES)
def test_pairs_are_joined_and_lone_halves_refused(text: str, sizes: list[int]) -> None:
    expected, rest = "", text
    while rest:
        if rest.startswith("\ud83d\ude00"):
            expected, rest = expected + "\U0001f600", rest[2:]
        else:
            expected, rest = expected + ("\ufffd" if rest[0] in "\ud83d\ude00" else rest[0]), rest[1:]
    pieces: list[str] = []
    joined = SurrogateJoiner()

    def join() -> None:
        pieces.extend(map(joined.feed, cut(text, sizes)))
        joined.end()

    assert read(json.dumps(text).encode(), is_error=True) == expected
    if "\ufffd" in expected:
        for refused in (
            join,
            lambda: join_surrogates(text),
            lambda: map_texts([text], join_surrogates),
            lambda: map_texts({text: 1}, join_surrogates),
        ):
            with pytest.raises(MalformedTextError, match="surrogate"):
                refused()
        return
    join()
    assert join_surrogates(text) == expected
    assert "".join(pieces) == expected
    assert all(piece == join_surrogates(piece) for piece in pieces)


@given(JSON)
@example({"a": ["\ud83d", {"b": "\ud83d\ude00"}]})
def test_a_value_is_read_as_it_is_or_refused(value: Any) -> None:
    text = json.dumps(value)
    try:
        text.encode().decode("unicode-escape").encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        with pytest.raises(MalformedTextError):
            read(text.encode())
        found = read(text.encode(), is_error=True)
    else:
        found = read(text.encode())
    json.dumps(found, ensure_ascii=False).encode()
    if "\\ud83d" not in text and "\\ude00" not in text:
        assert json.dumps(found) == text


@pytest.mark.parametrize("deep", ["[" * 200_000, '{"a":' * 100_000, "[" * 500 + "]" * 500])
def test_what_is_nested_too_deeply_is_no_answer(deep: str) -> None:
    with pytest.raises(ValueError, match=r"deeply|Expecting"):
        parse_json(deep)
    assert read(deep.encode()) is None
    assert parse_json("[" * 50 + "]" * 50) is not None


@given(st.binary(max_size=20))
def test_any_bytes_are_a_value_or_none(body: bytes) -> None:
    read(body, is_error=True)
    with suppress(MalformedTextError):
        read(body)
    assert read(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (12, 12),
        (12.7, 12),
        (-3, 0),
        (True, 0),
        ([1], 0),
        (math.inf, 0),
        (math.nan, 0),
        (10**400, 0),
    ],
)
def test_counts(value: Any, expected: int) -> None:
    assert parse_count(value) == expected
    assert math.floor(parse_number(value)) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        (["a", {"text": "b"}], "ab"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": 1}], None),
        (5, None),
        (None, None),
        ({"text": "a"}, None),
    ],
)
def test_the_text_of_a_content(content: Any, expected: str | None) -> None:
    assert message_text(content) == expected


def test_invalid_logprobs_are_left_out() -> None:
    entry = {"token": "a", "logprob": -1}
    entries = [
        entry,
        {**entry, "bytes": [98]},
        {**entry, "bytes": [256]},
        {"token": "c"},
        {**entry, "token": ""},
        3,
    ]
    assert [each.token for each in parse_logprobs(entries, 0)] == [b"a", b"b", b"a"]


def test_members() -> None:
    assert value_at({"a": {"b": 1}}, "a", "b") == 1
    others: list[Any] = [{"a": [1]}, {"a": None}, [], None, 3]
    for value in others:
        assert value_at(value, "a", "b") is None
