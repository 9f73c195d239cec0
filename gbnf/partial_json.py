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


class JsonReader:
    """Finds where the end of a growing JSON text is; each piece is read once. Never raises.

    `scalars`: as of a `JsonPosition`. `unfinished`: the token at the end that may go on. `has_ended`: whether
    the outermost value has.
    """

    def __init__(self) -> None:
        self.scalars: list[tuple[tuple[str | int, ...], str, int]] = []
        self.has_ended = False
        self._levels: list[_Level] = []
        self._where: Where = "value"
        self.unfinished = ""
        self._start = 0  # of what is unfinished

    def extend(self, text: str) -> None:
        """Read the next piece of the text."""
        text, begin = self.unfinished + text, self._start
        self._start, self.unfinished = begin + len(text), ""
        for token in _TOKEN.finditer(text):
            is_last = token.end() == len(text) and self._where == "value"
            is_bare = token[0][0] not in ('{}[],:"' if self._levels else '{}[]:"')
            if (is_last and is_bare) or (token[0][0] == '"' and not token["closed"]):
                self._start, self.unfinished = begin + token.start(), token[0]
            else:
                self._read(token[0], begin + token.start())

    def position(self) -> JsonPosition:
        """Return where the end of the text is, without the scalars."""
        where, levels = self._where, self._levels
        if self.unfinished and where != "key":
            where = "inside"
        path = tuple(level.step for level in (levels if where in ("value", "inside") else levels[:-1]))
        last = levels[-1] if levels else _Level(None)
        return JsonPosition(path, where, self._start, tuple(last.keys), last.index)

    def _read(self, piece: str, start: int) -> None:
        levels, where = self._levels, self._where
        match piece:
            case "{" | "[":
                levels.append(_Level(None if piece == "{" else 0))
                self._where = "key" if piece == "{" else "value"
                return
            case "}" | "]":
                del levels[-1:]
            case ":":
                self._where = "value"
                return
            case "," if levels:
                last = levels[-1]
                self._where = "key" if last.index is None else "value"
                last.index = None if last.index is None else last.index + 1
                return
            case _ if piece[0] == '"' and where == "key":
                levels[-1].keys.append(_decoded(piece))
                self._where = "colon"
                return
            case _ if where == "value":
                self.scalars.append((tuple(level.step for level in levels), piece, start))
        self._where = "after" if levels else "end"
        self.has_ended = self.has_ended or not levels


def locate(text: str) -> JsonPosition:
    """Return where the end of `text` is, the beginning of a JSON text. Never raises."""
    reader = JsonReader()
    reader.extend(text)
    return replace(reader.position(), scalars=tuple(reader.scalars))


def after_scalar(position: JsonPosition) -> JsonPosition:
    """Return the position after a value without a closing mark, inside which the text ends."""
    return replace(position, where="after" if position.path else "end", path=position.path[:-1])


def _decoded(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
