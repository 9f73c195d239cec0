"""Where the end of an unfinished JSON text is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Where: TypeAlias = Literal["value", "inside", "key", "colon", "after", "end"]
"""What the text ends before: a value, the rest of one, a key (or the rest of one), a colon, a comma or a
bracket, nothing more."""

_SCALAR = re.compile(r"[^\s,:\[\]{}\"]+")


@dataclass(frozen=True, slots=True)
class JsonPosition:
    """The end of a text. `path`: of the value that it is in or before.

    `start`: of the unfinished token, which goes to `end`. `keys`: those of the innermost object, so far.
    """

    path: tuple[str | int, ...]
    where: Where
    start: int
    end: int
    keys: tuple[str, ...] = ()

    @property
    def pointer(self) -> str:
        """The path as a JSON Pointer."""
        return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in self.path)


@dataclass(slots=True)
class _Level:
    """An open object (`index` is None) or array."""

    index: int | None
    key: str = ""
    keys: tuple[str, ...] = ()

    @property
    def step(self) -> str | int:
        return self.key if self.index is None else self.index


def locate(text: str) -> JsonPosition:
    """Return where the end of `text` is, the beginning of a JSON text. Never raises."""
    levels: list[_Level] = []
    where: Where = "value"
    at = 0

    def located(kind: Where, start: int) -> JsonPosition:
        inner = levels if kind in ("value", "inside") else levels[:-1]
        keys = levels[-1].keys if levels else ()
        return JsonPosition(tuple(level.step for level in inner), kind, start, len(text), keys)

    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
            continue
        if char == '"':
            end = _string_end(text, at)
            if end is None:
                return located("key" if where == "key" else "inside", at)
            if where == "key" and levels:
                levels[-1].key = _decoded(text[at:end])
                levels[-1].keys = (*levels[-1].keys, levels[-1].key)
                where = "colon"
            else:
                where = _after(levels)
            at = end
            continue
        at += 1
        if char in "{[":
            levels.append(_Level(None if char == "{" else 0))
            where = "key" if char == "{" else "value"
        elif char in "}]":
            if levels:
                levels.pop()
            where = _after(levels)
        elif char == ":":
            where = "value"
        elif char == "," and levels:
            level = levels[-1]
            if level.index is not None:
                level.index += 1
            where = "key" if level.index is None else "value"
        elif (found := _SCALAR.match(text, at - 1)) is not None:
            if found.end() == len(text) and where == "value":
                return located("inside", found.start())
            at = found.end()
            where = _after(levels)
    return located(where, len(text))


def _after(levels: list[_Level]) -> Where:
    return "after" if levels else "end"


def _string_end(text: str, start: int) -> int | None:
    """Return the index after the closing quote; None if there is none."""
    at = start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == '"':
            return at + 1
        else:
            at += 1
    return None


def _decoded(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
