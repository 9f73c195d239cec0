"""How a schema becomes a grammar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gbnf.compiler.decimals import BOUNDED_DIGITS, UNBOUNDED_DIGITS, DigitLimits
from gbnf.compiler.layout import Whitespace

PropertyOrder = Literal["declared", "any"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a schema becomes a grammar.

    `whitespace`: see `gbnf.compiler.layout`. `max_depth`: the most objects and arrays around one that is
    still constrained; None: any number. If `closed`, an object that declares properties but not
    `additionalProperties` allows no others. `property_order`: properties in any order (see
    `gbnf.compiler.any_order`), or in declared order only. With `bounded_digits`, numbers have at most the
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
