"""Where the end of an unfinished JSON text is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gbnf.partial_json import JsonReader, locate
from support.json_values import SIMPLE, nested

VALUES = nested(SIMPLE | st.text(max_size=5), st.text(max_size=5))


def written(value: Any, path: tuple[str | int, ...], starts: list[tuple[int, Any]], at: int) -> str:
    """JSON, with the position and the path of each value."""
    starts.append((at, path))
    if isinstance(value, dict | list):
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        text = opening
        for number, (key, member) in enumerate(
            value.items() if isinstance(value, dict) else enumerate(value)
        ):
            text += ", " if number else " "
            text += f"{json.dumps(key)} : " if isinstance(value, dict) else ""
            text += written(member, (*path, key), starts, at + len(text))
        return text + closing
    return json.dumps(value)


@given(VALUES)
def test_the_place_before_each_value_is_found(value: Any) -> None:
    starts: list[tuple[int, Any]] = []
    text = written(value, (), starts, 0)
    assert json.loads(text) == value
    for position, path in starts:
        found = locate(text[:position])
        assert (found.path, found.where) == (path, "value")
    found = locate(text + " ")
    assert found.where == "end"
    scalars = [(path, at) for at, path in starts if text[at] not in "{["]
    assert [(path, at) for path, _, at in found.scalars] == scalars
    assert all(text.startswith(scalar, at) for _, scalar, at in found.scalars)


@given(st.text(alphabet='{}[]":,\\ a1', max_size=30))
def test_any_text_has_a_place(text: str) -> None:
    assert locate(text).start <= len(text)


@given(st.lists(st.text(alphabet='{}[]":,\\ a1', max_size=4) | st.sampled_from(['{"a": ', '"b", "', "12"])))
def test_a_text_that_grows_has_the_places_of_its_beginnings(pieces: list[str]) -> None:
    reader, text = JsonReader(), ""
    for piece in pieces:
        reader.extend(piece)
        text += piece
        assert replace(reader.position(), scalars=tuple(reader.scalars)) == locate(text)
