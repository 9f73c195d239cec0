"""What comes over a wire, as values: bytes to lines, lines and bodies to JSON, JSON to texts and counts.

What must stay true: text comes whole, however its bytes were cut, and with no half of a surrogate pair in it;
whatever a server sends, nothing but the ValueError of `load` is raised.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterator
from typing import Any

_BOM = b"\xef\xbb\xbf"
_DEEPEST = 100
"""How deeply an answer may be nested: servers' own go to about ten."""
_MOST = 2**53


class Lines:
    """Cuts a stream of UTF-8 into lines, at line feeds alone: JSON may hold all other separators as they are.

    `str.splitlines`, and with it httpx's `iter_lines`, cuts at U+2028, U+0085 and more.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._kept: list[bytes] = []
        self._is_first = True

    def feed(self, chunk: bytes) -> None:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._kept.append(part)
            self._give()
        if rest:
            self._kept.append(rest)

    def end(self) -> None:
        """Give the last line, which no line feed ends."""
        if self._kept:
            self._give()

    def _give(self) -> None:
        line = b"".join(self._kept)
        self._kept.clear()
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        self._on_line(line.removesuffix(b"\r").decode("utf-8", "replace"))


class Joined:
    """Gives on the pieces of a text, each surrogate pair whole that was cut apart between two of them."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text, self._kept = on_text, ""

    def feed(self, piece: str) -> None:
        text = self._kept + piece
        self._kept = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = text.removesuffix(self._kept)
        if text:
            self._on_text(paired(text))

    def end(self) -> None:
        kept, self._kept = self._kept, ""
        if kept:
            self._on_text(paired(kept))


def paired(text: str) -> str:
    """The text with the halves of surrogate pairs joined; those that stand alone become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean(value: Any) -> Any:
    """A JSON value, in place, whose strings are `paired`."""
    box = [value]
    for node in _containers(box):
        for key, each in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(each, str):
                node[key] = paired(each)
    return box[0]


def load(text: str | bytes) -> Any:
    """The value of a text in JSON, its strings as they are. Raises ValueError where it is none."""
    if isinstance(text, bytes):
        text = text.removeprefix(_BOM).decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for _ in _containers(value):
        pass
    return value


def read(body: bytes) -> Any:
    """The value of a whole answer, `clean`; None where it is no JSON."""
    try:
        return clean(load(body))
    except ValueError:
        return None


def _containers(value: Any) -> Iterator[Any]:
    """Each object and array of a JSON value. Raises ValueError where it is nested too deeply."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return
        yield from level
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    raise ValueError("it is nested too deeply")


def member(value: Any, *path: str) -> Any:
    """What stands at a path of keys; None where nothing does."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def number(value: Any) -> float:
    """A count or a duration of a server; 0 where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value < _MOST else 0.0


def count(value: Any) -> int:
    """A whole number of a server, rounded down; 0 where it is none."""
    return int(number(value))


def text_of(content: Any) -> str | None:
    """The text of a message: a string, or those of its parts that are text. None where it is neither."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        if isinstance(part, dict) and part.get("type", "text") != "text":
            continue
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "".join(texts)


def shown(value: Any) -> str:
    """A value for a message, shortened."""
    return reprlib.repr(value)
