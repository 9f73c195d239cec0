"""Notations: how the arguments of a call are written, as JSON or as one element per parameter.

How a value in an element is read back, by a parser as by the grammar:

1. A key ends where the first character of what all forms of values begin with (`ElementArguments.key_end`)
   occurs, whitespace aside. It begins with no `/` where `before_key` ends with `<`, and with no closing
   bracket where `before_key` is empty.
2. Of the forms whose `before` follows, the one with the longest `before` applies.
3. A raw text ends where the form's `after` first occurs. Values of other encodings end by themselves.
4. Where forms of several JSON types have the same `before` and `after`, the text is a value of any type but
   string that the schema allows there, if it reads as one, whitespace around it aside: `null` (also `None`,
   where the encoding is "python"), `true` and `false` (also `True` and `False`), a JSON number, or an array
   or object, if it begins with `[` or `{`; where they are nested elements, if it begins as these do, or is
   the text of one without items. Otherwise it is a string, unchanged. Where nested arrays and objects begin
   with the same text, and the schema allows both, an empty one is an array, and so is one whose first element
   begins as an item does.
5. A `trimmed` text has no whitespace around it.

So some strings, and some keys, cannot be written: those that would be read back as something else. Grammars
refuse them, and reports name them as "inexpressible". Strings that contain their form's delimiter are
reported only where they are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os.path import commonprefix
from typing import Literal, TypeAlias

from gbnf.errors import InvalidArgumentError
from gbnf.schema.keywords import JSON_TYPES, JsonType


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What is filled in between the literals of a call.

    name: the tool's name. id: the call's identifier. index: the number of the call in its answer, where the
    first has `base`. key: the key of the element that it stands in.
    """

    kind: Literal["name", "id", "index", "key"]
    base: int = 0


Part: TypeAlias = str | Placeholder
"""A literal, or what is filled in."""

Encoding: TypeAlias = Literal["raw", "json", "python", "nested"]
"""How one value is written: as text without quotes or escapes (strings only), as JSON, as a Python literal
(`repr`), or as elements of the same format (`NestedElements`; arrays and objects only)."""


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How a value of one JSON type is written between its key and the next element.

    `before` follows the key, as `>` and a line break; `after` follows the value, as `</parameter>`. A raw
    value ends where `after` first occurs. `trimmed`: the template removes whitespace around a raw value, so
    that such values cannot be read back.
    """

    encoding: Encoding
    before: tuple[Part, ...] = ()
    after: tuple[Part, ...] = ()
    trimmed: bool = False


@dataclass(frozen=True, slots=True)
class ValueForms:
    """The forms of each JSON type. The template prefers the first of several; all are read.

    A type without a form cannot be written.
    """

    string: tuple[ValueForm, ...]
    number: tuple[ValueForm, ...]
    boolean: tuple[ValueForm, ...]
    null: tuple[ValueForm, ...]
    array: tuple[ValueForm, ...]
    object: tuple[ValueForm, ...]

    def of(self, kind: JsonType) -> tuple[ValueForm, ...]:
        """Return the forms of one type."""
        forms: tuple[ValueForm, ...] = getattr(self, kind)
        return forms

    def literals(self) -> Iterator[str]:
        """Yield the literals of the forms."""
        for kind in JSON_TYPES:
            for form in self.of(kind):
                yield from (part for part in (*form.before, *form.after) if isinstance(part, str))


@dataclass(frozen=True, slots=True)
class NestedElements:
    """How arrays and objects inside arguments are written, where a form's encoding is "nested".

    Keys and values of objects are written as those of the arguments are; `items` are the forms of an array's
    items.
    """

    object_begin: str
    object_separator: str
    object_end: str
    array_begin: str
    array_separator: str
    array_end: str
    items: ValueForms


@dataclass(frozen=True, slots=True)
class ElementArguments:
    """Arguments as one element per parameter: `begin`, elements with `separator` between them, `end`.

    An element is `before_key`, the key, and the form of the value's type. `empty`: the text of no arguments
    at all, None if it is `begin` and `end`.
    """

    begin: str
    separator: str
    end: str
    before_key: str
    forms: ValueForms
    nested: NestedElements | None = None
    empty: str | None = None

    def literals(self) -> Iterator[str]:
        """Yield the literals of the arguments."""
        yield from (self.begin, self.separator, self.end, self.before_key)
        yield from self.forms.literals()
        if self.nested is not None:
            nested = self.nested
            yield from (nested.object_begin, nested.object_separator, nested.object_end)
            yield from (nested.array_begin, nested.array_separator, nested.array_end)
            yield from nested.items.literals()

    @property
    def key_end(self) -> str:
        """The text that ends a key: what all forms begin with.

        Raises InvalidArgumentError if there is none, so that keys cannot be read.
        """
        befores = [form.before for kind in JSON_TYPES for form in self.forms.of(kind)]
        texts = [before[0] if before and isinstance(before[0], str) else "" for before in befores]
        end = commonprefix(texts)  # noqa: RUF071  # these are no paths
        if not end:
            raise InvalidArgumentError("the forms of values have no common beginning, which would end a key")
        return end


@dataclass(frozen=True, slots=True)
class JsonNotation:
    """Arguments as one JSON object, with the whitespace that `CompileOptions` says."""


JSON = JsonNotation()
Notation: TypeAlias = JsonNotation | ElementArguments


def filled(parts: Iterable[Part], key: str) -> str:
    """Return the text of the parts of a form, under a key."""
    return "".join([part if isinstance(part, str) else key for part in parts])
