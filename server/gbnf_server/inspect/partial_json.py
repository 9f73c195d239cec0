"""Where the end of an unfinished JSON text is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

Where: TypeAlias = Literal["value", "inside", "key", "colon", "after", "end"]
"""What the text ends before: a value, the rest of one, a key (or the rest of one), a colon, a comma or a
bracket, nothing more."""

_SCALAR = re.compile(r"[^\s,:\[\]{}\"]+")


@dataclass(frozen=True, slots=True)
class JsonPosition:
    """The end of a text. `path`: of the value that it is in or before; of the container if it is after one.

    `start`: of the unfinished token, which goes to `end`. `keys`: those of the innermost object, so far.
    `index`: of the item in the innermost array; None in an object, and at the top level. `known`: for each
    container around the end, the outermost first, the strings, numbers and literals that are complete.
    """

    path: tuple[str | int, ...]
    where: Where
    start: int
    end: int
    keys: tuple[str, ...] = ()
    index: int | None = None
    known: tuple[Mapping[str | int, Any], ...] = ()

    @property
    def pointer(self) -> str:
        """The path as a JSON Pointer."""
        return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in self.path)


@dataclass(slots=True)
class _Level:
    """An open object (`index` is None) or array."""

    index: int | None
    key: str = ""
    keys: list[str] = field(default_factory=list)
    known: dict[str | int, Any] = field(default_factory=dict)

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
        last = levels[-1] if levels else _Level(None)
        known = tuple(level.known for level in levels)
        steps = tuple(level.step for level in inner)
        return JsonPosition(steps, kind, start, len(text), tuple(last.keys), last.index, known)

    def scalar(written: str) -> None:
        if levels and where == "value":
            with suppress(ValueError):
                levels[-1].known[levels[-1].step] = json.loads(written)

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
                levels[-1].keys.append(levels[-1].key)
                where = "colon"
            else:
                scalar(text[at:end])
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
            scalar(found.group())
            at = found.end()
            where = _after(levels)
    return located(where, len(text))


def after_scalar(position: JsonPosition) -> JsonPosition:
    """Return the position after a value without a closing mark, inside which the text ends."""
    where: Where = "after" if position.path else "end"
    return replace(position, where=where, path=position.path[:-1], start=position.end)


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
