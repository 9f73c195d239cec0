"""The kinds of field in an output contract: how each one is requested, spelled and parsed.

Parsing is lenient about the text around an answer (a label, bold type, `1)` or `1 - why`), and strict about
the answer itself: a number out of its range, or two numbers, are an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from gbnf.calls.parsing.tool_names import fold
from gbnf.compiler.decimals import DigitLimits, decimal_expr, integer_expr
from gbnf.compiler.literals import factor_prefixes
from gbnf.compiler.repetitions import bounded_repetition, separated_repetition
from gbnf.compiler.rules import Scope
from gbnf.contracts.line_text import is_line, line_rule
from gbnf.errors import GbnfError, InvalidArgumentError, clip
from gbnf.grammar.ir import Expr, literal, optional, seq

OutOfRange: TypeAlias = Literal["refuse", "clamp"]


class FieldError(GbnfError):
    """A line without a valid value of its field; the message says why. Handled by `Contract.parse`."""


@dataclass(frozen=True, slots=True)
class PickField:
    """The number of one item of a list, from `low` to `high`."""

    low: int
    high: int

    def placeholder_lines(self, name: str, language: str) -> tuple[str, ...]:
        """Return the lines of the prompt that ask for this field."""
        return (f"<{name}: {_FROM_TO[language].format(self.low, self.high)}>",)

    def expr(self, _scope: Scope) -> Expr:
        """Return the expression of the field's lines."""
        return integer_expr(self.low, self.high)

    def render(self, value: Any) -> tuple[str, ...]:
        """Return the lines with this value. Raises InvalidArgumentError."""
        if value not in range(self.low, self.high + 1):
            raise _unspelled(value, f"a whole number from {self.low} to {self.high}")
        return (str(int(value)),)

    def read(self, line: str, notes: list[str]) -> int:
        """Return the number of `1`, `1.`, `1)`, `1 - my pick`, `#1` or `Option 1`. Raises FieldError."""
        found = _PICK.fullmatch(line.strip("_"))
        if found is None:
            raise FieldError(f"{clip(line, 60)!r} does not begin with a number")
        number = int(found["number"])
        if not self.low <= number <= self.high:
            raise FieldError(f"{number} is not from {self.low} to {self.high}")
        if found["rest"]:
            notes.append(f"left out {clip(found['rest'], 60)!r} after the number")
        return number


@dataclass(frozen=True, slots=True)
class TextField:
    """One line of text, or with `rest` all remaining lines. `limit`: characters per line in the grammar.

    Raises InvalidArgumentError for a limit that is too large for a grammar.
    """

    rest: bool = False
    limit: int = 400

    def __post_init__(self) -> None:
        _check_limit(self.limit)

    def placeholder_lines(self, name: str, _language: str) -> tuple[str, ...]:
        """Return the lines of the prompt that ask for this field."""
        return (f"<{name}>",)

    def expr(self, scope: Scope) -> Expr:
        """Return the expression of the field's lines."""
        line = line_rule(self.limit, scope)
        if not self.rest:
            return line
        return seq(line, bounded_repetition(seq(literal("\n"), optional(line)), 0, _MOST_LINES, scope).expr)

    def render(self, value: Any) -> tuple[str, ...]:
        """Return the lines with this value. Raises InvalidArgumentError."""
        rendered = tuple(value.split("\n")) if self.rest else (value,)
        if len(rendered) > _MOST_LINES + 1:
            raise _unspelled(f"a text of {len(rendered)} lines", f"one of at most {_MOST_LINES + 1}")
        # of the rest, lines may be empty, but for the first
        return _checked(rendered, self.limit, [line for at, line in enumerate(rendered) if line or not at])

    def read(self, line: str, notes: list[str]) -> str:
        """Return the line as it is."""
        del notes
        return line


