"""The syntax in which a value is written.

JSON has one syntax for all values. In other notations the value of a parameter, an item of a nested array and
the content of a JSON text are written differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

from gbnf.compiler.layout import LAYOUTS, Layout, Whitespace
from gbnf.compiler.literals import json_string
from gbnf.compiler.notations import (
    ElementArguments,
    Encoding,
    JsonNotation,
    NestedElements,
    Notation,
    Placeholder,
    ValueForm,
    ValueForms,
    filled,
)
from gbnf.compiler.python_literals import (
    PythonLayout,
    double_quoted,
    python_string,
    python_string_expr,
    single_quoted,
)
from gbnf.compiler.raw_texts import (
    ElementLayout,
    beginning_with,
    element_layout,
    plain_texts,
    readable_texts,
    trimmed_texts,
)
from gbnf.compiler.rules import Scope
from gbnf.errors import InvalidArgumentError
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Literal, Ref, alt, literal, seq
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import ANY_CHAR
from gbnf.regular.ecma262 import search
from gbnf.schema.keywords import JSON_TYPES, JsonType


class ValueSyntax:
    """One syntax for all types of values: JSON, unless a subclass says otherwise."""

    true: Expr = Literal("true")
    false: Expr = Literal("false")
    null: Expr = Literal("null")

    def __init__(self, layout: Layout) -> None:
        self.objects = self.arrays = layout

    def child(self, name: str) -> ValueSyntax | FormsSyntax:
        """Return the syntax of the value of a declared key."""
        return self

    def other(self) -> ValueSyntax | FormsSyntax | None:
        """Return the syntax of the values of keys that are not declared; None if they cannot be written."""
        return self

    def item(self) -> ValueSyntax | FormsSyntax:
        """Return the syntax of the items of an array."""
        return self

    def text(self, value: str) -> Expr:
        """Return a string."""
        return literal(json_string(value))

    def quoted_chars(self, scope: Scope) -> list[tuple[str, Expr]]:
        """Return the quotes of strings, and any one character between each of them."""
        return [('"', Ref("char"))]

    def string_expr(self, language: Dfa, scope: Scope) -> Expr:
        """Return the strings of a language."""
        from gbnf.compiler.automaton_rules import string_expr  # noqa: PLC0415  # most strings need no automaton

        return string_expr(language, scope)


class PythonSyntax(ValueSyntax):
    """Inside a Python literal; if `top`, the whole of it, where JSON's spelling of constants is read, too."""

    def __init__(self, layout: Layout, *, top: bool) -> None:
        super().__init__(layout)
        self.true, self.false, self.null = (
            alt(Literal(name), *([Literal(also)] if top else []))
            for name, also in (("True", "true"), ("False", "false"), ("None", "null"))
        )
        self._inside = PythonSyntax(layout, top=False) if top else self

    def child(self, name: str) -> PythonSyntax:
        """Return the syntax of the value of a declared key."""
        return self._inside

    def other(self) -> PythonSyntax:
        """Return the syntax of the values of other keys."""
        return self._inside

    item = other

    def text(self, value: str) -> Expr:
        """Return a string, in each spelling that is read."""
        return python_string(value)

    def quoted_chars(self, scope: Scope) -> list[tuple[str, Expr]]:
        """Return the quotes of strings, and any one character between each of them."""
        return [
            ("'", scope.add("Char", single_quoted(ANY_CHAR))),
            ('"', scope.add("Char", double_quoted(ANY_CHAR))),
        ]

    def string_expr(self, language: Dfa, scope: Scope) -> Expr:
        """Return the strings of a language."""
        return python_string_expr(language, scope)


class ElementsSyntax(ValueSyntax):
    """Objects and arrays as elements: the arguments themselves, or values inside them."""

    def __init__(self, syntaxes: _Syntaxes, objects: Layout, arrays: Layout) -> None:
        super().__init__(objects)
        self.arrays = arrays
        self._syntaxes = syntaxes

    def child(self, name: str) -> FormsSyntax:
        """Return the syntax of the value of a declared key."""
        return self._syntaxes.value(name)

    def other(self) -> FormsSyntax | None:
        """Return the syntax of the values of other keys; None if a value's text contains its key."""
        return None if self._syntaxes.is_keyed else self._syntaxes.value("")

    def item(self) -> FormsSyntax:
        """Return the syntax of the items of an array."""
        return self._syntaxes.item


