"""Derive how a template writes arguments as elements: one per parameter, each value by its JSON type."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gbnf.compiler.notations import (
    ElementArguments,
    Encoding,
    NestedElements,
    Part,
    Placeholder,
    ValueForm,
    ValueForms,
)
from gbnf.errors import ToolFormatError
from gbnf.schema.keywords import JsonType
from gbnf.strict_json import json_of
from gbnf.tool_formats.pieces import (
    Pieces,
    Repeated,
    common_prefix,
    common_suffix,
    join_pieces,
    literal,
    repeated,
    split_pieces,
    text_of,
)
from gbnf.tool_formats.probing import KEYS, NAMES, Call
from gbnf.tool_formats.sandbox import RefusedError

Answer = Callable[[Sequence[Call]], str]

_KEY, _NEXT = Placeholder("key"), "\2"
_INNER = ("zqna", "zqnb")
_WORDS = ("Zqone", "Zqtwo")
_ODD_TEXT = "Zq \"x\" 'y'\n\\z <w> & é"
_VALUES: dict[JsonType, Any] = {
    "number": 4271,
    "boolean": True,
    "null": None,
    "array": ["Zqone", 4271, True, None],
    "object": {"zqna": "Zqone", "zqnb": True},
}
_WRITERS: tuple[tuple[Encoding, Callable[[Any], str]], ...] = (
    ("json", json_of),
    ("json", partial(json.dumps, ensure_ascii=False, separators=(",", ":"))),
    ("json", json.dumps),
    ("python", repr),
)


@dataclass(frozen=True, slots=True)
class Elements:
    """Arguments as elements. `lead` precedes the first key in a call; `trail` follows the last string."""

    arguments: ElementArguments
    lead: Pieces
    trail: Pieces


class ElementDetection:
    """Finds out how arguments are written as elements.

    `answer` renders an answer with calls. `notes` takes what the template cannot express.
    """

    def __init__(self, answer: Answer, notes: list[str]) -> None:
        self._answer, self._notes = answer, notes

    def elements(self) -> Elements:
        """Return how arguments are written as elements."""
        opening, plain, between, closing = self._two_strings()
        opening, before_key, after, between, closing = repeated(opening, between, closing)
        separator, key = literal(between), literal(before_key)
        if separator is None or key is None:
            raise ToolFormatError("the template writes parameters in different ways")
        self._string = ValueForm("raw", join_pieces(plain), join_pieces(after))
        self._follow, self._before_key = separator + key, key
        begin, end, empty = self._around(opening, closing)
        forms, nested = self._forms()
        arguments = ElementArguments(
            begin="".join(map(str, begin)),
            separator=separator,
            end="".join(map(str, end)),
            before_key=key,
            forms=forms,
            nested=nested,
            empty=empty,
        )
        return Elements(arguments, (*begin, *before_key), (*after, *end))

    def _call(self, arguments: Mapping[str, Any]) -> str:
        """Return an answer with one call, in which the first and second key are one character each."""
        text = self._answer([Call(NAMES[0], arguments)])
        return text.replace(KEYS[0], "\1").replace(KEYS[1], _NEXT)

    def _two_strings(self) -> tuple[Pieces, Pieces, Pieces, Pieces]:
        """Return what stands around the keys and values of a call with two strings."""
        text = self._call({KEYS[0]: _WORDS[0], KEYS[1]: _WORDS[1]})
        opening, first_key, rest = text.partition("\1")
        plain, first_value, rest = rest.partition(_WORDS[0])
        between, second_key, rest = rest.partition(_NEXT)
        again, second_value, closing = rest.partition(_WORDS[1])
        if not (first_key and first_value and second_key and second_value) or again != plain:
            raise ToolFormatError("the template writes parameters in an unknown way")
        return _pieces(opening), _pieces(plain), _pieces(between), _pieces(closing)

    def _around(self, opening: Pieces, closing: Pieces) -> tuple[Pieces, Pieces, str | None]:
        """Return what begins and ends the elements, and what stands there if there are none."""
        try:
            empty = _pieces(self._call({}))
        except RefusedError:
            self._notes.append("The template fails on a call without arguments.")
            return (), (), None
        last = common_suffix(closing, empty)
        rest = empty[: len(empty) - last]
        first = common_prefix(opening, rest)
        begin, end = opening[first:], closing[: len(closing) - last]
        middle = literal(rest[first:])
        if (
            middle is None
            or literal(begin) is None
            or literal(end) is None
            or NAMES[0] not in "".join(map(str, rest))
        ):
            self._notes.append("The template does not write a call without arguments as other calls.")
            return (), (), None
        return begin, end, None if middle == "".join(map(str, (*begin, *end))) else middle

    # Values

    def _forms(self) -> tuple[ValueForms, NestedElements | None]:
        forms: dict[JsonType, tuple[ValueForm, ...]] = {"string": self._string_forms()}
        for kind, value in _VALUES.items():
            forms[kind] = self._form(kind, value)
        nested = None
        if any(form.encoding == "nested" for kind in ("array", "object") for form in forms[kind]):
            nested = self._nested(forms)
            if self._core([]) == self._core({}):
                self._notes.append("The template writes an empty array as an empty object.")
        return ValueForms(**forms), nested

    def _core(self, value: Any) -> str | None:
        """Return what stands between a key and the end of its element, None if the key is not written."""
        text = self._call({KEYS[0]: value, KEYS[1]: _WORDS[1]})
        _, has_key, rest = text.partition("\1")
        core, has_next, _ = rest.partition(_NEXT)
        if not has_key or not has_next or not core.endswith(self._follow):
            return None
        return core[: len(core) - len(self._follow)]

    def _form(self, kind: JsonType, value: Any) -> tuple[ValueForm, ...]:
        try:
            core = self._core(value)
        except RefusedError:
            core = None
        if core is None:
            self._notes.append(f"The template leaves out parameters whose value is of type {kind}.")
            return ()
        if forms := _find_forms(core, value):
            return forms
        if kind in ("array", "object"):
            return (ValueForm("nested"),)  # completed by `_nested`
        self._notes.append(f"The template does not write values of type {kind}.")
        return ()

    def _string_forms(self) -> tuple[ValueForm, ...]:
        core = self._core(_ODD_TEXT) or ""
        plain = self._core(_WORDS[0]) or ""
        for encoding, write in _WRITERS:
            written = write(_ODD_TEXT)
            if written in core and _ODD_TEXT not in core and write(_WORDS[0]) in plain:
                before, _, after = plain.partition(write(_WORDS[0]))
                return (ValueForm(encoding, _parts(before), _parts(after)),)
        before, is_verbatim, after = core.partition(_ODD_TEXT)
        trimmed = f" {_WORDS[0]} " not in (self._core(f" {_WORDS[0]} ") or "")
        if trimmed:
            self._notes.append("The template removes whitespace around strings.")
        first = ValueForm("raw", self._string.before, self._string.after, trimmed)
        if not is_verbatim:
            self._notes.append("The template changes special characters of strings.")
            return (first,)
        other = ValueForm("raw", _parts(before), _parts(after), trimmed)
        forms = (first,) if other == first else (first, other)
        if text_of(first.before).endswith("'") and text_of(first.after) == "'":
            # Python's quotes, which the template does not escape: models write others around an apostrophe
            forms = (*forms, ValueForm("json", _parts(text_of(first.before)[:-1])))
        return forms

    # Arrays and objects as elements

    def _nested(self, forms: dict[JsonType, tuple[ValueForm, ...]]) -> NestedElements:
        """Return how arrays and objects are written, and complete their forms."""
        if not forms["number"]:
            raise ToolFormatError("the template writes arrays and objects in an unknown way")
        outer = ValueForm("nested", forms["number"][0].before, forms["number"][0].after)
        string = forms["string"][0]
        # objects
        core = self._inside({_INNER[0]: _WORDS[0], _INNER[1]: _WORDS[1]}, outer)
        opening, _, rest = core.partition(_INNER[0])
        middle, _, closing = rest.partition(_INNER[1])
        first = _written(string, _INNER[0], _WORDS[0])
        last = _written(string, _INNER[1], _WORDS[1])
        if not (opening.endswith(self._before_key) and middle.startswith(first) and closing.startswith(last)):
            raise ToolFormatError("the template writes objects in an unknown way")
        object_separator = middle[len(first) :]
        if not object_separator.endswith(self._before_key):
            raise ToolFormatError("the template writes objects in an unknown way")
        # arrays
        core = self._inside(list(_WORDS), outer)
        head, _, rest = core.partition(_WORDS[0])
        between, _, tail = rest.partition(_WORDS[1])
        array = repeated(_pieces(head), _pieces(between), _pieces(tail), spaces=True)
        items = self._items(array, outer, string)
        for kind in ("array", "object"):
            if forms[kind] and forms[kind][0].encoding == "nested":
                forms[kind] = (outer,)
        return NestedElements(
            object_begin=opening.removesuffix(self._before_key),
            object_separator=object_separator.removesuffix(self._before_key),
            object_end=closing[len(last) :],
            array_begin=text_of(array.begin),
            array_separator=text_of(array.separator),
            array_end=text_of(array.end),
            items=items,
        )

    def _inside(self, value: Any, outer: ValueForm) -> str:
        core, before, after = self._core(value), text_of(outer.before), text_of(outer.after)
        if core is None or not core.startswith(before) or not core.endswith(after):
            raise ToolFormatError("the template writes arrays and objects in an unknown way")
        return core[len(before) : len(core) - len(after)]

    def _items(self, array: Repeated, outer: ValueForm, string: ValueForm) -> ValueForms:
        """Return the forms of an array's items."""
        item = replace(string, before=join_pieces(array.head), after=join_pieces(array.tail))
        forms: dict[JsonType, tuple[ValueForm, ...]] = {"string": (item,)}
        begin, end = len(text_of(array.begin)), len(text_of(array.end))
        for kind in ("number", "boolean", "null"):
            text = self._inside([_VALUES[kind]], outer)
            forms[kind] = _find_forms(text[begin : len(text) - end], _VALUES[kind])
            if not forms[kind]:
                self._notes.append(f"The template does not write values of type {kind} in arrays.")
        around = (*forms["number"], item)[0]
        nested = (ValueForm("nested", around.before, around.after),)
        return ValueForms(**forms, array=nested, object=nested)


def _find_forms(core: str, value: Any) -> tuple[ValueForm, ...]:
    """Return how a value is written in an element, with what stands around it; () if it is not."""
    for encoding, write in _WRITERS:
        before, written, after = core.rpartition(write(value))
        if written:
            return (ValueForm(encoding, _parts(before), _parts(after)),)
    return ()


def _pieces(text: str) -> Pieces:
    return split_pieces(text, [("\1", _KEY), (_NEXT, _KEY)])


def _parts(text: str) -> tuple[Part, ...]:
    return join_pieces(_pieces(text))


def _written(form: ValueForm, key: str, value: str) -> str:
    """Return a string in a form, after its key."""
    return (text_of(form.before) + value + text_of(form.after)).replace("\1", key)