@dataclass(frozen=True, slots=True)
class NumberField:
    """A number from `minimum` to `maximum`, an integer if `whole`, else with up to `decimals` decimals.

    `out_of_range="clamp"` moves others to the nearest bound. Raises InvalidArgumentError for an empty range.
    """

    minimum: float
    maximum: float
    out_of_range: OutOfRange = "refuse"
    whole: bool = False
    decimals: int = 6

    def __post_init__(self) -> None:
        low, high = self.minimum, self.maximum
        if high < low or (self.whole and (low != int(low) or high != int(high))):
            raise InvalidArgumentError(f"number({low}, {high}): the bounds are inverted, or no integers")
        if not 1 <= self.decimals <= _MOST_DECIMALS or self.out_of_range not in ("refuse", "clamp"):
            raise InvalidArgumentError(
                f"decimals={self.decimals} is not from 1 to {_MOST_DECIMALS}, "
                f"or out_of_range={self.out_of_range!r} is unknown"
            )

    def placeholder_lines(self, name: str, language: str) -> tuple[str, ...]:
        """Return the lines of the prompt that ask for this field."""
        return (f"<{name}: {_FROM_TO[language].format(self.minimum, self.maximum)}>",)

    def expr(self, _scope: Scope) -> Expr:
        """Return the expression of the field's lines."""
        if self.whole:
            return integer_expr(int(self.minimum), int(self.maximum))
        low, high = Fraction(str(self.minimum)), Fraction(str(self.maximum))
        return decimal_expr(low, high, DigitLimits(None, None, self.decimals, self.decimals))

    def render(self, value: Any) -> tuple[str, ...]:
        """Return the lines with this value. Raises InvalidArgumentError."""
        wanted = f"a {'whole ' * self.whole}number from {self.minimum} to {self.maximum}"
        if not self.minimum <= value <= self.maximum or (self.whole and value != int(value)):
            raise _unspelled(value, wanted)
        rendered = (
            str(int(value)) if value == int(value) else f"{value:.{self.decimals}f}".rstrip("0").rstrip(".")
        )
        rendered = rendered if Fraction(rendered) else "0"
        if not Fraction(str(self.minimum)) <= Fraction(rendered) <= Fraction(str(self.maximum)):
            raise _unspelled(value, f"{wanted} with {self.decimals} decimals")
        return (rendered,)

    def read(self, line: str, notes: list[str]) -> float:
        """Return the only number of a line: `4`, `4.5`, `4,5`, `1,000`, `about 4 km`. Raises FieldError."""
        found = _NUMBER.fullmatch(line)
        if found is None:
            raise FieldError(f"{clip(line, 60)!r} does not contain exactly one number")
        if found["before"].strip() or found["after"].strip(" ."):
            notes.append(f"left out the text around {found['number']!r}")
        number = _number("-" * bool(found["sign"]) + found["number"], notes)
        if self.whole and number != int(number):
            raise FieldError(f"{number} is no whole number")
        inside = min(max(number, self.minimum), self.maximum)
        if inside != number:
            if self.out_of_range == "refuse":
                raise FieldError(f"{number} is not from {self.minimum} to {self.maximum}")
            notes.append(f"moved {number} to {inside}")
        return int(inside) if self.whole else inside


@dataclass(frozen=True, slots=True)
class ChoiceField:
    """One of several words or phrases."""

    options: tuple[str, ...]

    def placeholder_lines(self, name: str, language: str) -> tuple[str, ...]:
        """Return the lines of the prompt that ask for this field."""
        return (f"<{name}: {_ONE_OF[language]} {', '.join(self.options)}>",)

    def expr(self, _scope: Scope) -> Expr:
        """Return the expression of the field's lines."""
        return factor_prefixes([literal(option) for option in self.options])

    def render(self, value: Any) -> tuple[str, ...]:
        """Return the lines with this value. Raises InvalidArgumentError."""
        if value not in self.options:
            raise _unspelled(value, f"one of {', '.join(self.options)}")
        return (value,)

    def has(self, line: str) -> bool:
        """Return whether a line is an option, ignoring case."""
        return line.casefold() in {option.casefold() for option in self.options}

    def read(self, line: str, notes: list[str]) -> str:
        """Return the option of a line, which may add quotes, a full stop or a reason. Raises FieldError."""
        if line in self.options:
            return line
        for part in (line, _CLAUSE_END.split(line, maxsplit=1)[0]):
            found = [option for option in self.options if _same(option, part)]
            if len(found) == 1:
                if part != found[0]:
                    notes.append(f"took {clip(part, 60)!r} for {found[0]!r}")
                if part != line:
                    notes.append(f"left out {clip(line[len(part) :], 60)!r}")
                return found[0]
        raise FieldError(f"{clip(line, 60)!r} is none of {', '.join(self.options)}")


