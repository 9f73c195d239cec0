"""Reading of values in the text of a call: from a cursor, piece by piece, and by the types of a schema.

A text without quotes stands for a value by its schema. Where strings are not the only type, a text that is
JSON, or else a Python literal, of another type that the schema allows is that value. Any other text is a
string if strings are allowed. So the text `5` is a number where both are allowed, and `1.2.3` a string. The
types of a schema are read leniently: rather too many than too few, and never an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from gbnf.calls.parsing.lenient_json import REPAIR_LIMIT, load
from gbnf.calls.parsing.readers import read_literal as read_python
from gbnf.errors import GbnfError
from gbnf.schema.keywords import resolve_pointer
from gbnf.strict_json import InvalidJsonError, has_type, json_type, parse_json
from gbnf.tool_formats.cursor import AnswerCursor, Delimiters, Steps, Take

_PAIRS: Final = {"}": "{", "]": "[", ")": "("}
_BRACKETS: Final = (r"\{", r"\}", r"\[", r"\]")
_OUTSIDE = Delimiters(['"', *_BRACKETS])
_IN_STRING: Final = {quote: Delimiters([quote, r"\\."]) for quote in "\"'"}


class EndOfTextError(GbnfError):
    """The text ends inside a value."""


class UnreadableError(GbnfError):
    """The text is not in the format. The message is for the model."""


def read_json(cursor: AnswerCursor, take: Take, opened: str = "") -> Steps[None]:
    """Read the JSON value that starts here, up to its last bracket or quote. Raises EndOfTextError.

    `opened`: the brackets around it that are read already, which it closes.
    """
    yield from _balanced(cursor, take, _OUTSIDE, list(opened))


def read_string(cursor: AnswerCursor, take: Take, quote: str = '"') -> Steps[None]:
    """Read a string after its first quote. Raises EndOfTextError."""
    while (found := (yield from cursor.until(_IN_STRING[quote], take))) is not None:
        cursor.at = found.end()
        take(found.group())
        if found.group() == quote:
            return
    raise EndOfTextError


def read_literal(cursor: AnswerCursor, take: Take, end: Delimiters, *, inside: bool) -> Steps[None]:
    """Read a JSON value or a Python literal up to `end`, which is not read. Raises EndOfTextError.

    `inside`: an `end` inside brackets counts, too; never one inside a string.
    """
    first = yield from cursor.peek()
    if first and first in "{[(\"'":
        yield from _balanced(cursor, take, _with_ends(end) if inside else _LITERAL, [])
    if (yield from cursor.until(end, take)) is None:
        raise EndOfTextError


_LITERAL = Delimiters(['"', "'", *_BRACKETS, r"\(", r"\)"])


@lru_cache(maxsize=256)
def _with_ends(end: Delimiters) -> Delimiters:
    return Delimiters([*end.patterns, *_LITERAL.patterns])


def _balanced(cursor: AnswerCursor, take: Take, special: Delimiters, stack: list[str]) -> Steps[None]:
    while (found := (yield from cursor.until(special, take))) is not None:
        sign = found.group()
        if len(sign) > 1:
            return
        cursor.at = found.end()
        take(sign)
        if sign in "\"'":
            yield from read_string(cursor, take, sign)
        elif sign in "{[(":
            stack.append(sign)
        else:
            while _PAIRS[sign] in stack and stack.pop() != _PAIRS[sign]:
                pass  # what is open inside ends with it
        if not stack:
            return
    raise EndOfTextError


_EMPTY = (("array", "[]"), ("object", "{}"), ("null", "null"))


def json_of_raw(text: str, types: Collection[str], *, quoted: bool = False) -> str:
    """Return the JSON text of the value that `text` stands for, where a schema allows `types`.

    `quoted`: the format writes strings in quotes here.
    """
    given = text.strip()
    allowed = {*types} if quoted else {*types} - {"string"}
    written = _value(parse_json, given)
    if written is not None and has_type(written[0], allowed):
        return given
    literal = _value(read_python, given) if written is None and len(given) <= REPAIR_LIMIT else None
    if literal is not None and has_type(literal[0], allowed):
        return literal[1]
    if "string" in types:
        return json.dumps(text, ensure_ascii=False)
    if not given:
        return next((empty for kind, empty in _EMPTY if kind in types), '""')
    if written is not None:
        return given
    found = literal or _value(lambda text: load(text).value, given)
    return json.dumps(text, ensure_ascii=False) if found is None else found[1]


def _value(read: Callable[[str], Any], text: str) -> tuple[Any, str] | None:
    """Return the value that a reader finds in a text, and its JSON text."""
    try:
        value = read(text)
    except InvalidJsonError:
        return None
    return value, json.dumps(value, ensure_ascii=False)


ANY: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_DEPTH = 16


@dataclass(frozen=True)
class TypedSchema:
    """A subschema of the document `root`."""

    raw: Any
    root: Any

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that it allows; "integer" beside every "number"."""
        return _types(self.raw, self.root, _DEPTH)

    def property(self, name: str) -> TypedSchema:
        """Return the subschema of a property."""
        return TypedSchema(_member(self.raw, self.root, name, _DEPTH), self.root)

    def item(self, index: int) -> TypedSchema:
        """Return the subschema of an item."""
        return TypedSchema(_member(self.raw, self.root, index, _DEPTH), self.root)


