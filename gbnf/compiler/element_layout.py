"""The punctuation of arguments as elements, and the keys that can be read back in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gbnf.compiler.layout import Layout
from gbnf.compiler.raw_texts import beginning_with, delimited_expr, plain_texts, readable_texts
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, EPSILON, Expr, literal, seq
from gbnf.regular.automaton import Dfa
from gbnf.work_limits import TooManyStatesError


@dataclass(frozen=True, slots=True)
class ElementLayout(Layout):
    """The punctuation of elements. A key is written without quotes, and ends where `key_end` begins."""

    before_key: str
    key_end: str
    not_first: str = ""  # what no element may begin with

    def key(self, name: str) -> str:
        """Return a key as it is written."""
        return f"{self.before_key}{name}{self.key_end}"

    def can_write(self, name: str) -> bool:
        """Return whether a key is read back as it was written."""
        return self._readable().accepts(name)

    def other_keys(self, keys: Dfa | None, names: Collection[str], scope: Scope) -> Expr:
        """Return the keys of a class (None: every key) but `names`; EMPTY_LANGUAGE if there is none."""
        readable = self._readable()
        try:
            others = (readable if keys is None else keys & readable) - Dfa.of_words(names)
            return seq(literal(self.before_key), delimited_expr(others, self.key_end, scope))
        except TooManyStatesError:
            return EMPTY_LANGUAGE

    def can_write_all(self, keys: Dfa | None) -> bool:
        """Return whether each key of a class (None: every key) is read back as it was written."""
        return ((Dfa.all_words() if keys is None else keys) - self._readable()).is_empty

    def _readable(self) -> Dfa:
        readable = plain_texts() & readable_texts(self.key_end.lstrip()[:1] or self.key_end)
        if self.before_key.endswith("<"):  # the end of an element begins so
            readable = readable - beginning_with("/", self.key_end)
        if not self.before_key:  # elements end where a key could begin
            for bracket in ")]}":
                readable = readable - beginning_with(bracket, self.key_end)
        if self.not_first.startswith(self.before_key) and self.not_first:
            readable = readable - beginning_with(self.not_first[len(self.before_key) :], self.key_end)
        return readable


def element_layout(
    begin: str, separator: str, end: str, before_key: str, key_end: str, empty: str
) -> ElementLayout:
    """Return the punctuation of objects and arrays, which is the same."""
    whole = literal(empty)
    return ElementLayout(
        comma=literal(separator),
        colon=EPSILON,
        begin_object=literal(begin),
        end_object=literal(end),
        begin_array=literal(begin),
        end_array=literal(end),
        empty_object=whole,
        empty_array=whole,
        space=None,
        before_key=before_key,
        key_end=key_end,
    )
