"""What comes over a wire, as values: bytes to lines, lines and bodies to JSON, JSON to texts and counts.

Invariants: text comes whole, however its bytes were cut. What is not valid Unicode (bytes that are not
UTF-8, half of a surrogate pair) is refused, and never replaced by a character that the server did not
send; only in the body of an error it is. Whatever a server sends, nothing but MalformedText and the
ValueError of `parse_json` is raised.
"""

from __future__ import annotations

import itertools
import json
import reprlib
from collections.abc import Callable, Iterator
from typing import Any

from gbnf import surrogates
from gbnf_server.errors import MalformedText

_BOM = b"\xef\xbb\xbf"
_DEEPEST = 100
"""How deeply an answer may be nested: servers' own go to about ten."""
_MOST = 2**53


class LineDecoder:
    """Cuts a stream of UTF-8 into lines, at line feeds alone: JSON may hold all other separators as they are.

    `str.splitlines`, and with it httpx's `iter_lines`, cuts at U+2028, U+0085 and more. Raises MalformedText.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._kept = bytearray()
        self._is_first = True

    def feed(self, chunk: bytes) -> None:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._kept += part
            self._give()
        self._kept += rest

    def end(self) -> None:
        """Give the last line, which no line feed ends."""
        if self._kept:
            self._give()

    def _give(self) -> None:
        line = bytes(self._kept)
        self._kept.clear()
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        self._on_line(_decoded(line.removesuffix(b"\r")))


class SurrogateJoiner:
    """Gives on the pieces of a text, each surrogate pair whole that was cut apart between two of them.

    Raises MalformedText where one half stands alone.
    """

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text, self._kept = on_text, ""

    def feed(self, piece: str) -> None:
        text = self._kept + piece
        self._kept = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = text.removesuffix(self._kept)
        if text:
            self._on_text(join_surrogates(text))

    def end(self) -> None:
        kept, self._kept = self._kept, ""
        if kept:
            self._on_text(join_surrogates(kept))


def join_surrogates(text: str) -> str:
    """Return the text with the halves of surrogate pairs joined. Raises MalformedText for one alone."""
    try:
        return surrogates.join_surrogates(text)
    except UnicodeDecodeError:
        raise MalformedText("half of a surrogate pair") from None


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise MalformedText(f"the byte 0x{line[error.start]:02x} where UTF-8 has none") from None


def join_all_surrogates(value: Any, joined: Callable[[str], str] = join_surrogates) -> Any:
    """Return a JSON value, changed in place, whose strings and keys are `joined`. Raises MalformedText."""
    box = [value]
    for node in itertools.chain.from_iterable(_levels(box)):
        if isinstance(node, dict):
            members = {
                joined(key): joined(each) if isinstance(each, str) else each for key, each in node.items()
            }
            node.clear()
            node.update(members)
        else:
            node[:] = [joined(each) if isinstance(each, str) else each for each in node]
    return box[0]


def parse_json(text: str) -> Any:
    """The value of a text in JSON, its strings as they are. Raises ValueError where it is none."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if any(depth > _DEEPEST for depth, _ in enumerate(_levels(value), 1)):
        raise ValueError("it is nested too deeply")
    return value


def read(body: bytes) -> Any:
    """Return the value of a whole answer, None for invalid JSON. Raises MalformedText."""
    try:
        return join_all_surrogates(parse_json(_decoded(body.removeprefix(_BOM))))
    except ValueError:
        return None


def parse_error_body(body: bytes) -> Any:
    """As `read`, for the body of an error, of which nothing is executed: invalid Unicode becomes U+FFFD."""
    try:
        value = parse_json(body.removeprefix(_BOM).decode(errors="replace"))
        return join_all_surrogates(value, surrogates.replace_lone_surrogates)
    except ValueError:
        return None


def _levels(value: Any) -> Iterator[list[Any]]:
    """The objects and arrays of a JSON value, by how deeply they are nested."""
    level = [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        yield level
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]


def value_at(value: Any, *path: str) -> Any:
    """What stands at a path of keys; None where nothing does."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def parse_number(value: Any) -> float:
    """A count or a duration of a server; 0 where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value < _MOST else 0.0


def parse_count(value: Any) -> int:
    """A whole number of a server, rounded down; 0 where it is none."""
    return int(parse_number(value))


def message_text(content: Any) -> str | None:
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


def abbreviate(value: Any) -> str:
    """A value for a message, shortened."""
    return reprlib.repr(value)
