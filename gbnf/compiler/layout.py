"""Layouts of JSON: where whitespace is allowed between tokens.

default   at most one space after "," and ":", none elsewhere: both `json.dumps(x)` and its compact form
compact   none at all: separators=(",", ":")
spaced    exactly one space after "," and ":": `json.dumps(x)`
free      any JSON whitespace between any two tokens (a model may then never stop writing it)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

from gbnf.grammar.ir import EPSILON, Expr, Literal, Ref, char_class, literal, optional, repeat, seq

Whitespace = OneOf["default", "compact", "spaced", "free"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The punctuation of JSON with the whitespace around it.

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
