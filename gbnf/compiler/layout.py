"""How a schema becomes a grammar, and the layouts of JSON: where whitespace is allowed between tokens.

default   at most one space after "," and ":", none elsewhere: both `json.dumps(x)` and its compact form
compact   none at all: separators=(",", ":")
spaced    exactly one space after "," and ":": `json.dumps(x)`
free      any JSON whitespace between any two tokens (a model may then never stop writing it)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal as OneOf

from gbnf.compiler.decimals import BOUNDED_DIGITS, UNBOUNDED_DIGITS, DigitLimits
from gbnf.compiler.literals import factor_prefixes, json_string, key_except
from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import (
    EMPTY_LANGUAGE,
    EPSILON,
    Alt,
    Expr,
    Literal,
    Ref,
    Seq,
    char_class,
    literal,
    optional,
    repeat,
    seq,
)
from gbnf.regular.automaton import Dfa
from gbnf.work_limits import TooManyStatesError

Whitespace = OneOf["default", "compact", "spaced", "free"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The punctuation and the keys of JSON, with the whitespace around them.

    An opening bracket is followed by an item; `empty_object` and `empty_array` are without items. `space` is
    the production of the rule `ws`, None if the layout needs none.
    """

    comma: Expr
    colon: Expr
    begin_object: Expr
    end_object: Expr
    begin_array: Expr
    end_array: Expr
    empty_object: Expr
    empty_array: Expr
    space: Expr | None

    def key(self, name: str) -> str:
        """Return a key as it is written. No key is the beginning of another."""
        return json_string(name)

    def or_end(self, next_member: Expr) -> Expr:
        """Return another pair after its comma, or the end of the object."""
        if next_member == EMPTY_LANGUAGE:
            return self.end_object
        start = self.comma.items[0] if type(self.comma) is Seq and self.comma.items else self.comma
        if (
            type(start) is Literal
            and type(self.end_object) is Literal
            and start.text[0] != self.end_object.text[0]
        ):
            return Alt((next_member, self.end_object))  # they share nothing
        return factor_prefixes([next_member, self.end_object])

    def can_write(self, name: str) -> bool:
        """Return whether a key is read back as it was written."""
        return True

    def can_write_all(self, keys: Dfa | None) -> bool:
        """Return whether each key of a class (None: every key) is read back as it was written."""
        return True

    def other_keys(self, keys: Dfa | None, names: Collection[str], scope: Scope) -> Expr:
        """Return the keys of a class (None: every key) but `names`; EMPTY_LANGUAGE if there is none."""
        if keys is None:
            return key_except(names, scope)
        from gbnf.compiler.automaton_rules import string_expr  # noqa: PLC0415  # most objects have no patterns

        named = without(keys, names)
        return EMPTY_LANGUAGE if named.is_empty else string_expr(named, scope.inside("Key"))


def without(keys: Dfa, names: Collection[str]) -> Dfa:
    """Return the keys other than `names`; all of them where that takes too large an automaton."""
    words = [name for name in names if keys.accepts(name)]
    try:
        return keys - Dfa.of_words(words) if words else keys
    except TooManyStatesError:
        return keys


def _layout(after: Expr, around: Expr, space: Expr | None) -> Layout:
    return Layout(
        comma=seq(around, Literal(","), after),
        colon=seq(around, Literal(":"), after),
        begin_object=seq(Literal("{"), around),
        end_object=seq(around, Literal("}")),
        begin_array=seq(Literal("["), around),
        end_array=seq(around, Literal("]")),
        empty_object=seq(Literal("{"), around, Literal("}")),
        empty_array=seq(Literal("["), around, Literal("]")),
        space=space,
    )


_WS = Ref("ws")

LAYOUTS: dict[Whitespace, Layout] = {
    "default": _layout(_WS, EPSILON, optional(literal(" "))),
    "compact": _layout(EPSILON, EPSILON, None),
    "spaced": _layout(Literal(" "), EPSILON, None),
    "free": _layout(_WS, _WS, repeat(char_class(" \t\n\r"))),
}


PropertyOrder = OneOf["declared", "any"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a schema becomes a grammar.

    `whitespace`: see `gbnf.compiler.layout`. `max_depth`: the most objects and arrays around one that is
    still constrained; None: any number. If `closed`, an object that declares properties but not
    `additionalProperties` allows no others. `property_order`: properties in any order (see
    `gbnf.compiler.objects`), or in declared order only. With `bounded_digits`, numbers have at most the
    digits of `gbnf.compiler.decimals.BOUNDED_DIGITS`.
    """

    whitespace: Whitespace = "default"
    max_depth: int | None = None
    closed: bool = False
    property_order: PropertyOrder = "any"
    bounded_digits: bool = True

    @property
    def digits(self) -> DigitLimits:
        """How many digits numbers may have."""
        return BOUNDED_DIGITS if self.bounded_digits else UNBOUNDED_DIGITS
