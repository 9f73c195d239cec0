"""Whatever bytes an executor's process writes, they are messages within the limits, or an `ExecutorError`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.executors.person import FIELD_KINDS, Field, Form
from gbnf_server.executors.protocol import (
    ChildMessage,
    ErrorMessage,
    MessageReader,
    SecretRequest,
    message,
    result,
)
from gbnf_server.executors.results import MAX_DEPTH
from gbnf_server.executors.secrets import Secrets
from gbnf_server.system.errors import ExecutorError
from support.effort import scaled
from support.json_values import json_values

any_text = st.text(st.characters())  # halves of characters too
fields = st.builds(
    Field, any_text, any_text, st.sampled_from(FIELD_KINDS), st.lists(any_text, min_size=1).map(tuple)
)
results = st.dictionaries(st.text().filter(lambda key: key != "entries"), json_values)
messages = st.one_of(
    st.builds(lambda title, asked: Form(title, tuple(asked)), any_text, st.lists(fields)),
    st.builds(SecretRequest, any_text),
    results,
    st.builds(ErrorMessage, any_text, any_text),
)
nearly = st.dictionaries(
    st.sampled_from(["is", "title", "fields", "value", "text", "trace", "handle"]),
    st.sampled_from(["ask", "secret", "result", "error", "start"]) | json_values,
).map(lambda value: json.dumps(value).encode() + b"\n")


_ASKS = b'{"is": "ask", "title": "t", "fields": [%s]}'


def encoded(sent: ChildMessage) -> bytes:
    match sent:
        case Form():
            return message("ask", **asdict(sent))
        case SecretRequest(handle):
            return message("secret", handle=handle)
        case dict():
            return result("mine", sent)
        case ErrorMessage(text, trace):
            return message("error", text=text, trace=trace)


def inbox(limit_kb: int = 100) -> MessageReader:
    return MessageReader("mine", limit_kb, Secrets())


@settings(max_examples=scaled(40))
@given(sent=st.lists(messages, max_size=5), data=st.data())
def test_messages_arrive_however_they_are_split(sent: list[ChildMessage], data: st.DataObject) -> None:
    stream, box, got = b"".join(map(encoded, sent)), inbox(), list[ChildMessage]()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        box.feed(stream[:size])
        stream = stream[size:]
        while (received := box.next_message()) is not None:
            got.append(received)
    assert got == sent


@given(pieces=st.lists(st.binary() | nearly | messages.map(encoded)))
def test_other_bytes_are_an_error_of_the_tool(pieces: list[bytes]) -> None:
    box = inbox()
    with suppress(ExecutorError):
        for piece in pieces:
            box.feed(piece)
            while box.next_message():
                pass


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00\xc3\x28",
        b"\0" * 1000,
        b"null",
        b"[]",
        b"{}",
        b'{"is": "start"}',
        b'{"is": ["result"]}',
        b'{"is": "result"}',
        b'{"is": "error", "text": 1, "trace": ""}',
        b'{"is": "ask", "title": "t"}',
        b'{"is": "ask", "title": "t", "fields": [1]}',
        _ASKS % b'{"var": "a", "prompt": "b", "kind": "choice", "options": [1]}',
        _ASKS % b'{"var": "a", "prompt": "b", "kind": "x", "options": []}',
        b'{"is": "result", "value": 1}',
        b'{"is": "result", "value": {"x": NaN}}',
        b'{"is": "result", "value": {"x": 1e999}}',
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    box = inbox()
    box.feed(line + b"\n")
    with pytest.raises(ExecutorError, match=r"sent an invalid message|not a kind of field|not an object"):
        box.next_message()


@pytest.mark.parametrize(("limit_kb", "over"), [(64, False), (64, True), (200, False)])
def test_a_line_may_be_as_long_as_the_limit(limit_kb: int, *, over: bool) -> None:
    padding = limit_kb * 1024 - len(result("mine", {"x": ""})) + 1
    line = result("mine", {"x": "x" * (padding + over)})
    assert len(line) == limit_kb * 1024 + 1 + over  # the line feed is no part of it
    box = inbox(limit_kb)
    box.feed(line)
    if over:
        with pytest.raises(ExecutorError, match=f"returned more than {limit_kb} kB.*run.max_result_kb"):
            box.next_message()
    else:
        assert isinstance(box.next_message(), dict)


def test_a_small_limit_is_for_results_and_not_for_questions() -> None:
    box = inbox(1)
    box.feed(message("ask", title="x" * 2000, fields=[]) + result("mine", {"x": "x" * 2000}))
    assert isinstance(box.next_message(), Form)
    with pytest.raises(ExecutorError, match="returned more than 1 kB"):
        box.next_message()


def test_bytes_without_a_line_end_are_refused_before_they_are_many() -> None:
    box, fed = inbox(64), 0
    with pytest.raises(ExecutorError, match="more than 64 kB"):  # noqa: PT012  # until it refuses
        while True:
            box.feed(b"x" * 1000)
            fed += 1000
            assert box.next_message() is None
    assert fed <= 64 * 1024 + 1000


def nested(depth: int, *, kind: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_a_result_may_be_so_deep_and_no_deeper(kind: type) -> None:
    box = inbox()
    box.feed(
        result("mine", {"x": nested(MAX_DEPTH - 1, kind=kind)})
        + result("mine", {"x": nested(MAX_DEPTH, kind=kind)})
    )
    assert isinstance(box.next_message(), dict)
    with pytest.raises(ExecutorError, match=f"nested deeper than {MAX_DEPTH}"):
        box.next_message()


@pytest.mark.parametrize("digits", [4300, 4301])
def test_integers_have_as_many_digits_as_python_writes(digits: int) -> None:
    box = inbox()
    box.feed(b'{"is": "result", "value": {"x": ' + b"9" * digits + b"}}\n")
    if digits > 4300:
        with pytest.raises(ExecutorError, match="sent an invalid message"):
            box.next_message()
    else:
        assert box.next_message() == {"x": 10**digits - 1}