@dataclass(frozen=True, slots=True)
class ElementForm:
    """A form of values: what comes before and after, and the syntax of the value in between.

    `syntax` is None for raw text.
    """

    before: str
    after: str
    syntax: ValueSyntax | None
    trimmed: bool
    encoding: Encoding


class FormsSyntax:
    """Another syntax for each JSON type: of values between a key and the next element."""

    def __init__(self, syntaxes: _Syntaxes, forms: ValueForms, key: str, key_end: str) -> None:
        self._forms = {
            kind: tuple(syntaxes.form(form, key, key_end) for form in forms.of(kind)) for kind in JSON_TYPES
        }
        self._syntaxes = syntaxes
        self._nested = syntaxes.nested_texts()
        self._unmistakable: dict[tuple[ElementForm, frozenset[JsonType]], Dfa] = {}

    @property
    def has_same_empties(self) -> bool:
        """Return whether an empty array and an empty object are the same text."""
        empties = [empty for _, empty in self._nested.values()]
        return len(empties) > 1 and empties[0] == empties[1]

    def forms(self, kind: JsonType) -> tuple[ElementForm, ...]:
        """Return the forms of a type; the first is preferred."""
        return self._forms[kind]

    def written(
        self,
        kind: JsonType,
        kinds: frozenset[JsonType],
        write: Callable[[JsonType, ValueSyntax], Expr],
        raw: Callable[[ElementForm], Expr] = lambda _: EMPTY_LANGUAGE,
    ) -> list[Expr]:
        """Return the texts of a type's values, where the schema allows `kinds`.

        `write` returns what a notation writes, `raw` what is raw, with what follows it.
        """
        texts = []
        for form in self._forms[kind]:
            syntax = self.syntax(form, kind, kinds)
            inside = raw(form) if syntax is None else seq(write(kind, syntax), literal(form.after))
            texts.append(seq(literal(form.before), inside))
        return texts

    def syntax(self, form: ElementForm, kind: JsonType, kinds: frozenset[JsonType]) -> ValueSyntax | None:
        """Return the syntax of a value in a form, where the schema allows `kinds`; None if it is raw."""
        if form.encoding == "nested" and kind == "object" and "array" in kinds:
            return self._syntaxes.nested_beside_arrays
        return form.syntax

    def readable(self, form: ElementForm, kinds: frozenset[JsonType]) -> Dfa:
        """Return the raw strings that are read back in this form, where the schema allows these types."""
        return self.unmistakable(form, kinds) & readable_texts(form.after)

    def unmistakable(self, form: ElementForm, kinds: frozenset[JsonType]) -> Dfa:
        """Return the raw strings that are read back, if they are read to their end."""
        language = self._unmistakable.get((form, kinds))
        if language is None:
            texts = plain_texts() & trimmed_texts() if form.trimmed else plain_texts()
            for before in sorted({other.before for forms in self._forms.values() for other in forms}):
                if before.startswith(form.before) and before != form.before:
                    texts = texts - beginning_with(before[len(form.before) :], form.after)
            language = self._unmistakable[form, kinds] = texts - self.mistaken(form, kinds)
        return language

    def mistaken(self, form: ElementForm, kinds: frozenset[JsonType]) -> Dfa:
        """Return the raw strings that are read as values of other types that the schema allows."""
        texts = Dfa.of_words(())
        for kind in JSON_TYPES:
            if kind == "string" or kind not in kinds:
                continue
            for other in self._forms[kind]:
                if (other.before, other.after) == (form.before, form.after):
                    texts = texts | self._read_as(kind, other, form.after)
        return texts

    def _read_as(self, kind: JsonType, form: ElementForm, after: str) -> Dfa:
        """Return the texts that are read as values of a type."""
        if form.encoding != "nested":
            spelled = _PYTHON_TEXTS if form.encoding == "python" else _JSON_TEXTS
            return search(spelled[kind])
        first, empty = self._nested[kind]
        return Dfa.of_words([empty]) | beginning_with(first, after)


_JSON_TEXTS: dict[JsonType, str] = {
    "null": r"^[ \t\n\r]*null[ \t\n\r]*$",
    "boolean": r"^[ \t\n\r]*(true|false)[ \t\n\r]*$",
    "number": r"^[ \t\n\r]*-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?[ \t\n\r]*$",
    "array": r"^[ \t\n\r]*\[",
    "object": r"^[ \t\n\r]*\{",
}
_PYTHON_TEXTS: dict[JsonType, str] = {
    **_JSON_TEXTS,
    "null": r"^[ \t\n\r]*(None|null)[ \t\n\r]*$",
    "boolean": r"^[ \t\n\r]*(True|False|true|false)[ \t\n\r]*$",
}