@dataclass(frozen=True, slots=True)
class LinesField:
    """`count` lines of text. `limit`: characters per line in the grammar.

    Raises InvalidArgumentError for none or too many.
    """

    count: int
    limit: int = 400

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST_LINES:
            raise InvalidArgumentError(f"lines({self.count}): give 1 to {_MOST_LINES}")
        _check_limit(self.limit)

    def placeholder_lines(self, name: str, _language: str) -> tuple[str, ...]:
        """Return the lines of the prompt that ask for this field."""
        return tuple(f"<{name} {number}>" for number in range(1, self.count + 1))

    def expr(self, scope: Scope) -> Expr:
        """Return the expression of the field's lines."""
        return separated_repetition(
            line_rule(self.limit, scope), literal("\n"), self.count, self.count, scope
        ).expr

    def render(self, value: Any) -> tuple[str, ...]:
        """Return the lines with this value. Raises InvalidArgumentError."""
        rendered = tuple(value)
        if len(rendered) != self.count:
            raise _unspelled(value, f"{self.count} lines")
        return _checked(rendered, self.limit, rendered)

    def read(self, line: str, notes: list[str]) -> str:
        """Return the line as it is."""
        del notes
        return line


Field: TypeAlias = PickField | TextField | NumberField | ChoiceField | LinesField
"""A field of a contract: one line, or several of them."""

_FROM_TO = {"en": "a number from {} to {}", "it": "un numero da {} a {}"}
_ONE_OF = {"en": "one of", "it": "uno tra"}
_MOST_LINES = 40
_MOST_DECIMALS = 12
_LONGEST_LINE = 1000

_PICK = re.compile(
    r"(?:(?:option|answer|pick|choice|number|opzione|risposta|scelta|numero)\s*[:#]?\s*|#\s*)?"
    r"(?P<number>\d{1,9})(?:\s*[.):–—-]+(?:\s+(?P<rest>\D.*))?)?",
    re.IGNORECASE | re.ASCII,
)
#: A minus sign may be typographic; a dash before a space is none.
_NUMBER = re.compile(
    r"(?P<before>(?:[^\d\u2212\u2013-]|\u2013(?!\d)){0,40}?)(?P<sign>(?:[\u2013-]|\u2212[ \t]?)?)"
    r"(?P<number>\d{1,30}(?:[.,]\d{1,30})*)(?P<after>\D{0,40})",
    re.ASCII,
)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d{1,2}")
_CLAUSE_END = re.compile(r"\s+[-–—(]|\s*[,;:–—]\s|\.\s")


text = TextField
number = NumberField
lines = LinesField


def pick(low: int, high: int | None = None) -> PickField:
    """Declare a number from 1 to `low`, or from `low` to `high`.

    Raises InvalidArgumentError for an empty range.
    """
    first, last = (1, low) if high is None else (low, high)
    if first < 0 or last < first:
        raise InvalidArgumentError(f"pick({first}, {last}): the range is empty; give 1 or more")
    return PickField(first, last)


def choice(options: Sequence[str]) -> ChoiceField:
    """Declare one of `options`.

    Raises InvalidArgumentError if there is none, one has no letter or digit, or two are alike.
    """
    given = tuple(options)
    folded = [fold(option) for option in given]
    if not given or not all(folded) or len(set(folded)) < len(folded):
        raise InvalidArgumentError(
            f"choice({list(given)!r}): give options with letters, each once whatever its case"
        )
    if any(option != option.strip() or not option.isprintable() or option[0] in "<`*" for option in given):
        raise InvalidArgumentError(
            f"choice({list(given)!r}): an option is one line, and begins with a letter or digit"
        )
    return ChoiceField(given)


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _LONGEST_LINE:
        raise InvalidArgumentError(f"limit={limit} is not from 1 to {_LONGEST_LINE}")


def _unspelled(value: Any, wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{clip(str(value), 60)!r} cannot be rendered: it must be {wanted}")


def _checked(rendered: tuple[str, ...], limit: int, full: Sequence[str]) -> tuple[str, ...]:
    """Return the lines. Raises InvalidArgumentError if one of `full` is not in the grammar."""
    for line in full:
        if not is_line(line, limit):
            raise _unspelled(
                line,
                f"a line of at most {limit} characters that begins like no list, quotation or markup, "
                "and contains no tag",
            )
    return rendered


def _number(digits: str, notes: list[str]) -> float:
    """Return the number of digits with points and commas. Raises FieldError if they may be two numbers."""
    plain = digits
    if _THOUSANDS.fullmatch(digits.removeprefix("-")):
        plain = digits.replace(",", "")
    elif _DECIMAL_COMMA.fullmatch(digits):
        plain = digits.replace(",", ".")
    if plain != digits:
        notes.append(f"took {digits!r} for {plain}")
    try:
        return float(plain) if "." in plain else int(plain)
    except ValueError:
        raise FieldError(f"{digits!r} is no number") from None


def _same(option: str, text: str) -> bool:
    return option.casefold() == text.strip(" \t.!?\"'“”*_`").casefold() or fold(option) == fold(text)
