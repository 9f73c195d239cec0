"""An independent writer of calls in a tool-call format: plain concatenation, no grammar and no template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gbnf.calls.parsing.results import ToolCall
from gbnf.tool_formats import (
    ElementArguments,
    JsonArguments,
    Part,
    Placeholder,
    ToolFormat,
    ValueForm,
    ValueForms,
)


def written_calls(form: ToolFormat, calls: Sequence[ToolCall]) -> str:
    """Return an answer with the calls, each value in the first form of its type."""
    written = [
        _parts(form.head, call, at) + _arguments(form, call.arguments) + _parts(form.tail, call, at)
        for at, call in enumerate(calls)
    ]
    assert len(calls) == 1 or form.separator is not None
    return form.begin + (form.separator or "").join(written) + form.end


def _parts(parts: Sequence[Part], call: ToolCall, index: int) -> str:
    return "".join(part if isinstance(part, str) else _slot(part, call, index) for part in parts)


def _slot(slot: Placeholder, call: ToolCall, index: int) -> str:
    match slot.kind:
        case "name":
            return call.name
        case "id":
            return call.id
        case _:
            return str(slot.base + index)


def _arguments(form: ToolFormat, arguments: Mapping[str, Any]) -> str:
    if isinstance(form.arguments, JsonArguments):
        separators = (",", ":") if form.arguments.whitespace == "compact" else None
        text = json.dumps(arguments, ensure_ascii=False, separators=separators)
        return json.dumps(text, ensure_ascii=False) if form.arguments.quoted else text
    elements = form.arguments
    if not arguments and elements.empty is not None:
        return elements.empty
    return elements.begin + _members(elements, arguments, elements.separator) + elements.end


def _members(elements: ElementArguments, members: Mapping[str, Any], separator: str) -> str:
    return separator.join(
        elements.before_key + key + _value(elements, elements.forms, key, value)
        for key, value in members.items()
    )


def _value(elements: ElementArguments, forms: ValueForms, key: str, value: Any) -> str:
    form = _form(forms, value)
    before, after = (
        "".join(key if isinstance(p, Placeholder) else p for p in parts)
        for parts in (form.before, form.after)
    )
    return before + _encoded(elements, form, value) + after


def _encoded(elements: ElementArguments, form: ValueForm, value: Any) -> str:
    match form.encoding:
        case "raw":
            return str(value)
        case "json":
            return json.dumps(value, ensure_ascii=False)
        case "python":
            return repr(value)
    nested = elements.nested
    assert nested is not None
    if isinstance(value, dict):
        return nested.object_begin + _members(elements, value, nested.object_separator) + nested.object_end
    items = [_value(elements, nested.items, "", item) for item in value]
    return nested.array_begin + nested.array_separator.join(items) + nested.array_end


def _form(forms: ValueForms, value: Any) -> ValueForm:
    match value:
        case str():
            return forms.string[0]
        case bool():
            return forms.boolean[0]
        case int() | float():
            return forms.number[0]
        case None:
            return forms.null[0]
        case list():
            return forms.array[0]
        case _:
            return forms.object[0]
