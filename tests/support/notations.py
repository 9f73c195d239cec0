"""Notations of real tool-call formats, and a naive writer and reader of arguments in them.

Both follow `gbnf.compiler.notations` literally, and share no code with the compiler.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gbnf.compiler.notations import ElementArguments, NestedElements, Part, Placeholder, ValueForm, ValueForms
from support.argument_schemas import type_of, types_of

_KEY = Placeholder("key")


def _form(encoding: Any, before: str | tuple[Part, ...], after: str | tuple[Part, ...]) -> ValueForm:
    before, after = ((part,) if isinstance(part, str) else part for part in (before, after))
    return ValueForm(encoding, before, after)


def forms(
    before: str,
    after: str | tuple[Part, ...],
    string: Any = "raw",
    number: Any = "json",
    constants: Any = "json",
    other: Any = "json",
) -> ValueForms:
    """Return the forms of values between two texts, with the encodings of each type."""
    texts, numbers, constant, rest = (
        (_form(encoding, before, after),) for encoding in (string, number, constants, other)
    )
    return ValueForms(texts, numbers, constant, constant, rest, rest)


def _typed(before: Callable[[str], str], after: str) -> ValueForms:
    return ValueForms(
        (_form("raw", before("string"), after),),
        *((_form("json", before(kind), after),) for kind in ("number", "boolean", "null", "array", "object")),
    )


_GEMMA = '<|"|>'


def _gemma(before: str) -> ValueForms:
    raw = (_form("raw", before + _GEMMA, _GEMMA),)
    plain, none, nested = ((_form(one, before, ""),) for one in ("json", "python", "nested"))
    return ValueForms(raw, plain, plain, none, nested, nested)


def nested_tags(mark: str, null: Any = "") -> ElementArguments:
    """Return elements that nest; `null` is the encoding of null, which has no form without one."""

    def tags(before: str, after: tuple[Part, ...]) -> ValueForms:
        nothing = (_form(null, before, after),) if null else ()
        return replace(forms(before, after, other="nested"), null=nothing)

    items = tags(f"{mark}<item>", (f"{mark}</item>",))
    return ElementArguments(
        "", "", f"{mark}</invoke>", f"{mark}<", tags(">", (f"{mark}</", _KEY, ">")),
        NestedElements("", "", "", "", "", "", items),
    )  # fmt: skip


_PYTHON = (_form("python", "=", ""),)
_GLM = forms("</arg_key>\n<arg_value>", "</arg_value>\n")
_MINICPM = forms('">', "</param>", constants="python", other="python")

NOTATIONS: dict[str, ElementArguments] = {
    "Qwen3-Coder": ElementArguments(
        "", "", "</function>", "<parameter=", forms(">\n", "\n</parameter>\n", constants="python")
    ),
    "Seed-OSS": ElementArguments(
        "", "", "</function>", "<parameter=",
        forms(">", "</parameter>\n", constants="python", other="python"),
    ),
    "GLM-4.6": ElementArguments(
        "\n", "", "</tool_call>", "<arg_key>", _GLM
    ),
    "trimmed": ElementArguments(
        "", "", "</tool_call>", "<arg_key>",
        replace(_GLM, string=(replace(_GLM.string[0], trimmed=True),)),
    ),
    "DeepSeek-V3.2": ElementArguments(
        "", "", "</｜DSML｜invoke>", '<｜DSML｜parameter name="',
        _typed(
            lambda kind: f'" string="{"true" if kind == "string" else "false"}">', "</｜DSML｜parameter>\n"
        ),
    ),
    "Kimi-K3": ElementArguments(
        "", "", "<|close|>call<|sep|>", '<|open|>argument key="',
        _typed(lambda kind: f'" type="{kind}"<|sep|>', "<|close|>argument<|sep|>"),
    ),
    "MiniCPM5": ElementArguments(
        "", "", "</function>", '<param name="',
        ValueForms(
            (*_MINICPM.string, _form("raw", '"><![CDATA[', "]]></param>")),
            _MINICPM.number, _MINICPM.boolean, _MINICPM.null, _MINICPM.array, _MINICPM.object,
        ),
    ),
    "LFM2.5": ElementArguments(
        "(", ", ", ")", "",
        ValueForms(
            (_form("raw", "='", "'"),), _PYTHON, _PYTHON, _PYTHON, _PYTHON, (_form("json", "=", ""),)
        ),
    ),
    "Gemma-4": ElementArguments(
        "{", ",", "}", "", _gemma(":"), NestedElements("{", ",", "}", "[", ",", "]", _gemma(""))
    ),
    "MiniMax-M3": nested_tags("]<]minimax[>["),
}  # fmt: skip
KINDS = ("null", "boolean", "number", "string", "array", "object")


def first(_: int) -> int:
    """Choose the first of several forms."""
    return 0


class CannotWriteError(Exception):
    """The notation has no form for a value."""


# Writing


def write(arguments: dict[str, Any], notation: ElementArguments, choose: Callable[[int], int] = first) -> str:
    """Arguments as text; `choose` picks one of several forms."""
    if not arguments and notation.empty is not None:
        return notation.empty
    return notation.begin + notation.separator.join(_elements(arguments, notation, choose)) + notation.end


def _elements(members: dict[str, Any], notation: ElementArguments, choose: Callable[[int], int]) -> list[str]:
    return [
        notation.before_key + name + _value(value, name, notation.forms, notation, choose)
        for name, value in members.items()
    ]


def _value(
    value: Any, key: str, forms: ValueForms, notation: ElementArguments, choose: Callable[[int], int]
) -> str:
    found = getattr(forms, type_of(value))
    if not found:
        raise CannotWriteError(value)
    form = found[choose(len(found))]
    if form.trimmed and value != value.strip():
        raise CannotWriteError(value)
    return _text(form.before, key) + _encoded(value, form.encoding, notation, choose) + _text(form.after, key)


def _encoded(value: Any, encoding: str, notation: ElementArguments, choose: Callable[[int], int]) -> str:
    if encoding == "raw":
        return str(value)
    if encoding == "json":
        return json.dumps(value, ensure_ascii=False)
    if encoding == "python":
        return repr(value)
    nested = notation.nested
    assert nested is not None
    if isinstance(value, dict):
        inside = nested.object_separator.join(_elements(value, notation, choose))
        return nested.object_begin + inside + nested.object_end
    items = [_value(item, "", nested.items, notation, choose) for item in value]
    return nested.array_begin + nested.array_separator.join(items) + nested.array_end


def _text(parts: tuple[Part, ...], key: str) -> str:
    return "".join(part if isinstance(part, str) else key for part in parts)


# Reading


class CannotReadError(Exception):
    """The text is not of the notation."""


def read(text: str, notation: ElementArguments, schema: Any) -> dict[str, Any]:
    """The arguments of a whole text, by the reading rule. Raises CannotReadError."""
    reader = _Reader(text, notation)
    if text == notation.empty:
        return {}
    members = reader.elements(notation.begin, notation.separator, notation.end, schema)
    if reader.at != len(text):
        raise CannotReadError(text[reader.at :])
    return members


def _child(schema: Any, name: str) -> Any:
    """The schema of a member, where it depends on nothing else."""
    if not isinstance(schema, dict) or not ({"properties", "additionalProperties"} & schema.keys()):
        return True
    return schema.get("properties", {}).get(name, schema.get("additionalProperties", True))


def _branch(schema: Any, kind: str) -> Any:
    """The part of a schema for values of a JSON type."""
    if isinstance(schema, dict) and "anyOf" in schema:
        return next((_branch(one, kind) for one in schema["anyOf"] if kind in types_of(one)), True)
    return True if isinstance(schema, dict) and ({"enum", "const"} & schema.keys()) else schema


def _is_unreadable(key: str, notation: ElementArguments) -> bool:
    """Whether what ends keys, or what closes elements, makes the key something else."""
    closes = notation.before_key.endswith("<") and key.startswith("/")
    closes = closes or (not notation.before_key and key.startswith((")", "]", "}")))
    return closes or (notation.key_end.lstrip() or notation.key_end)[0] in key


class _Reader:
    def __init__(self, text: str, notation: ElementArguments) -> None:
        self.text, self.notation, self.at = text, notation, 0

    def sees(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def expect(self, text: str) -> None:
        if not self.sees(text):
            raise CannotReadError(f"{text!r} expected at {self.at}: {self.text!r}")
        self.at += len(text)

    def until(self, text: str) -> str:
        end = self.text.find(text, self.at)
        if end < 0:
            raise CannotReadError(f"no {text!r} after {self.at}: {self.text!r}")
        found, self.at = self.text[self.at : end], end + len(text)
        return found

    def elements(self, begin: str, separator: str, end: str, schema: Any) -> dict[str, Any]:
        self.expect(begin)
        members: dict[str, Any] = {}
        while not self.sees(end):
            if members:
                self.expect(separator)
            self.expect(self.notation.before_key)
            key_end = self.notation.key_end
            key = self.until(key_end)
            self.at -= len(key_end)
            if _is_unreadable(key, self.notation):
                raise CannotReadError(f"the key {key!r}")
            members[key] = self.value(key, self.notation.forms, _child(schema, key))
        self.expect(end)
        return members

    def value(self, key: str, forms: ValueForms, schema: Any) -> Any:
        known = types_of(schema)
        choices = [
            (_text(form.before, key), _text(form.after, key), kind, form)
            for kind in KINDS
            for form in getattr(forms, kind)
            if self.sees(_text(form.before, key))
        ]
        if not choices:
            raise CannotReadError(self.text[self.at :])
        before = max((choice[0] for choice in choices), key=len)
        self.at += len(before)
        applicable = {kind: (after, form) for prior, after, kind, form in choices if prior == before}
        for kind in ("null", "boolean", "number", "array", "object"):
            if kind not in applicable or ("string" in applicable and kind not in known):
                continue
            after, form = applicable[kind]
            start = self.at
            try:
                return self.typed(kind, form.encoding, after, _branch(schema, kind))
            except CannotReadError:
                self.at = start
                if "string" in applicable and self.begins_like(kind, form.encoding):
                    raise
        if "string" not in applicable:
            raise CannotReadError(self.text[self.at :])
        after, form = applicable["string"]
        text = self.until(after)
        if form.trimmed and text != text.strip():
            raise CannotReadError(f"whitespace around {text!r}")
        return text

    def begins_like(self, kind: str, encoding: str) -> bool:
        """Whether a text is an array or object by its beginning."""
        if kind not in ("array", "object"):
            return False
        if encoding != "nested":
            return self.text[self.at :].lstrip(" \t\n\r").startswith("{" if kind == "object" else "[")
        nested = self.notation.nested
        assert nested is not None
        if kind == "object":
            return self.sees(nested.object_begin + self.notation.before_key)
        return self.sees(nested.array_begin + _text(nested.items.string[0].before, ""))

    def typed(self, kind: str, encoding: str, after: str, schema: Any) -> Any:
        if encoding == "nested":
            return self.nested(kind, after, schema)
        for end in self.ends(after):
            text = self.text[self.at : end].strip(" \t\n\r")
            try:
                value = json.loads(text, parse_constant=int)  # which refuses Infinity
            except ValueError:
                if encoding != "python":
                    continue
                try:
                    value = ast.literal_eval(text)
                except (ValueError, SyntaxError, MemoryError, RecursionError):
                    continue
            if type_of(value) == kind:
                self.at = end + len(after)
                return value
        raise CannotReadError(self.text[self.at :])

    def ends(self, after: str) -> list[int]:
        if not after:  # the longest that is a value
            return list(range(len(self.text), self.at, -1))
        return [end for end in range(self.at, len(self.text)) if self.text.startswith(after, end)]

    def nested(self, kind: str, after: str, schema: Any) -> Any:
        nested = self.notation.nested
        assert nested is not None
        if kind == "object":
            end = nested.object_end + after
            return self.elements(nested.object_begin, nested.object_separator, end, schema)
        self.expect(nested.array_begin)
        items: list[Any] = []
        inner = schema.get("items", True) if isinstance(schema, dict) else True
        while not self.sees(nested.array_end + after):
            if items:
                self.expect(nested.array_separator)
            items.append(self.value("", nested.items, inner))
        self.expect(nested.array_end + after)
        return items


def edn(value: Any, space: str = " ") -> str:
    """Return a value as EDN, keys that are words as keywords."""
    match value:
        case dict():
            keys = (f":{key}" if re.fullmatch(r"[A-Za-z][\w-]*", key) else edn(key) for key in value)
            members = zip(keys, value.values(), strict=True)
            return f"{{{space.join(f'{key} {edn(member, space)}' for key, member in members)}}}"
        case list():
            return f"[{space.join(edn(member, space) for member in value)}]"
        case None:
            return "nil"
        case _:
            return json.dumps(value, ensure_ascii=False)
