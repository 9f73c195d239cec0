"""Arguments as `key: value` lines, which small models write more reliably than JSON.

    path: notes/today.md
    limit: 5
    patterns:
      - "*.md"
    content: |
      several
      lines

A value is JSON if it is valid JSON, otherwise text; if the schema allows only strings, `5` is the string "5".
Indentation determines nested lists and objects. Nothing here raises an exception.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from gbnf.calls.parsing.lenient_json import extent, load
from gbnf.calls.parsing.readers import json_of_raw
from gbnf.calls.parsing.results import Repair
from gbnf.schema.locations import Location
from gbnf.strict_json import InvalidJsonError, parse_json

_KEY = re.compile(
    r'(?:(?P<json>"(?:[^"\\]|\\.)*")|(?P<bare>[^\s:"\'{}\[\],#-][^:"{}\[\]]{0,80}?))[ \t]*:(?=[ \t]|$)'
)
_ITEM = re.compile(r"-(?:[ \t]+|$)")
_DEPTH = 20


_Member: TypeAlias = tuple[str, str, list[str]]  # a key, the rest of its line, the lines below it


class KeyValueBlock:
    """The arguments in lines of text, and the repairs."""

    def __init__(self, text: str, location: Location) -> None:
        self.repairs: list[Repair] = []
        lines = [line.rstrip("\r") for line in text.split("\n")]
        self.arguments: dict[str, Any] = self._mapping(lines, location, _DEPTH)

    def _mapping(self, lines: Sequence[str], location: Location, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, inline, block in self._members(lines, location):
            while block and not block[-1].strip():
                block.pop()
            value = self._value(inline, block, location.property(key), depth)
            if key in values and values[key] != value:
                self._note("arguments", f"{key!r} occurs twice; used the last")
            values[key] = value
        return values

    def _members(self, lines: Sequence[str], location: Location) -> list[_Member]:
        """Divide lines at their keys. A text of several lines goes on up to a declared key."""
        members: list[_Member] = []
        names = set(location.names)
        indent = min((indent_of(line) for line in lines if line.strip()), default=0)
        for line in lines:
            key = self._key(line, indent)
            last = members[-1] if members else None
            is_long = last is not None and (last[2] or last[1] in ("", "|", "|-", ">"))
            in_text = last is not None and is_long and _is_text(location.property(last[0]))
            if key is not None and not (in_text and key[0] not in names):
                members.append((*key, []))
            elif last is not None:
                last[2].append(line)
            elif line.strip():
                self._note("text", f"ignored a line that is not `key: value`: {line.strip()[:60]!r}")
        return members

    def _key(self, line: str, indent: int) -> tuple[str, str] | None:
        """Return the key and the rest of a line at this indentation."""
        if indent_of(line) != indent:
            return None
        match = _KEY.match(line, indent)
        if match is None:
            return None
        rest = line[match.end() :].strip()
        if match["json"]:
            try:
                return str(parse_json(match["json"])), rest
            except InvalidJsonError:
                return None
        return match["bare"], rest

    def _value(self, inline: str, block: list[str], location: Location, depth: int) -> Any:
        if not block:
            return self._scalar(inline, location)
        if inline in ("|", "|-", ">"):
            return ("\n" if inline != ">" else " ").join(_dedented(block))
        if inline[:1] in ("{", "[", '"') and not _is_text(location):
            return self._scalar("\n".join([inline, *block]), location)
        first = next(line for line in block if line.strip())
        if not inline and depth and not _is_text(location):
            if _ITEM.match(first.lstrip()):
                return self._sequence(block, location, depth - 1)
            if _KEY.match(first.lstrip()):
                return self._mapping(block, location, depth - 1)
        if inline[:1] == '"':
            return self._scalar("\n".join([inline, *block]), location)
        self._note("text", f"joined {len(block) + bool(inline)} lines to one text")
        return "\n".join([*([inline] if inline else []), *_dedented(block)])

    def _sequence(self, lines: Sequence[str], location: Location, depth: int) -> list[Any]:
        indent = min(indent_of(line) for line in lines if line.strip())
        items: list[list[str]] = []
        for line in lines:
            item = _ITEM.match(line, indent) if indent_of(line) == indent else None
            if item:
                items.append([" " * (item.end()) + line[item.end() :]])
            elif items:
                items[-1].append(line)
        return [self._item(item, location.item(index), depth) for index, item in enumerate(items)]

    def _item(self, lines: list[str], location: Location, depth: int) -> Any:
        first = lines[0].strip()
        if depth and not _is_text(location) and first[:1] not in ('"', "{", "[") and _KEY.match(first):
            return self._mapping(lines, location, depth)
        while len(lines) > 1 and not lines[-1].strip():
            lines.pop()
        return self._value(first, lines[1:], location, depth)

    def _scalar(self, text: str, location: Location) -> Any:
        """Parse a value from its text."""
        text = text.strip()
        inner = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else None
        if inner is None or text[0] == '"':
            value = parse_json(json_of_raw(text, location.types, quoted=True))
            if value != text:
                return value
        if inner is not None:
            self._note("arguments", "removed quotes from a text")
            return inner
        if text[:1] in ("{", "[") and not _is_text(location) and extent(text, 0).closed:
            try:
                value, repairs = load(text)
            except InvalidJsonError:
                return text
            self.repairs += repairs
            return value
        return text

    def _note(self, kind: Any, detail: str) -> None:
        repair = Repair(kind, detail)
        if repair not in self.repairs:
            self.repairs.append(repair)


def _is_text(location: Location) -> bool:
    return location.types == {"string"}


def says_structure(line: str) -> bool:
    """Return whether a line starts with an item of a list, or a key."""
    bare = line.lstrip(" \t")
    return _ITEM.match(bare) is not None or _KEY.match(bare.rstrip("\r")) is not None


def indent_of(line: str) -> int:
    """Return how many spaces and tabs a line starts with."""
    return len(line) - len(line.lstrip(" \t"))


def _dedented(lines: Sequence[str]) -> list[str]:
    indent = min((indent_of(line) for line in lines if line.strip()), default=0)
    return [line[indent:] for line in lines]
