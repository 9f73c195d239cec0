"""The form that the value of each keyword must have.

Any other form is an error, in every draft: validators ignore it or fail on it, and a grammar that ignored it
would be reported as exact where it is not. One form of draft 3 is in wide use and allowed: `required: true`
means nothing and is reported. Where the draft is unknown, the forms of all drafts are allowed.
Source: the metaschemas of the drafts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from reprlib import Repr
from typing import Any

from gbnf.errors import SchemaError
from gbnf.regular.pattern_syntax import MalformedPatternError, UnsupportedPatternError
from gbnf.schema.keywords import (
    APPLICATORS,
    CHILD_APPLICATORS,
    DEFINITIONS,
    IN_PLACE_APPLICATORS,
    TYPES,
    child_pointer,
)
from gbnf.schema_caches import schema_cache


@dataclass(frozen=True, slots=True)
class _KeywordForm:
    """A form: `text` names what `fits` accepts, `hint` says what to write."""

    fits: Callable[[Any], bool]
    text: str
    hint: str


_MAX_INTEGER_BITS = 14_000
"""Bits of the greatest integer that Python converts to text: it refuses more than 4,300 digits."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_json_number(value)


def _is_json_number(value: float) -> bool:
    """Return whether JSON can express the number: a schema given as Python values may contain others."""
    return value.bit_length() <= _MAX_INTEGER_BITS if isinstance(value, int) else math.isfinite(value)


def _is_schema(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping | bool)  # the first is much faster


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


@schema_cache(maxsize=4096)
def _is_pattern(value: str) -> bool:
    """Return whether ECMA-262 or Python's `re` reads the pattern."""
    from gbnf.regular.pattern_parser import parse_pattern  # noqa: PLC0415  # most schemas have no patterns

    try:
        parse_pattern(value)
    except UnsupportedPatternError:
        return True
    except MalformedPatternError:
        try:
            re.compile(value)
        except (re.error, ValueError, OverflowError, RecursionError):
            return False
    return True


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return _is_names(value) and bool(value) and all(name in TYPES for name in value)


_TEXT = _KeywordForm(lambda value: isinstance(value, str), "a string", "Put it in quotes.")
_PATTERN = _KeywordForm(
    lambda value: isinstance(value, str) and _is_pattern(value),
    "a regular expression",
    "Use ECMA-262 syntax and escape literal special characters.",
)
_NUMBER_HINT = "Write a finite number of at most 4,200 digits, without quotes."
_NUMBER = _KeywordForm(_is_number, "a number", _NUMBER_HINT)
_COUNT = _KeywordForm(
    lambda value: _is_number(value) and value >= 0 and value == int(value),
    "a whole number of at least 0",
    "Write it without quotes, sign or fraction.",
)
_FLAG = _KeywordForm(lambda value: isinstance(value, bool), "true or false", "Write it without quotes.")
_SCHEMA = _KeywordForm(_is_schema, "a schema", "Write an object of keywords, true or false.")
_SCHEMAS = _KeywordForm(
    lambda value: isinstance(value, list) and bool(value),
    "a non-empty array of schemas",
    "Write one schema or more in brackets.",
)
_MAP = _KeywordForm(
    lambda value: type(value) is dict or isinstance(value, Mapping),
    "an object of schemas",
    "Write a schema under each key.",
)

_FORMS: Mapping[str, _KeywordForm] = {
    **dict.fromkeys(["$schema", "$ref", "$dynamicRef", "$recursiveRef", "format"], _TEXT),
    "pattern": _PATTERN,
    **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], _NUMBER),
    "multipleOf": _KeywordForm(
        lambda value: _is_number(value) and value > 0, "a number above 0", "Write the step between multiples."
    ),
    **dict.fromkeys(
        ["minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties",
         "maxProperties"],
        _COUNT,
    ),
    "type": _KeywordForm(_is_type, "a JSON type or an array of them", f"The types are {', '.join(TYPES)}."),
    "enum": _KeywordForm(lambda value: isinstance(value, list), "an array", "List the values in brackets."),
    "uniqueItems": _FLAG,
    **{
        keyword: {"one": _SCHEMA, "list": _SCHEMAS, "map": _MAP}[form]
        for keyword, form in {**IN_PLACE_APPLICATORS, **CHILD_APPLICATORS}.items()
    },
    "additionalItems": _SCHEMA,
    "required": _KeywordForm(
        lambda value: _is_names(value) or isinstance(value, bool),
        "an array of names",
        "List the names of the properties.",
    ),
    "requires_one_of": _KeywordForm(
        lambda value: isinstance(value, list) and all(map(_is_names, value)),
        "an array of arrays of names",
        "List in each inner array the properties of which at least one must be given.",
    ),
    "dependentRequired": _KeywordForm(
        lambda value: isinstance(value, Mapping) and all(map(_is_names, value.values())),
        "an object of arrays of names",
        "List under each property those that it needs.",
    ),
    "dependencies": _KeywordForm(
        lambda value: isinstance(value, Mapping)
        and all(_is_schema(names) or _is_names(names) or isinstance(names, str) for names in value.values()),
        "an object of schemas and of arrays of names",
        "Write under each property a schema, or the names of those that it needs.",
    ),
}  # fmt: skip
_TUPLE = _KeywordForm(
    lambda value: _is_schema(value) or (isinstance(value, list) and bool(value)), "a schema", _SCHEMA.hint
)
_FLAG_OR_NUMBER = _KeywordForm(
    lambda value: isinstance(value, bool) or _is_number(value), "a number", _NUMBER.hint
)
_FLAG_OF_BOUND = _KeywordForm(
    _FLAG.fits, "true or false, in draft 4", "It makes the bound beside it exclusive."
)

