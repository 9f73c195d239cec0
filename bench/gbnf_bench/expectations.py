"""Expected values: JSON Schemas, validated by jsonschema.

In a suite, a table is a JSON Schema (2020-12) without references, and every other value stands for `const`.
Patterns are ECMA-262, and may begin with `(?i)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator

from gbnf import SchemaError, compile_schema
from gbnf.regular.ecma262 import search
from gbnf.regular.pattern_syntax import PatternError
from gbnf.schema.keywords import KEYWORDS, REFERENCES, pointer_key, walk
from gbnf.schema.metaschema import MetaschemaChecker
from gbnf.schema.validators import FORMAT_CHECKER, extend_validator
from gbnf.work_limits import TooManyStatesError
from gbnf_bench.errors import KeyPath, SuiteFieldError

Expectation: TypeAlias = Mapping[str, Any]
"""A JSON Schema without references."""

TEXT: Expectation = {"type": "string"}
ADDRESSES: Expectation = {"type": "array", "items": TEXT}
MOMENT: Expectation = {
    "type": "string",
    "pattern": r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(T([01]\d|2[0-3]):[0-5]\d)?$",
}
_EXPECTED = {
    "string": "a text",
    "array": 'an array of addresses, such as ["anna@example.com"]',
    "pattern": "a time such as 2026-11-24T18:00, or a date such as 2026-11-24",
}
_ALLOWED = (KEYWORDS - {*REFERENCES}) | {"$comment", "description", "title"}
_HINT = "Write a JSON Schema, or {const = …} for a constant table."


def read_expectation(value: Any, key_path: KeyPath, base: Expectation | None = None) -> Expectation:
    """Return the schema of an expectation in a suite.

    `base` is the schema of all values that it is compared with. Raises SuiteFieldError if it is not a JSON
    Schema, has unknown keywords, or accepts no value of `base`.
    """
    if not isinstance(value, Mapping):
        expectation: Expectation = {"const": value}
    else:
        _check_schema(value, key_path)
        expectation = value
    if base is not None and not is_satisfiable(base, expectation):
        wanted = _EXPECTED["pattern" if "pattern" in base else base["type"]]
        raise SuiteFieldError(key_path, value, f"the value is {wanted}, and no such value is accepted", _HINT)
    return expectation


def accepts(expectation: Expectation, value: Any) -> bool:
    """Return whether a JSON value satisfies the expectation."""
    return bool(_Validator(expectation, format_checker=FORMAT_CHECKER).is_valid(value))


def is_satisfiable(base: Mapping[str, Any], expectation: Expectation) -> bool:
    """Return whether a value of the schema `base` can satisfy the expectation."""
    both = {**base, "allOf": [*base.get("allOf", ()), expectation]}
    if accepts(both, _example(expectation)):
        return True  # faster than compiling a grammar, by a factor of 20
    try:
        compile_schema(both)
    except SchemaError:
        return False
    return True


def _example(expectation: Any) -> Any:
    """Return a value that a simple schema accepts; any value for others."""
    match expectation:
        case {"const": value} | {"enum": [value, *_]}:
            return value
        case {"pattern": pattern}:
            with suppress(PatternError, TooManyStatesError):
                return search(pattern).shortest()
        case {"allOf": [*parts]}:
            return " ".join(str(_example(part)) for part in parts)
        case {"properties": members, "required": names}:
            return {name: _example(members[name]) for name in names}
    return ""


def contained(text: str) -> str:
    """Return the pattern of the texts that contain this one, ignoring case."""
    flag = "(?i)" if text.upper() != text.lower() else ""
    return flag + re.sub(r"[\\^$.|?*+()\[\]{}]", r"\\\g<0>", text)


def step_number(expectation: Expectation | None) -> int | None:
    """Return the integer that is expected; None for any other expectation."""
    number = expectation.get("const") if expectation is not None else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


_Validator = extend_validator(Draft202012Validator)


def _check_schema(schema: Mapping[str, Any], key_path: KeyPath) -> None:
    """Raise SuiteFieldError for an unknown keyword or an invalid value of a keyword."""
    for path, part in walk(schema):
        for keyword in part if isinstance(part, Mapping) else ():
            if keyword not in _ALLOWED:
                close = get_close_matches(keyword, _ALLOWED, n=1)
                meant = f"Did you mean {close[0]}? " if close else ""
                raise SuiteFieldError(
                    (*key_path, *path, keyword),
                    part[keyword],
                    "an unknown keyword of JSON Schema",
                    meant + _HINT,
                )
    try:
        MetaschemaChecker("2020-12", frozenset()).check(schema, "")
    except SchemaError as error:
        parts = map(pointer_key, error.pointer.split("/")[1:])
        inside = tuple(int(part) if part.isdecimal() else part for part in parts)
        raise SuiteFieldError((*key_path, *inside), None, error.problem, error.hint) from None
