"""The value that a text without quotes stands for, by its schema.

Where strings are not the only type, a text that is JSON, or else a Python literal, of another type that the
schema allows is that value. Any other text is a string if strings are allowed. So the text `5` is a number
where both are allowed, and `1.2.3` a string.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from gbnf.calls.parsing.lenient_json import REPAIR_LIMIT, load
from gbnf.calls.parsing.python_arguments import read_literal
from gbnf.strict_json import InvalidJsonError, json_type, parse_json

_EMPTY = (("array", "[]"), ("object", "{}"), ("null", "null"))


def json_of_raw(text: str, types: Collection[str], *, quoted: bool = False) -> str:
    """Return the JSON text of the value that `text` stands for, where a schema allows `types`.

    `quoted`: the format writes strings in quotes here.
    """
    given = text.strip()
    allowed = {*types} if quoted else {*types} - {"string"}
    written = _json(given)
    if written is not None and _has_type(written[0], allowed):
        return written[1]
    literal = _python(given) if written is None else None
    if literal is not None and _has_type(literal[0], allowed):
        return literal[1]
    if "string" in types:
        return json.dumps(text, ensure_ascii=False)
    if not given:
        return next((empty for kind, empty in _EMPTY if kind in types), '""')
    found = written or literal or _repaired(given)
    return json.dumps(text, ensure_ascii=False) if found is None else found[1]


def _has_type(value: Any, types: Collection[str]) -> bool:
    kind = json_type(value)
    return kind in types or (kind == "number" and "integer" in types and value.is_integer())


def _json(text: str) -> tuple[Any, str] | None:
    """Return the value of strict JSON, and its text."""
    try:
        return parse_json(text), text
    except InvalidJsonError:
        return None


def _python(text: str) -> tuple[Any, str] | None:
    if len(text) > REPAIR_LIMIT:
        return None
    try:
        value = read_literal(text)
    except InvalidJsonError:
        return None
    return value, json.dumps(value, ensure_ascii=False)


def _repaired(text: str) -> tuple[Any, str] | None:
    try:
        value = load(text).value
    except InvalidJsonError:
        return None
    return value, json.dumps(value, ensure_ascii=False)