#: Keywords whose values contain schemas: one under each key, or one, or an array of them.
_HOLDING_MAPS = {keyword for keyword, form in APPLICATORS.items() if form == "map"} | {"dependencies"}
_HOLDING = (APPLICATORS.keys() - _HOLDING_MAPS) | {"additionalItems"}
#: The longest JSON Pointer: deeper subschemas get that of one around them, or all pointers together would
#: take too much memory.
MAX_POINTER_LENGTH = 4000
_CONTAINING = frozenset(_HOLDING_MAPS | _HOLDING)
_LISTING = frozenset({"const", "enum"})
_LOOKED_AT = _FORMS.keys() | DEFINITIONS.keys() | _LISTING


@cache
def _forms(draft: str) -> Mapping[str, _KeywordForm]:
    bound = {"": _FLAG_OR_NUMBER, "draft-03": _FLAG_OR_NUMBER, "draft-04": _FLAG_OF_BOUND}.get(draft, _NUMBER)
    return {
        **_FORMS,
        **dict.fromkeys(["exclusiveMinimum", "exclusiveMaximum"], bound),
        "items": _SCHEMA if draft == "2020-12" else _TUPLE,
    }


class MetaschemaChecker:
    """Checks the forms of one draft, `draft-04` to `2020-12`; "" where it is unknown.

    `unknown` are the keywords that the draft doesn't have.
    """

    def __init__(self, draft: str, unknown: frozenset[str]) -> None:
        self._draft, self._unknown, self._forms = draft, unknown, _forms(draft)
        self._seen: set[int] = set()

    def check(self, schema: Any, pointer: str) -> None:
        """Raise SchemaError for the first keyword of another form, in `schema` or below it."""
        pending = [(schema, pointer)]
        while pending:
            raw, pointer = pending.pop()
            if not _is_schema(raw):
                problem = f"a schema is an object or a boolean, not {_shorten(raw)}"
                raise SchemaError(pointer, problem, _SCHEMA.hint)
            if isinstance(raw, bool) or id(raw) in self._seen:
                continue
            self._seen.add(id(raw))
            # Up to draft 7, what stands beside a reference is ignored.
            alone = "$ref" in raw and self._draft.startswith("draft")
            keywords = [keyword for keyword in raw if keyword in _LOOKED_AT and keyword not in self._unknown]
            for keyword in keywords:
                if alone and keyword != "$ref":
                    continue
                form = self._forms.get(keyword)
                if form and not form.fits(raw[keyword]):
                    raise _misfit(form, raw[keyword], keyword, f"{pointer}/{keyword}")
                if keyword in _LISTING and not _is_names(raw[keyword]):
                    _check_values(raw[keyword], f"{pointer}/{keyword}")
                if keyword == "patternProperties":
                    for pattern in raw[keyword]:
                        if not _PATTERN.fits(pattern):
                            where = child_pointer(f"{pointer}/{keyword}", pattern)
                            raise _misfit(_PATTERN, pattern, "a key", where)
            if not _CONTAINING.isdisjoint(keywords):
                around = pointer[:MAX_POINTER_LENGTH]
                children = [
                    child
                    for keyword in keywords
                    if keyword in _CONTAINING
                    for child in _child_schemas(raw, keyword, f"{around}/{keyword}")
                ]
                pending += reversed(children)


def _child_schemas(raw: Mapping[str, Any], keyword: str, pointer: str) -> Iterator[tuple[Any, str]]:
    """Yield what must be a schema under a keyword, each with its JSON Pointer."""
    value = raw[keyword]
    if keyword in _HOLDING:
        if isinstance(value, list):
            yield from ((member, f"{pointer}/{index}") for index, member in enumerate(value))
        else:
            yield value, pointer
    elif keyword in _HOLDING_MAPS and isinstance(value, Mapping):
        for key, member in value.items():
            if keyword in DEFINITIONS and not _is_schema(member):
                continue  # it is an error where a reference leads there
            if keyword != "dependencies" or not isinstance(member, list | str):
                yield member, child_pointer(pointer, key)


def _misfit(form: _KeywordForm, value: Any, keyword: str, pointer: str) -> SchemaError:
    return SchemaError(pointer, f"{keyword} must be {form.text}, not {_shorten(value)}", form.hint)


def _check_values(value: Any, pointer: str) -> None:
    """Raise SchemaError for a number in listed values that JSON cannot express."""
    pending = [(value, pointer)]
    while pending:
        member, pointer = pending.pop()
        if isinstance(member, int | float) and not isinstance(member, bool) and not _is_json_number(member):
            raise SchemaError(pointer, f"{_shorten(member)} cannot be written as a JSON number", _NUMBER_HINT)
        if isinstance(member, list | Mapping):
            items = member.items() if isinstance(member, Mapping) else enumerate(member)
            pending += [
                (item, child_pointer(pointer, key)) for key, item in items if not isinstance(item, str)
            ]


_repr = Repr()
_repr.maxstring = _repr.maxother = 60


def _shorten(value: Any) -> str:
    if isinstance(value, int) and not _is_json_number(value):
        return f"an integer of about {value.bit_length() * 3 // 10:,} digits"
    return _repr.repr(value)
