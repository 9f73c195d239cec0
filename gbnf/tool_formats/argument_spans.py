"""Find the arguments of calls in what a chat template renders, as JSON or as elements."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gbnf.compiler.layout import Whitespace
from gbnf.tool_formats.probing import KEYS, NAMES, TEXT


def json_spans(text: str, given: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[int, int]], bool] | None:
    """Return where the given arguments stand, and whether they are quoted JSON; None: not all do."""
    for quoted in (False, True):
        found = [
            span
            for span, value in _json_values(text, '"' if quoted else "{")
            if _is_given(value, given[0], quoted)
        ]
        if len(found) >= len(given):
            return found[: len(given)], quoted
    return None


def json_spans_of(text: str, given: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]] | None:
    """Return where the given arguments stand; see `json_spans`."""
    found = json_spans(text, given)
    return None if found is None else found[0]


def _is_given(value: Any, given: Mapping[str, Any], quoted: bool) -> bool:
    if quoted and isinstance(value, str):
        try:
            return bool(json.loads(value) == given)
        except ValueError:
            return False
    return bool(value == given)


def _json_values(text: str, start: str) -> Iterator[tuple[tuple[int, int], Any]]:
    """Yield the JSON values in a text that begin with a character, and where they stand."""
    decoder = json.JSONDecoder()
    at = text.find(start)
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            pass
        else:
            yield (at, end), value
        at = text.find(start, at + 1)


def whitespace_of(text: str, value: Any) -> Whitespace:
    """Return the whitespace with which a value was written as JSON."""
    if text == json.dumps(value, ensure_ascii=False):
        return "default"
    return "compact" if text == json.dumps(value, ensure_ascii=False, separators=(",", ":")) else "free"


def element_spans(text: str, count: int) -> list[tuple[int, int]] | None:
    """Return where each call's only key and value stand."""
    spans = []
    at = 0
    for name in NAMES[:count]:
        at = text.find(name, at)
        start = text.find(KEYS[0], at)
        stop = text.find(TEXT, start)
        if min(at, start, stop) < 0:
            return None
        at = stop + len(TEXT)
        spans.append((start, at))
    return spans
