"""Which arguments a tool-call format cannot write so that they are read back: an independent judgement.

It follows the reading rules of `gbnf.compiler.notations` value by value, without automata. The schemas are
those of `support.argument_schemas`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from gbnf.tool_formats import ElementArguments, NestedElements, Part, ToolFormat, ValueForm, ValueForms
from support.argument_schemas import declares, item_schema, member_schema, type_of, types_of

_TYPES = ("string", "number", "boolean", "null", "array", "object")
_CONSTANTS = {"null": "null", "true": "boolean", "false": "boolean"}
_PYTHON_CONSTANTS = {"None": "null", "True": "boolean", "False": "boolean"}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def unreadable(form: ToolFormat, schema: Any, arguments: Any) -> list[str]:
    """Return what of the arguments cannot be written, as JSON texts; none in a format with JSON arguments."""
    elements = form.arguments
    if not isinstance(elements, ElementArguments):
        return []
    return [json.dumps(lost) for lost in _members(elements, schema, arguments)]


def _members(elements: ElementArguments, schema: Any, members: dict[str, Any]) -> Iterator[Any]:
    for key, value in members.items():
        if not _can_be_key(elements, key) or (_is_keyed(elements) and not declares(schema, key)):
            yield key
        yield from _value(elements, elements.forms, key, member_schema(schema, key), value)


def _can_be_key(elements: ElementArguments, key: str) -> bool:
    if elements.key_end.lstrip()[:1] in key or (elements.before_key.endswith("<") and key.startswith("/")):
        return False
    return bool(elements.before_key) or key[:1] not in set(")]}")


def _is_keyed(elements: ElementArguments) -> bool:
    return any(
        not isinstance(part, str)
        for kind in _TYPES
        for form in getattr(elements.forms, kind)
        for part in form.after
    )


def _value(elements: ElementArguments, forms: ValueForms, key: str, schema: Any, value: Any) -> Iterator[Any]:
    kind = type_of(value)
    own = getattr(forms, kind)
    if not own:
        yield value
        return
    allowed = types_of(schema)
    if kind == "string" and own[0].encoding == "raw":
        if not any(_is_read(elements, forms, form, key, allowed, value) for form in own):
            yield value
    elif own[0].encoding == "nested":
        nested = elements.nested
        assert nested is not None
        if not value and kind == "object" and "array" in allowed and _empties_are_the_same(nested):
            yield value
        if kind == "array":
            for item in value:
                yield from _value(elements, nested.items, "", item_schema(schema), item)
        else:
            yield from _members(elements, schema, value)


def _is_read(
    elements: ElementArguments,
    forms: ValueForms,
    form: ValueForm,
    key: str,
    allowed: frozenset[str],
    text: str,
) -> bool:
    before, after = _text(form.before, key), _text(form.after, key)
    written = text + after
    if written.find(after) != len(text) or (form.trimmed and text != text.strip()):
        return False
    for kind in _TYPES:
        for other in getattr(forms, kind):
            start = _text(other.before, key)
            if start != before and start.startswith(before) and written.startswith(start[len(before) :]):
                return False
            same = start == before and _text(other.after, key) == after
            if (
                same
                and kind != "string"
                and kind in allowed
                and _reads_as(elements, kind, other, text, written)
            ):
                return False
    return True


def _reads_as(elements: ElementArguments, kind: str, form: ValueForm, text: str, written: str) -> bool:
    if form.encoding == "nested":
        nested = elements.nested
        assert nested is not None
        first = elements.before_key if kind == "object" else _text(nested.items.string[0].before, "")
        begin, end = (
            (nested.object_begin, nested.object_end)
            if kind == "object"
            else (nested.array_begin, nested.array_end)
        )
        return text == begin + end or written.startswith(begin + first)
    bare = text.strip(" \t\r\n")
    constants = _CONSTANTS | (_PYTHON_CONSTANTS if form.encoding == "python" else {})
    match kind:
        case "array" | "object":
            return bare.startswith("[" if kind == "array" else "{")
        case "number":
            return bool(_NUMBER.fullmatch(bare))
        case _:
            return constants.get(bare) == kind


def _empties_are_the_same(nested: NestedElements) -> bool:
    return nested.array_begin + nested.array_end == nested.object_begin + nested.object_end


def _text(parts: Sequence[Part], key: str) -> str:
    return "".join(part if isinstance(part, str) else key for part in parts)
