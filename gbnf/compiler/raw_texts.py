"""Texts without quotes or escapes, which end where a delimiter first occurs, as regular languages.

`gbnf.compiler.notations` says how they are read. The keys of arguments as elements are such texts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass

from gbnf.compiler.automaton_rules import words_expr
from gbnf.compiler.layout import Layout
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import EMPTY_LANGUAGE, EPSILON, Expr, literal, seq
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import Alphabet, CharSet, common_refinement, minterms
from gbnf.regular.ecma262 import search
from gbnf.regular.transition_tables import DEAD, explore
from gbnf.work_limits import TooManyStatesError, work_cache


def delimited_expr(language: Dfa, delimiter: str, scope: Scope) -> Expr:
    """Return the words of a language, each with the delimiter after it, where it occurs nowhere earlier.

    Deterministic: a text is read from left to right without a guess. Raises TooManyStatesError.
    """
    return words_expr(_delimited(language, delimiter), scope)


def _steps(delimiter: str, alphabet: Alphabet) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Return the steps of Knuth, Morris and Pratt's search for a delimiter, over classes of characters.

    A state is how many characters of the delimiter the text ends with. After each state and class: the next
    state, and the classes that can't be part of a match any more.
    """
    classes = tuple(map(alphabet.class_of, delimiter))

    def step(seen: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        matched = len(seen)
        while seen[len(seen) - matched :] != classes[:matched]:
            matched -= 1
        return matched, seen[: len(seen) - matched]

    return [
        [step((*classes[:state], number)) for number in range(alphabet.size)] for state in range(len(classes))
    ]


@work_cache(maxsize=512)
def _delimited(language: Dfa, delimiter: str) -> Dfa:
    """Return the texts of the language with the delimiter behind them, which occurs nowhere before."""
    table = language.table
    chars = [CharSet.single(ord(char)) for char in dict.fromkeys(delimiter)]
    alphabet, pairs = common_refinement(table.alphabet, minterms(chars)[0])
    rows = [[row[number] for number, _ in pairs] for row in table.rows]
    steps = _steps(delimiter, alphabet)
    end = (DEAD, len(delimiter))

    def successors(state: tuple[int, int]) -> list[tuple[int, int] | None]:
        # The first item is the state of the language before the characters that may begin the delimiter.
        if state == end:
            return [None] * alphabet.size
        targets: list[tuple[int, int] | None] = []
        for matched, passed in steps[state[1]]:
            language_state = state[0]
            for number in passed:
                language_state = rows[language_state][number]
                if language_state == DEAD:
                    break
            if language_state == DEAD:
                targets.append(None)
            elif matched < len(delimiter):
                targets.append((language_state, matched))
            else:
                targets.append(end if language_state in table.accepting else None)
        return targets

    return Dfa(explore(alphabet, (0, 0), successors, lambda state: state == end))


@work_cache(maxsize=512)
def readable_texts(delimiter: str) -> Dfa:
    """Return the texts behind which the delimiter has its first occurrence, if it follows them."""
    starts = [delimiter[:length] for length in range(1, len(delimiter))]
    # a text that ends like this would let the delimiter begin in it
    ends = [start for start in starts if delimiter.startswith(delimiter[len(start) :])]
    return ~search("|".join([re.escape(delimiter), *(f"{re.escape(end)}$" for end in ends)]))


@work_cache(maxsize=1)
def plain_texts() -> Dfa:
    """Return the texts without U+0000, which llama.cpp's grammars take for the end of a text."""
    return search(r"^[^\0]*$")


@work_cache(maxsize=1)
def trimmed_texts() -> Dfa:
    """Return the texts without whitespace around them, as `str.strip` leaves them."""
    spaces = "".join(filter(str.isspace, map(chr, range(sys.maxunicode + 1))))
    return search(rf"^(?:[^{spaces}](?:[^]*[^{spaces}])?)?$")


@work_cache(maxsize=512)
def beginning_with(text: str, delimiter: str) -> Dfa:
    """Return the texts that, with the delimiter behind them, begin with `text`."""
    early = [text[:index] for index in range(len(text)) if delimiter.startswith(text[index:])]
    return search(f"^{re.escape(text)}") | Dfa.of_words(early)


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
    empty_text = literal(empty)
    return ElementLayout(
        comma=literal(separator),
        colon=EPSILON,
        begin_object=literal(begin),
        end_object=literal(end),
        begin_array=literal(begin),
        end_array=literal(end),
        empty_object=empty_text,
        empty_array=empty_text,
        space=None,
        before_key=before_key,
        key_end=key_end,
    )
