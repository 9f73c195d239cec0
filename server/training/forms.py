"""Values in weighted forms, from TOML: `"{name}@{domain}" = 40`, or a list of equal ones.

A form is a template: `[a|b]` chooses one of its alternatives (they nest, and may be empty), `{x}` is a slot.
A slot is what the caller gives; else it is drawn: `{1-99}` is a number, `{noun}` the value of a function,
another form or a member of a list. `{Noun}` begins with a capital. Invariant: slots are filled last, so that
brackets and braces inside a value are only text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

from training.source import Source

_CHOICE = re.compile(r"\[([^\[\]]*)\]")


def read_toml(package: str, name: str) -> dict[str, Any]:
    """Return the tables of a file of data."""
    return tomllib.loads((files(package) / name).read_text("utf-8"))


def expanded(template: str, random: Random) -> str:
    """Return a template with its alternatives chosen. Raises ValueError for unbalanced brackets."""
    text, found = template, 1
    while found:
        text, found = _CHOICE.subn(lambda choice: random.choice(choice[1].split("|")), text)
    if "[" in text or "]" in text:
        raise ValueError(f"unbalanced brackets in the wording {template!r}: close what you open")
    return text


class Forms:
    """Forms by name, and functions that return values. `split`: lists of which a source draws its own half.

    A table of a table, `[it]`, has the forms of a language, which come before those of all.
    """

    def __init__(self, *tables: Mapping[str, Any], split: Sequence[str] = ()) -> None:
        self.functions: dict[str, Callable[[Source], object]] = {}
        self._tables, self._split = tables, split
        self._choices = cache(self._find)

    def _find(self, language: str, name: str) -> tuple[Sequence[str], Sequence[float] | None]:
        tables = [*(table.get(language, {}) for table in self._tables), *self._tables]
        found = next(table[name] for table in tables if name in table)
        return (tuple(found), tuple(found.values())) if isinstance(found, dict) else (found, None)

    def draw(self, random: Source, template: str, /, **given: object) -> str:
        """Return a template with its slots filled. `given`: the values of some, also inside of forms."""
        return expanded(template, random).format_map(Slots(self, random, given))

    def members(self, random: Source, name: str) -> Sequence[str]:
        """Return the forms of a name in a source's language."""
        return self._choices(random.language, name)[0]

    def drawn(self, random: Source, name: str, given: Mapping[str, Any]) -> object:
        """Return the value of a slot."""
        if function := self.functions.get(name):
            return function(random)
        forms, weights = self._choices(random.language, name)
        return (
            random.word(forms)
            if name in self._split
            else self.draw(random, random.choices(forms, weights)[0], **given)
        )


class Slots(dict[str, object]):
    """The slots of a template: those not given are drawn, each time anew."""

    def __init__(self, forms: Forms, random: Source, given: Mapping[str, object]) -> None:
        super().__init__(given)
        self._forms, self._random = forms, random

    def __missing__(self, name: str) -> object:
        if name[0].isdigit():
            low, high = name.split("-")
            return self._random.randint(int(low), int(high))
        if name[0].isupper():
            text = str(self[name[0].lower() + name[1:]])
            return text[:1].upper() + text[1:]
        return self._forms.drawn(self._random, name, self)