@cache
def _json_syntax(whitespace: Whitespace) -> ValueSyntax:
    return ValueSyntax(LAYOUTS[whitespace])


class _Syntaxes:
    """All syntaxes of one notation with elements."""

    def __init__(self, elements: ElementArguments, whitespace: Whitespace) -> None:
        self._elements = elements
        self._json = _json_syntax(whitespace)
        self._python = PythonSyntax(PythonLayout.like(LAYOUTS[whitespace]), top=True)
        self._key_end = elements.key_end
        forms = [form for kind in JSON_TYPES for form in elements.forms.of(kind)]
        self.is_keyed = any(
            isinstance(part, Placeholder) for form in forms for part in (*form.before, *form.after)
        )
        self._values: dict[str, FormsSyntax] = {}

    @cached_property
    def arguments(self) -> ElementsSyntax:
        """The syntax of the arguments."""
        elements = self._elements
        empty = elements.begin + elements.end if elements.empty is None else elements.empty
        layout = element_layout(
            elements.begin, elements.separator, elements.end, elements.before_key, self._key_end, empty
        )
        return ElementsSyntax(self, layout, layout)

    @cached_property
    def nested_beside_arrays(self) -> ElementsSyntax:
        """The syntax of objects that must not be read as arrays."""
        nested, syntax = self._nested_elements, self.nested
        if nested.object_begin != nested.array_begin:
            return syntax
        is_same = nested.object_end == nested.array_end
        assert isinstance(syntax.objects, ElementLayout)
        objects = replace(
            syntax.objects,
            empty_object=EMPTY_LANGUAGE if is_same else syntax.objects.empty_object,
            not_first=self.nested_texts()["array"][0][len(nested.array_begin) :],
        )
        return ElementsSyntax(self, objects, syntax.arrays)

    @cached_property
    def nested(self) -> ElementsSyntax:
        """The syntax of objects and arrays inside the arguments, as elements."""
        nested = self._nested_elements
        objects = element_layout(
            nested.object_begin, nested.object_separator, nested.object_end,
            self._elements.before_key, self._key_end, nested.object_begin + nested.object_end,
        )  # fmt: skip
        arrays = element_layout(
            nested.array_begin, nested.array_separator, nested.array_end,
            "", "", nested.array_begin + nested.array_end,
        )  # fmt: skip
        return ElementsSyntax(self, objects, arrays)

    @property
    def _nested_elements(self) -> NestedElements:
        if self._elements.nested is None:
            raise InvalidArgumentError("a form has the encoding 'nested', but nested is None")
        return self._elements.nested

    def nested_texts(self) -> dict[JsonType, tuple[str, str]]:
        """Return how nested arrays and objects begin, and the text of those without items."""
        nested = self._elements.nested
        if nested is None:
            return {}
        items = nested.items.string[0].before if nested.items.string else ()
        return {
            "array": (nested.array_begin + filled(items, ""), nested.array_begin + nested.array_end),
            "object": (
                nested.object_begin + self._elements.before_key,
                nested.object_begin + nested.object_end,
            ),
        }

    @cached_property
    def item(self) -> FormsSyntax:
        """The syntax of the items of nested arrays."""
        return FormsSyntax(self, self._nested_elements.items, "", "")

    def value(self, name: str) -> FormsSyntax:
        """Return the syntax of the value of a key."""
        key = name if self.is_keyed else ""
        if key not in self._values:
            self._values[key] = FormsSyntax(self, self._elements.forms, key, self._key_end)
        return self._values[key]

    def form(self, form: ValueForm, key: str, key_end: str) -> ElementForm:
        """Return a form under a key, without the end of the key."""
        before = filled(form.before, key)[len(key_end) :]
        syntaxes: dict[Encoding, ValueSyntax | None] = {
            "json": self._json,
            "python": self._python,
            "raw": None,
        }
        syntax = self.nested if form.encoding == "nested" else syntaxes[form.encoding]
        return ElementForm(before, filled(form.after, key), syntax, form.trimmed, form.encoding)


def syntax_of(notation: Notation, whitespace: Whitespace) -> ValueSyntax:
    """Return the syntax of the root of a document."""
    if isinstance(notation, JsonNotation):
        return _json_syntax(whitespace)
    return _Syntaxes(notation, whitespace).arguments
