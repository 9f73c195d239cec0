"""What servers may send: texts, values, and the ways to split them into pieces."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

from hypothesis import strategies as st

from gbnf_server.backends.http_backend import EventStream
from gbnf_server.backends.reasoning import ReasoningSplitter, ReasoningTags

_CHARS = st.sampled_from(
    ["a", "è", "日", "😀", "\x85", "\u2028", "\u2029", "\x0b", "\x1c", "\r", "\ufeff", '"']
)
ANY_TEXT = st.text(_CHARS | st.characters(exclude_categories=["Cs"]), max_size=8)
BROKEN = st.text(_CHARS | st.sampled_from(["\ud83d", "\ude00"]), max_size=8)
"""Text with halves of surrogate pairs, which JSON can hold."""

NO_UTF8 = (b"a\xffb", b"a\xc0\xafb", b"a\xed\xa0\xbdb", b"a\xf0\x9f\x98b", b"a\xe8", b"a\x80b")
"""Bytes that are no UTF-8 from the second on: never any, overlong, a surrogate, cut, Latin-1, alone."""

SIZES = st.lists(st.integers(1, 6), min_size=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | BROKEN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(BROKEN, inner, max_size=3),
    max_leaves=6,
)


def closed(required: list[str], /, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties only, so that an unknown field is found."""
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def cut(whole: Any, sizes: list[int]) -> list[Any]:
    """A text or bytes in pieces of these sizes, again and again."""
    pieces: list[Any] = []
    at = 0
    while at < len(whole):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(whole[at : at + size])
        at += size
    return pieces


def odd(value: Any) -> st.SearchStrategy[Any]:
    """A JSON value with one of its parts replaced or removed."""
    places: list[tuple[Any, ...]] = [()]
    for place in places:
        node = _at(value, place)
        if isinstance(node, dict | list):
            places += [(*place, key) for key in (node if isinstance(node, dict) else range(len(node)))]
    return st.builds(_changed, st.just(value), st.sampled_from(places), _OTHERS | JSON)


_NOTHING = object()
_OTHERS = st.sampled_from([_NOTHING, None, True, 5, -1, math.inf, "5", "a\ud83d", [1], {"a": 1}])


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def _changed(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return None if other is _NOTHING else other
    changed = copy.deepcopy(value)
    node = _at(changed, place[:-1])
    if other is _NOTHING:
        del node[place[-1]]
    else:
        node[place[-1]] = other
    return changed


def split_reasoning(text: str, open_tags: ReasoningTags | None = None) -> tuple[str, str]:
    """Split a whole answer into reasoning and text: `<think>a</think>b` -> ("a", "b")."""
    splitter = ReasoningSplitter(lambda _: None, open_tags)
    splitter.feed(text)
    return splitter.close()


def told(parser: type[EventStream], answer: Any) -> EventStream:
    """What a parser has read of an answer that comes as one object."""
    stream = parser(ReasoningSplitter(lambda _: None))
    stream.feed(json.dumps(answer))
    stream.end()
    return stream