def _types(raw: Any, root: Any, depth: int) -> frozenset[str]:
    if raw is False:
        return frozenset()
    if not isinstance(raw, Mapping) or not depth:
        return ANY
    declared = raw.get("type", ())
    names = {declared} if isinstance(declared, str) else {each for each in declared if isinstance(each, str)}
    types = (frozenset(names) & ANY) or ANY
    types |= {"integer"} if "number" in types else frozenset()
    listed = [raw["const"]] if "const" in raw else raw.get("enum")
    if isinstance(listed, list):
        kinds = frozenset(map(json_type, listed))
        types &= kinds | ({"integer"} if "number" in kinds else frozenset())
    for part in _all_of(raw, root):
        types &= _types(part, root, depth - 1)
    for choices in _any_of(raw):
        types &= frozenset().union(*(_types(choice, root, depth - 1) for choice in choices))
    return types


def _member(raw: Any, root: Any, key: str | int, depth: int) -> Any:
    """Return a schema that implies the constraints on a member."""
    if not isinstance(raw, Mapping) or not depth:
        return True
    parts = [_own_member(raw, key), *(_member(part, root, key, depth - 1) for part in _all_of(raw, root))]
    owner = "array" if isinstance(key, int) else "object"
    for choices in _any_of(raw):
        owners = [choice for choice in choices if owner in _types(choice, root, depth - 1)]
        parts.append({"anyOf": [_member(choice, root, key, depth - 1) for choice in owners or choices]})
    parts = [part for part in parts if part is not True]
    return True if not parts else parts[0] if len(parts) == 1 else {"allOf": parts}


def _own_member(raw: Mapping[str, Any], key: str | int) -> Any:
    if isinstance(key, int):
        first = raw.get("prefixItems", ())
        return first[key] if isinstance(first, list) and key < len(first) else raw.get("items", True)
    properties = raw.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    patterns = raw.get("patternProperties")
    for pattern, schema in patterns.items() if isinstance(patterns, Mapping) else ():
        try:
            if re.search(pattern, key):
                return schema
        except re.error:
            return True
    return raw.get("additionalProperties", True)


def _all_of(raw: Mapping[str, Any], root: Any) -> list[Any]:
    parts = raw.get("allOf")
    found = list(parts) if isinstance(parts, list) else []
    if "$ref" in raw and (target := resolve_pointer(raw["$ref"], root)) is not None:
        found.append(target[1])
    return found


def _any_of(raw: Mapping[str, Any]) -> list[list[Any]]:
    return [raw[key] for key in ("anyOf", "oneOf") if isinstance(raw.get(key), list)]
