"""Where the end of an unfinished JSON text is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

Where: TypeAlias = Literal["value", "inside", "key", "colon", "after", "end"]
"""What the text ends before: a value, the rest of one, a key (or the rest of one), a colon, a comma or a
bracket, nothing more."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*(?P<closed>")?|[{}\[\],:]|[^\s,:\[\]{}"]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonPosition:
    """The end of a text. `path`: of the value that it is in or before; of the container if it is after one.

    `start`: of the unfinished token. `keys`: those of the innermost object, so far. `index`: of the item in
    the innermost array; None in an object, and at the top level. `scalars`: the strings, numbers and names
    that have ended, as they are written, each with its path and where it begins.
    """

    path: tuple[str | int, ...]
    where: Where
    start: int
    keys: tuple[str, ...] = ()
    index: int | None = None
    scalars: tuple[tuple[tuple[str | int, ...], str, int], ...] = ()


@dataclass(slots=True)
class _Level:
    """An open object (`index` is None) or array."""

    index: int | None
    keys: list[str] = field(default_factory=list)

    @property
    def step(self) -> str | int:
        return (self.keys or [""])[-1] if self.index is None else self.index


def locate(text: str) -> JsonPosition:
    """Return where the end of `text` is, the beginning of a JSON text. Never raises."""
    levels: list[_Level] = []
    where: Where = "value"
    scalars: list[tuple[tuple[str | int, ...], str, int]] = []

    def located(kind: Where, start: int) -> JsonPosition:
        inner = levels if kind in ("value", "inside") else levels[:-1]
        last = levels[-1] if levels else _Level(None)
        path = tuple(level.step for level in inner)
        return JsonPosition(path, kind, start, tuple(last.keys), last.index, tuple(scalars))

    for found in _TOKEN.finditer(text):
        piece = found[0]
        if piece[0] == '"' and not found["closed"]:
            return located("key" if where == "key" else "inside", found.start())
        match piece:
            case "{" | "[":
                levels.append(_Level(None if piece == "{" else 0))
                where = "key" if piece == "{" else "value"
            case "}" | "]":
                del levels[-1:]
                where = "after" if levels else "end"
            case ":":
                where = "value"
            case "," if levels and levels[-1].index is not None:
                levels[-1].index += 1
                where = "value"
            case "," if levels:
                where = "key"
            case _ if piece[0] == '"' and where == "key":
                levels[-1].keys.append(_decoded(piece))
                where = "colon"
            case _ if piece[0] != '"' and where == "value" and found.end() == len(text):
                return located("inside", found.start())
            case _:
                if where == "value":
                    scalars.append((tuple(level.step for level in levels), piece, found.start()))
                where = "after" if levels else "end"
    return located(where, len(text))


def after_scalar(position: JsonPosition) -> JsonPosition:
    """Return the position after a value without a closing mark, inside which the text ends."""
    return replace(position, where="after" if position.path else "end", path=position.path[:-1])


def _decoded(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
