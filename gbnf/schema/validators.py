"""jsonschema's validators, taught what they can't read by themselves.

Patterns: jsonschema hands them to Python's `re`, which doesn't know all of ECMA-262 (`\\p{…}`, `(?<name>…)`);
what it refuses is matched by `gbnf.regular`. A pattern that neither reads allows every text. Private keywords
(`gbnf.schema.keywords`): a complement may hold them, and values are judged by them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, TypeAlias

from jsonschema import ValidationError, validators

from gbnf.applicators import FORMS
from gbnf.effort import nested, remembered, spend
from gbnf.regular.errors import PatternError, TooManyStates
from gbnf.schema.keywords import NOT_FORMAT, NOT_INTEGER, NOT_PATTERN, NOT_WORDS

_Rule: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]
"""From validator, the keyword's value, instance and schema to the errors, as jsonschema calls it."""


#: What one rule takes, in the units of `gbnf.effort`.
_RULE_WORK = 20
#: How deep the rules that ask other schemas may be within one another: each takes three calls of Python.
_MAX_DEPTH = 120
_NESTING = frozenset(
    {*FORMS, "$ref", "$dynamicRef", "$recursiveRef", "additionalItems", "dependencies", "extends", "disallow"}
)


@cache
def taught(validator: Any, *, every_draft: bool = False) -> Any:
    """A validator class of jsonschema that reads more, in subschemas too; the rest it reads as before.

    `every_draft`: for schemas that declare none; `dependencies` means what it meant up to draft 7.
    """
    known = validator.VALIDATORS
    mended = {
        keyword: _where_unreadable(known[keyword], rule)
        for keyword, rule in (
            ("pattern", _pattern),
            ("patternProperties", _pattern_properties),
            ("additionalProperties", _additional_properties),
        )
        if keyword in known
    }
    private = {
        NOT_PATTERN: _not_pattern,
        NOT_FORMAT: _not_format,
        NOT_WORDS: _not_words,
        NOT_INTEGER: _not_integer,
    }
    old = {"dependencies": _dependencies} if every_draft else {}
    rules = {**known, **old, **mended, **private}
    counted = {
        keyword: _nesting(rule) if keyword in _NESTING else _counted(rule) for keyword, rule in rules.items()
    }
    return validators.extend(validator, counted)  # type: ignore[no-untyped-call]  # it has none


def _counted(rule: _Rule) -> _Rule:
    """The rule, its work counted."""

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        spend(_RULE_WORK + (len(value) if isinstance(value, list | dict) else 0))
        return rule(validator, value, instance, schema)

    return counted


def _nesting(rule: _Rule) -> _Rule:
    """A rule that asks other schemas, its work counted, and how deep such rules are within one another.

    A schema may ask itself, and jsonschema would go on until Python's stack ends, in whichever library.
    """

    def nesting(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        spend(_RULE_WORK + (len(value) if isinstance(value, list | dict) else 0))
        with nested(_MAX_DEPTH):
            yield from rule(validator, value, instance, schema) or ()

    return nesting


@remembered(maxsize=4096)
def found(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in the text; None for a pattern of no known language."""
    if _python_reads(pattern):
        return re.search(pattern, text) is not None
    from gbnf.regular.ecma import search  # noqa: PLC0415  # hardly a schema needs it

    try:
        return search(pattern).accepts(text)
    except (PatternError, TooManyStates):
        return None


@lru_cache(maxsize=4096)
def _python_reads(pattern: Any) -> bool:
    try:
        re.compile(pattern)
    except (re.error, TypeError, OverflowError, RecursionError):
        return False
    return True


def _where_unreadable(usual: _Rule, ours: _Rule) -> _Rule:
    """The usual rule, unless it would meet a pattern that Python doesn't read."""

    def rule(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        patterns = [value] if isinstance(value, str) else schema.get("patternProperties", ())
        readable = all(map(_python_reads, patterns))
        yield from (usual if readable else ours)(validator, value, instance, schema) or ()

    return rule


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and found(pattern, instance) is False:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Any, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    for key, value in instance.items() if validator.is_type(instance, "object") else ():
        for pattern, schema in patterns.items():
            if found(pattern, key):
                yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    patterns = schema.get("patternProperties", ())
    for key in instance if validator.is_type(instance, "object") else ():
        known = key in schema.get("properties", ()) or any(
            found(pattern, key) is not False for pattern in patterns
        )
        if not known:
            yield from validator.descend(instance[key], value, path=key)


def _dependencies(
    validator: Any, dependencies: Any, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    for name, needed in dependencies.items() if validator.is_type(instance, "object") else ():
        if name not in instance:
            continue
        if isinstance(needed, list):
            for other in needed:
                if other not in instance:
                    yield ValidationError(f"{other!r} is a dependency of {name!r}")
        else:
            yield from validator.descend(instance, needed, schema_path=name)


def _not_pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and found(pattern, instance):
        yield ValidationError(f"{instance!r} matches {pattern!r}")


def _not_format(validator: Any, name: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and validator.format_checker.conforms(instance, name):
        yield ValidationError(f"{instance!r} is a {name}")


def _not_words(validator: Any, words: list[str], instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and instance in words:
        yield ValidationError(f"{instance!r} is one of {words!r}")


def _not_integer(validator: Any, _value: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "integer") or (isinstance(instance, float) and instance.is_integer()):
        yield ValidationError(f"{instance!r} is an integer")
